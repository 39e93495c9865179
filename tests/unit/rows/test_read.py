"""What a read returns is what the version holds, whatever the table's features, and skipping never loses a row."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import (
    CorruptLogError,
    InvalidReadError,
    LogGapError,
    ReadRefusedError,
    StoreUnavailableError,
    TableNotFoundError,
    UnsupportedFeatureError,
)
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.read import read_rows
from airflow_provider_onelake.rows.where import Where
from tests.support.data_files import opened, put_file, rows_of, schema_of
from tests.support.stores import PassingOn, through
from tests.support.tables import change_metadata, foreign_append, foreign_commit, landed_at, local_log, make_table
from tests.support.vectors import delete_rows


def test_all_rows_with_their_partitions(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1, 2], None: [3]})
    rows = opened(log).read()
    assert (rows.version, rows.report.files, rows.report.files_read) == (1, 2, 2)
    found = rows.read_all()
    assert found.schema.names == ["id", "month"]
    assert sorted(found.to_pylist(), key=lambda row: row["id"]) == [
        {"id": 1, "month": "2019-01"},
        {"id": 2, "month": "2019-01"},
        {"id": 3, "month": None},
    ]
    assert (rows.report.rows, rows.report.rows_read) == (3, 3)
    assert rows.report.bytes_fetched == rows.report.bytes_read == rows.report.bytes
    assert rows.report.to_json()["files_skipped"] == 0


def test_columns_are_in_the_order_asked_for_and_spelled_as_in_the_table(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1]})
    assert opened(log).read(["MONTH", "id"]).read_all().to_pylist() == [{"month": "2019-01", "id": 1}]
    only = opened(log).read(["month"])
    assert only.read_all().column("month").to_pylist() == ["2019-01"]


def test_anything_that_reads_arrow_streams_takes_the_rows(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1, 2]})
    assert pa.table(opened(log).read(["id"])).to_pydict() == {"id": [1, 2]}
    with opened(log).read(["id"]) as rows:
        assert next(rows).num_rows == 2
    with pytest.raises(StopIteration):
        next(rows)


def test_files_of_other_partitions_are_not_opened(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1], "2019-02": [2], "2019-03": [3]})
    asked: list[str] = []

    class Watching(PassingOn):
        def get_range(self, path: str, start: int, end: int) -> Any:
            asked.append(path)
            return super().get_range(path, start, end)

    rows = read_rows(through(Watching(log.store), log), where="month = '2019-02'")
    assert rows.read_all().column("id").to_pylist() == [2]
    assert {path.partition("/")[0] for path in asked} == {"month=2019-02"}
    report = rows.report
    assert (report.files_skipped_by_partition, report.files_skipped_by_statistics, report.files_read) == (2, 0, 1)
    assert report.bytes_skipped + report.bytes_read == report.bytes
    assert str(report).startswith(f"version 1 of {log.table}: 1 rows from 1 of 3 files")


def test_files_whose_statistics_say_no_are_not_opened(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1, 2], "b": [3, 4]})
    rows = opened(log).read(["month"], "id > 3")
    assert rows.read_all().column("month").to_pylist() == ["b"]
    assert (rows.report.files_skipped_by_partition, rows.report.files_skipped_by_statistics) == (0, 1)
    assert (rows.report.rows_read, rows.report.rows) == (2, 1)


def test_other_columns_are_fetched_only_of_row_groups_with_rows_that_are_wanted(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("text", "string")), ())
    texts = [Random(number).randbytes(500).hex() for number in range(400)]
    rows = pa.table({"id": range(400), "text": texts})
    put_file(log, rows, row_group_size=100)
    none, some = opened(log).read(where="id = 400"), opened(log).read(where="id = 399")
    assert none.read_all().num_rows == 0
    assert some.read_all().column("text").to_pylist() == texts[399:]
    assert none.report.bytes_fetched < some.report.bytes_fetched < some.report.bytes


# -- versions ------------------------------------------------------------------------------------------------------


def test_a_version_and_a_time(log: DeltaLog) -> None:
    first, second = foreign_append(log, {"a": [1]}), foreign_append(log, {"a": [2]})
    noon = datetime(2019, 1, 31, 12, tzinfo=UTC)
    for version, landed in ((0, noon - timedelta(days=2)), (first, noon - timedelta(days=1)), (second, noon)):
        landed_at(log, version, landed)
    table = opened(log)
    assert rows_of(table, ["id"], version=0) == []
    assert rows_of(table, ["id"], version=first) == [1]
    assert rows_of(table, ["id"], timestamp=noon - timedelta(hours=1)) == [1]
    assert sorted(rows_of(table, ["id"], timestamp="2019-01-31T12:00:00+00:00")) == [1, 2]
    with pytest.raises(LogGapError, match="does not reach back"):
        table.read(timestamp=noon - timedelta(days=9))


@pytest.mark.parametrize(
    ("asked", "error", "message"),
    [
        ({"version": 9}, ReadRefusedError, "has no version 9; its newest is 0"),
        ({"version": -1}, ReadRefusedError, "has no version -1"),
        ({"version": "1"}, InvalidReadError, "a whole number"),
        ({"version": 0, "timestamp": "2019-01-31"}, InvalidReadError, "not both"),
        ({"timestamp": "2019-01-31 12:00:00"}, InvalidReadError, "a time with its zone"),
        ({"timestamp": "noon"}, InvalidReadError, "a time with its zone"),
        ({"columns": ["id", "x"]}, InvalidReadError, "has no column 'x'; it has id, month"),
        ({"columns": ["id", "ID"]}, InvalidReadError, "twice"),
        ({"columns": []}, InvalidReadError, "a list of names"),
        ({"columns": "id"}, InvalidReadError, "a list of names"),
        ({"where": "x = 1"}, InvalidReadError, "is no column"),
    ],
)
def test_what_cannot_be_read_is_refused_before_anything_is(
    log: DeltaLog, asked: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        opened(log).read(**asked)


def test_no_table_is_no_empty_one(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        opened(local_log(tmp_path / "none")).read()


# -- features ------------------------------------------------------------------------------------------------------


def test_rows_that_a_deletion_vector_hides_are_not_returned(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{"delta.enableDeletionVectors": "true"})
    foreign_append(log, {"a": [10, 11, 12, 13], "b": [20]})
    add = next(file for file in log.live_files(lambda _: True, 1) if file["partitionValues"]["month"] == "a")
    delete_rows(log, dict(add), [0, 2])
    table = opened(log)
    assert sorted(rows_of(table, ["id"])) == [11, 13, 20]
    assert rows_of(table, ["id"], "id <= 11 AND month = 'a'") == [11]
    assert sorted(rows_of(table, ["id"], version=1)) == [10, 11, 12, 13, 20]


def test_a_deletion_vector_counts_rows_over_row_groups(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long")), (), **{"delta.enableDeletionVectors": "true"})
    add = put_file(log, pa.table({"id": range(10)}), row_group_size=3)
    delete_rows(log, add, [2, 3, 9])
    assert rows_of(opened(log), ["id"]) == [0, 1, 4, 5, 6, 7, 8]
    assert rows_of(opened(log), ["id"], "id > 4") == [5, 6, 7, 8]


def mapped(name: str, kind: Any, number: int, physical: str) -> dict[str, Any]:
    told = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": True, "metadata": told}


NESTED = [
    mapped("id", "long", 1, "col-1"),
    mapped("month", "string", 2, "col-2"),
    mapped(
        "trip",
        {
            "type": "struct",
            "fields": [
                mapped("fare", "double", 4, "col-4"),
                mapped("added later", "string", 9, "col-9"),
                mapped("stops", {"type": "array", "elementType": {"type": "struct", "fields": [mapped("zone", "long", 6, "col-6")]}, "containsNull": True}, 5, "col-5"),
            ],
        },
        3,
        "col-3",
    ),
    mapped(
        "tips",
        {"type": "map", "keyType": "string", "valueType": {"type": "struct", "fields": [mapped("cents", "long", 8, "col-8")]}, "valueContainsNull": True},
        7,
        "col-7",
    ),
]  # fmt: skip
IN_FILE = pa.schema(
    [
        ("col-7", pa.map_(pa.string(), pa.struct([("col-8", pa.int32())]))),
        ("col-1", pa.int64()),
        ("col-3", pa.struct([("dropped", pa.int64()), ("col-5", pa.list_(pa.struct([("col-6", pa.int64())]))), ("col-4", pa.float32())])),
    ]
)  # fmt: skip


@pytest.mark.parametrize("mode", ["name", "id"])
def test_columns_are_found_by_what_identifies_them_in_files(tmp_path: Path, mode: str) -> None:
    log = make_table(tmp_path / "t", **{"delta.columnMapping.mode": "name"})
    configuration = {**log.snapshot().configuration, "delta.columnMapping.mode": mode}
    change_metadata(log, schemaString=schema_of(*NESTED), configuration=configuration)
    schema = IN_FILE
    if mode == "id":
        # Names in files do not count.
        schema = numbered(IN_FILE)
    rows = pa.Table.from_pylist([{field.name: value for field, value in zip(IN_FILE, row, strict=True)} for row in [
        ([("a", {"col-8": 5}), ("b", None)], 1, {"dropped": 1, "col-5": [{"col-6": 7}, None], "col-4": 0.5}),
        (None, 2, None),
        ([], 3, {"dropped": None, "col-5": None, "col-4": None}),
    ]], IN_FILE)  # fmt: skip
    put_file(log, rows.cast(schema) if mode == "name" else renamed(rows, schema), {"col-2": "2019-01"})
    nothing = {"fare": None, "added later": None, "stops": None}
    assert rows_of(opened(log), ["id", "month", "trip", "tips"]) == [
        (
            1,
            "2019-01",
            {"fare": 0.5, "added later": None, "stops": [{"zone": 7}, None]},
            {"a": {"cents": 5}, "b": None},
        ),
        (2, "2019-01", None, None),
        (3, "2019-01", nothing, {}),
    ]
    assert rows_of(opened(log), ["id"], "id >= 2 AND month = '2019-01' AND trip IS NOT NULL") == [3]


def test_a_nested_column_that_was_dropped_is_not_one_of_its_name(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{"delta.columnMapping.mode": "name"})
    trip = {"type": "struct", "fields": [mapped("fare", "long", 4, "col-4"), mapped("tip", "long", 5, "fare")]}
    change_metadata(
        log,
        schemaString=schema_of(
            mapped("id", "long", 1, "id"), mapped("month", "string", 2, "month"), mapped("trip", trip, 3, "trip")
        ),
    )
    kind = pa.struct([("fare", pa.int64()), ("tip", pa.int64())])
    rows = pa.table({"id": [1], "trip": pa.array([{"fare": 7, "tip": 9}], kind)})
    put_file(log, rows, {"month": "2019-01"})
    assert rows_of(opened(log), ["trip"]) == [{"fare": None, "tip": 7}]


def numbered(schema: pa.Schema) -> pa.Schema:
    """The same with other names, and with numbers in their place."""

    def of(field: Any) -> Any:
        kind = field.type
        if pa.types.is_struct(kind):
            kind = pa.struct([of(kind.field(at)) for at in range(kind.num_fields)])
        elif pa.types.is_map(kind):
            kind = pa.map_(kind.key_type, of(kind.item_field).type)
        elif pa.types.is_list(kind):
            kind = pa.list_(of(kind.value_field).type)
        number = field.name.removeprefix("col-")
        if not number.isdecimal():
            return pa.field(field.name, kind)
        return pa.field(f"other {number}", kind, metadata={"PARQUET:field_id": number})

    return pa.schema([of(field) for field in schema])


def renamed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same rows under other names."""

    def as_(value: Any, old: Any, new: Any) -> Any:
        if value is None:
            return None
        if pa.types.is_struct(old):
            return {
                new.field(at).name: as_(value[old.field(at).name], old.field(at).type, new.field(at).type)
                for at in range(old.num_fields)
            }
        if pa.types.is_map(old):
            return [(key, as_(item, old.item_type, new.item_type)) for key, item in value]
        if pa.types.is_list(old):
            return [as_(each, old.value_type, new.value_type) for each in value]
        return value

    columns = [
        pa.array([as_(value, old.type, new.type) for value in column.to_pylist()], new.type)
        for column, old, new in zip(rows.columns, rows.schema, schema, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=schema)


@pytest.mark.parametrize(
    ("before", "value", "after", "read"),
    [
        pytest.param(pa.int8(), 7, "short", 7, id="byte to short"),
        pytest.param(pa.int32(), 7, "long", 7, id="integer to long"),
        pytest.param(pa.int32(), 7, "double", 7.0, id="integer to double"),
        pytest.param(pa.int32(), 7, "decimal(12,2)", Decimal("7.00"), id="integer to decimal"),
        pytest.param(pa.float32(), 0.1, "double", pa.scalar(0.1, pa.float32()).as_py(), id="float to double"),
        pytest.param(pa.decimal128(4, 2), Decimal("1.50"), "decimal(8,3)", Decimal("1.500"), id="decimal"),
        pytest.param(
            pa.date32(),
            date(2019, 1, 31),
            "timestamp_ntz",
            datetime.combine(date(2019, 1, 31), time()),
            id="date to timestamp",
        ),
    ],
)
def test_files_from_before_a_widening_have_the_type_of_now(
    tmp_path: Path, before: pa.DataType, value: Any, after: str, read: Any
) -> None:
    """deltalake does not read them."""
    log = make_table(tmp_path / "t", schema_of(("c", after)), (), **{"delta.enableTypeWidening": "true"})
    put_file(log, pa.table({"c": pa.array([value, None], before)}))
    assert rows_of(opened(log), ["c"]) == [read, None]
    assert rows_of(opened(log), ["c"], "c IS NULL") == [None]


def test_a_column_that_files_do_not_have_is_null(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("new", "string")), ())
    put_file(log, pa.table({"ID": [1]}))
    put_file(log, pa.table({"id": [2], "new": ["x"]}))
    assert sorted(rows_of(opened(log), ["id", "new"])) == [(1, None), (2, "x")]
    assert rows_of(opened(log), ["id"], "new IS NULL") == [1]
    assert rows_of(opened(log), ["new"], "new = 'x'") == ["x"]


