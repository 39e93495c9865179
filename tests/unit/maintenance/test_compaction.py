from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.maintenance.compaction import (
    TARGET_FILE_SIZE,
    ZORDER_TAG,
    CompactionPlan,
    CompactionTerms,
    plan,
    selection,
    zorder_tag,
)
from tests.support.vectors import deletion_vector

TARGET = 1000
names = itertools.count()


def table(kinds: dict[str, str] | None = None, clustered: bool = False, **configuration: str) -> Snapshot:
    kinds = {"month": "string"} if kinds is None else kinds
    fields = [
        {"name": name, "type": kind, "nullable": True, "metadata": {}}
        for name, kind in {"id": "long", "v": "string", **kinds}.items()
    ]
    metadata = {
        "id": "t",
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": list(kinds),
        "configuration": configuration,
    }
    columns = json.dumps({"clusteringColumns": [["id"]]})
    domains = {"delta.clustering": {"domain": "delta.clustering", "configuration": columns}} if clustered else {}
    return Snapshot(5, {"minReaderVersion": 1, "minWriterVersion": 2}, metadata, {}, domains)


def file(
    size: int, month: str | None = "2019-01", rows: int | None = 10, deleted: int = 0, **more: Any
) -> dict[str, Any]:
    add = {
        "path": f"month={month}/{next(names)}.parquet",
        "partitionValues": {"month": month},
        "size": size,
        "stats": json.dumps({"numRecords": rows} if rows is not None else {}),
        **more,
    }
    if deleted:
        add["deletionVector"] = deletion_vector(list(range(deleted)))
    return add


def decide(*files: dict[str, Any], snapshot: Snapshot | None = None, **terms: Any) -> CompactionPlan:
    return plan(files, snapshot or table(), CompactionTerms(**{"target_file_size": TARGET, **terms}))


def sizes(found: CompactionPlan) -> list[int]:
    return sorted(int(add["size"]) for group in found.groups for add in group.inputs)


def test_small_files_are_merged_where_there_are_enough() -> None:
    found = decide(*(file(10) for _ in range(4)), file(10, "2019-02"), file(10, "2019-02"), file(10, "2019-03"))
    [group] = found.groups
    assert (group.name, len(group.inputs), group.bytes) == ("month=2019-01", 4, 40)
    assert group.reason == "4 small files"
    assert [(left.partition, left.files, left.reason) for left in found.left_out] == [
        ("month=2019-02", 2, "2 small files, and it takes 4"),
        ("month=2019-03", 1, "1 small file, and it takes 4"),
    ]


def test_large_files_stay_as_they_are() -> None:
    found = decide(file(500), file(999), file(5000), *(file(400) for _ in range(4)))
    assert sizes(found) == [400] * 4


def test_a_file_twice_as_large_as_the_others_together_waits() -> None:
    assert sizes(decide(file(101), *(file(10) for _ in range(5)))) == [10] * 5
    assert sizes(decide(file(100), *(file(10) for _ in range(5)))) == [10, 10, 10, 10, 10, 100]
    alone = decide(file(400), file(130), file(40), file(10))
    assert not alone.groups
    assert "so they wait" in alone.left_out[0].reason


def test_deleted_rows_pay_alone() -> None:
    found = decide(file(5000, rows=100, deleted=10), file(5000, rows=100, deleted=9), file(5000))
    [group] = found.groups
    assert [add["deletionVector"]["cardinality"] for add in group.inputs] == [10]
    assert group.reason == "1 file with at least 10% of its rows deleted"
    [tiny] = decide(file(5000, rows=100, deleted=1), file(5000, rows=100, deleted=1), min_deleted=1e-9).groups
    assert tiny.reason == "2 files with deleted rows"
    assert not decide(file(5000, rows=100, deleted=10), min_deleted=0.11).groups


def test_a_file_without_a_row_left_goes_too() -> None:
    assert sizes(decide(file(10, rows=5, deleted=5))) == [10]


