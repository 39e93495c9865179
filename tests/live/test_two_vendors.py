"""The scenario: two vendors' writers at once, a backfill beside a manual run, a reader meanwhile."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from include.local.api import wait_for
from include.local.demo import SAMPLE
from include.local.expected import KEY, Row, expected_append, month_files, read_trips
from include.local.report import count_by_spark
from include.local.settings import REPOSITORY
from tests.live.harness import LiveStack

pytestmark = pytest.mark.live

DAG = "nyc_taxi_two_vendors"
WRITE = "load.write"
Log = list[dict[str, list[dict[str, Any]]]]


@attrs.frozen
class January:
    """A run that has loaded January, and its table."""

    run_id: str
    table: Path


@pytest.fixture(scope="module")
def january(live_stack: LiveStack) -> January:
    live_stack.api.unpause(DAG)
    run = live_stack.run_dag(DAG, conf={"month": "2019-01", "table": "Tables/january"})
    assert run["state"] == "success"
    return January(str(run["dag_run_id"]), live_stack.lakehouse / "Tables" / "january")


def test_both_writers_of_a_run_overlap_in_time_and_are_different_processes(
    live_stack: LiveStack, january: January
) -> None:
    one, other = writers(live_stack, january.run_id)
    assert one["pid"] != other["pid"]
    assert overlap(one, other)


def test_january_has_the_rows_of_both_vendors_for_deltalake_and_for_spark(
    live_stack: LiveStack, january: January
) -> None:
    rows = rows_of(january.table)
    assert rows == expected_append(read_trips({"2019-01": month_files(SAMPLE)["2019-01"]}))
    vendors = {1: 3_754, 2: 6_150}
    assert Counter(row[0] for row in rows.elements()) == vendors
    assert count_by_spark(live_stack.connect_server.remote, january.table) == vendors


def test_the_commits_name_the_files_where_they_were_staged(january: January) -> None:
    committed = [add for version in log_of(january.table)[1:] for add in version["add"]]
    assert committed
    for add in committed:
        staged, writer, attempt, rest = add["path"].split("/", 3)
        assert staged == "staged"
        actions = {action["path"]: action for action in log_of(january.table / staged / writer / attempt)[1]["add"]}
        assert {**actions[rest], "path": add["path"]} == add


def test_a_backfill_of_eight_months_beside_a_manual_run(live_stack: LiveStack, tmp_path: Path) -> None:
    api = live_stack.api
    api.unpause(DAG)
    table = live_stack.lakehouse / "Tables" / "trips"
    # The manual run loads a month of its own, into the same table.
    december = {"2018-12": make_december(tmp_path)}
    with reader_of(table, tmp_path) as answers:
        backfill = api.create_backfill(
            DAG,
            datetime(2019, 1, 1, tzinfo=UTC),
            datetime(2019, 8, 1, tzinfo=UTC),
            max_active_runs=3,
            conf={"table": "Tables/trips"},
        )
        wait_for(lambda: len(log_of(table)) > 1, "the first commit", 180)
        manual = api.trigger(DAG, conf={"month": "2018-12", "input": str(tmp_path), "table": "Tables/trips"})
        assert api.wait_for_run(DAG, manual, 400)["state"] == "success"
        runs = wait_for(lambda: ended_runs(live_stack, backfill, 8), "the backfill to end", 500)
    assert {run["state"] for run in runs} == {"success"}

    # They really wrote at the same time.
    assert any(overlap(mine, theirs) for mine in writers(live_stack, manual) for theirs in backfill_writers(live_stack))

    expected = expected_append(read_trips({**december, **month_files(SAMPLE)}))
    assert rows_of(table) == expected
    counted = count_by_spark(live_stack.connect_server.remote, table)
    assert counted == Counter(row[0] for row in expected.elements())
    # Nine months, two writers each, one version each; the first made the table.
    assert len(log_of(table)) == 1 + 9 * 2

    # The reader saw committed versions, whole ones, and many of them.
    committed = vendors_by_version(table)
    assert all(answer["vendors"] == committed[answer["version"]] for answer in answers)
    assert len({answer["version"] for answer in answers}) >= 6


def make_december(directory: Path) -> Path:
    """A file of real trips that no other file has: January's, a month earlier."""
    earlier = 31 * 24 * 3600 * 1000
    path = directory / "yellow_tripdata_2018-12.json.gz"
    with gzip.open(month_files(SAMPLE)["2019-01"], "rt") as lines, gzip.open(path, "wt", compresslevel=1) as out:
        for line in lines:
            trip = json.loads(line)
            trip |= {name: trip[name] - earlier for name in ("pickup_datetime", "dropoff_datetime")}
            out.write(json.dumps(trip) + "\n")
    return path


@contextmanager
def reader_of(table: Path, directory: Path) -> Iterator[list[dict[str, Any]]]:
    """Let another process read a table; afterwards the list has its answers."""
    answers: list[dict[str, Any]] = []
    stop, said = directory / "stop", directory / "answers.jsonl"
    with said.open("w") as out:
        reader = subprocess.Popen(
            [sys.executable, "-m", "tests.live.reader", str(table), str(stop)], cwd=REPOSITORY, stdout=out
        )
    try:
        yield answers
    finally:
        stop.touch()
        assert reader.wait(60) == 0
    for line in said.read_text().splitlines():
        answer = json.loads(line)
        answers.append({**answer, "vendors": {int(vendor): count for vendor, count in answer["vendors"].items()}})


def ended_runs(stack: LiveStack, backfill: int, count: int) -> list[dict[str, Any]] | None:
    """The runs of a backfill, once all of them have ended."""
    runs = stack.api.backfill_runs(DAG, backfill)
    ended = [run for run in runs if run["state"] in ("success", "failed")]
    return ended if len(ended) == count else None


def writers(stack: LiveStack, run_id: str) -> list[dict[str, Any]]:
    return stack.api.task_instances(DAG, run_id, WRITE)


def backfill_writers(stack: LiveStack) -> list[dict[str, Any]]:
    return [task for run in stack.api.runs(DAG, run_type="backfill") for task in writers(stack, run["dag_run_id"])]


def overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return bool(max(one["start_date"], other["start_date"]) < min(one["end_date"], other["end_date"]))


def rows_of(table: Path) -> Counter[Row]:
    """How often each row is there, as deltalake reads them."""
    found = DeltaTable(str(table)).to_pyarrow_table(columns=list(KEY))
    return Counter(zip(*(found.column(name).to_pylist() for name in KEY), strict=True))


def log_of(table: Path) -> Log:
    """The table's versions, as their actions by kind."""
    versions: Log = []
    for entry in sorted((table / "_delta_log").glob("*.json")):
        actions: dict[str, list[dict[str, Any]]] = {"add": [], "remove": []}
        for line in entry.read_text().splitlines():
            for kind, body in json.loads(line).items():
                actions.setdefault(kind, []).append(body)
        versions.append(actions)
    return versions


def vendors_by_version(table: Path) -> list[dict[int, int]]:
    """What each version holds by vendor, from the log and the Parquet files themselves."""
    counts: Counter[int] = Counter()
    versions = []
    for actions in log_of(table):
        assert not actions["remove"]
        for add in actions["add"]:
            counts.update(pq.read_table(table / add["path"], columns=["vendor_id"]).column("vendor_id").to_pylist())
        versions.append(dict(counts))
    return versions
