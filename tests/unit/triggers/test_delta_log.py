"""The watcher: every commit once and in order, whatever becomes of the triggerer; many share one poll."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException
from deltalake import DeltaTable

from airflow_provider_onelake.assets.commits import TableCommit, commits
from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.exceptions import AccessDeniedError, InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.following.filters import CommitFilter
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators._outlets import tell_outlets
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.table import Table
from airflow_provider_onelake.triggers import delta_log, feed
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from airflow_provider_onelake.writes.report import Report, WriterOutcome
from tests.support.contexts import connect
from tests.support.tables import foreign_append, foreign_commit, local_log, make_table
from tests.support.triggerer import Database, Triggerer
from tests.support.versions import needs_airflow

pytestmark = needs_airflow("3.3", "watermarks of watchers")

DAGS = Path(__file__).parents[3] / "dags"


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))


def watcher(**arguments: Any) -> DeltaLogTrigger:
    return DeltaLogTrigger(table="trips", poll_interval=0.01, **arguments)


@pytest.fixture
async def database() -> AsyncIterator[Database]:
    found = Database()
    yield found
    for triggerer in found.triggerers:
        await triggerer.crash()


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What troubles the watchers, in the triggerer's log."""
    return lines_of(monkeypatch, "warning", "error")


def lines_of(monkeypatch: pytest.MonkeyPatch, *levels: str) -> list[str]:
    lines: list[str] = []

    def say(text: str, *values: Any) -> None:
        lines.append(text % values if values else text)

    silent = {level: lambda *_: None for level in ("info", "warning", "error")}
    monkeypatch.setattr(DeltaLogTrigger, "log", SimpleNamespace(**{**silent, **dict.fromkeys(levels, say)}))
    return lines


def what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []
    get = ObjectStore.get
    monkeypatch.setattr(ObjectStore, "get", lambda self, path: (asked.append(path), get(self, path))[1])
    return asked


def versions_in(kept: dict[str, Any]) -> dict[str, int]:
    return {key: seen["version"] for key, seen in kept.items()}


def append(path: Path, times: int = 1, month: str = "2019-01") -> DeltaLog:
    """Append to the table, which is made if there is none."""
    log = local_log(path / "trips") if (path / "trips" / "_delta_log").exists() else make_table(path / "trips")
    for _ in range(times):
        foreign_append(log, {month: [1]})
    return log


async def watched(count: int, **arguments: Any) -> Database:
    """What is in the database once a watcher has told of so many commits."""
    return await told(Database(), count, watcher(**arguments))


async def told(database: Database, count: int, trips: DeltaLogTrigger) -> Database:
    """That database, when there are so many events in it and the triggerer has died."""
    triggerer = Triggerer(database, trips=trips)
    await triggerer.until(lambda: len(database.events) >= count)
    await triggerer.crash()
    return database


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"after": 2, "asset": "trips"},
        {"operation": "WRITE"},
        {"operation": ["WRITE", "MERGE"], "partition": "month = '1'", "writer": "onelake/*", "data_change_only": True},
    ],
    ids=str,
)
def test_it_is_made_again_from_what_it_serialises(arguments: dict[str, Any]) -> None:
    path, kwargs = watcher(**arguments).serialize()
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)
    assert again.watermark == watcher(**arguments).watermark


async def test_every_commit_is_an_event_once_and_in_order(tmp_path: Path, database: Database) -> None:
    append(tmp_path, 3)
    triggerer = Triggerer(database, trips=watcher(after=-1))
    await triggerer.until(lambda: len(database.events) >= 4)
    append(tmp_path, 5, "2019-02")
    await triggerer.until(lambda: len(database.events) >= 9)
    assert database.versions("trips") == list(range(9))
    assert database.events[-1][1]["partitions_added"] == [{"month": "2019-02"}]
    assert json.loads(json.dumps(database.events)) == [list(event) for event in database.events]


