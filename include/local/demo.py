"""``make demo``: load every month with both vendors' writers at once, in a live Airflow, and prove the result."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import httpx
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from . import processes, report, stack
from .api import ApiError, wait_for
from .expected import month_after, month_files
from .jars import SetUpError
from .processes import StackError
from .settings import REPOSITORY, from_environment

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .api import AirflowApi

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
# Months whose writers run at the same time; with two vendors each, more than the cores of a laptop.
_RUNS_AT_ONCE = 3
_ENDED = ("success", "failed")
_TIMEOUT = 3600

console = Console(highlight=False)


@attrs.frozen
class Plan:
    """What one demo loads, and how.

    :param files: by month.
    :param lakehouse: directory that gets ``Tables/trips``.
    :param mode: of the table group.
    :param partition_by: column that the table is partitioned by.
    """

    files: dict[str, Path]
    lakehouse: Path
    mode: str
    partition_by: str

    @property
    def table(self) -> Path:
        """The table's directory."""
        return self.lakehouse / TABLE


class InputError(Exception):
    """What was asked for cannot be loaded."""


def run(*, input: Path | None, lakehouse: Path | None, table_mode: str, partition_by: str) -> int:  # noqa: A002
    """Run the demo.

    :param input: directory with ``yellow_tripdata_YYYY-MM.json.gz``; default: the sample months.
    :param lakehouse: directory that gets ``Tables/trips``; default: ``lakehouse`` in the checkout.
    :param table_mode: ``append`` or ``overwrite_partitions``.
    :param partition_by: ``month`` or ``vendor_id``.
    :returns: 0 only if the rows found are the rows expected; 1: the load is at fault; 2: the input; 3: the set-up.
    """
    try:
        plan = _plan(input, lakehouse, table_mode, partition_by)
    except InputError as error:
        console.print(f"[red]Input:[/] {escape(str(error))}")
        return BAD_INPUT
    settings = from_environment(
        state=from_environment().state / "demo",
        lakehouse=plan.lakehouse,
        dags=REPOSITORY / "dags",
        any_port=True,
        # Nobody edits its DAGs; to parse them again and again, as is the default, takes 0.3 s of CPU a file.
        environment={"AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600"},
    )
    console.print(
        f"Loading {len(plan.files)} months ({', '.join(plan.files)}), vendors 1 and 2 at once, mode {plan.mode}, "
        f"partitioned by {plan.partition_by}, into {plan.table}"
    )
    _say_gaps(plan)
    try:
        with console.status("Starting Airflow, PostgreSQL and Spark Connect …") as spinner:
            # A stack of the demo's own can be stopped without harm to another.
            stack.start(settings, lambda event: spinner.update(f"{escape(event)} …"))
        console.print(f"Airflow is up: {stack.url(settings)}")
        with stack.open_api(settings) as api:
            if broken := [error for error in stack.import_errors(api) if DAG in error]:
                raise StackError(f"the DAG cannot be imported: {'; '.join(broken)}")
            ended = backfill(api, plan)
            # Before the rows are counted: what is compacted must be what was loaded.
            kept_up = _has_table(plan) and _keep_up(api)
            seen_by_spark = report.count_by_spark(stack.connect_server(settings).remote, plan.table)
            verdict = _judge(api, plan, ended, seen_by_spark)
            return verdict if kept_up else max(verdict, LOAD_FAILED)
    except (SetUpError, StackError) as error:
        console.print(f"[red]Set-up failed[/] (nothing is wrong with the load): {escape(str(error))}")
        return SET_UP_FAILED
    except (ApiError, httpx.HTTPError) as error:
        console.print(f"[red]Airflow did not carry on[/]: {escape(str(error))}. Its logs are in {settings.logs}.")
        return SET_UP_FAILED
    finally:
        with console.status("Stopping what was started …"):
            processes.shut_down(settings.state)
        console.print("Stopped what was started.")


def _plan(input_: Path | None, lakehouse: Path | None, mode: str, partition_by: str) -> Plan:
    directory = (input_ or SAMPLE).expanduser().absolute()
    if not directory.is_dir():
        raise InputError(f"there is no directory {directory}.")
    files = month_files(directory)
    if not files:
        raise InputError(f"{directory} holds no file named yellow_tripdata_YYYY-MM.json.gz.")
    if list(files)[-1] > LAST_MONTH:
        raise InputError(f"{directory} has months after {LAST_MONTH}, where the DAG {DAG} ends (its end_date).")
    target = (lakehouse or REPOSITORY / "lakehouse").expanduser().absolute()
    return Plan(files, target, mode, partition_by)


def stretches(months: Iterable[str]) -> list[list[str]]:
    """Return months as stretches without a gap, in order.

    :param months: ``YYYY-MM``, in order.
    """
    found: list[list[str]] = []
    for month in months:
        if found and month_after(found[-1][-1]) == month:
            found[-1].append(month)
        else:
            found.append([month])
    return found


def backfill(api: AirflowApi, plan: Plan) -> dict[str, str]:
    """Load the months that are there, and return the states of their runs by month.

    Each stretch of months without a gap is a backfill, started as the UI's dialog does: the run of a month without a
    file could only fail.

    :param api: of the live Airflow.
    :param plan: what to load.
    """
    api.unpause(DAG)
    directory = next(iter(plan.files.values())).parent
    conf = {"input": str(directory), "table": TABLE, "mode": plan.mode, "partition_by": plan.partition_by}
    states: dict[str, str] = {}
    for months in stretches(plan.files):
        _end_earlier(api)
        first, last = (datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC) for month in (months[0], months[-1]))
        started = api.create_backfill(
            DAG, first, last, max_active_runs=_RUNS_AT_ONCE, reprocess_behavior="completed", dag_run_conf=conf
        )
        states |= _wait(api, started, months)
    return states


