"""The real triggerer, restarted while a table is written: every commit reaches every watching asset, once, in order.

``tests/unit/triggers/test_delta_log.py`` lets a triggerer of the test's own crash at every step, in seconds.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from include.local.api import wait_for
from tests.live.harness import LiveStack
from tests.support.tables import foreign_append, make_table

COMMITS = 50
CONSUMER = """
    import json
    from datetime import timedelta
    from pathlib import Path
    import pendulum
    from airflow.sdk import DAG, task
    from airflow_provider_onelake.assets.commits import commits
    from airflow_provider_onelake.assets.tables import watched_table_asset

    watched = watched_table_asset("Tables/watched", {name!r}, after=-1, poll_interval=2, **{filters!r})

    with DAG({name!r}, schedule=[watched], start_date=pendulum.datetime(2019, 1, 1, tz="UTC"), max_active_runs=1):

        @task(inlets=[watched], retries=5, retry_delay=timedelta(seconds=1))
        def consume(triggering_asset_events=None):
            versions = [commit.version for commit in commits(triggering_asset_events[watched])]
            with Path({seen!r}).open("a") as file:
                file.write(json.dumps(versions) + "\\n")

        consume()
"""


@pytest.mark.nightly
def test_fifty_commits_are_fifty_events_for_each_asset_though_the_triggerer_is_restarted_twice(
    live_stack: LiveStack, tmp_path: Path
) -> None:
    def taken(name: str) -> list[int]:
        file = tmp_path / name
        return (
            [version for line in file.read_text().splitlines() for version in json.loads(line)] if file.exists() else []
        )

    # One is told of everything, the other of WRITEs: version 0 makes the table.
    for name, filters in (("every_commit", {}), ("every_write", {"operation": "WRITE"})):
        live_stack.add_dag(name, CONSUMER.format(name=name, filters=filters, seen=str(tmp_path / name)))
        # Airflow begins to watch when it parses the DAG for the first time since it was switched on.
        (live_stack.dags / f"{name}.py").touch()
    log = make_table(live_stack.lakehouse / "Tables" / "watched")
    committed = 0

    def commit(times: int) -> None:
        nonlocal committed
        for _ in range(times):
            committed = foreign_append(log, {"2019-01": [committed]})

    def wait_until_taken(version: int) -> None:
        for name in ("every_commit", "every_write"):
            wait_for(lambda name=name: version in taken(name), f"version {version} to reach {name}", 240)  # type: ignore[misc]

    commit(5)
    wait_until_taken(1)
    # Between two polls.
    commit(5)
    former = live_stack.kill("triggerer")
    commit(10)
    former = live_stack.wait_until_restarted("triggerer", former)
    commit(10)
    wait_until_taken(20)
    commit(5)
    os.kill(former, signal.SIGTERM)
    commit(5)
    live_stack.wait_until_restarted("triggerer", former)
    commit(COMMITS - committed)
    wait_until_taken(COMMITS)

    assert taken("every_commit") == list(range(COMMITS + 1))
    assert taken("every_write") == list(range(1, COMMITS + 1))
