"""The scenario from the web UI: a backfill of months from the dialog while scheduled runs write the same table."""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlparse

import pytest

from include.local.api import wait_for
from include.local.demo import SAMPLE, count_by_spark
from include.local.expected import expected_append, month_files, read_trips
from include.local.settings import REPOSITORY, TRIPS_POOL
from tests.live.browser import chromium, fill_in, logged_in
from tests.live.harness import LiveStack
from tests.live.trips import log_of, make_month, most_at_once, overlap, reader_of, rows_of, vendors_by_version

DAG, SCHEDULED = "nyc_taxi_two_vendors", "nyc_taxi_scheduled"
WRITE = "load.write"


def scheduled_dag(dag_id: str, input_: Path, table: str) -> str:
    """The example DAG on a schedule that makes two runs as soon as it is switched on, into the table of the dialog."""
    source = (REPOSITORY / "dags" / f"{DAG}.py").read_text()
    for example, ours in (
        (f'"{DAG}",', f'"{dag_id}",'),
        ("start_date=pendulum.datetime(2019, 1, 1,", "start_date=pendulum.datetime(2018, 11, 1,"),
        ("end_date=pendulum.datetime(2024, 12, 31,", "end_date=pendulum.datetime(2018, 12, 31,"),
        ("catchup=False", "catchup=True"),
        ('str(Path(__file__).resolve().parents[1] / "include" / "data" / "nyc_taxi")', repr(str(input_))),
        ('"Tables/trips"', repr(table)),
    ):
        assert source.count(example) == 1, example
        source = source.replace(example, ours)
    return source


@pytest.mark.costs("A person clicks, and eight loads run")
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("months", [4, pytest.param(8, marks=pytest.mark.nightly)])
def test_a_backfill_of_months_from_the_dialog_beside_scheduled_runs(
    live_stack: LiveStack, tmp_path: Path, months: int
) -> None:
    chromium()  # before anything is started
    api = live_stack.api
    # Each number of months has a table, and a DAG, of its own.
    name, scheduled_id = f"Tables/from_the_dialog_{months}", f"{SCHEDULED}_{months}"
    table = live_stack.lakehouse / name
    own_months = {month: make_month(tmp_path, month, days) for month, days in (("2018-11", 61), ("2018-12", 31))}
    live_stack.add_dag(scheduled_id, scheduled_dag(scheduled_id, tmp_path, name), unpause=False)

    with reader_of(table, tmp_path) as answers, logged_in(live_stack) as ui:
        dialog = ui.open_backfill_dialog(DAG)
        fill_in(dialog, date(2019, 1, 1), date(2019, months, 1), runs=3, params={"table": name})
        dialog.get_by_text(f"{months} runs will be triggered.").wait_for()
        ui.shoot("backfill-dialog")
        dialog.get_by_role("button", name="Run Backfill").click()
        dialog.wait_for(state="hidden")

        wait_for(lambda: len(log_of(table)) > 0, "the first commit", 500)
        api.unpause(scheduled_id)
        ui.page.get_by_text("Backfill in progress").wait_for()
        wait_for(lambda: len(log_of(table)) > 5, "some of the writers to commit", 500)
        ui.shoot("backfill-in-progress")

        backfilled = wait_for(lambda: ended(live_stack, DAG, "backfill", months, name), "the backfill to end", 900)
        scheduled = wait_for(lambda: ended(live_stack, scheduled_id, "scheduled", 2), "the scheduled runs to end", 300)
        ui.open(f"dags/{DAG}/runs?run_type=backfill")
        shown = ui.page.locator("tbody tr").filter(has_text="Success")
        every = len(api.runs(DAG, run_type="backfill"))
        wait_for(lambda: shown.count() == every, "the UI to show that the runs succeeded", 60)
        ui.shoot("backfill-done", (320, 60, 960, 790))

        # A writer's link leads to its own session, by the log of its task.
        run_id = backfilled[0]["dag_run_id"]
        ui.open(f"dags/{DAG}/runs/{quote(run_id)}/tasks/{WRITE}/mapped/0/details")
        session = ui.follow("Spark UI")
        session.get_by_text("Spark Connect Session").wait_for()
        ui.shoot("task-links", (320, 60, 960, 450))
        session_id = parse_qs(urlparse(session.url).query)["id"][0]
        assert session_id in session.inner_text("body")
        staging = rf"Spark session {session_id} at \S+: staging"
        assert re.search(staging, api.log(DAG, run_id, WRITE, 0))
    assert {run["state"] for run in (*backfilled, *scheduled)} == {"success"}

    # They really wrote at the same time, and never more of them than the table's pool has slots.
    theirs, ours = writers(live_stack, DAG, backfilled), writers(live_stack, scheduled_id, scheduled)
    assert len(theirs) + len(ours) == 2 * (months + 2)
    assert any(overlap(one, other) for one in theirs for other in ours)
    assert most_at_once([*theirs, *ours]) <= TRIPS_POOL["slots"]

    backfilled_months = dict(list(month_files(SAMPLE).items())[:months])
    expected = expected_append(read_trips({**own_months, **backfilled_months}))
    assert rows_of(table) == expected
    counted = count_by_spark(live_stack.connect_server.remote, table)
    assert counted == Counter(row[0] for row in expected.elements())
    # Two writers a month, one version each; the first of them made the table.
    assert len(log_of(table)) == 2 * (months + 2)

    # The reader saw committed versions, whole ones, and many of them.
    committed = vendors_by_version(table)
    assert all(answer["vendors"] == committed[answer["version"]] for answer in answers)
    assert len({answer["version"] for answer in answers}) >= 6


def ended(
    stack: LiveStack, dag_id: str, run_type: str, count: int, table: str | None = None
) -> list[dict[str, Any]] | None:
    """The runs of a kind that were given a table, once there are so many and all of them have ended."""
    runs = [run for run in stack.api.runs(dag_id, run_type=run_type) if (run["conf"] or {}).get("table") == table]
    return runs if len(runs) == count and all(run["state"] in ("success", "failed") for run in runs) else None


def writers(stack: LiveStack, dag_id: str, runs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [task for run in runs for task in stack.api.task_instances(dag_id, run["dag_run_id"], WRITE)]