def _say_gaps(plan: Plan) -> None:
    there = stretches(plan.files)
    gaps = [(month_after(before[-1]), month_after(after[0], -1)) for before, after in pairwise(there)]
    if gaps:
        said = ", ".join(first if first == last else f"{first} to {last}" for first, last in gaps)
        console.print(f"There are no files for {said}: these months are left out.")


def _end_earlier(api: AirflowApi) -> None:
    """End what came before: Airflow allows one active backfill a DAG, and marks its end by a slow timer."""
    for earlier in api.pages("backfills", "backfills", dag_id=DAG):
        if earlier["completed_at"] is None:
            api.cancel_backfill(int(earlier["id"]))
    wait_for(
        lambda: all(run["state"] in _ENDED for run in api.runs(DAG)),
        "the runs of an interrupted demo to end",
        _TIMEOUT,
    )


def _wait(api: AirflowApi, backfill_id: int, months: list[str]) -> dict[str, str]:
    shown: dict[str, str] = {}
    with console.status("Loading …") as spinner:

        def ended() -> bool:
            # Runs of earlier backfills of this DAG are listed too.
            found = {str(run["logical_date"])[:7]: str(run["state"]) for run in api.backfill_runs(DAG, backfill_id)}
            states = {month: state for month, state in sorted(found.items()) if month in months}
            for month, state in states.items():
                if state in _ENDED and shown.get(month) != state:
                    console.print(f"  {month} [{'green' if state == 'success' else 'red'}]{state}[/]")
            shown.update(states)
            spinner.update(f"Loading: {', '.join(f'{n} {state}' for state, n in Counter(states.values()).items())} …")
            return bool(states) and all(state in _ENDED for state in states.values())

        wait_for(ended, f"the backfill of {months[0]} to {months[-1]} to end", _TIMEOUT, every=1)
    return shown


def _keep_up(api: AirflowApi) -> bool:
    """Compact the table along a column, say what a vacuum would take, and return whether that succeeded."""
    api.unpause(UPKEEP)
    with console.status("Compacting …"):
        run_id = api.trigger(UPKEEP, conf={"tables": [TABLE], "zorder_by": SORTED_BY})
        ended = api.wait_for_run(UPKEEP, run_id, timeout=900)
    if ended["state"] != "success":
        console.print(f"[red]The upkeep ended as {ended['state']}.[/]")
        return False
    console.print(_compaction(api.xcom(UPKEEP, run_id, "upkeep.optimize", map_index=0)))
    vacuumed = api.xcom(UPKEEP, run_id, "upkeep.vacuum", map_index=0)
    console.print(
        f"A vacuum has {vacuumed['files']} files to delete: nothing goes that was part of the table since "
        f"{str(vacuumed['before'])[:10]}."
    )
    return True


def _compaction(told: dict[str, Any]) -> Table:
    shown = Table("partition", "files before", "after", "bytes before", "after", "why", title="Compaction")
    for row in told["partitions"]:
        counts = (row["files_before"], row["files_after"], row["bytes_before"], row["bytes_after"])
        shown.add_row(row["partition"], *map(str, counts), row["reason"])
    for row in (*told["left_out"], *told["dropped"]):
        shown.add_row(row["partition"], str(row.get("files", "")), "", "", "", f"left alone: {row['reason']}")
    shown.caption = told["summary"]
    return shown


def _judge(api: AirflowApi, plan: Plan, ended: dict[str, str], seen_by_spark: dict[int, int]) -> int:
    failed = [month for month, state in ended.items() if state != "success"]
    for month in failed:
        _explain(api, month)
    if not _has_table(plan):
        console.print(f"[red]There is no table at {plan.table}:[/] no writer published rows that would make it.")
        return LOAD_FAILED
    agrees = report.show(console, plan, f"{DAG}/{GROUP}", seen_by_spark, _lost_races(api))
    if failed:
        console.print(f"[red]{len(failed)} of {len(ended)} runs failed:[/] {', '.join(failed)}")
    return ALL_AGREES if agrees and not failed else LOAD_FAILED


def _has_table(plan: Plan) -> bool:
    return (plan.table / "_delta_log").is_dir()


def _lost_races(api: AirflowApi) -> int:
    """Return how many puts met another's commit, by the writers' own results."""
    lost = 0
    for task in api.task_instances(DAG, "~"):
        if task["state"] == "success" and task["task_id"] == f"{GROUP}.write":
            result: Any = api.xcom(DAG, task["dag_run_id"], task["task_id"], map_index=task["map_index"])
            lost += int((result or {}).get("lost_races") or 0)
    return lost


def _explain(api: AirflowApi, month: str) -> None:
    """Print the last error of each failed task of a month's run."""
    for run in api.runs(DAG):
        if not str(run["logical_date"]).startswith(month):
            continue
        for task in api.task_instances(DAG, run["dag_run_id"]):
            if task["state"] == "failed":
                log = api.log(DAG, run["dag_run_id"], task["task_id"], task["map_index"])
                errors = [line for line in log.splitlines() if " error " in line] or log.splitlines()
                console.print(f"  {month} {task['task_id']}[{task['map_index']}]: {escape(errors[-1][:1000])}")
