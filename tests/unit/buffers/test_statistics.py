"""Statistics from footers: which columns have them, and bounds that hold whatever the values are."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.buffers.statistics import (
    INDEXED_COLUMNS,
    Leaf,
    completed,
    indexed_columns,
    indexed_leaves,
    statistics,
)
from tests.support.schemas import field as column
from tests.support.schemas import struct as struct_of

PARQUET_MR = "parquet-mr version 1.17.0 (build 0)"
NONE = {"Type": "None"}


def metadata(*fields: dict[str, Any], partitioned_by: Sequence[str] = (), **configuration: str) -> Any:
    return {
        "id": "t",
        "schemaString": json.dumps(struct_of(*fields)),
        "partitionColumns": list(partitioned_by),
        "configuration": {f"delta.{name}": value for name, value in configuration.items()},
    }


ARRAY = {"type": "array", "elementType": "long", "containsNull": True}


def test_the_first_32_leaves_are_indexed_depth_first_without_partition_columns() -> None:
    table = metadata(
        column("month", "string"),
        column("s", struct_of(column("a"), column("deep", struct_of(column("b", "string"))))),
        *(column(f"c{number}") for number in range(40)),
        partitioned_by=["month"],
    )
    assert indexed_columns(table) == 32
    leaves = indexed_leaves(table, 32)
    assert leaves is not None
    assert leaves[:3] == [Leaf(("s", "a"), "long"), Leaf(("s", "deep", "b"), "string"), Leaf(("c0",), "long")]
    assert len(leaves) == 32


@pytest.mark.parametrize(("number", "expected"), [("-1", 40), ("3", 3), ("50", 40)])
def test_the_property_says_how_many(number: str, expected: int) -> None:
    table = metadata(*(column(f"c{number}") for number in range(40)), dataSkippingNumIndexedCols=number)
    assert indexed_columns(table) == int(number)
    assert len(indexed_leaves(table, int(number)) or ()) == expected


def test_under_column_mapping_columns_have_their_physical_names() -> None:
    mapped = {"delta.columnMapping.physicalName": "col-1"}
    nested = column("s", struct_of(column("a", "date", **{"delta.columnMapping.physicalName": "col-2"})), **mapped)
    assert indexed_leaves(metadata(nested, **{"columnMapping.mode": "name"}), -1) == [Leaf(("col-1", "col-2"), "date")]
    assert indexed_leaves(metadata(nested), -1) == [Leaf(("s", "a"), "date")]


@pytest.mark.parametrize(
    "field",
    [
        column("x", ARRAY),
        column("x", {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True}),
        column("x", "variant"),
        column("x", "void"),
        column("x", "interval day to second"),
        column("x", "string", __COLLATIONS={"x": "spark.UTF8_LCASE"}),
        column("x", "long", **{"delta.typeChanges": [{"fromType": "integer", "toType": "long"}]}),
        column("x", struct_of(column("a"), column("b", ARRAY))),
        column("x", struct_of(column("a")), __COLLATIONS={"x": "spark.UTF8_LCASE"}),
    ],
)
def test_delta_writes_the_statistics_where_an_indexed_column_is_special(field: dict[str, Any]) -> None:
    assert indexed_columns(metadata(column("id"), field)) is None
    assert indexed_columns(metadata(column("id"), field, dataSkippingNumIndexedCols="1")) == 1


@pytest.mark.parametrize(
    "configuration",
    [
        {"dataSkippingStatsColumns": "id"},
        {"dataSkippingNumIndexedCols": "many"},
        {"dataSkippingNumIndexedCols": "-2"},
        {"dataSkippingNumIndexedCols": "0"},
    ],
)
def test_delta_has_its_own_way_under_other_properties(configuration: dict[str, str]) -> None:
    assert INDEXED_COLUMNS == "delta.dataSkippingNumIndexedCols"
    assert indexed_columns(metadata(column("id"), **configuration)) is None


def chunk(low: Any = None, high: Any = None, nulls: int | None = 0, values: int = 3) -> Any:
    said = SimpleNamespace(
        has_min_max=low is not None, min_raw=low, max_raw=high, has_null_count=nulls is not None, null_count=nulls
    )
    return SimpleNamespace(statistics=said, num_values=values)


def hand_made(
    physical: str,
    logical: dict[str, Any],
    *chunks: Any,
    paths: Sequence[str] = ("x",),
    created_by: str = PARQUET_MR,
    marks: dict[bytes, bytes] | None = None,
    repeated: int = 0,
) -> Any:
    """The footer of a file whose columns are all alike; each chunk has three rows."""
    kind = SimpleNamespace(to_json=lambda: json.dumps(logical))
    columns = [
        SimpleNamespace(path=path, physical_type=physical, logical_type=kind, max_repetition_level=repeated)
        for path in paths
    ]
    groups = [SimpleNamespace(num_rows=3, column=lambda number, one=one: one) for one in chunks]
    return SimpleNamespace(
        schema=SimpleNamespace(column=columns.__getitem__),
        num_columns=len(columns),
        num_row_groups=len(groups),
        row_group=groups.__getitem__,
        num_rows=3 * len(groups),
        created_by=created_by,
        metadata=marks,
    )


def said(footer: Any, kind: str, *path: str) -> tuple[Any, Any, Any]:
    path = path or ("x",)
    found = statistics(footer, [Leaf(path, kind)])
    values = []
    for part in ("minValues", "maxValues", "nullCount"):
        value: Any = found[part]
        for name in path:
            value = value.get(name) if value is not None else None
        values.append(value)
    return values[0], values[1], values[2]


def instants(unit: str = "microseconds", utc: bool = True) -> dict[str, Any]:
    return {"Type": "Timestamp", "isAdjustedToUTC": utc, "timeUnit": unit}


def text(low: str, high: str | None = None) -> Any:
    return chunk(low.encode(), (low if high is None else high).encode())


TEXT, DAY = {"Type": "String"}, {"Type": "Date"}
FORMS: dict[str, tuple[str, dict[str, Any]]] = {
    "long": ("INT64", NONE),
    "double": ("DOUBLE", NONE),
    "date": ("INT32", DAY),
    "timestamp": ("INT64", instants()),
    "timestamp_ntz": ("INT64", instants(utc=False)),
    "string": ("BYTE_ARRAY", TEXT),
}
SILENT = SimpleNamespace(statistics=None, num_values=3)
LAST = round((datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC) - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds())
LONG, MOST = "é" + "x" * 30 + "\U0001f600", "\U0010ffff"


@pytest.mark.parametrize(
    ("kind", "chunks", "expected"),
    [
        pytest.param("long", [chunk(3, 5), chunk(-2, 4, 1)], (-2, 5, 1), id="of all chunks"),
        pytest.param("long", [chunk(3, 5), chunk(nulls=3)], (3, 5, 3), id="a chunk of nulls needs none"),
        pytest.param("long", [chunk(nulls=3)], (None, None, 3), id="nulls alone have none"),
        pytest.param("long", [chunk(3, 5), chunk(nulls=2)], (None, None, 2), id="a chunk with values has none"),
        pytest.param("long", [chunk(3, 5), SILENT], (None, None, None), id="a chunk without statistics"),
        pytest.param("long", [chunk(3, 5), chunk(3, 5, None)], (None, None, None), id="a chunk without null count"),
        pytest.param("long", [chunk(3, 5, values=4)], (None, None, None), id="more values than rows"),
        pytest.param("long", [chunk(5, 3)], (None, None, 0), id="they contradict each other"),
        pytest.param("long", [chunk(3, 2), chunk(1, 5)], (None, None, 0), id="those of one chunk do"),
        # Some writers set one bound alone, and the other one reads as an empty text.
        pytest.param("string", [chunk(b"a", b""), text("a", "c")], (None, None, 0), id="one bound alone"),
        pytest.param("string", [chunk(b"", b"")], (None, None, 0), id="one bound alone, of an empty text"),
        pytest.param("double", [chunk(0.0, 1.0), chunk(-0.0, 1.0)], (None, 1.0, 0), id="the negative zero below"),
        pytest.param("double", [chunk(-1.0, -0.0)], (-1.0, None, 0), id="the negative zero above"),
        pytest.param("double", [chunk(-1.0, -0.0), chunk(-1.0, 0.0)], (-1.0, 0.0, 0), id="both zeros"),
        pytest.param("date", [chunk(-719162, 2932896)], ("0001-01-01", "9999-12-31", 0), id="all years of Delta"),
        pytest.param("date", [chunk(-719163, 2932897)], (None, None, 0), id="outside of these years"),
        pytest.param(
            "timestamp", [chunk(-1, 1)], ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.001Z", 0), id="widened"
        ),
        pytest.param(
            "timestamp_ntz", [chunk(-1000, 2000)], ("1969-12-31T23:59:59.999", "1970-01-01T00:00:00.002", 0), id="ntz"
        ),
        pytest.param(
            "timestamp", [chunk(0, LAST * 10**6 + 999_999)], ("1970-01-01T00:00:00.000Z", None, 0), id="year 10000"
        ),
        pytest.param("string", [text("x" * 32 + MOST)], ("x" * 32, None, 0), id="nothing is above"),
        pytest.param("string", [text("x" * 32)], ("x" * 32, "x" * 32, 0), id="32 characters are not cut"),
        pytest.param("string", [chunk(b"a", b"\xff")], ("a", None, 0), id="one is no text"),
        pytest.param("string", [chunk(b"\x80", b"\xff")], (None, None, 0), id="bytes that are no text"),
        *(
            pytest.param(
                "string", [text(LONG + cut, LONG + cut + "z")], (LONG, LONG + last, 0), id=f"cut before {cut!r}"
            )
            for cut, last in (("a", "\x7f"), ("~", "\x7f"), ("\x7f", MOST), ("é", MOST), ("\U0010fffe", MOST))
        ),
    ],
)
def test_bounds(kind: str, chunks: list[Any], expected: tuple[Any, Any, int | None]) -> None:
    assert said(hand_made(*FORMS[kind], *chunks), kind) == expected


def test_instants_of_whole_milliseconds_are_as_they_are() -> None:
    footer = hand_made("INT64", instants("milliseconds"), chunk(-1, 1))
    assert said(footer, "timestamp") == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.001Z", 0)


def test_a_repeated_column_has_no_statistics() -> None:
    assert said(hand_made("INT64", NONE, chunk(3, 5), repeated=1), "long") == (None, None, None)


def test_a_path_that_two_columns_share_has_no_statistics() -> None:
    twice = hand_made("INT64", NONE, chunk(3, 5), paths=("a.b", "a.b"))
    assert said(twice, "long", "a.b") == (None, None, None)
    assert said(twice, "long", "a", "b") == (None, None, None)
    once = hand_made("INT64", NONE, chunk(3, 5), paths=("a.b",))
    assert said(once, "long", "a.b") == (3, 5, 0)
    both = statistics(once, [Leaf(("a.b",), "long"), Leaf(("a", "b"), "long")])
    assert not any(both.values())


@pytest.mark.parametrize("kind", ["float", "double"])
def test_nan_and_infinity_are_no_bounds(kind: str) -> None:
    nan, infinity = math.nan, math.inf

    def of(*chunks: Any) -> tuple[Any, Any, Any]:
        return said(hand_made(kind.upper(), NONE, *chunks), kind)

    assert of(chunk(1.5, 2.5), chunk(0.5, nan)) == (0.5, None, 0)
    assert of(chunk(0.5, nan), chunk(1.5, 2.5)) == (0.5, None, 0)
    assert of(chunk(nan, nan)) == (None, None, 0)
    assert of(chunk(nan, nan), chunk(1.5, 2.5)) == (1.5, None, 0)
    assert of(chunk(-infinity, 1.5)) == (None, 1.5, 0)
    assert of(chunk(1.5, infinity)) == (1.5, None, 0)


@pytest.mark.parametrize(
    ("writer", "trusted"),
    [
        ("parquet-mr version 1.10.1 (build a89)", True),
        (PARQUET_MR, True),
        ("parquet-mr version 1.9.0 (build a89)", False),
        ("parquet-mr version 1.18.0 (build a89)", False),
        ("parquet-mr version 2.0.0 (build a89)", False),
        ("parquet-cpp-velox version 1.17.0", False),
        (None, False),
    ],
)
def test_numbers_have_bounds_only_where_the_writer_counts_nan_as_the_greatest(writer: str, trusted: bool) -> None:
    footer = hand_made("DOUBLE", NONE, chunk(1.5, 2.5), created_by=writer)
    assert said(footer, "double") == ((1.5, 2.5, 0) if trusted else (None, None, 0))
    assert said(hand_made("INT32", NONE, chunk(1, 2), created_by=writer), "integer") == (1, 2, 0)


@pytest.mark.parametrize("mark", [b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96"])
def test_days_and_instants_of_another_calendar_are_left_out(mark: bytes) -> None:
    assert said(hand_made("INT32", DAY, chunk(1, 2), marks={mark: b""}), "date") == (None, None, 0)
    assert said(hand_made("INT64", instants(), chunk(1, 2), marks={mark: b""}), "timestamp") == (None, None, 0)
    assert said(hand_made("INT64", NONE, chunk(1, 2), marks={mark: b""}), "long") == (1, 2, 0)


def decimals(precision: int, scale: int) -> dict[str, Any]:
    return {"Type": "Decimal", "precision": precision, "scale": scale}


def test_decimals_keep_their_scale() -> None:
    found = said(hand_made("INT32", decimals(5, 2), chunk(-5, 150)), "decimal(5,2)")
    assert found == (Decimal("-0.05"), Decimal("1.50"), 0)
    most = 10**38 - 1
    low, high = (-most).to_bytes(16, "big", signed=True), most.to_bytes(16, "big", signed=True)
    footer = hand_made("FIXED_LEN_BYTE_ARRAY", decimals(38, 10), chunk(low, high))
    text = completed('{"numRecords":3}', footer, [Leaf(("x",), "decimal(38,10)")])
    assert f'"minValues":{{"x":-{"9" * 28}.{"9" * 10}}},"maxValues":{{"x":{"9" * 28}.{"9" * 10}}}' in text


@pytest.mark.parametrize(
    ("physical", "logical", "kind"),
    [
        ("INT64", NONE, "integer"),
        ("INT32", NONE, "long"),
        ("INT32", {"Type": "Int", "bitWidth": 32, "isSigned": False}, "integer"),
        ("INT32", decimals(5, 3), "decimal(5,2)"),
        ("INT32", NONE, "decimal(5,2)"),
        ("FLOAT", NONE, "double"),
        ("INT32", NONE, "date"),
        ("INT96", NONE, "timestamp"),
        ("INT64", NONE, "timestamp"),
        ("INT64", instants(utc=False), "timestamp"),
        ("INT64", instants(utc=True), "timestamp_ntz"),
        ("INT64", instants("nanoseconds"), "timestamp"),
        ("BYTE_ARRAY", NONE, "string"),
        ("BOOLEAN", NONE, "boolean"),
        ("BYTE_ARRAY", NONE, "binary"),
        ("INT64", NONE, "of the future"),
    ],
)
def test_a_column_in_another_form_has_null_counts_alone(physical: str, logical: dict[str, Any], kind: str) -> None:
    assert said(hand_made(physical, logical, chunk(1, 2, 1)), kind) == (None, None, 1)


def test_the_add_keeps_what_spark_said() -> None:
    footer = hand_made("INT64", NONE, chunk(1, 2, 1))
    found = completed('{"numRecords":3,"tightBounds":true,"nullCount":{}}', footer, [Leaf(("x",), "long")])
    bounds = {"minValues": {"x": 1}, "maxValues": {"x": 2}, "nullCount": {"x": 1}}
    assert json.loads(found) == {"numRecords": 3, "tightBounds": True, **bounds}


@pytest.mark.parametrize("stats", ['{"numRecords":4}', "{}", '{"numRecords":3,"minValues":{"x":0}}'])
def test_other_statistics_stay_as_they_are(stats: str) -> None:
    assert completed(stats, hand_made("INT64", NONE, chunk(1, 2)), [Leaf(("x",), "long")]) == stats


def written(kind: pa.DataType, values: list[Any], rows: int, decimals_as_integers: bool) -> pq.FileMetaData:
    """The footer of a real file, but for the name of who wrote it."""
    file = io.BytesIO()
    pq.write_table(
        pa.table({"s": pa.array([{"x": value} for value in values], pa.struct([("x", kind)]))}),
        file,
        row_group_size=rows,
        store_decimal_as_integer=decimals_as_integers,
    )
    name = pq.read_metadata(file).created_by.encode()
    renamed = PARQUET_MR.encode().ljust(len(name))[: len(name)]
    return pq.read_metadata(io.BytesIO(file.getvalue().replace(name, renamed)))


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


def exact(text: str) -> Decimal:
    return Decimal(text)


def whole(text: str) -> int:
    return int(text)


_INSTANTS = st.datetimes(datetime(1000, 1, 1), datetime(9999, 12, 31))  # noqa: DTZ001
_DECIMALS = st.decimals(Decimal("-999.99"), Decimal("999.99"), places=2)
_WIDE = st.integers(-(10**38) + 1, 10**38 - 1).map(lambda n: Decimal((int(n < 0), tuple(map(int, str(abs(n)))), -10)))
_DOUBLES = st.floats(allow_nan=False)
_TEXTS = st.text(max_size=4) | st.builds(
    lambda head, tail: head * 31 + tail, st.sampled_from("aé\U0001f600\U0010ffff"), st.text(max_size=4)
)
KINDS: list[tuple[str, pa.DataType, st.SearchStrategy[Any], Callable[[Any], Any], Any]] = [
    ("byte", pa.int8(), st.integers(-128, 127), whole, 0),
    ("integer", pa.int32(), st.integers(-(2**31), 2**31 - 1), whole, 0),
    ("long", pa.int64(), st.integers(-(2**63), 2**63 - 1), whole, 0),
    ("float", pa.float32(), st.floats(width=32, allow_nan=False), float, 0),
    ("double", pa.float64(), _DOUBLES, float, 0),
    ("decimal(5,2)", pa.decimal128(5, 2), _DECIMALS, exact, 0),
    ("decimal(38,10)", pa.decimal128(38, 10), _WIDE, exact, 0),
    ("date", pa.date32(), st.dates(), date.fromisoformat, timedelta(0)),
    ("timestamp_ntz", pa.timestamp("us"), _INSTANTS, instant, timedelta(milliseconds=1)),
    ("timestamp", pa.timestamp("us", "UTC"), _INSTANTS.map(lambda at: at.replace(tzinfo=UTC)), instant, None),
    ("string", pa.string(), _TEXTS, str, None),
    ("boolean", pa.bool_(), st.booleans(), str, None),
    ("binary", pa.binary(), st.binary(max_size=3), str, None),
]


@pytest.mark.parametrize(("kind", "arrow", "values", "read", "slack"), KINDS, ids=[kind[0] for kind in KINDS])
@settings(deadline=None)
@given(data=st.data())
def test_every_value_is_within_the_bounds_and_nulls_are_counted(
    kind: str, arrow: pa.DataType, values: Any, read: Callable[[Any], Any], slack: Any, data: st.DataObject
) -> None:
    drawn = data.draw(st.lists(st.none() | values, min_size=1, max_size=9))
    footer = written(arrow, drawn, data.draw(st.integers(1, 4)), data.draw(st.booleans()))
    text = completed(json.dumps({"numRecords": len(drawn)}), footer, [Leaf(("s", "x"), kind)])
    # As a reader does: the bound's own digits, and not what a double makes of them.
    found = json.loads(text, parse_float=str, parse_int=str)
    assert found["nullCount"]["s"]["x"] == str(drawn.count(None))
    present = [value for value in drawn if value is not None]
    low, high = (found[part].get("s", {}).get("x") for part in ("minValues", "maxValues"))
    if kind in ("boolean", "binary") or not present:
        assert (low, high) == (None, None)
        return
    key = (lambda value: value.encode()) if kind == "string" else (lambda value: value)
    if low is not None:
        low, least = key(read(low)), min(map(key, present))
        assert low <= least
        assert slack is None or least - low <= slack
    if high is not None:
        high, most = key(read(high)), max(map(key, present))
        assert most <= high
        assert slack is None or high - most <= slack
    if kind not in ("float", "double", "string"):
        assert low is not None
        assert high is not None
