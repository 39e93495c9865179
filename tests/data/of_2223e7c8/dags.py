"""The DAGs whose runs made the tables, as their authors wrote them, and what their queries give.

Parameters that a later release renames are renamed here. The sources, the keys, the names of DAGs, groups and tasks, and
the function :func:`from_code` stay as they are: by them, the tables know who wrote what.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, CronPartitionTimetable

from airflow_provider_onelake.checks import unique
from airflow_provider_onelake.decorators.write import onelake_write_task
from airflow_provider_onelake.modes import Merge, ReplaceWhere
from airflow_provider_onelake.operators.alter import OneLakeAlterOperator
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.restore import OneLakeRestoreOperator
from airflow_provider_onelake.operators.statements import (
    OneLakeDeleteOperator,
    OneLakeTruncateOperator,
    OneLakeUpdateOperator,
)
from airflow_provider_onelake.operators.versions import OneLakeKeepVersionOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

# Nothing is ever too old, and no entry of a log is cleaned up, because Git keeps no times of files.
AGELESS = {
    "delta.deletedFileRetentionDuration": "interval 100000 days",
    "delta.logRetentionDuration": "interval 100000 days",
}
NEW: dict[str, Any] = {"partition_by": "month", "new_table": NewTable(properties=AGELESS)}
SOURCE = SqlSource("SELECT * FROM source_of_all")

Rows = Mapping[str | None, list[int]]


def from_code(spark: Any, vendor: str) -> Any:
    """What the clear of a function compares is its code. Never change a line of it."""
    return spark.table("trips").where(f"vendor = '{_spelled(vendor)}'")


def _spelled(vendor: str) -> str:
    return vendor.strip().lower()


def group(dag_id: str, group_id: str, **terms: Any) -> OneLakeWriteTaskGroup:
    """A write group on the table of its DAG."""
    return OneLakeWriteTaskGroup(group_id=group_id, table=f"Tables/{dag_id}", committed=False, **{**NEW, **terms})


def one(task_id: str, where: str | None = None, **terms: Any) -> OneLakeWriteOperator:
    """A writer whose rows are those of its ``where``. Default: the one of its task's name."""
    return OneLakeWriteOperator(task_id=task_id, source=SOURCE, where=where or task_id, **terms)


def mapped(*keys: str, **terms: Any) -> None:
    """Mapped writers, each with the rows of its key."""
    each = [{"writer": key, "where": key} for key in keys]
    OneLakeWriteOperator.partial(task_id="write", source=SOURCE, **terms).expand_kwargs(each)


def appends(corrected: str = "wrong") -> DAG:
    """Appends by every ``on_rerun``, with checks, with ``reads``, of a function; mapped, in groups and alone.

    :param corrected: the ``where`` of a writer that its author corrects between two tries.
    """
    with DAG("appends", schedule=None) as dag:
        with group("appends", "load"):
            mapped("a", "b", commit_message="for the auditors")
        with group("appends", "taken_back", on_rerun="replace"):
            one("r")
        with group("appends", "again", on_rerun="append"):
            one("p")
        with group("appends", "checked", checks={"some": "count(*) > 0", "small": "id < 90"}):
            one("good")
            one("bad")
        with group("appends", "corrected"):
            one("w", corrected)
        with group("appends", "functions"):
            onelake_write_task()(from_code)("EU")
        one("reader", table="Tables/appends", reads="month = '2019-01'", **NEW)
    return dag


POLICIES = (
    "last_writer_wins",
    "first_writer_wins",
    "fail",
    "last_writer_wins_per_partition",
    "first_writer_wins_per_partition",
)
# What the second write of a group does to the first one's two partitions. Each group is of ``last_writer_wins``.
RIVALS = ("all", "appended", "late", "dead")


def partitions(name: str) -> tuple[str, str]:
    """The two months of a group of :func:`overwrites`, of which rivals replace the first, or both."""
    return f"{name}-1", f"{name}-2"


def overwrites(run: str, policies: Sequence[str] = POLICIES) -> DAG:
    """Overwrites by every policy; the run of February is the rival of that of January.

    :param policies: of the groups of these names; others have none of their own.
    """
    with DAG("overwrites", schedule=None) as dag:
        for name in (*POLICIES, *RIVALS, "settled"):
            policy = name if name in policies else "last_writer_wins"
            with group("overwrites", name, mode="overwrite_partitions", on_conflict=policy):
                one("w", f"{name} {run}")
        one("late_append", table="Tables/overwrites", mode="append", **NEW)
    return dag