PARTITIONS = [
    ("byte", "7", 7),
    ("long", "-7", -7),
    ("float", "0.1", pa.scalar(0.1, pa.float32()).as_py()),
    ("double", "1.5", 1.5),
    ("decimal(4,2)", "1.50", Decimal("1.50")),
    ("boolean", "true", True),
    ("string", "a b", "a b"),
    ("binary", "a", b"a"),
    ("date", "2019-01-31", date(2019, 1, 31)),
    ("timestamp", "2019-01-31T12:00:00.000001Z", datetime(2019, 1, 31, 12, 0, 0, 1, UTC)),
    ("timestamp", "2019-01-31 12:00:00", datetime(2019, 1, 31, 12, tzinfo=UTC)),
    ("timestamp_ntz", "2019-01-31 12:00:00", datetime(2019, 1, 31, 12, tzinfo=UTC).replace(tzinfo=None)),
]


@pytest.mark.parametrize(("kind", "spelled", "value"), PARTITIONS)
def test_a_partition_value_is_a_column(tmp_path: Path, kind: str, spelled: str, value: Any) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("p", "string")), ("p",))
    change_metadata(log, schemaString=schema_of(("id", "long"), ("p", kind)))
    put_file(log, pa.table({"id": [1]}), {"p": spelled})
    put_file(log, pa.table({"id": [2]}), {"p": None})
    put_file(log, pa.table({"id": [3]}), {"p": ""})
    assert sorted(rows_of(opened(log)), key=lambda row: row[0]) == [(1, value), (2, None), (3, None)]
    assert rows_of(opened(log), ["id"], "p IS NOT NULL AND id < 9") == [1]


