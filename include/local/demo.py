"""``make demo``: load every month with both vendors' writers at once, in a live Airflow, and prove the result."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
from deltalake import DeltaTable
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from airflow_provider_onelake.cli.output import print_commits
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import open_store
from airflow_provider_onelake.view.commits import summary_of
from airflow_provider_onelake.writes.policy import Settlement

from . import postgres, processes, stack
from .api import AirflowApi, ApiError, wait_for
from .expected import KEY, Row, expected_append, expected_overwrite, month_after, month_files, read_trips
from .jars import SetUpError
from .settings import REPOSITORY, Settings, from_environment

# Exit statuses, told apart by who has to act.
ALL_AGREES, LOAD_FAILED, BAD_INPUT, SET_UP_FAILED = 0, 1, 2, 3

DAG = "nyc_taxi_two_vendors"
GROUP = "load"
UPKEEP = "onelake_upkeep"
TABLE = "Tables/trips"
LAST_MONTH = "2024-12"
SAMPLE = REPOSITORY / "include" / "data" / "nyc_taxi"
# Compaction sorts files along it, so that a reader of some days skips the rest.
SORTED_BY = "date_col"

console = Console(highlight=False)


def run(*, input: Path, lakehouse: Path, table_mode: str, partition_by: str) -> int:  # noqa: A002
    """Run the demo, and return the exit status: 0 only if the rows found are the rows expected."""
    files = month_files(input)
    if not files or max(files) > LAST_MONTH:
        late = f"has months after {LAST_MONTH}, where the DAG {DAG} ends (its end_date)."
        wrong = late if files else "holds no file named yellow_tripdata_YYYY-MM.json.gz."
        console.print(f"[red]Input:[/] {escape(str(input))} {wrong}")
        return BAD_INPUT
    params = {"input": str(input), "table": TABLE, "mode": table_mode, "partition_by": partition_by}
    settings = from_environment(
        state=from_environment().state / "demo",
        lakehouse=lakehouse,
        any_port=True,
        # Nobody edits its DAGs; to parse them again and again, as is the default, takes 0.3 s of CPU a file.
        environment={"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"},
    )
    console.print(
        f"Loading {len(files)} months ({', '.join(files)}), vendors 1 and 2 at once, mode {table_mode}, "
        f"partitioned by {partition_by}, into {lakehouse / TABLE}"
    )
    if gaps := _gaps(files):
        console.print(f"There are no files for {', '.join(gaps)}: these months are left out.")
    try:
        with console.status("Starting Airflow, PostgreSQL and Spark Connect …") as spinner:
            # It can be stopped without harm to another stack, and its Airflow knows of no demo before.
            processes.shut_down(settings.state)
            postgres.remove(settings.state)
            stack.start(settings, lambda event: spinner.update(f"{escape(event)} …"))
        return _load_and_judge(settings, files, params)
    except SetUpError as error:
        console.print(f"[red]Set-up failed[/] (nothing is wrong with the load): {escape(str(error))}")
    except (ApiError, httpx.HTTPError, TimeoutError) as error:
        console.print(f"[red]Airflow did not carry on[/]: {escape(str(error))}. Its logs are in {settings.logs}.")
    finally:
        with console.status("Stopping what was started …"):
            processes.shut_down(settings.state)
        console.print("Stopped what was started.")
    return SET_UP_FAILED


def _load_and_judge(settings: Settings, files: dict[str, Path], params: dict[str, str]) -> int:
    api, table = stack.open_api(settings), settings.lakehouse / TABLE
    console.print(f"Airflow is up: {api.url}")
    if broken := [error for error in stack.import_errors(api) if DAG in error]:
        raise SetUpError(f"the DAG cannot be imported: {'; '.join(broken)}")
    states = _load(api, files, params)
    if failed := [month for month, state in states.items() if state != "success"]:
        logs = settings.state / "airflow" / "logs"
        console.print(f"[red]{len(failed)} of {len(states)} runs failed:[/] {', '.join(failed)}. Their logs: {logs}")
    if not (table / "_delta_log").is_dir():
        console.print(f"[red]There is no table at {table}:[/] no writer published rows.")
        return LOAD_FAILED
    # Before the rows are counted: what is compacted must be what was loaded.
    kept_up = _keep_up(api)
    seen_by_spark = count_by_spark(stack.connect_server(settings).remote, table)
    agrees = _show(table, files, params, seen_by_spark, _lost_races(api))
    return ALL_AGREES if agrees and kept_up and not failed else LOAD_FAILED


def _gaps(files: dict[str, Path]) -> list[str]:
    months = [min(files)]
    while months[-1] < max(files):
        months.append(month_after(months[-1]))
    return [month for month in months if month not in files]


def _load(api: AirflowApi, files: dict[str, Path], params: dict[str, str]) -> dict[str, str]:
    """Load all months at once, and return the states of their runs by month."""
    api.unpause(DAG)
    for month in files:
        begin, end = (datetime.fromisoformat(f"{first}-01T00:00:00+00:00") for first in (month, month_after(month)))
        dates = {"logical_date": begin, "data_interval_start": begin, "data_interval_end": end, "run_after": end}
        api.trigger(DAG, dag_run_id=f"demo__{month}", conf=params, **dates)
    states: dict[str, str] = {}
    with console.status("Loading …") as spinner:

        def have_ended() -> bool:
            runs = {str(run["logical_date"])[:7]: str(run["state"]) for run in api.runs(DAG)}
            for month, state in sorted(runs.items()):
                if state in ("success", "failed") and month not in states:
                    states[month] = state
                    console.print(f"  {month} [{'green' if state == 'success' else 'red'}]{state}[/]")
            spinner.update(f"Loading: {', '.join(f'{n} {state}' for state, n in Counter(runs.values()).items())} …")
            return len(states) == len(files)

        wait_for(have_ended, "the loads to end", 3600, every=1)
    return states


def _keep_up(api: AirflowApi) -> bool:
    """Compact the table along a column, say what a vacuum would take, and return whether that succeeded."""
    api.unpause(UPKEEP)
    with console.status("Compacting …"):
        run_id = api.trigger(UPKEEP, conf={"tables": [TABLE], "zorder_by": SORTED_BY})
        ended = api.wait_for_run(UPKEEP, run_id, timeout=900)
    if ended["state"] != "success":
        console.print(f"[red]The upkeep ended as {ended['state']}.[/]")
        return False
    told = api.xcom(UPKEEP, run_id, "upkeep.optimize", map_index=0)
    shown = Table("partition", "files before", "after", "bytes before", "after", "why", title="Compaction")
    for row in told["partitions"]:
        counts = (row["files_before"], row["files_after"], row["bytes_before"], row["bytes_after"])
        shown.add_row(row["partition"], *map(str, counts), row["reason"])
    for row in (*told["left_out"], *told["dropped"]):
        shown.add_row(row["partition"], str(row.get("files", "")), "", "", "", f"left alone: {row['reason']}")
    shown.caption = told["summary"]
    console.print(shown)
    vacuumed = api.xcom(UPKEEP, run_id, "upkeep.vacuum", map_index=0)
    since = str(vacuumed["before"])[:10]
    console.print(
        f"A vacuum has {vacuumed['files']} files to delete: nothing goes that was part of the table since {since}."
    )
    return True


def _lost_races(api: AirflowApi) -> int:
    """Return how many puts met another's commit, by the writers' own results."""
    writers = [task for task in api.task_instances(DAG, "~", f"{GROUP}.write") if task["state"] == "success"]
    results = [api.xcom(DAG, task["dag_run_id"], task["task_id"], map_index=task["map_index"]) for task in writers]
    return sum(int(result.get("lost_races") or 0) for result in results)


def count_by_spark(remote: str, table: Path) -> dict[int, int]:
    """Return a table's rows by vendor, as the Spark of a Connect server counts them."""
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
    """
    from pyarrow.fs import LocalFileSystem, SubTreeFileSystem

    return SubTreeFileSystem(str(table), LocalFileSystem())


def _show(
    where: Path, files: dict[str, Path], params: dict[str, str], seen_by_spark: dict[int, int], lost_races: int
) -> bool:
    """Print the report, and say whether the rows found are the rows expected."""
    commits = DeltaLog(open_store(TableAddress.parse(str(where))), str(where)).commits_since(-1)
    print_commits(map(summary_of, commits))
    settled = [(commit, Settlement(**told)) for commit in commits for told in commit.staged.get("settlements", ())]
    console.print(
        f"{len(commits)} versions, {sum(len(commit.writers) for commit in commits)} buffers published, "
        f"{lost_races} puts met another's commit and were rebased, {len(settled)} conflicts settled by reconcile"
    )
    for commit, settlement in settled:
        mine = ", ".join(writer.writer for writer in commit.writers)
        console.print(f"  version {commit.version} ({mine}), {settlement}")
    trips = read_trips(files)
    expected = expected_append(trips)
    if params["mode"] != "append":
        expected = expected_overwrite(trips, _in_order_of_their_end(commits), params["partition_by"])
    found, others = _found(where, files)
    missing, extra = expected - found, found - expected
    table = Table("vendor", "expected", "found by deltalake", "found by Spark", "missing", "too many", title="Rows")
    for vendor in sorted({int(str(row[0])) for row in expected | found}):
        wanted, there, less, more = (
            sum(count for row, count in rows.items() if row[0] == vendor) for rows in (expected, found, missing, extra)
        )
        counts = (vendor, wanted, there, seen_by_spark.get(vendor, 0), less, more)
        table.add_row(*map(str, counts), style="red" if less or more else "")
    console.print(table)
    if others:
        console.print(f"{others} rows of other runs are in the table too; they are not judged here.")
    same = sum(seen_by_spark.values()) == found.total() + others
    if not same:
        console.print("[red]Spark and deltalake do not see the same rows.[/]")
    agrees = same and not missing and not extra
    verdict = "[green]Every row is there once.[/]" if agrees else "[red]The rows found are not the rows expected.[/]"
    console.print(verdict)
    return agrees


def _in_order_of_their_end(commits: list[Commit]) -> list[tuple[str, int]]:
    """Return month and vendor of each writer of the demo's group, in the order in which their rows were complete."""
    loads = [(commit, commit.staged.get("load", "")) for commit in commits]
    finished = sorted(
        (writer.finished, load.rpartition("/")[2][:7], int(writer.writer.rpartition("-")[2]))
        for commit, load in loads
        if f"/{DAG}/{GROUP}/" in load
        for writer in commit.writers
    )
    return [(month, vendor) for _, month, vendor in finished]


def _found(where: Path, files: dict[str, Path]) -> tuple[Counter[Row], int]:
    """Return the rows that runs of these months wrote, as deltalake reads them, and how many others there are."""
    table: Any = DeltaTable(str(where)).to_pyarrow_table(columns=[*KEY, "version"], filesystem=local_files(where))
    *columns, versions = (table.column(name).to_pylist() for name in (*KEY, "version"))
    # A run stamps its rows with the end of its data interval: the first of the month after the one that it loads.
    stamps = {f"{month_after(month)}-010000".replace("-", "") for month in files}
    rows = zip(zip(*columns, strict=True), versions, strict=True)
    found = Counter(row for row, stamp in rows if stamp in stamps)
    return found, table.num_rows - found.total()