async def test_every_commit_without_offsets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database
) -> None:
    list_all = ObjectStore.list

    def blind(self: ObjectStore, prefix: str, start_after: str | None = None) -> Any:
        return iter(()) if start_after is not None else list_all(self, prefix)

    monkeypatch.setattr(ObjectStore, "list", blind)
    monkeypatch.setattr(feed, "LIST_EVERY", 1)
    append(tmp_path, 3)
    DeltaTable(str(tmp_path / "trips")).create_checkpoint()
    append(tmp_path, 2)
    (tmp_path / "trips" / version_path(2)).unlink()
    triggerer = Triggerer(database, trips=watcher(after=1))
    await triggerer.until(lambda: len(database.events) >= 3)
    append(tmp_path, 2)
    await triggerer.until(lambda: len(database.events) >= 5)
    assert database.versions("trips") == [3, 4, 5, 6, 7]


async def test_watchers_share_one_poll(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    log = append(tmp_path, 2)
    append(tmp_path, 2, "2019-02")
    foreign_commit(log, [{"commitInfo": {"operation": "OPTIMIZE"}}])
    asked = what_is_asked_for(monkeypatch)
    triggerer = Triggerer(
        database,
        every=watcher(after=0),
        february=watcher(after=0, partition="month = '2019-02'"),
        changes=watcher(after=0, data_change_only=True),
        upkeep=watcher(after=0, operation=["OPTIMIZE", "VACUUM END"]),
    )
    await triggerer.until(lambda: all(5 in versions_in(store.kept).values() for store in database.stores.values()))
    assert database.versions("every") == [1, 2, 3, 4, 5]
    assert database.versions("february") == [3, 4]
    assert database.versions("changes") == [1, 2, 3, 4]
    assert database.versions("upkeep") == [5]
    # The newest one is looked at again, to know that the table is the same, and the next one until it is there.
    former = [path for path in asked if path.endswith(".json") and int(Path(path).stem) < 5]
    assert sorted(set(former)) == sorted(former), "an entry was read twice"


async def test_its_events_name_the_table_as_a_loads_event_does_so_that_what_both_tell_of_is_one(tmp_path: Path) -> None:
    append(tmp_path)
    database = await watched(1, after=0)
    log, told = OneLakeHook().table("trips").log, SimpleNamespace()
    outcome = WriterOutcome(writer="w", status="published", version=1, rows_published=1)
    report = Report(load="l", table=log.table, outcomes=(outcome,), missing=())
    by_load = table_asset("trips", "by load")
    context: Any = {"outlet_events": {by_load: told}, "dag_run": SimpleNamespace(partition_key=None)}
    tell_outlets(context, [by_load], log, report)
    by_watcher = SimpleNamespace(extra={"from_trigger": True, "payload": database.events[0][1]}, partition_key="all")
    by_load_too = SimpleNamespace(extra=told.extra, partition_key="all")
    assert [commit.version for commit in commits([by_watcher, by_load_too])] == [1]


async def test_a_version_is_kept_as_seen_only_when_airflow_has_its_event(tmp_path: Path, database: Database) -> None:
    make_table(tmp_path / "trips")
    trips = watcher()
    triggerer = Triggerer(database, trips=trips)
    kept = database.store("trips").kept
    await triggerer.until(lambda: versions_in(kept) == {trips.watermark: 0})
    append(tmp_path)
    await triggerer.until(lambda: database.versions("trips") == [1], confirming=False)
    assert versions_in(kept) == {trips.watermark: 0}
    await triggerer.until(lambda: versions_in(kept) == {trips.watermark: 1})


@pytest.mark.parametrize(
    ("versions", "after", "first"),
    [
        pytest.param(0, None, 0, id="no table"),
        pytest.param(0, -1, 0, id="no table, from its beginning"),
        pytest.param(3, None, 3, id="a table"),
        pytest.param(3, -1, 0, id="a table, from its beginning"),
        pytest.param(3, 1, 2, id="a table, after a version"),
    ],
)
async def test_it_says_from_which_version_on_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, versions: int, after: int | None, first: int, database: Database
) -> None:
    told = lines_of(monkeypatch, "info")
    if versions:
        append(tmp_path, versions - 1)
    triggerer = Triggerer(database, trips=watcher(after=after))
    line = f"trips: this watcher is new: commits become events from version {first} on. `after` says another beginning."
    await triggerer.until(lambda: line in told, confirming=False)
    await triggerer.crash()
    append(tmp_path)
    triggerer = Triggerer(database, trips=watcher(after=after))
    last = max(versions, 1)
    await triggerer.until(lambda: last in database.versions("trips"))
    assert database.first_seen("trips") == list(range(first, last + 1))
    assert after is not None or told == [line]


