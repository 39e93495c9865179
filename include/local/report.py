"""What the demo shows at its end: commits, conflicts, buffers, rows expected and found."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from rich.table import Table

from airflow_provider_onelake.commit.policy import Settlement
from airflow_provider_onelake.log.actions import total_rows
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import open_store

from .expected import KEY, Row, expected_append, expected_overwrite, finished_writers, month_after, read_trips

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from airflow_provider_onelake.log.commits import Commit

    from .demo import Plan


def count_by_spark(remote: str, table: Path) -> dict[int, int]:
    """Return the table's rows by vendor, as Spark counts them; empty where there is no table.

    :param remote: address of the Connect server.
    :param table: the table's directory.
    """
    if not (table / "_delta_log").is_dir():
        return {}
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(remote).create()
    try:
        counted = spark.read.format("delta").load(str(table)).groupBy("vendor_id").count().collect()
    finally:
        spark.stop()
    return {int(row["vendor_id"]): int(row["count"]) for row in counted}


def local_files(table: Path) -> Any:
    """Return the files of a table on this machine's disk, as Arrow opens them itself.

    Files that deltalake opens for Arrow are Python objects, which Arrow's threads may still hold when the process ends:
    then it is aborted ("terminate called without an active exception").

    :param table: the table's directory.
    """
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    return SubTreeFileSystem(str(table), LocalFileSystem())


def show(console: Console, plan: Plan, group: str, seen_by_spark: dict[int, int], lost_races: int) -> bool:
    """Print the report, and say whether the rows found are the rows expected.

    :param console: to print on.
    :param plan: of the demo.
    :param group: ``<dag>/<task group>``.
    :param seen_by_spark: rows by vendor, as Spark counted them.
    :param lost_races: puts that met another's commit.
    """
    log = DeltaLog(open_store(TableAddress.parse(str(plan.table))), str(plan.table))
    commits = log.commits_since(-1)
    console.print(_commits_table(commits))
    settled = [(commit, Settlement(**told)) for commit in commits for told in commit.staged.get("settlements", ())]
    writers = [writer for commit in commits for writer in commit.writers]
    console.print(
        f"{len(commits)} versions, {len(writers)} buffers published, {lost_races} puts met another's commit and were "
        f"rebased, {len(settled)} conflicts settled by reconcile"
    )
    for commit, settlement in settled:
        mine = ", ".join(writer.writer for writer in commit.writers)
        console.print(f"  version {commit.version} ({mine}), {settlement}")
    return _show_rows(console, plan, group, seen_by_spark)


def _commits_table(commits: list[Commit]) -> Table:
    table = Table("version", "time", "writer", "month", "files +/-", "rows", "settled", title="Commits")
    for commit in commits:
        month = str(commit.staged.get("load", "")).rpartition("/")[2][:7]
        table.add_row(
            str(commit.version),
            f"{commit.time:%H:%M:%S}" if commit.time else "",
            ", ".join(writer.writer for writer in commit.writers) or commit.operation,
            month,
            f"{len(commit.adds)}/{len(commit.removes)}",
            str(total_rows(commit.adds)),
            ", ".join(sorted({s["outcome"] for s in commit.staged.get("settlements", ())})),
        )
    return table


def _show_rows(console: Console, plan: Plan, group: str, seen_by_spark: dict[int, int]) -> bool:
    trips = read_trips(plan.files)
    found, others = _found(plan)
    if plan.mode == "append":
        expected = expected_append(trips)
    else:
        expected = expected_overwrite(trips, finished_writers(plan.table, group), plan.partition_by)
    table = Table("vendor", "expected", "found by deltalake", "found by Spark", "missing", "too many", title="Rows")
    agrees = True
    for vendor in sorted({int(str(row[0])) for row in (*expected, *found)}):
        wanted, there = _of(vendor, expected), _of(vendor, found)
        missing, extra = (wanted - there).total(), (there - wanted).total()
        agrees &= not missing and not extra
        table.add_row(
            str(vendor),
            str(wanted.total()),
            str(there.total()),
            str(seen_by_spark.get(vendor, 0)),
            str(missing),
            str(extra),
            style="" if not missing and not extra else "red",
        )
    console.print(table)
    if others:
        console.print(f"{others} rows of other runs are in the table too; they are not judged here.")
    if sum(seen_by_spark.values()) != found.total() + others:
        console.print("[red]Spark and deltalake do not see the same rows.[/]")
        agrees = False
    console.print(
        "[green]Every row is there once.[/]" if agrees else "[red]The rows found are not the rows expected.[/]"
    )
    return agrees


def _of(vendor: int, rows: Counter[Row]) -> Counter[Row]:
    return Counter({row: count for row, count in rows.items() if row[0] == vendor})


def _found(plan: Plan) -> tuple[Counter[Row], int]:
    """Return the rows that the plan's runs wrote, as deltalake reads them, and how many others there are."""
    from deltalake import DeltaTable

    table: Any = DeltaTable(str(plan.table)).to_pyarrow_table(
        columns=[*KEY, "version"], filesystem=local_files(plan.table)
    )
    rows = zip(*(table.column(name).to_pylist() for name in KEY), strict=True)
    # A run stamps its rows with the end of its data interval: the first of the month after the one that it loads.
    stamps = {f"{month_after(month)}-010000".replace("-", "") for month in plan.files}
    found = Counter(
        row for row, stamp in zip(rows, table.column("version").to_pylist(), strict=True) if stamp in stamps
    )
    return found, table.num_rows - found.total()