@pytest.mark.parametrize(("kind", "spelled"), [("date", "+12019-01-31"), ("timestamp", "-0044-03-15 12:00:00Z")])
def test_years_that_python_does_not_know_are_values_of_arrow(tmp_path: Path, kind: str, spelled: str) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("p", kind)), ("p",))
    put_file(log, pa.table({"id": [1]}), {"p": spelled})
    (column,) = opened(log).read(["p"]).read_all().columns
    assert column.null_count == 0
    assert str(column.cast(pa.string())[0]).lstrip("+").startswith(spelled.lstrip("+")[:10])


def test_a_partition_that_is_no_value_of_its_type_is_refused_unless_it_is_left_out(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("p", "date"), ("q", "long")), ("p", "q"))
    put_file(log, pa.table({"id": [1]}), {"p": "noon", "q": "1"})
    put_file(log, pa.table({"id": [2]}), {"p": "2019-01-31", "q": "2"})
    assert rows_of(opened(log), ["id"], "q = 2") == [2]
    with pytest.raises(CorruptLogError, match="partition p='noon', which is no DATE"):
        opened(log).read(where="p = DATE '2019-01-31'")


@pytest.mark.parametrize(
    "protocol",
    [
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors", "variantType"], "writerFeatures": []},
        {"minReaderVersion": 4, "minWriterVersion": 7},
        {"minReaderVersion": 3, "minWriterVersion": 7},
    ],
)  # fmt: skip
def test_a_feature_of_readers_that_is_not_known_is_refused(log: DeltaLog, protocol: dict[str, Any]) -> None:
    foreign_commit(log, [{"protocol": protocol}])
    with pytest.raises(UnsupportedFeatureError, match=r"variantType|reader version"):
        opened(log).read()


