"""The scenario: two vendors' writers at once. Its backfill from the web UI is in test_ui.py."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import attrs
import pytest

from include.local.demo import SAMPLE, count_by_spark
from include.local.expected import expected_append, month_files, read_trips
from tests.live.harness import LiveStack
from tests.live.trips import log_of, overlap, rows_of

pytestmark = pytest.mark.promise

DAG = "nyc_taxi_two_vendors"
WRITE = "load.write"


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
    committed = [add for version in log_of(january.table) for add in version["add"]]
    assert committed
    for add in committed:
        staged, writer, attempt, rest = add["path"].split("/", 3)
        assert staged == "staged"
        actions = {action["path"]: action for action in log_of(january.table / staged / writer / attempt)[1]["add"]}
        # The commit adds the statistics that the footers say.
        staged_stats, stats = (json.loads(found.pop("stats")) for found in (actions[rest], add))
        assert {**actions[rest], "path": add["path"]} == add
        assert staged_stats == {"numRecords": stats["numRecords"]}
        assert stats["minValues"].keys() == stats["maxValues"].keys() > set()


def writers(stack: LiveStack, run_id: str) -> list[dict[str, Any]]:
    return stack.api.task_instances(DAG, run_id, WRITE)
