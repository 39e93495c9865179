"""The rows that differ between two versions: a multiset difference, whatever wrote the files."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.commit.delete import delete
from airflow_provider_onelake.commit.transaction import Transactions
from airflow_provider_onelake.exceptions import InvalidReadError, ReadRefusedError
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.difference import Compared
from airflow_provider_onelake.rows.compare import RowDifference, as_told, compare_rows, shown_rows
from tests.support.changes import asker
from tests.support.data_files import opened, put_file, schema_of, two_months
from tests.support.shadows import compact
from tests.support.tables import change_metadata, foreign_append, foreign_commit, live, make_table, newest
from tests.support.vectors import delete_rows, ids_without_deleted


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return two_months(tmp_path / "t")


def rewrite(log: DeltaLog, *files: dict[str, Any], rows: pa.Table, month: str | None = None) -> None:
    """Put a file in the place of others, as an UPDATE does."""
    put_file(log, rows, None if month is None else {"month": month})
    gone = [{"remove": {"path": file["path"], "deletionTimestamp": 1, "dataChange": True}} for file in files]
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "UPDATE"}}, *gone])


def compared(log: DeltaLog, before: Any, after: Any = None, **terms: Any) -> RowDifference:
    return opened(log).compare_rows(before, after, **terms)


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def table_of(log_path: Path, *fields: tuple[str, Any], **configuration: str) -> DeltaLog:
    return make_table(log_path, schema_of(*fields), (), **configuration)


def test_only_rows_that_differ_are_told_and_only_files_that_differ_are_read(log: DeltaLog) -> None:
    kept, changed, _ = live(log)
    Path(log.table, object_path(kept)).unlink()  # type: ignore[arg-type]
    rewrite(log, changed, rows=pa.table({"id": [30, 31]}), month="2019-01")
    found = compared(log, 2)
    assert rows(found.added) == [(30, "2019-01"), (31, "2019-01")]
    assert rows(found.removed) == [(3, "2019-01")]
    assert (found.rows_added, found.rows_removed, found.rows_changed) == (2, 1, None)
    assert (found.files_read, found.rows_read) == (2, 3)
    assert found.to_json()["rows_added"] == 2
    back = compared(log, newest(log).version, 2)
    assert (rows(back.added), rows(back.removed)) == (rows(found.removed), rows(found.added))


def test_rows_that_were_only_moved_do_not_differ(log: DeltaLog) -> None:
    first, second, _ = live(log)
    rewrite(log, first, second, rows=pa.table({"id": [3, 1, 2, 9]}), month="2019-01")
    assert (rows(compared(log, 2).added), compared(log, 2).rows_removed) == ([(9, "2019-01")], 0)


def test_rows_whose_partition_another_engine_spells_otherwise_do_not_differ(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("id", "long"), ("at", "timestamp")), ("at",))
    file = put_file(log, pa.table({"id": [1, 2]}), {"at": "2019-01-01 00:00:00"})
    put_file(log, pa.table({"id": [2, 1]}), {"at": "2019-01-01T00:00:00.000000Z"})
    foreign_commit(log, [{"remove": {"path": file["path"], "deletionTimestamp": 1, "dataChange": True}}])
    assert (compared(log, 1).rows_added, compared(log, 1).rows_removed) == (0, 0)


def test_duplicates_are_counted(tmp_path: Path) -> None:
    log = table_of(tmp_path / "t", ("id", "long"))
    file = put_file(log, pa.table({"id": [1, 1, 1, 2, None, None]}))
    rewrite(log, file, rows=pa.table({"id": [1, 2, 2, None, None, None]}))
    found = compared(log, 1)
    assert rows(found.removed) == [(1,), (1,)]
    assert rows(found.added) == [(2,), (None,)]


def test_rows_that_a_deletion_vector_hides_were_removed(log: DeltaLog) -> None:
    delete_rows(log, live(log)[0], [1])
    found = compared(log, 2)
    assert (rows(found.removed), found.rows_added) == ([(2, "2019-01")], 0)
    foreign_append(log, {"2019-01": [2]})
    # The row is there again, in another file.
    assert (compared(log, 2).rows_removed, compared(log, 2).rows_added) == (0, 0)


def test_a_compaction_is_not_read_at_all(log: DeltaLog) -> None:
    for row in range(6, 10):
        foreign_append(log, {"2019-01": [row]})
    before = live(log)
    compact(log)
    for file in before:
        if file["partitionValues"]["month"] == "2019-01":
            Path(log.table, object_path(file)).unlink()  # type: ignore[arg-type]
    foreign_append(log, {"2019-01": [10]})
    found = compared(log, 6)
    assert (rows(found.added), found.files_read) == ([(10, "2019-01")], 1)
    with pytest.raises(ReadRefusedError, match="is gone"):
        compared(log, 4)


def test_a_row_that_came_into_another_partition_was_removed_and_added(log: DeltaLog) -> None:
    (last,) = [file for file in live(log) if file["partitionValues"]["month"] == "2019-02"]
    rewrite(log, last, rows=pa.table({"id": [5, 4]}), month="2019-03")
    found = compared(log, 2, key=["id"])
    assert (found.rows_changed, found.rows_added, found.rows_removed) == (2, 0, 0)
    assert shown_rows(found, 1).changed == [({"id": 4, "month": "2019-02"}, {"id": 4, "month": "2019-03"})]
    assert compared(log, 2, where="month = '2019-03'").rows_added == 2


def test_a_key_tells_rows_that_were_changed(tmp_path: Path) -> None:
    log = table_of(tmp_path / "t", ("id", "long"), ("v", "string"))
    file = put_file(log, pa.table({"id": [1, 2, 2, 3], "v": ["a", "b", "b", "c"]}))
    rewrite(log, file, rows=pa.table({"id": [1, 2, 4], "v": ["a", "B", "d"]}))
    found = compared(log, 1, key=["ID"])
    # One of the two rows of key 2 has become another, and the other one is gone.
    assert (found.rows_changed, found.rows_added, found.rows_removed) == (1, 1, 2)
    assert found.key == ("id",)
    shown = shown_rows(found, 10)
    assert shown.changed == [({"id": 2, "v": "b"}, {"id": 2, "v": "B"})]
    assert shown.added == [{"id": 4, "v": "d"}]
    assert shown.removed == [{"id": 2, "v": "b"}, {"id": 3, "v": "c"}]
    first = shown_rows(found, 1)
    assert (first.changed, first.added, first.removed) == (shown.changed, shown.added, shown.removed[:1])
    without_key = shown_rows(compared(log, 1), 10)
    assert (len(without_key.added), len(without_key.removed), without_key.changed) == (2, 3, [])


def test_some_columns_alone(tmp_path: Path) -> None:
    log = table_of(tmp_path / "t", ("id", "long"), ("v", "string"))
    file = put_file(log, pa.table({"id": [1, 2], "v": ["a", "b"]}))
    rewrite(log, file, rows=pa.table({"id": [1, 2], "v": ["x", "y"]}))
    assert compared(log, 1, columns=["id"]).rows_added == 0
    with pytest.raises(InvalidReadError, match="no column 'w'"):
        compared(log, 1, columns=["w"])
    with pytest.raises(InvalidReadError, match="v is not among the columns"):
        compared(log, 1, columns=["id"], key=["v"])


def test_without_the_partition_column_a_row_that_came_into_another_partition_does_not_differ(log: DeltaLog) -> None:
    first, *_ = live(log)
    rewrite(log, first, rows=pa.table({"id": [2, 1, 9]}), month="2019-04")
    found = compared(log, 2, columns=["id"], key=["id"])
    assert (rows(found.added), found.rows_removed, found.rows_changed) == ([(9,)], 0, 0)
    whole = compared(log, 2, key=["id"])
    assert (whole.rows_added, whole.rows_removed, whole.rows_changed) == (1, 0, 2)


EVERY: tuple[tuple[str, Any, Any, Any], ...] = (
    ("byte", pa.int8(), 1, 2),
    ("double", pa.float64(), 0.0, 1.5),
    ("float", pa.float32(), float("nan"), 0.0),
    ("boolean", pa.bool_(), True, False),
    ("decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50"), Decimal("2.50")),
    ("binary", pa.binary(), b"\0", b"\1"),
    ("date", pa.date32(), date(2019, 1, 31), date(2019, 2, 1)),
    ("timestamp", pa.timestamp("us", "UTC"), datetime(2019, 1, 1, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)),
    ("timestamp_ntz", pa.timestamp("us"), datetime(2019, 1, 1), datetime(2020, 1, 1)),  # noqa: DTZ001
    ({"type": "array", "elementType": "long", "containsNull": True}, pa.list_(pa.int64()), [1, None], [1]),
    (
        {"type": "struct", "fields": [{"name": "a", "type": "double", "nullable": True, "metadata": {}}]},
        pa.struct([("a", pa.float64())]),
        {"a": 1.0},
        {"a": None},
    ),
    (
        {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
        pa.map_(pa.string(), pa.int64()),
        [("x", 1)],
        [("x", 2)],
    ),
)


@pytest.mark.parametrize(("kind", "arrow", "value", "other"), EVERY, ids=[str(each[0])[:30] for each in EVERY])
def test_values_of_every_type_are_equal_to_themselves(
    tmp_path: Path, kind: Any, arrow: Any, value: Any, other: Any
) -> None:
    log = table_of(tmp_path / "t", ("a b", kind))
    file = put_file(log, pa.table({"a b": pa.array([value, None, value], arrow)}))
    rewrite(log, file, rows=pa.table({"a b": pa.array([None, value, other], arrow)}))
    found = compared(log, 1, key=["a b"])
    assert (found.added.num_rows, found.removed.num_rows, found.rows_changed) == (1, 1, 0)
    assert as_told(found.added)


def test_zeros_are_equal_and_years_may_be_any(tmp_path: Path) -> None:
    log = table_of(tmp_path / "t", ("f", "double"), ("d", "date"))
    far = pa.array([5_000_000], pa.int32()).cast(pa.date32())
    file = put_file(log, pa.table({"f": [-0.0], "d": far}))
    rewrite(log, file, rows=pa.table({"f": [0.0], "d": far}))
    assert compared(log, 1, key=["d"]).added.num_rows == 0
    put_file(log, pa.table({"f": [1.0], "d": far}))
    assert as_told(compared(log, 1).added)[0]["f"] == 1.0


def test_nested_zeros_are_equal_and_nested_years_may_be_any(tmp_path: Path) -> None:
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in _NESTED]
    log = table_of(tmp_path / "t", ("s", {"type": "struct", "fields": fields}))
    far = pa.array([5_000_000], pa.int32()).cast(pa.date32())
    times = pa.array([1 << 60], pa.int64()).cast(pa.timestamp("us", "UTC"))
    old = pa.MapArray.from_arrays([0, 1], pa.array(["k"]), times)

    def nested(number: float) -> pa.Table:
        dates = pa.ListArray.from_arrays([0, 1], far)
        return pa.table({"s": pa.StructArray.from_arrays([pa.array([number]), dates, old], [n for n, _ in _NESTED])})

    file = put_file(log, nested(-0.0))
    rewrite(log, file, rows=nested(0.0))
    assert (compared(log, 1).rows_added, compared(log, 1).rows_removed) == (0, 0)
    put_file(log, nested(1.0))
    (told,) = as_told(compared(log, 1).added)
    assert told["s"]["f"] == 1.0
    assert isinstance(told["s"]["d"][0], str)


_NESTED: tuple[tuple[str, Any], ...] = (
    ("f", "double"),
    ("d", {"type": "array", "elementType": "date", "containsNull": True}),
    ("t", {"type": "map", "keyType": "string", "valueType": "timestamp", "valueContainsNull": True}),
)


# -- another definition in between -------------------------------------------------------------------------------------


def test_a_column_that_came_since_is_null_before_and_one_that_is_gone_does_not_count(tmp_path: Path) -> None:
    log = table_of(tmp_path / "t", ("id", "long"), ("old", "string"))
    file = put_file(log, pa.table({"id": [1, 2], "old": ["a", "b"]}))
    change_metadata(log, schemaString=schema_of(("id", "long"), ("new", "string")))
    rewrite(log, file, rows=pa.table({"id": [1, 2], "new": [None, "x"]}))
    found = compared(log, 1)
    assert (rows(found.removed), rows(found.added)) == ([(2, None)], [(2, "x")])


def test_a_column_that_was_renamed_or_widened_is_the_same(tmp_path: Path) -> None:
    def mapped(*names: str, kind: str) -> str:
        told = [{"delta.columnMapping.id": n, "delta.columnMapping.physicalName": f"c{n}"} for n in (1, 2)]
        return schema_of(
            {"name": names[0], "type": kind, "nullable": True, "metadata": told[0]},
            {"name": names[1], "type": "string", "nullable": True, "metadata": told[1]},
        )

    log = table_of(tmp_path / "t", ("id", "integer"), ("v", "string"), **{"delta.columnMapping.mode": "name"})
    change_metadata(log, schemaString=mapped("id", "v", kind="integer"))
    file = put_file(log, pa.table({"c1": pa.array([1, 2], pa.int32()), "c2": ["a", "b"]}))
    change_metadata(log, schemaString=mapped("key", "id", kind="long"))
    rewrite(log, file, rows=pa.table({"c1": pa.array([1, 3], pa.int64()), "c2": ["a", "b"]}))
    found = compared(log, 2)
    assert found.columns == ("key", "id")
    assert (rows(found.removed), rows(found.added)) == ([(2, "b")], [(3, "b")])


def test_a_column_of_the_same_name_that_is_another_is_null_before(tmp_path: Path) -> None:
    def mapped(physical: str) -> str:
        told = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "k"}
        other = {"delta.columnMapping.id": 2, "delta.columnMapping.physicalName": physical}
        return schema_of(
            {"name": "id", "type": "long", "nullable": True, "metadata": told},
            {"name": "v", "type": "long", "nullable": True, "metadata": other},
        )

    log = table_of(tmp_path / "t", ("id", "long"), ("v", "long"), **{"delta.columnMapping.mode": "name"})
    change_metadata(log, schemaString=mapped("one"))
    file = put_file(log, pa.table({"k": [1], "one": [7]}))
    change_metadata(log, schemaString=mapped("two"))
    rewrite(log, file, rows=pa.table({"k": [1], "two": [7]}))
    assert rows(compared(log, 2).removed) == [(1, None)]


def test_types_that_do_not_compare_are_refused_by_name(tmp_path: Path) -> None:
    log = table_of(tmp_path / "t", ("id", "long"), ("v", "string"))
    file = put_file(log, pa.table({"id": [1], "v": ["7"]}))
    change_metadata(log, schemaString=schema_of(("id", "long"), ("v", "long")))
    rewrite(log, file, rows=pa.table({"id": [1], "v": [7]}))
    with pytest.raises(ReadRefusedError, match=r"v .* was STRING in version 1 and is BIGINT .*columns=id"):
        compared(log, 1)
    assert compared(log, 1, columns=["id"]).rows_added == 0
    change_metadata(log, configuration={"delta.columnMapping.mode": "id"})
    with pytest.raises(ReadRefusedError, match="Compare versions of one mapping"):
        compared(log, newest(log).version, 1)


def test_a_table_that_is_partitioned_otherwise_now(log: DeltaLog) -> None:
    files = live(log)
    change_metadata(log, partitionColumns=[])
    rewrite(log, *files, rows=pa.table({"id": [1, 2, 3, 4, 6], "month": ["2019-01"] * 3 + ["2019-02"] * 2}))
    found = compared(log, 2)
    assert (rows(found.removed), rows(found.added)) == ([(5, "2019-02")], [(6, "2019-02")])
    back = compared(log, newest(log).version, 2)
    assert (rows(back.removed), rows(back.added)) == ([(6, "2019-02")], [(5, "2019-02")])


def test_too_many_rows_are_refused_before_one_is_read(log: DeltaLog) -> None:
    snapshots = log.snapshot_at(0), newest(log)
    with pytest.raises(ReadRefusedError, match=r"5 rows .* at most 4 are compared"):
        compare_rows(Compared.of(log, *snapshots), most_rows=4)
    assert compare_rows(Compared.of(log, *snapshots), most_rows=5).rows_added == 5


# -- any history -------------------------------------------------------------------------------------------------------

_STEPS = st.lists(
    st.tuples(st.sampled_from(["append", "twice", "delete", "vector", "compact"]), st.integers(0, 1)),
    min_size=1,
    max_size=7,
)


@settings(max_examples=15, deadline=None)
@given(_STEPS, st.data())
def test_the_rows_of_one_version_and_the_difference_are_the_rows_of_the_other(
    tmp_path_factory: pytest.TempPathFactory, steps: Any, data: Any
) -> None:
    log = make_table(tmp_path_factory.mktemp("t"))
    seen = {0: Counter[int]()}
    for number, (kind, which) in enumerate(steps):
        files = live(log)
        if kind in ("append", "twice"):
            foreign_append(log, {f"m{which}": [number] if kind == "append" else [1, 1, number]})
        elif kind == "delete":
            delete(Transactions(log), f"month = 'm{which}'", asker(f"{number}"))
        elif kind == "vector" and files and "deletionVector" not in files[0]:
            if json.loads(files[0]["stats"])["numRecords"] > 1:
                delete_rows(log, files[0], [which])
        elif kind == "compact" and files:
            compact(log)
        seen[newest(log).version] = Counter(ids_without_deleted(Path(log.table)))
    before, after = (data.draw(st.sampled_from(sorted(seen))) for _ in range(2))
    found = compared(log, before, after)
    gone, come = (Counter(each.column("id").to_pylist()) for each in (found.removed, found.added))
    assert seen[before] - gone + come == seen[after]
    # A row of one partition is none of another, so rows are told apart by all columns.
    told, came = (Counter(rows(each)) for each in (found.removed, found.added))
    assert not told & came
    counts = opened(log).compare(before, after).counts
    assert counts.rows_added is not None
    assert counts.rows_added - (counts.rows_removed or 0) == seen[after].total() - seen[before].total()