def whole() -> DAG:
    """Overwrites of the whole table, and of a range."""
    with DAG("whole", schedule=None) as dag:
        one("everything", table="Tables/whole", mode="overwrite", **NEW)
        one("a_range", table="Tables/whole", mode=ReplaceWhere("month = '2019-01'"), **NEW)
    return dag


MONTHS = {"timezone": "UTC", "key_format": "%Y-%m"}


def months(key: str) -> DAG:
    """A partition is a month, and its key names it.

    :param key: of the run's partition.
    """
    with DAG("months", schedule=CronPartitionTimetable("@monthly", **MONTHS)) as dag:
        one("append", f"month = '{key}'", table="Tables/months", **NEW)
        with group("months", "refresh", mode="overwrite_partitions"):
            one("w", f"refreshed '{key}'")
    return dag


def hours() -> DAG:
    """A partition is an hour, and two hours of the night in which clocks go back have one key."""
    with DAG("hours", schedule=CronPartitionTimetable("0 * * * *", timezone="Europe/Berlin")) as dag:
        one("append", table="Tables/months", **NEW)
    return dag


def days() -> DAG:
    """A partition is a day, and its key is that of other months' days too."""
    with DAG("days", schedule=CronPartitionTimetable("@daily", timezone="UTC", key_format="%d")) as dag:
        one("append_of_a_day", table="Tables/months", **NEW)
    return dag


def statements() -> DAG:
    """A statement of each kind, and what else a task does to a table."""
    table = "Tables/statements"
    with DAG("statements", schedule=None) as dag:
        OneLakeDeleteOperator(task_id="delete_month", table=table, where="month = '2019-01'")
        OneLakeDeleteOperator(task_id="delete_rows", table=table, where="id % 3 = 0", covers="month = '2019-02'")
        OneLakeUpdateOperator(task_id="update", table=table, set={"id": "id + 1000"}, where="id IN (21, 22)")
        merge("merge", table, (31, 3000), MERGED)
        merge("merge_once", table, (3000,), ["NOT MATCHED THEN INSERT *"])
        OneLakeAlterOperator(task_id="alter", table=table, table_comment="of the trips")
        OneLakeOptimizeOperator(task_id="optimize", table=table, min_files=2, where="month = '2019-04'")
        OneLakeKeepVersionOperator(task_id="keep", table=table, version=1, keep_for=timedelta(days=100_000))
    return dag


MERGED = ["MATCHED THEN UPDATE SET target.month = source.month", "NOT MATCHED THEN INSERT *"]


def merge(task_id: str, table: str, rows: Sequence[int], when: Sequence[str]) -> OneLakeWriteOperator:
    """A MERGE of rows of March, by their ids."""
    query = " UNION ALL ".join(f"SELECT CAST({row} AS BIGINT) AS id, '2019-03' AS month" for row in rows)
    return OneLakeWriteOperator(
        task_id=task_id,
        table=table,
        source=SqlSource(query),
        mode=Merge(keys=["id"], when=when),
        tuning=Tuning(preflight=False),
    )


def emptied() -> DAG:
    """A table that is emptied again and again, and brought back."""
    with DAG("emptied", schedule=None) as dag:
        OneLakeTruncateOperator(task_id="truncate", table="Tables/emptied")
        OneLakeTruncateOperator(task_id="late_truncate", table="Tables/emptied")
        OneLakeRestoreOperator(task_id="restore", table="Tables/emptied", version=1)
    return dag


def rounds() -> DAG:
    """Statements of which Spark has done its part when their tasks die."""
    table = "Tables/rounds"
    with DAG("rounds", schedule=None) as dag:
        OneLakeUpdateOperator(task_id="update", table=table, set={"id": "id + 1000"}, where="id IN (1, 2)")
        OneLakeDeleteOperator(task_id="delete", table=table, where="id % 5 = 0", covers="month = '2019-02'")
        merge("merge", table, (3, 30), MERGED)
    return dag


def running() -> DAG:
    """A load of which every writer has come to another point, by each mode that does not need Spark twice."""
    with DAG("running", schedule=None) as dag:
        with group("running", "load"):
            mapped("a", "b", "c", "d", "e")
        with group("running", "refresh", mode="overwrite_partitions"):
            mapped("f", "g", "h")
    return dag


def together(run: str) -> DAG:
    """Writers that share a scan, and are checked and published together."""
    given = {"publish": "together", "mode": "overwrite_partitions", "checks": {"some": "count(*) > 1"}}
    with DAG("together", schedule=None) as dag, group("together", "load", **given):
        for key in "ab":
            one(key, f"{run} {key}")
    return dag


