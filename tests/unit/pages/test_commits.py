"""Pages of a table's versions cost the same however many versions there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.exceptions import InvalidWriteError, TableNotFoundError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.pages.commits import commit_in_full, page_of_commits, tasks_of
from airflow_provider_onelake.staging.claims import Deed, begin
from tests.support.stores import Counted, through
from tests.support.tables import LOAD, foreign_append, local_log, make_table, stage, writer_spec


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    found = make_table(tmp_path / "trips")
    for number in range(6):
        foreign_append(found, {"2019-01": [number]})
    return found


def versions(page: dict[str, Any]) -> list[int]:
    return [commit["version"] for commit in page["commits"]]


def test_pages_lead_from_the_newest_version_to_the_first(log: DeltaLog) -> None:
    first = page_of_commits(log, limit=3)
    assert (versions(first), first["newest"], first["before"]) == ([6, 5, 4], 6, 4)
    second = page_of_commits(log, first["before"], limit=3)
    assert (versions(second), second["before"]) == ([3, 2, 1], 1)
    last = page_of_commits(log, second["before"], limit=3)
    assert (versions(last), last["before"], last["cleaned_up"]) == ([0], None, False)
    assert versions(page_of_commits(log, before=99)) == [6, 5, 4, 3, 2, 1, 0]
    assert versions(page_of_commits(log, before=0)) == []


def test_a_page_costs_the_same_however_long_the_log_is(tmp_path: Path) -> None:
    costs = []
    for length in (20, 80):
        made = make_table(tmp_path / str(length))
        for number in range(length):
            foreign_append(made, {"2019-01": [number]})
        counted = Counted(made.store)
        page_of_commits(through(counted, made), limit=10)
        costs.append(counted.calls)
    assert costs[0] == costs[1]
    assert costs[0]["get"] <= 11


def test_entries_that_were_cleaned_up_end_the_pages(log: DeltaLog) -> None:
    for version in range(3):
        log.store.delete(f"_delta_log/{version:020d}.json")
    opened = local_log(Path(log.table))
    page = page_of_commits(opened)
    assert (versions(page), page["before"], page["cleaned_up"]) == ([6, 5, 4, 3], None, True)
    with pytest.raises(InvalidWriteError, match="no version 1 in its log"):
        commit_in_full(opened, 1)


def test_there_is_no_page_where_there_is_no_table(tmp_path: Path) -> None:
    with pytest.raises(TableNotFoundError):
        page_of_commits(local_log(tmp_path / "empty"))


def test_writers_lead_to_their_task_instances(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    deed = Deed(id="d", task="load.write[3]", run_id="manual__1", chain="c")
    eu, us = LOAD.writer("eu"), LOAD.writer("us")
    begin(log, eu, deed)
    begin(log, us, attrs.evolve(deed, id="e", task="write_us", chain="b"))
    tasks = {"eu": "load.write[3]", "us": "write_us", "gone": "load.write[4]"}
    buffers = [stage(log, writer_spec(key, task=task), {"2019-01": [1]}) for key, task in tasks.items()]
    log.store.delete(f"{LOAD.writer('gone').directory}/_claim-1.json")
    Committer(log).publish(buffers)
    commit = log.commit(1)
    assert commit is not None
    found = dict(zip([w.writer for w in commit.writers], tasks_of(log, commit.writers, "test"), strict=True))
    assert found == {
        "eu": {"dag": "taxi", "run": "manual__1", "task": "load.write", "map_index": 3},
        "us": {"dag": "taxi", "run": "manual__1", "task": "write_us", "map_index": -1},
        "gone": None,
    }
    assert tasks_of(log, commit.writers, "another deployment") == [None, None, None]