async def test_where_it_begins_is_kept_before_there_is_an_event(tmp_path: Path) -> None:
    """A triggerer that dies before the poll comes back would else begin at a later version."""
    append(tmp_path)
    mine, kept = watcher(), Database().store("trips")
    mine.asset_state_store = kept  # type: ignore[assignment]
    passing = mine.create_shared_stream_producer(mine.serialize()[1])
    await passing._locked(passing._look)

    async def first_poll() -> Any:
        yield feed.Poll(passing, 1)

    assert [event async for event in mine.filter_shared_stream(first_poll())] == []
    assert versions_in(kept.kept) == {mine.watermark: 1}


async def test_the_example_tells_of_a_new_tables_first_load_however_late_its_watcher_looks(tmp_path: Path) -> None:
    trigger: DeltaLogTrigger = run_path(str(DAGS / "table_events.py"))["CHANGES"].watchers[0].trigger
    foreign_append(make_table(tmp_path / trigger.table), {"2019-01": [1]})
    database = await told(Database(), 1, trigger)
    assert database.versions("trips") == [1]


async def test_a_poll_that_a_watcher_failed_in_lets_nobody_keep_how_far_it_came() -> None:
    kept: list[feed.Position] = []

    async def keep(seen: feed.Position) -> None:
        kept.append(seen)

    source = feed.LogFeed("trips", "onelake_default", 0.01)
    poll = feed.Poll(source, 3, positions={keep: feed.Position(3)})
    for failed, expected in ((1, []), (0, [feed.Position(3)])):
        await source.advance([SimpleNamespace(outcome=SimpleNamespace(failed=failed), broker_payload=poll)])  # type: ignore[list-item]
        assert kept == expected


@pytest.mark.parametrize("seed", range(4))
async def test_no_commit_is_lost_or_out_of_order_however_often_the_triggerer_dies(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    make_table(tmp_path / "trips")
    database, last = Database(), 0

    def both() -> Triggerer:
        two = watcher(after=-1, data_change_only=bool(seed % 2), operation="WRITE")
        return Triggerer(database, one=watcher(after=-1), two=two)

    for _ in range(6):
        triggerer = both()
        burst = chance.randint(0, 5)
        append(tmp_path, burst)
        last += burst
        wanted = chance.randint(0, last)
        await triggerer.until(
            lambda wanted=wanted: len(database.first_seen("one")) >= wanted,  # type: ignore[misc]
            confirming=chance.random() < 0.5,
        )
        triggerer.persist(chance.randint(0, 3))
        await triggerer.crash()
    triggerer = both()
    await triggerer.until(lambda: set(database.versions("one")) == set(range(last + 1)))
    await triggerer.until(lambda: set(database.versions("two")) == set(range(1, last + 1)))
    await triggerer.crash()
    assert database.first_seen("one") == list(range(last + 1))
    assert database.first_seen("two") == list(range(1, last + 1))


async def test_a_watcher_that_joins_late_catches_up(tmp_path: Path, database: Database) -> None:
    make_table(tmp_path / "trips")
    triggerer = Triggerer(database, first=watcher(after=-1))
    append(tmp_path, 3)
    await triggerer.until(lambda: database.versions("first") == [0, 1, 2, 3])
    late = watcher(after=-1, data_change_only=True)
    triggerer.start("late", late)
    await triggerer.until(lambda: database.versions("late") == [1, 2, 3])
    assert database.versions("first") == [0, 1, 2, 3]


async def test_a_backlog_comes_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    monkeypatch.setattr(delta_log, "_A_POLL", 2)
    monkeypatch.setattr(delta_log, "IN_FLIGHT", 3)
    append(tmp_path, 9)
    trips = watcher(after=-1)
    triggerer = Triggerer(database, trips=trips)
    kept = database.store("trips").kept
    polls: list[int] = []
    look = feed.LogFeed._look

    def counting(self: feed.LogFeed) -> int:
        polls.append(1)
        return look(self)

    monkeypatch.setattr(feed.LogFeed, "_look", counting)
    # Nothing is confirmed: two at the first poll, a third one at the next, and then no more.
    await triggerer.until(lambda: len(database.events) >= 3 and len(polls) > 6, confirming=False)
    assert (database.versions("trips"), kept) == ([0, 1, 2], {})
    await triggerer.until(lambda: len(database.events) >= 10)
    assert database.versions("trips") == list(range(10))


async def test_the_first_look_reads_the_newest_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 60)
    DeltaTable(str(tmp_path / "trips")).create_checkpoint()
    asked = what_is_asked_for(monkeypatch)
    mine = watcher()
    looking = mine.create_shared_stream_producer(mine.serialize()[1])
    assert await looking._locked(looking._look) == 60
    # The hint of the last checkpoint, twice, that checkpoint, the newest entry, and the one that is not there.
    assert len(asked) <= 5
    append(tmp_path)
    asked.clear()
    assert await looking._locked(looking._look) == 61
    assert len(asked) <= 3
    asked.clear()
    assert await looking._locked(looking._look) == 61
    # Nothing is new: one question, for the next version.
    assert len(asked) == 1