def test_uncounted_rows_and_absolute_paths_stay_and_it_is_said() -> None:
    many = [file(10) for _ in range(4)]
    found = decide(*many, file(10, rows=None), file(10, path="file:///other/a.parquet"), file(10, path="/other/a"))
    assert sizes(found) == [10] * 4
    assert {(left.files, left.reason.split(",")[0]) for left in found.left_out} == {
        (1, "its statistics have no row count"),
        (2, "its path is absolute"),
    }


def test_what_writers_need_stays() -> None:
    many = [file(10) for _ in range(5)]
    needed = {many[0]["path"], many[1]["path"]}
    found = plan(
        many, table(), CompactionTerms(min_files=3), lambda add: "a writer needs it" if add["path"] in needed else None
    )
    assert {add["path"] for add in found.groups[0].inputs} == {add["path"] for add in many[2:]}
    assert [(left.files, left.reason) for left in found.left_out] == [(2, "a writer needs it")]


def test_a_partition_without_a_time_zone_is_left_alone() -> None:
    snapshot = table({"month": "timestamp"})
    naive = [file(10, "2019-01-01 00:00:00") for _ in range(4)]
    known = [file(10, "2019-01-01T00:00:00.000000Z"), *(file(10, "2019-01-01T01:00:00+01:00") for _ in range(3))]
    found = decide(*naive, *known, snapshot=snapshot)
    [group] = found.groups
    assert len(group.inputs) == 4
    assert "without a time zone" in found.left_out[0].reason


@pytest.mark.parametrize(("kind", "spelling"), [("date", "20190131"), ("timestamp", "-0005-01-01T00:00:00Z")])
def test_a_partition_that_spark_may_spell_in_another_way_is_left_alone(kind: str, spelling: str) -> None:
    snapshot = table({"month": kind})
    found = decide(*(file(10, spelling) for _ in range(4)), snapshot=snapshot)
    assert not found.groups
    assert "could move it" in found.left_out[0].reason
    assert not selection(snapshot, "month IS NULL")(snapshot.partitioning.partition({"month": spelling}))
    assert selection(snapshot, partitions=[{"month": "2019-01-31"}])(
        snapshot.partitioning.partition({"month": "2019-01-31"})
    )


def test_a_table_without_partitions_is_one_group() -> None:
    assert decide(*(file(10) for _ in range(4)), snapshot=table({})).groups[0].name == "the table"


# -- sort order -----------------------------------------------------------------------------------------------------


def sorted_file(size: int, run: str = "r", by: tuple[str, ...] = ("v",), **more: Any) -> dict[str, Any]:
    return file(size, tags={ZORDER_TAG: zorder_tag(by, run)}, **more)


def test_unsorted_files_pay_from_a_quarter_of_the_bytes_on() -> None:
    found = decide(sorted_file(3000), file(1000), zorder_by=("V",))
    assert sizes(found) == [1000, 3000]
    assert found.groups[0].reason == "25% of its bytes lie outside the sort order"
    assert found.zorder_by == ("V",)
    assert not decide(sorted_file(3100), file(1000), zorder_by=("v",)).groups


def test_small_unsorted_files_are_sorted_among_themselves_while_they_are_few() -> None:
    assert sizes(decide(sorted_file(3000), *(file(10) for _ in range(4)), zorder_by=("v",))) == [10] * 4


def test_runs_sorted_apart_are_sorted_together_once_they_have_grown() -> None:
    assert sizes(decide(sorted_file(3000, "a"), sorted_file(1000, "b"), zorder_by=("v",))) == [1000, 3000]


def test_a_clustered_table_pays_where_files_are_not_clustered() -> None:
    snapshot = table({}, clustered=True)
    clustered = {"tags": {"ZCUBE_ID": "a"}, "clusteringProvider": "liquid"}
    assert sizes(decide(file(3000, **clustered), file(1000), snapshot=snapshot)) == [1000, 3000]
    assert not decide(file(3000, **clustered), file(600), snapshot=snapshot).groups


@pytest.mark.parametrize(
    ("snapshot", "zorder_by", "said"),
    [
        (table(), ("nowhere",), "no column"),
        (table(), ("month",), "a partition column"),
        (table({}, clustered=True), ("v",), "is clustered"),
    ],
)
def test_a_sort_order_that_cannot_be(snapshot: Snapshot, zorder_by: tuple[str, ...], said: str) -> None:
    with pytest.raises(InvalidWriteError, match=said):
        CompactionTerms(zorder_by=zorder_by).check(snapshot, "t")


