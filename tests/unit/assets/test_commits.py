"""What a run is told of: every commit once, whatever Airflow repeats, holds back or runs again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import attrs
import pytest
from airflow.sdk import Asset

from airflow_provider_onelake.assets import commits as module
from airflow_provider_onelake.assets.commits import COMMITS, TableCommit, commits
from airflow_provider_onelake.following.watch import describe
from tests.support.tables import commit_of, foreign_append, make_table
from tests.support.versions import needs_airflow

pytestmark = needs_airflow("3.3", "a store for an asset")
BEGIN = datetime(2030, 1, 1, tzinfo=UTC)
TRIPS = Asset("trips", uri="delta://onelake_default/Tables/trips")


@attrs.define
class History:
    """The events of one asset, as ``inlet_events[asset]`` gives them."""

    events: list[Any]

    def after(self, moment: str) -> History:
        return History([e for e in self.events if e.timestamp >= datetime.fromisoformat(moment)])

    def before(self, moment: str) -> History:
        return History([e for e in self.events if e.timestamp <= datetime.fromisoformat(moment)])

    def ascending(self, ascending: bool) -> History:
        return History(sorted(self.events, key=lambda e: e.timestamp, reverse=not ascending))

    def limit(self, limit: int) -> History:
        return History(self.events[:limit])

    def __iter__(self) -> Any:
        return iter(self.events)


class Kept(dict[str, Any]):
    def set(self, key: str, value: Any) -> None:
        self[key] = value


class Airflow:
    """One asset's events, and the runs of one DAG that they start."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, inlets: bool = True) -> None:
        self.events: list[Any] = []
        self.kept = Kept()
        self.inlets = inlets
        self.run_id = ""
        monkeypatch.setattr(module, "get_current_context", self._context)

    def _context(self) -> Any:
        def of_trips(value: Any) -> Any:
            class Mine(dict[str, Any]):
                def __getitem__(self, ref: Any) -> Any:
                    return value if ref.name == "trips" else super().__getitem__(ref)

            return Mine() if self.inlets else {}

        ti = SimpleNamespace(dag_id="consumer", task_id="consume", run_id=self.run_id)
        return {"ti": ti, "asset_state_store": of_trips(self.kept), "inlet_events": of_trips(History(self.events))}

    def event(self, extra: Any, partition_key: str | None = None) -> Any:
        happened = SimpleNamespace(
            asset=TRIPS, extra=extra, partition_key=partition_key, timestamp=BEGIN + timedelta(seconds=len(self.events))
        )
        self.events.append(happened)
        return happened

    def commit(self, version: int, when: int | None = None) -> Any:
        time = (BEGIN + timedelta(days=version if when is None else when)).isoformat()
        payload = {"table": "/t", "version": version, "time": time, "operation": "WRITE", "of": "a later format"}
        return self.event({"from_trigger": True, "payload": payload})

    def run(self, run_id: str, *events: Any) -> list[int]:
        self.run_id = run_id
        return [commit.version for commit in commits(events)]


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> Airflow:
    return Airflow(monkeypatch)


def test_a_run_gets_the_commits_of_its_events_in_order(airflow: Airflow) -> None:
    events = [airflow.commit(version) for version in (1, 2, 3)]
    assert airflow.run("a", *events) == [1, 2, 3]
    assert airflow.run("b", airflow.commit(4)) == [4]


def test_what_airflow_recorded_and_did_not_hand_out_is_there_and_does_not_come_again(airflow: Airflow) -> None:
    # On PostgreSQL a run gets the first event of a burst only; the others wait for the next event.
    first, *_ = (airflow.commit(version) for version in (1, 2, 3))
    assert airflow.run("a", first) == [1, 2, 3]
    fourth = airflow.commit(4)
    assert airflow.run("b", *airflow.events[1:3], fourth) == [4]


def test_what_a_triggerer_repeated_after_it_died_comes_once(airflow: Airflow) -> None:
    events = [airflow.commit(version) for version in (1, 2, 3, 2, 3, 4)]
    assert airflow.run("a", *events) == [1, 2, 3, 4]
    assert airflow.run("b", airflow.commit(3), airflow.commit(4), airflow.commit(5)) == [5]
    assert airflow.run("c", airflow.commit(5)) == []


def test_a_retry_gets_the_same(airflow: Airflow) -> None:
    events = [airflow.commit(version) for version in (1, 2)]
    assert airflow.run("a", *events) == [1, 2]
    later = airflow.commit(3)
    assert airflow.run("a", *events) == [1, 2]
    assert airflow.run("b", later) == [3]
    assert airflow.run("a", *events) == [1, 2]


def test_what_a_run_did_not_ask_for_before_it_failed_is_the_next_ones(airflow: Airflow) -> None:
    assert airflow.run("a", airflow.commit(1)) == [1]
    second = airflow.commit(2)
    assert airflow.run("c", airflow.commit(3)) == [2, 3]
    assert airflow.run("b", second) == []