async def test_a_table_that_does_not_exist_is_waited_for(tmp_path: Path, database: Database) -> None:
    trips = watcher()
    triggerer = Triggerer(database, trips=trips)
    await triggerer.until(lambda: versions_in(database.store("trips").kept) == {trips.watermark: -1})
    append(tmp_path)
    await triggerer.until(lambda: len(database.events) >= 2)
    assert database.versions("trips") == [0, 1]


async def test_what_was_cleaned_up_unseen_is_named(tmp_path: Path, said: list[str], database: Database) -> None:
    append(tmp_path, 5)
    for version in (0, 1, 2, 3):
        (tmp_path / "trips" / "_delta_log" / f"{version:020d}.json").unlink()
    trips = watcher(after=0)
    database.store("trips").kept[trips.watermark] = {"version": 1, "digest": "of what is gone"}
    await told(database, 2, trips)
    assert [(e["version"], e["missed"]) for _, e in database.events] == [(4, [2, 3]), (5, None)]
    assert sum("versions 2 to 3 were cleaned up" in line for line in said) == 1


async def test_a_table_made_again_is_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], database: Database
) -> None:
    monkeypatch.setattr(feed, "LIST_EVERY", 2)
    append(tmp_path, 2)
    triggerer = Triggerer(database, trips=watcher(after=-1))
    await triggerer.until(lambda: len(database.events) >= 3)
    shutil.rmtree(tmp_path / "trips")
    await triggerer.until(lambda: bool(said))
    append(tmp_path, 1, "2020-02")
    await triggerer.until(lambda: len(database.events) >= 5)
    assert database.versions("trips") == [0, 1, 2, 0, 1]
    assert database.events[-1][1]["partitions_added"] == [{"month": "2020-02"}]


async def test_a_table_made_again_is_followed_from_its_first_version(tmp_path: Path, database: Database) -> None:
    trips = watcher()
    append(tmp_path)
    database.store("trips").kept[trips.watermark] = {"version": 7, "digest": "x"}
    await told(database, 2, trips)
    assert database.versions("trips") == [0, 1]


def swap_in_new(path: Path) -> None:
    (path / "trips").rename(path / "away")
    (path / "new" / "trips").rename(path / "trips")


@pytest.mark.parametrize("restarted", [False, True], ids=["while it is watched", "while the triggerer is down"])
async def test_one_made_again_with_as_many_versions(tmp_path: Path, restarted: bool, database: Database) -> None:
    append(tmp_path, 3)
    trips = watcher(after=-1)
    triggerer = Triggerer(database, trips=trips)
    await triggerer.until(lambda: list(versions_in(database.store("trips").kept).values()) == [3])
    # Ready before it is swapped in, as a load by another name is: no poll sees that the table is gone.
    append(tmp_path / "new", 6, "2020-02")
    if restarted:
        await triggerer.crash()
    swap_in_new(tmp_path)
    if restarted:
        triggerer = Triggerer(database, trips=watcher(after=-1))
    await triggerer.until(lambda: len(database.events) >= 11)
    assert database.versions("trips") == [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6]
    assert database.events[5][1]["partitions_added"] == [{"month": "2020-02"}]