# -- terms ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"), [(None, TARGET_FILE_SIZE), ("1000", 1000), ("16mb", 16 << 20), ("1 G", 1 << 30), ("0.5k", 512)]
)
def test_the_tables_own_size_counts(text: str | None, size: int) -> None:
    configured = table(**{"delta.targetFileSize": text}) if text else table()
    assert CompactionTerms().size_for(configured) == size
    assert CompactionTerms(target_file_size=7).size_for(configured) == 7


@pytest.mark.parametrize("text", ["large", "-1", "0", "mb"])
def test_a_size_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InvalidWriteError, match=r"delta\.targetFileSize"):
        CompactionTerms().size_for(table(**{"delta.targetFileSize": text}))


@pytest.mark.parametrize(
    "terms",
    [{"target_file_size": 0}, {"min_files": 1}, {"min_deleted": 0}, {"min_deleted": 1.1}, {"zorder_by": ("a", "A")}],
)
def test_terms_out_of_range_are_refused(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match=next(iter(terms))):
        CompactionTerms(**terms)


# -- which partitions -----------------------------------------------------------------------------------------------


def test_partitions_are_chosen_by_predicate_and_by_list() -> None:
    snapshot = table({"month": "string", "vendor": "integer"})
    assert selection(snapshot)(("2019-01", 1))
    chosen = selection(snapshot, "vendor > 1", [{"month": "2019-01", "vendor": "2"}, {"month": None}])
    assert chosen(("2019-01", 2))
    assert chosen((None, 3))
    assert not chosen((None, 1))
    assert not chosen(("2019-02", 2))


@pytest.mark.parametrize("item", [{"day": "1"}, {"vendor": "one"}])
def test_partitions_that_cannot_be_are_refused(item: dict[str, str]) -> None:
    with pytest.raises(InvalidWriteError, match="partitions: "):
        selection(table({"vendor": "integer"}), None, [item])


# -- properties -----------------------------------------------------------------------------------------------------

many_files = st.lists(
    st.builds(
        file,
        st.integers(1, 3 * TARGET),
        st.sampled_from(["2019-01", "2019-02", None, ""]),
        rows=st.sampled_from([10, 10, 10, None]),
        deleted=st.sampled_from([0, 0, 1, 10]),
    ),
    max_size=40,
)


@given(many_files, st.integers(2, 6))
def test_every_file_is_either_rewritten_once_or_left_out_once(files: list[dict[str, Any]], min_files: int) -> None:
    found = decide(*files, min_files=min_files)
    inputs = [add["path"] for group in found.groups for add in group.inputs]
    assert len(inputs) == len(set(inputs))
    assert set(inputs) <= {add["path"] for add in files}
    assert all(group.inputs for group in found.groups)
    assert len({group.partition for group in found.groups}) == len(found.groups)


@given(st.lists(st.integers(1, 40), min_size=1, max_size=200))
def test_a_byte_is_rewritten_a_few_times_only(arriving: list[int]) -> None:
    """One small file after another, a compaction after each: ever larger files must not be dragged along."""
    files: list[dict[str, Any]] = []
    written = 0
    for size in arriving:
        files.append(file(size))
        for group in decide(*files, min_files=2).groups:
            taken = {add["path"] for add in group.inputs}
            written += group.bytes
            files = [add for add in files if add["path"] not in taken]
            files += [file(bin_size) for bin_size in packed([int(add["size"]) for add in group.inputs])]
    # Each rewrite of a byte at least makes its file half as large again; from 500 on a file is not small.
    assert written <= 16 * sum(arriving)
    assert sum(2 * int(add["size"]) < TARGET for add in files) <= 10


def packed(sizes: list[int]) -> list[int]:
    """What Spark makes of files: one after another, the smallest first."""
    bins: list[int] = []
    for size in sorted(sizes):
        if bins and bins[-1] + size <= TARGET:
            bins[-1] += size
        else:
            bins.append(size)
    return bins
