"""Which commits a watcher is told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.following.filters import CommitFilter
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning

BY_MONTH = Partitioning({"month": "string"})
WRITER = "onelake/prod/taxi/load/2019-01-01T00:00:00+00:00/vendor-1"


def commit(operation: str = "WRITE", *actions: dict[str, Any]) -> Commit:
    return Commit(1, [{"commitInfo": {"operation": operation}}, *actions])


def file(month: str | None, change: bool = True) -> dict[str, Any]:
    return {"path": f"month={month}/x", "partitionValues": {"month": month}, "size": 1, "dataChange": change}


APPEND = commit("WRITE", {"add": file("2019-01")}, {"txn": {"appId": WRITER, "version": 1}})
DELETE = commit("DELETE", {"remove": file("2019-02")})
SILENT = commit("DELETE", {"remove": {"path": "month=2019-02/x", "dataChange": True}})
OPTIMIZE = commit("OPTIMIZE", {"remove": file("2019-01", False)}, {"add": file("2019-01", False)})
VACUUM = commit("VACUUM END")


@pytest.mark.parametrize(
    ("condition", "taken"),
    [
        (CommitFilter(), [APPEND, DELETE, SILENT, OPTIMIZE, VACUUM]),
        (CommitFilter(operations=("WRITE", "OPTIMIZE")), [APPEND, OPTIMIZE]),
        (CommitFilter(data_change_only=True), [APPEND, DELETE, SILENT]),
        (CommitFilter(partition="month = '2019-01'"), [APPEND, SILENT]),
        (CommitFilter(partition="month = '2019-02'"), [DELETE, SILENT]),
        (CommitFilter(writer=WRITER), [APPEND]),
        (CommitFilter(writer="onelake/prod/taxi/*"), [APPEND]),
        (CommitFilter(writer="onelake/*/2019-01-01T00:00:00+00:00/*"), [APPEND]),
        (CommitFilter(writer="onelake/prod/other/*"), []),
        (CommitFilter(operations=("DELETE",), partition="month = '2019-01'"), [SILENT]),
        (CommitFilter(operations=("WRITE", "OPTIMIZE"), data_change_only=True), [APPEND]),
    ],
    ids=lambda value: "" if isinstance(value, list) else str(value),
)
def test_a_filter_takes_what_it_says(condition: CommitFilter, taken: list[Commit]) -> None:
    everything = [APPEND, DELETE, SILENT, OPTIMIZE, VACUUM]
    assert [each for each in everything if condition.takes(each, lambda: BY_MONTH)] == taken


def test_a_predicate_on_another_column_is_refused() -> None:
    with pytest.raises(InvalidWriteError):
        CommitFilter(partition="id = 1").takes(APPEND, lambda: BY_MONTH)


def test_nobody_is_asked_for_the_partitioning_where_it_does_not_matter() -> None:
    asked: list[int] = []

    def partitioning() -> Partitioning:
        asked.append(1)
        return BY_MONTH

    ask: Callable[[], Partitioning] = partitioning
    assert not CommitFilter(operations=("MERGE",), partition="month = '2019-01'").takes(APPEND, ask)
    assert not CommitFilter(partition="month = '2019-01'").takes(VACUUM, ask)
    assert not asked


@pytest.mark.parametrize(
    "today",
    [
        Partitioning({"month": "string"}, {"month": "col-2"}),
        Partitioning({"vendor": "integer"}),
        Partitioning({"month": "string", "vendor": "integer"}),
        Partitioning({}),
    ],
    ids=["replaced under column mapping", "another column", "one column more", "not partitioned"],
)
def test_a_commit_from_before_the_table_was_partitioned_as_it_is_now_is_taken(today: Partitioning) -> None:
    for commit in (APPEND, DELETE):
        assert CommitFilter(partition="month = '2019-09'").takes(commit, lambda: today)


def test_so_is_one_whose_partition_is_no_value_of_the_columns_type_of_now() -> None:
    today = Partitioning({"month": "integer"})
    assert CommitFilter(partition="month = 3").takes(APPEND, lambda: today)