async def test_one_with_exactly_as_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, database: Database) -> None:
    monkeypatch.setattr(feed, "LIST_EVERY", 2)
    append(tmp_path)
    append(tmp_path / "new", 1, "2020-02")
    triggerer = Triggerer(database, trips=watcher(after=-1))
    await triggerer.until(lambda: list(versions_in(database.store("trips").kept).values()) == [1])
    swap_in_new(tmp_path)
    await triggerer.until(lambda: len(database.events) >= 4)
    assert database.versions("trips") == [0, 1, 0, 1]


@pytest.mark.parametrize("restarted", [False, True], ids=["while it is watched", "while the triggerer is down"])
async def test_a_table_that_was_away_is_waited_for_and_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], restarted: bool, database: Database
) -> None:
    monkeypatch.setattr(feed, "LIST_EVERY", 2)
    append(tmp_path, 2)
    triggerer = Triggerer(database, trips=watcher(after=-1))
    store = database.store("trips")
    await triggerer.until(lambda: list(versions_in(store.kept).values()) == [2])
    (tmp_path / "trips").rename(tmp_path / "away")
    await triggerer.until(lambda: any("there is no table" in line for line in said))
    if restarted:
        await triggerer.crash()
        said.clear()
        triggerer = Triggerer(database, trips=watcher(after=-1))
        await triggerer.until(lambda: any("there is no table" in line for line in said))
    shutil.rmtree(tmp_path / "trips", ignore_errors=True)
    (tmp_path / "away").rename(tmp_path / "trips")
    append(tmp_path)
    await triggerer.until(lambda: list(versions_in(store.kept).values()) == [3])
    assert database.versions("trips") == [0, 1, 2, 3]


async def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 3)
    get, failures = ObjectStore.get, [StoreUnavailableError("no answer")] * 3

    def failing(self: ObjectStore, path: str) -> bytes:
        if failures and path.endswith("2.json"):
            raise failures.pop()
        return get(self, path)

    monkeypatch.setattr(ObjectStore, "get", failing)
    database = await watched(4, after=-1)
    assert database.versions("trips") == [0, 1, 2, 3]
    assert not failures


async def test_a_connection_that_was_corrected_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path, 3)
    opened: list[str] = []
    open_table, get = OneLakeHook.table, ObjectStore.get

    def opening(self: OneLakeHook, name: str) -> Table:
        opened.append(name)
        return open_table(self, name)

    def refusing(self: ObjectStore, path: str) -> bytes:
        # The key that the first connection has was taken back; the second time, while a commit is read.
        if len(opened) < 3 and path.endswith(f"{len(opened)}.json"):
            raise AccessDeniedError("the key is no more")
        return get(self, path)

    monkeypatch.setattr(OneLakeHook, "table", opening)
    monkeypatch.setattr(ObjectStore, "get", refusing)
    database = await watched(4, after=-1)
    assert database.versions("trips") == [0, 1, 2, 3]
    assert len(opened) == 3


async def test_a_connection_that_is_not_given_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_table(tmp_path / "trips")
    give, failures = OneLakeHook.aget_connection, [AirflowNotFoundException("The conn_id isn't defined")] * 2

    async def shaky(cls: type, conn_id: str) -> Any:
        if failures:
            raise failures.pop()
        return await give(conn_id)

    monkeypatch.setattr(OneLakeHook, "aget_connection", classmethod(shaky))
    await watched(1, after=-1)
    assert not failures


async def test_a_wrong_predicate_holds_up_its_watcher(tmp_path: Path, said: list[str], database: Database) -> None:
    make_table(tmp_path / "trips")
    triggerer = Triggerer(database, wrong=watcher(after=0, partition="id = 1"), right=watcher(after=0))
    append(tmp_path, 2)
    await triggerer.until(lambda: len(database.events) >= 2 and any("InvalidWriteError" in line for line in said))
    assert database.versions("right") == [1, 2]
    assert database.versions("wrong") == []
    assert list(versions_in(database.store("wrong").kept).values()) == [0]
    assert len(set(said)) == 1


