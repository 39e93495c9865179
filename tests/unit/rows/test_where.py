"""A condition says the same of partitions, of rows and of files, whatever the types and literals."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.log.comparisons import FALSE, NULL, TRUE
from airflow_provider_onelake.log.predicates import condition_of, parse_expression
from airflow_provider_onelake.log.schema import Column
from airflow_provider_onelake.rows.arrow import arrow_type
from airflow_provider_onelake.rows.bounds import Bounds, bounds_of
from airflow_provider_onelake.rows.where import Where

EPOCH = datetime(1970, 1, 1, tzinfo=UTC).replace(tzinfo=None)
BITS = {True: TRUE, False: FALSE, None: NULL}
MOMENTS = st.integers(-3_000_000, 3_000_000).map(lambda micros: EPOCH + timedelta(microseconds=micros))
DOUBLES = st.sampled_from([0.0, -0.0, 0.1, 0.7, 1.5, -1.5, 1e300, math.inf, -math.inf, math.nan])
SINGLES = DOUBLES.map(lambda number: pa.scalar(number, pa.float32()).as_py())
DECIMALS = st.integers(-99_999, 99_999).map(lambda number: Decimal(number).scaleb(-2))
LARGE = st.integers(-(10**30), 10**30).map(lambda number: Decimal((number < 0, tuple(map(int, str(abs(number)))), -4)))
TEXTS = st.text("ab\ud7ff\uffff\U0001f600", max_size=40)

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-128, 127),
    "integer": st.integers(-5, 5) | st.integers(-(1 << 31), (1 << 31) - 1),
    "long": st.integers(-5, 5) | st.integers(-(1 << 63), (1 << 63) - 1),
    "float": SINGLES,
    "double": DOUBLES,
    "decimal(5,2)": DECIMALS,
    "decimal(38,4)": LARGE,
    "string": TEXTS,
    "boolean": st.booleans(),
    "date": st.dates(date(1969, 12, 28), date(1970, 1, 4)),
    "timestamp": MOMENTS.map(lambda moment: moment.replace(tzinfo=UTC)),
    "timestamp_ntz": MOMENTS,
    "binary": st.binary(max_size=2),
}
NUMBERS = st.one_of(
    st.integers(-6, 6).map(str),
    st.integers(-(1 << 64), 1 << 64).map(str),
    DECIMALS.map(str),
    DOUBLES.filter(lambda number: abs(number) < 1e300).map(lambda number: f"{number!r}e0"),
    st.sampled_from(["'NaN'", "'1'", "0.7F", "128", "-129"]),
)
TIMES = st.one_of(
    VALUES["date"].map(lambda day: f"DATE '{day}'"),
    MOMENTS.map(lambda moment: f"TIMESTAMP '{moment}'"),
    MOMENTS.map(lambda moment: f"TIMESTAMP_NTZ '{moment}'"),
    VALUES["date"].map(lambda day: f"'{day}'"),
)


def literals(kind: str) -> st.SearchStrategy[str]:
    if kind == "string":
        return TEXTS.map(lambda text: f"'{text}'")
    if kind == "boolean":
        return st.sampled_from(["true", "false", "'true'"])
    if kind == "binary":
        return VALUES["binary"].map(lambda value: f"X'{value.hex()}'")
    return TIMES if kind in ("date", "timestamp", "timestamp_ntz") else NUMBERS


def conditions(kind: str) -> st.SearchStrategy[str]:
    literal = literals(kind) | st.just("NULL")
    signs = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "!=", "=="])
    leaves = st.one_of(
        st.builds("{} {} {}".format, st.just("c"), signs, literal),
        st.builds("{} {} {}".format, literal, signs, st.just("C")),
        st.lists(literal, min_size=1, max_size=3).map(lambda items: f"c IN ({', '.join(items)})"),
        st.builds("c BETWEEN {} AND {}".format, literal, literal),
        st.sampled_from(["c IS NULL", "c IS NOT NULL", "true", "false"]),
    )
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            inner.map("NOT ({})".format),
            st.builds("({}) AND ({})".format, inner, inner),
            st.builds("({}) OR ({})".format, inner, inner),
        ),
        max_leaves=4,
    )


def parsed(text: str, kind: str) -> Where:
    try:
        return Where.parse(text, {"c": kind}, frozenset())
    except InvalidReadError:
        assume(False)
        raise


def statistics(kind: str, values: list[Any]) -> str:
    """What an engine writes: cut times and texts, floats with few digits, large decimals as doubles, nothing of NaN."""
    there = [value for value in values if value is not None]
    ordered = [value for value in there if value == value]
    said: dict[str, Any] = {"numRecords": len(values), "nullCount": {"c": len(values) - len(there)}}
    if ordered and kind not in ("boolean", "binary"):
        low, high = min(ordered), max(ordered)
        said |= {"minValues": {"c": spelled(kind, low)}, "maxValues": {"c": spelled(kind, high)}}
        if kind == "string" and len(high) > 32:
            said["maxValues"]["c"] = high[:32] + "\U0010ffff"
    return json.dumps(said)


@pytest.mark.parametrize(
    "end", ["\ufffd", "?\ufffd", "\ud83d\ufffd"], ids=["whole", "cut in two", "cut in two, escaped"]
)
def test_no_text_is_lost_to_the_upper_bounds_of_earlier_deltas(end: str) -> None:
    # They end what they cut by U+FFFD, which is less than characters beyond the basic plane, and count in UTF-16.
    cut = "b" * (32 if len(end) == 1 else 31)
    add: Any = {
        "path": "a",
        "stats": json.dumps({"numRecords": 1, "minValues": {"c": cut}, "maxValues": {"c": f"{cut}{end}"}}),
    }
    (bounds,) = bounds_of(add, {0: Column("c", "string", True, {})}).values()
    value = f"{cut}\U0001f600"
    assert parsed(f"c = '{value}'", "string").outcomes([bounds]) & TRUE
    assert not parsed("c > 'c'", "string").outcomes([bounds]) & TRUE


def spelled(kind: str, value: Any) -> Any:
    if kind == "string":
        return value[:32]
    if kind == "float" and abs(value) < math.inf:
        return float(pa.array([value], pa.float32()).cast(pa.string())[0].as_py())
    if kind.startswith("decimal"):
        return float(value)
    if kind.startswith("timestamp"):
        millis = value.replace(microsecond=value.microsecond // 1000 * 1000).isoformat(timespec="milliseconds")
        return millis.replace("+00:00", "Z")
    return str(value) if kind == "date" else value


@pytest.mark.parametrize("kind", VALUES)
@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_partitions_rows_and_files_agree(kind: str, data: st.DataObject) -> None:
    text = data.draw(conditions(kind))
    values = data.draw(st.lists(VALUES[kind] | st.none(), min_size=1, max_size=5))
    where = parsed(text, kind)
    of_partition = condition_of(parse_expression(text, {"c": kind}, "column"))
    expected = [of_partition((value,)) for value in values]
    array = pa.array(values, arrow_type(kind))
    assert [BITS[found] for found in where.holds({"c": array}, len(values)).to_pylist()] == expected, text
    add: Any = {"path": "a", "stats": statistics(kind, values)}
    bounds = bounds_of(add, {0: Column("c", kind, True, {})})[0]
    possible = where.outcomes([bounds])
    assert all(outcome & possible for outcome in expected), (text, bounds)


@pytest.mark.parametrize(
    ("kind", "values", "text"),
    [
        pytest.param("double", [1.0, math.nan], "c > 1.5e0", id="NaN is greater"),
        pytest.param("double", [math.inf], "c > 1.5e0", id="infinity"),
        pytest.param("float", [pa.scalar(0.7, pa.float32()).as_py()], "c < 0.7e0", id="a single is spelled shortly"),
        pytest.param("decimal(38,4)", [Decimal("12345678901234567890123.4567")], "c = 12345678901234567890123.4567", id="a decimal as a double"),
        pytest.param("timestamp", [EPOCH.replace(microsecond=999, tzinfo=UTC)], "c > TIMESTAMP '1970-01-01'", id="cut to milliseconds"),
        pytest.param("timestamp_ntz", [EPOCH.replace(microsecond=1)], "c > TIMESTAMP_NTZ '1970-01-01'", id="the same without a zone"),
        pytest.param("string", ["b" * 40], f"c > '{'b' * 32}'", id="a text that is cut"),
        pytest.param("string", ["b" * 40], f"c <= '{'b' * 40}'", id="a text that is cut, from below"),
    ],
)  # fmt: skip
def test_no_row_is_lost_to_what_statistics_leave_out(kind: str, values: list[Any], text: str) -> None:
    add: Any = {"path": "a", "stats": statistics(kind, values)}
    (bounds,) = bounds_of(add, {0: Column("c", kind, True, {})}).values()
    assert parsed(text, kind).outcomes([bounds]) & TRUE


@pytest.mark.parametrize(
    ("kind", "text", "bounds", "possible"),
    [
        pytest.param("long", "c > 9", Bounds(0, 9), NULL | FALSE, id="above all"),
        pytest.param("long", "c > 9", Bounds(0, 9, nulls=False), FALSE, id="without NULL"),
        pytest.param("long", "c <= 9", Bounds(0, 9, nulls=False), TRUE, id="all rows"),
        pytest.param("long", "c <> 3", Bounds(3, 3, nulls=False), FALSE, id="one value"),
        pytest.param("long", "NOT c IN (3, 4)", Bounds(3, 3, nulls=False), FALSE, id="one of a list"),
        pytest.param("long", "c IN (3, NULL)", Bounds(5, 6, nulls=False), NULL, id="none of a list with NULL"),
        pytest.param("long", "c IS NULL", Bounds(5, 6, nulls=False), FALSE, id="no NULL"),
        pytest.param("long", "c IS NOT NULL", Bounds(values=False), FALSE, id="NULL only"),
        pytest.param("long", "c <=> 1", Bounds(values=False), FALSE, id="NULL only, null-safe"),
        pytest.param("long", "c = 1 OR c = 7", Bounds(5, 6, nulls=False), FALSE, id="neither"),
        pytest.param("date", "c < DATE '2019-02-01'", Bounds(date(2019, 2, 1), None), NULL | FALSE, id="date"),
        pytest.param("double", "c > 5e0", Bounds(0.0, None, nulls=False), TRUE | FALSE, id="NaN may be there"),
        pytest.param("string", "c >= 'b'", Bounds("a", "az", nulls=False), FALSE, id="text"),
    ],
)
def test_what_bounds_leave_possible(kind: str, text: str, bounds: Bounds, possible: int) -> None:
    assert Where.parse(text, {"c": kind}, frozenset()).outcomes([bounds]) == possible


def test_partition_values_and_bounds_stand_beside_each_other() -> None:
    where = Where.parse("month = '2019-01' AND id > 5", {"id": "long", "month": "string"}, frozenset({"month"}))
    assert where.names == {"id", "month"}
    assert where.outcomes([Bounds(0, 9), "2019-02"]) == FALSE
    assert where.outcomes([Bounds(0, 5, nulls=False), "2019-01"]) == FALSE
    assert where.outcomes([Bounds(6, 9, nulls=False), "2019-01"]) == TRUE


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = 1", "'x' is no column \\(the table's are: id, s\\)"),
        ("s = 1", "write '1' to compare text"),
        ("upper(s) = 'A'", "functions and casts are refused"),
        ("s LIKE 'a%'", "write a range instead"),
        ("st.a = 1", "write the column's name alone"),
        ("id = s", "'s' is no literal"),
        ("", "a literal is missing"),
    ],
)
def test_what_means_nothing_is_refused_with_what_to_write(text: str, message: str) -> None:
    with pytest.raises(InvalidReadError, match=f"{message}.*Nothing was read"):
        Where.parse(
            text, {"id": "long", "s": "string"} | ({"st": {"type": "struct"}} if "st." in text else {}), frozenset()
        )


@pytest.mark.parametrize(
    ("stats", "kind"),
    [
        (None, "long"),
        ("no JSON", "long"),
        ("[]", "long"),
        ('{"minValues": 3, "maxValues": [], "nullCount": {"c": true}}', "long"),
        ('{"minValues": {"c": "3"}, "maxValues": {"c": {"d": 3}}}', "long"),
        ('{"minValues": {"c": 1.5}, "maxValues": {"c": true}}', "long"),
        ('{"minValues": {"c": "noon"}, "maxValues": {"c": 3}}', "timestamp"),
        ('{"minValues": {"c": "2019-01-31T12:00:00"}, "maxValues": {"c": "2019-01-31 12:00:00"}}', "timestamp"),
        ('{"minValues": {"c": "NaN"}, "maxValues": {"c": "Infinity"}}', "double"),
        ('{"minValues": {"c": 1e999}, "maxValues": {"c": 1}}', "float"),
        ('{"minValues": {"c": 1}, "maxValues": {"c": 1}}', "binary"),
        ('{"minValues": {"c": 1}, "maxValues": {"c": 1}}', "string"),
        ('{"minValues": {"c": 1}, "maxValues": {"c": 1}}', {"type": "struct", "fields": []}),
    ],
)
def test_statistics_that_cannot_be_read_say_nothing(stats: str | None, kind: Any) -> None:
    add: Any = {"path": "a", **({} if stats is None else {"stats": stats})}
    assert bounds_of(add, {7: Column("c", kind, True, {})}) == {7: Bounds()}