def keys() -> DAG:
    """Writers whose ids must be unique in the table."""
    once = {"once": unique("id")}
    with DAG("keys", schedule=None) as dag:
        with group("keys", "load", checks=once):
            one("published")
        with group("keys", "left", checks=once):
            one("compared")
    return dag


def divided() -> DAG:
    """Writers whose bad rows go to another table."""
    given = {"checks": {"small": "id < 90"}, "on_failed_check": "quarantine"}
    with DAG("divided", schedule=None) as dag:
        with group("divided", "load", **given):
            one("published")
        with group("divided", "left", **given):
            one("dead")
    return dag


def new_files(lakehouse: str, planned: Sequence[Mapping[str, Any]] = ()) -> DAG:
    """Files are loaded once, whichever run finds them.

    :param lakehouse: in whose ``Files`` they come.
    :param planned: what the run's plan has said, where it has ended.
    """
    source = FileSource(f"{lakehouse}/Files/in/*", format="text")
    with DAG("new_files", schedule=None) as dag, group("new_files", "load"):
        plan = OneLakePlanOperator(task_id="plan", source=source, only_new=True, writers=1, by=r"(\d+)\.txt")
        writers = OneLakeWriteOperator.partial(task_id="write", source=source)
        plan >> writers.expand_kwargs([dict(entry) for entry in planned] or [{"writer": "nobody"}])
    return dag


def _overwritten(run: str, number: int) -> dict[str | None, Rows]:
    found: dict[str | None, Rows] = {}
    for at, name in enumerate((*POLICIES, *RIVALS, "settled")):
        first, second = partitions(name)
        of = {first: [100 * at + number], second: [100 * at + number + 1]}
        found[f"{name} {run}"] = of if run == "january" or name == "all" else {first: of[first]}
    return found


ROWS: Mapping[str, Mapping[str | None, Rows]] = {
    "appends": {
        "a": {"2019-01": [1]},
        "b": {"2019-01": [2], "2019-02": [3]},
        "r": {"2019-01": [4]},
        "p": {"2019-02": [5]},
        "good": {"2019-03": [6]},
        "bad": {"2019-03": [99]},
        None: {"2019-03": [7]},
        "reader": {"2019-04": [8]},
        "wrong": {"2019-05": [50]},
        "right": {"2019-05": [51]},
    },
    "overwrites": {
        **_overwritten("january", 10),
        **_overwritten("february", 20),
        "late_append": {partitions("appended")[0]: [5000]},
    },
    "whole": {"everything": {"2019-01": [10], "2019-02": [20]}, "a_range": {"2019-01": [11, 12]}},
    "months": {
        **{f"month = '2019-0{n}'": {f"2019-0{n}": [n]} for n in (1, 2)},
        "refreshed '2019-01'": {"2019-07": [70, 71]},
    },
    "hours": {"append": {"2024-10": [2400]}},
    "days": {"append_of_a_day": {"2024-11": [2500]}},
    "running": {
        **{key: {"2019-01": [at]} for at, key in enumerate("abcde", 1)},
        **{key: {f"2019-0{at}": [at * 10]} for at, key in enumerate("fgh", 2)},
    },
    "together": {
        f"{run} {key}": {f"{run}-{key}": [10 * at + number]}
        for at, run in enumerate(("january", "february", "march"), 1)
        for number, key in enumerate("ab")
    },
    "keys": {"published": {"2019-01": [10]}, "compared": {"2019-01": [20, 21]}},
    "divided": {"published": {"2019-01": [1, 91]}, "dead": {"2019-02": [2, 92]}},
}
"""What the sources give, by DAG, by ``where`` and by month. Those of a MERGE say it themselves."""

BEFORE: Mapping[str, Rows] = {
    "overwrites": {month: [1] for name in (*POLICIES, *RIVALS) for month in partitions(name)},
    "whole": {"2019-01": [1], "2019-02": [2], "2019-03": [3]},
    "statements": {"2019-01": [11, 12], "2019-02": [21, 22, 24], "2019-03": [31, 32], "2019-04": [41]},
    "emptied": {"2019-01": [1, 2]},
    "rounds": {"2019-01": [1, 2, 3], "2019-02": [5, 6]},
    "running": {"2019-02": [200], "2019-03": [300], "2019-04": [400]},
    "together": {f"{run}-a": [1] for run in ("january", "february", "march")},
}
"""Rows of another engine, in the table before anything else."""