async def test_trouble_is_said_more_rarely(tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "_RAREST", 5)
    append(tmp_path)
    mine = watcher(after=0, partition="id = 1")
    passing = mine.create_shared_stream_producer(mine.serialize()[1])
    await passing._locked(passing._look)
    said_at = []

    async def polls() -> Any:
        for number in range(1, 21):
            before = len(said)
            yield feed.Poll(passing, 1)
            said_at.extend([number] * (len(said) - before))

    assert [event async for event in mine.filter_shared_stream(polls())] == []
    assert said_at == [1, 4, 9, 14, 19]
    assert len(set(said)) == 1


async def test_equal_watchers_of_two_assets_are_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delta_log, "LONGEST_PAUSE", 0)

    class OfTwo:
        async def aget(self, key: str) -> Any:
            raise ValueError("Task has 2 concrete inlets and outlets")

        def __getitem__(self, asset: Any) -> Any:
            raise KeyError(asset)

    for mine, message in ((watcher(), "give each watcher its asset's name"), (watcher(asset="x"), "own name")):
        mine.asset_state_store = OfTwo()  # type: ignore[assignment]
        with pytest.raises(InvalidWriteError, match=message):
            await anext(mine.filter_shared_stream(aiter_of_nothing()))


async def aiter_of_nothing() -> Any:
    for nothing in ():
        yield nothing


async def test_alone_an_event_counts_as_taken_when_the_next_is_asked_for(tmp_path: Path) -> None:
    append(tmp_path, 2)
    store = Database().store("trips")
    mine = watcher(after=-1)
    mine.asset_state_store = store  # type: ignore[assignment]
    events = mine.run()
    taken = [(await anext(events)).payload["version"] for _ in range(3)]
    assert taken == [0, 1, 2]
    assert store.kept == {}
    append(tmp_path)
    assert (await anext(events)).payload["version"] == 3
    assert versions_in(store.kept) == {mine.watermark: 2}


async def test_a_state_store_that_does_not_answer_ends_nothing(tmp_path: Path, database: Database) -> None:
    append(tmp_path, 2)
    trips = watcher(after=-1)
    store = database.store("trips")
    failures = [RuntimeError("away")] * 2
    aget, aset = type(store).aget, type(store).aset

    class Shaky(type(store)):  # type: ignore[misc]
        async def aget(self, key: str) -> Any:
            if failures:
                raise failures.pop()
            return await aget(store, key)

        async def aset(self, key: str, value: Any) -> None:
            if len(database.events) < 3:
                raise RuntimeError("away")
            await aset(store, key, value)

    database.stores["trips"] = Shaky()
    triggerer = Triggerer(database, trips=trips)
    await triggerer.until(lambda: versions_in(store.kept) == {trips.watermark: 2})
    assert database.versions("trips") == [0, 1, 2]


def test_another_filter_or_table_is_another_watermark_and_another_pause_is_not() -> None:
    mine = watcher()
    others = [watcher(operation="WRITE"), watcher(writer="a"), DeltaLogTrigger(table="other", poll_interval=0.01)]
    others += [watcher(onelake_conn_id="other"), watcher(partition="month = '1'"), watcher(data_change_only=True)]
    assert len({mine.watermark, *(other.watermark for other in others)}) == 7
    assert DeltaLogTrigger(table="trips", poll_interval=9, after=3, asset="x").watermark == mine.watermark
    assert mine.create_shared_stream_producer(mine.serialize()[1]).table == "trips"


ODD_ADD = {"path": "a", "partitionValues": {"month": "2019-01"}, "size": 1, "modificationTime": 1, "dataChange": True}