def test_a_feature_of_writers_alone_does_not_matter(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})
    features = ["identityColumns", "somethingNew"]
    foreign_commit(log, [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}}])
    assert rows_of(opened(log), ["id"]) == [1]


def test_a_type_that_is_not_known_is_refused_only_if_it_is_read(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("v", "string")), ())
    change_metadata(log, schemaString=schema_of(("id", "long"), ("v", "variant")))
    put_file(log, pa.table({"id": [1]}))
    assert rows_of(opened(log), ["id"]) == [1]
    with pytest.raises(UnsupportedFeatureError, match="type variant cannot be read"):
        opened(log).read()


# -- files that cannot be read -------------------------------------------------------------------------------------


def test_a_file_that_is_gone_is_named(log: DeltaLog) -> None:
    version = foreign_append(log, {"a": [1]})
    (add,) = log.live_files(lambda _: True, version)
    Path(log.table, add["path"]).unlink()
    with pytest.raises(ReadRefusedError, match=r"month=a/part-.* is gone.* A vacuum may have deleted it"):
        opened(log).read().read_all()


@pytest.mark.parametrize("damage", [lambda data: data[:-9] + b"\0" * 9, lambda data: data[:-1]], ids=["bytes", "short"])
def test_a_damaged_file_is_named(log: DeltaLog, damage: Any) -> None:
    version = foreign_append(log, {"a": [1]})
    (add,) = log.live_files(lambda _: True, version)
    file = Path(log.table, add["path"])
    file.write_bytes(damage(file.read_bytes()))
    with pytest.raises(ReadRefusedError, match=r"month=a/part-.* cannot be read"):
        opened(log).read().read_all()