def test_what_the_first_run_did_not_ask_for_before_it_failed_waits_for_it(airflow: Airflow) -> None:
    first = [airflow.commit(version) for version in (1, 2)]
    third = airflow.commit(3)
    assert airflow.run("b", third) == [3]
    for _ in range(2):
        assert airflow.run("a", *first) == [1, 2]
    assert airflow.run("b", third) == [3]
    assert airflow.run("c", airflow.commit(4)) == [4]


def test_a_table_that_was_made_again_has_its_versions_again(airflow: Airflow) -> None:
    assert airflow.run("a", airflow.commit(1), airflow.commit(2)) == [1, 2]
    assert airflow.run("b", airflow.commit(1, when=50), airflow.commit(2, when=51)) == [1, 2]


def test_only_the_last_runs_are_kept(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RUNS", 2)
    monkeypatch.setattr(module, "_DIGESTS", 0)
    monkeypatch.setattr(module, "_LOOK_BACK", timedelta(seconds=1.5))

    def kept() -> list[str]:
        return [run for run, *_ in airflow.kept["commits.consumer.consume"]["runs"]]

    for version in range(1, 7):
        assert airflow.run(f"run {version}", airflow.commit(version)) == [version]
    assert kept() == ["run 5", "run 6"]
    # As long as their events are looked at again, they are all kept.
    monkeypatch.setattr(module, "_LOOK_BACK", timedelta(hours=1))
    monkeypatch.setattr(module, "_RUNS", 1)
    airflow.kept.clear()
    for version in range(7, 11):
        assert airflow.run(f"run {version}", airflow.commit(version)) == [version]
    assert kept() == ["run 7", "run 8", "run 9", "run 10"]


def test_an_event_that_is_seen_after_a_later_one_is_not_lost(airflow: Airflow) -> None:
    # Its transaction ended later: first it is hidden, then it is older than what the run before has had.
    first, late, third = (airflow.commit(version) for version in (1, 2, 3))
    airflow.events.remove(late)
    assert airflow.run("a", first, third) == [1, 3]
    airflow.events.insert(1, late)
    assert airflow.run("b", late) == [2]
    assert airflow.run("a", first, third) == [1, 3]
    assert airflow.run("b", late) == [2]
    assert airflow.run("c", airflow.commit(4)) == [4]


def test_one_that_is_handed_to_a_run_very_late_is_not_lost(airflow: Airflow, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_BACK", timedelta(0))
    first, late, third = (airflow.commit(version) for version in (1, 2, 3))
    airflow.events.remove(late)
    assert airflow.run("a", first, third) == [1, 3]
    airflow.events.insert(1, late)
    assert airflow.run("b", late, airflow.commit(4)) == [2, 4]


def test_one_that_is_seen_late_comes_with_the_next_run_whatever_that_is_handed(airflow: Airflow) -> None:
    first, late, third = (airflow.commit(version) for version in (1, 2, 3))
    airflow.events.remove(late)
    assert airflow.run("a", first, third) == [1, 3]
    airflow.events.insert(1, late)
    assert airflow.run("b", airflow.commit(4)) == [2, 4]
    assert airflow.run("c", late) == []


def test_what_was_there_before_the_task_was_handed_anything_is_not_its(airflow: Airflow) -> None:
    for version in (1, 2):
        airflow.commit(version)
    assert airflow.run("a", airflow.commit(3)) == [3]
    assert airflow.run("b", airflow.commit(4)) == [4]


def test_a_loads_event_and_a_watchers_of_the_same_commits_count_once(airflow: Airflow, tmp_path: Path) -> None:
    log = make_table(tmp_path)
    version = foreign_append(log, {"2019-01": [1], "2019-02": [2]})
    commit = commit_of(log, version)
    described = {"table": log.table, **describe(commit)}
    events = [
        airflow.event({"from_trigger": True, "payload": {**described, "missed": None}}),
        airflow.event({"version": version, COMMITS: [described]}),
    ]
    airflow.run_id = "a"
    (told,) = commits(events)
    assert (told.version, told.rows_added, told.operation, told.time) == (version, 2, "WRITE", commit.time)
    assert told.partitions == [{"month": "2019-01"}, {"month": "2019-02"}]


def test_a_run_for_a_partition_gets_its_own_events(airflow: Airflow) -> None:
    time = BEGIN.isoformat()
    extra = {COMMITS: [{"table": "/t", "version": version, "time": time} for version in (4, 5)]}
    mine = [airflow.event(extra, "2019-01"), airflow.event(extra, "2019-01")]
    airflow.event(extra, "2019-02")
    assert airflow.run("a", *mine) == [4, 5]
    assert airflow.kept == {}


@pytest.mark.parametrize("extra", [None, {}, {"from_trigger": True, "payload": "x"}, {COMMITS: []}], ids=str)
def test_other_peoples_events_are_passed_over(airflow: Airflow, extra: Any) -> None:
    assert airflow.run("a", airflow.event(extra), airflow.commit(1)) == [1]


def test_partitions_are_those_that_got_or_lost_files() -> None:
    commit = TableCommit(
        table="/t", version=1, partitions_added=[{"m": "1"}, {"m": "2"}], partitions_removed=[{"m": "2"}, {"m": None}]
    )
    assert commit.partitions == [{"m": "1"}, {"m": "2"}, {"m": None}]