@pytest.mark.parametrize(
    "actions",
    [
        pytest.param([{"commitInfo": {"timestamp": "2019-01-01T00:00:00Z"}}], id="a time that is text"),
        pytest.param([{"commitInfo": {"timestamp": 1_549_000_000_123_000}}], id="a time in microseconds"),
        pytest.param([{"commitInfo": {"staged": {"writers": [{"writer": "w"}]}}}], id="a record like ours"),
        pytest.param([{"commitInfo": "?"}], id="a commitInfo that is text"),
        pytest.param([{"add": {**ODD_ADD, "stats": "none"}}], id="statistics that are no JSON"),
        pytest.param([{"add": {**ODD_ADD, "stats": '["x"]'}}], id="statistics that are a list"),
        pytest.param([{"add": {**ODD_ADD, "stats": '{"numRecords": "many"}'}}], id="rows that are no number"),
        pytest.param([{"add": {**ODD_ADD, "partitionValues": {"month": 7}}}], id="a partition that is a number"),
        pytest.param([{"remove": {"path": "a", "partitionValues": {"day": "x"}}}], id="a partition of another column"),
        pytest.param([{"commitInfo": {"operation": ["x"], "userMetadata": {}}}], id="an operation that is a list"),
        pytest.param([{"add": {**ODD_ADD, "partitionValues": {}}}], id="no partition"),
    ],
)
@pytest.mark.parametrize("partition", [None, "month = '2019-01'"])
async def test_a_strange_commit_is_told(tmp_path: Path, actions: list[dict[str, Any]], partition: str | None) -> None:
    log = make_table(tmp_path / "trips")
    foreign_commit(log, [*actions, {"add": ODD_ADD}] if partition else actions)
    append(tmp_path)
    database = await watched(2, after=0, partition=partition)
    assert database.versions("trips") == [1, 2]


async def test_what_nobody_thought_of_does_not_end_a_watcher(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def raises(self: Commit) -> int:
        raise ZeroDivisionError(self.version)

    append(tmp_path, 2)
    monkeypatch.setattr(Commit, "rows_added", property(raises))
    monkeypatch.setattr(CommitFilter, "takes", lambda self, commit, partitioning: 1 / 0)
    database = await watched(2, after=0)
    assert database.versions("trips") == [1, 2]
    told = database.events[0][1]
    assert (told["rows_added"], told["operation"]) == (None, "WRITE")


@pytest.mark.parametrize("content", [b'{"add":', b'{"txn":{"appId":"x"}}\n', b"\xff\xfe"])
async def test_an_entry_that_cannot_be_read_is_waited_for_and_passed_over_once_others_went_on(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture, database: Database
) -> None:
    log = append(tmp_path)
    triggerer = Triggerer(database, log=watcher(after=0), january=watcher(after=0, partition="month = '2019-01'"))
    await triggerer.until(lambda: len(database.events) >= 2)
    (tmp_path / "trips" / version_path(2)).write_bytes(content)
    await triggerer.until(lambda: "No later version is there, so it is waited for" in caplog.text)
    assert database.versions("log") == database.versions("january") == [1]
    log.store.create(version_path(3), b'{"commitInfo":{"operation":"WRITE"}}\n')
    await triggerer.until(lambda: database.first_seen("log") == [1, 2, 3])
    await triggerer.until(lambda: 3 in versions_in(database.store("january").kept).values())
    assert database.versions("january") == [1, 2]
    told = next(payload for name, payload in database.events if payload["version"] == 2)
    assert commits_as_told(told) == {"operation": "", "data_change": True, "rows_added": None, "time": None}


async def test_an_entry_that_is_mended_while_it_is_the_newest(tmp_path: Path, database: Database) -> None:
    append(tmp_path)
    strange = tmp_path / "trips" / version_path(2)
    strange.write_bytes(b'{"commitInfo":')
    triggerer = Triggerer(database, log=watcher(after=0))
    await triggerer.until(lambda: database.versions("log") == [1])
    strange.write_bytes(b'{"commitInfo":{"operation":"MENDED"}}\n')
    await triggerer.until(lambda: database.first_seen("log") == [1, 2])
    assert database.events[-1][1]["operation"] == "MENDED"


def commits_as_told(payload: dict[str, Any]) -> dict[str, Any]:
    commit = TableCommit.from_json(payload)
    return {name: getattr(commit, name) for name in ("operation", "data_change", "rows_added", "time")}