def test_a_file_outside_of_the_table_is_refused_and_others_are_read(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})
    add = {"path": "file:/elsewhere/b.parquet", "partitionValues": {"month": "b"}, "size": 1, "dataChange": True}
    foreign_commit(log, [{"add": add}])
    assert rows_of(opened(log), ["id"], "month = 'a'") == [1]
    with pytest.raises(ReadRefusedError, match="as a shallow clone has"):
        opened(log).read().read_all()


def test_a_store_that_does_not_answer_is_no_damage(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})

    class Away(PassingOn):
        def get_range(self, path: str, start: int, end: int) -> Any:
            raise StoreUnavailableError("away")

        def head(self, path: str) -> Any:
            raise StoreUnavailableError("away")

    rows = read_rows(through(Away(log.store), log))
    with pytest.raises(StoreUnavailableError):
        rows.read_all()


# -- beside others -------------------------------------------------------------------------------------------------


def test_over_the_network_files_are_read_side_by_side_and_returned_in_order(log: DeltaLog) -> None:
    for start in range(0, 60, 2):
        foreign_append(log, {"a": [start, start + 1]})

    class Remote(PassingOn):
        def __init__(self, inner: Any) -> None:
            super().__init__(inner)
            self.concurrency = 64

    expected = rows_of(opened(log), ["id"])
    assert sorted(expected) == list(range(60))
    far = read_rows(through(Remote(log.store), log), ["id"])
    assert far.read_all().column("id").to_pylist() == expected
    with read_rows(through(Remote(log.store), log), ["id"]) as rows:
        assert next(rows).num_rows == 2


MOMENTS = st.integers(-5, 5).map(lambda millis: datetime(2019, 1, 1, tzinfo=UTC) + timedelta(milliseconds=millis / 2))
ROWS = st.fixed_dictionaries(
    {
        "p": st.sampled_from(["a", "b", None]),
        "n": st.integers(-3, 3) | st.none(),
        "x": st.sampled_from([0.5, -1.0, 2.0, float("nan"), None]),
        "s": st.sampled_from(["", "a", "b" * 40, "\U0001f600", None]),
        "t": MOMENTS | st.none(),
        "d": st.integers(-300, 300).map(lambda number: Decimal(number).scaleb(-2)) | st.none(),
    }
)
SCHEMA = pa.schema(
    [
        ("p", pa.string()),
        ("n", pa.int64()),
        ("x", pa.float64()),
        ("s", pa.string()),
        ("t", pa.timestamp("us", "UTC")),
        ("d", pa.decimal128(5, 2)),
    ]
)
LEAVES = st.one_of(
    st.sampled_from(["p = 'a'", "p IS NULL", "p <> 'b'", "s >= 'b'", "s IS NULL", "s IN ('a', '')", "x IS NOT NULL"]),
    st.builds("n {} {}".format, st.sampled_from(["=", "<", ">=", "<>", "<=>"]), st.integers(-4, 4)),
    st.builds("x {} {}e0".format, st.sampled_from(["=", "<", ">", "<>"]), st.sampled_from([0.5, 1.0, 2.0])),
    st.builds("d {} {}".format, st.sampled_from(["<", "<=", "="]), st.sampled_from(["0", "1.005", "-2.99"])),
    MOMENTS.map(lambda moment: f"t > TIMESTAMP '{moment.replace(tzinfo=None)}'"),
    MOMENTS.map(lambda moment: f"t = TIMESTAMP '{moment.replace(tzinfo=None)}'"),
)
CONDITIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        inner.map("NOT ({})".format), st.builds("({}) AND ({})".format, inner, inner), st.builds("({}) OR ({})".format, inner, inner)
    ),
    max_leaves=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    numbers = iter(range(1 << 30))
    base = tmp_path_factory.mktemp("tables")
    return (base / str(number) for number in numbers)


@settings(deadline=None, max_examples=40)
@given(files=st.lists(st.lists(ROWS, min_size=1, max_size=4), min_size=1, max_size=4), text=CONDITIONS)
def test_skipping_never_loses_a_row(places: Iterator[Path], files: list[list[dict[str, Any]]], text: str) -> None:
    """Beside a read that opens every file, with the statistics of a real engine and its rows."""
    path = next(places)
    for rows in files:
        write_deltalake(str(path), pa.Table.from_pylist(rows, SCHEMA), mode="append", partition_by=["p"])
    log = local_log(path)
    whole = opened(log).read().read_all()
    theirs = pa.table(QueryBuilder().register("t", DeltaTable(str(path))).execute("SELECT * FROM t").read_all())
    assert multiset(whole.to_pylist()) == multiset(theirs.select(whole.schema.names).to_pylist())
    layout = Layout.of(log.snapshot().metadata)
    where = Where.parse(text, layout.compared_as)
    arrays = {name: whole.column(name).combine_chunks() for name in whole.schema.names}
    expected = whole.filter(where.evaluate(arrays, whole.num_rows).fill_null(False))
    found = opened(log).read(where=text)
    assert multiset(found.read_all().to_pylist()) == multiset(expected.to_pylist()), (text, found.report)


def multiset(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(map(repr, rows))


def test_decimals_that_are_larger_than_the_statistics_of_deltalake_are_found(tmp_path: Path) -> None:
    # deltalake 1.6 writes the bounds of a decimal without a fraction as a BIGINT, however large the decimal is.
    values = [Decimal(-(10**38) + 1), Decimal(-1), Decimal(10**38 - 1)]
    write_deltalake(str(tmp_path / "t"), pa.table({"fare": pa.array(values, pa.decimal128(38, 0))}))
    table = opened(local_log(tmp_path / "t"))
    assert [rows_of(table, ["fare"], f"fare = {value}") for value in values] == [[value] for value in values]


def test_the_statistics_of_the_log_may_be_missing(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1, 2]})
    put_file(log, pa.table({"id": [3]}), {"month": "a"}, stats="no JSON")
    assert sorted(rows_of(opened(log), ["id"], "id >= 2")) == [2, 3]
