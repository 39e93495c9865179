"""The trigger: serialisable, patient with stores, and it loses no commit when it starts again."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from tests.support.contexts import connect
from tests.support.tables import foreign_append, make_table


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))


def trigger(**arguments: Any) -> DeltaLogTrigger:
    return DeltaLogTrigger(table="trips", poll_interval=0.01, **arguments)


async def take(events: AsyncIterator[Any], count: int) -> list[Any]:
    taken: list[Any] = []
    while len(taken) < count:
        taken.append((await anext(events)).payload)
    return taken


class AssetStore:
    """Airflow's store for an asset."""

    def __init__(self) -> None:
        self.kept: dict[str, Any] = {}

    async def aget(self, key: str) -> Any:
        return self.kept.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = value


@pytest.mark.parametrize(
    "arguments",
    [{}, {"version": 3, "after": 2}, {"writers": {"a": 1}}, {"partition": "month = '2019-01'"}, {"operation": "WRITE"}],
    ids=str,
)
def test_it_is_made_again_from_what_it_serialises(arguments: dict[str, Any]) -> None:
    path, kwargs = trigger(**arguments).serialize()
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)


def test_it_waits_for_one_thing() -> None:
    with pytest.raises(InvalidWriteError):
        trigger(version=1, operation="WRITE")


async def test_it_fires_once_for_what_it_waits_for(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    foreign_append(log, {"2019-01": [1]})
    events = [event.payload async for event in trigger(version=1).run()]
    assert [(event["status"], event["version"]) for event in events] == [("met", 1)]


async def test_it_waits_until_it_happens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    waiting = asyncio.create_task(take(trigger(version=1).run(), 1))
    await asyncio.sleep(0.05)
    assert not waiting.done()
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    assert (await asyncio.wait_for(waiting, 5))[0]["version"] == 1


async def test_what_a_person_must_look_at_is_an_event(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    for _ in range(3):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / "trips" / "_delta_log" / f"{2:020d}.json").unlink()
    (event,) = [event.payload async for event in trigger(operation="OPTIMIZE", after=1).run()]
    assert event["status"] == "error"
    assert "2" in event["message"]


async def test_a_store_that_does_not_answer_is_asked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    get, failures = ObjectStore.get, [StoreUnavailableError("no answer")] * 2

    def failing(self: ObjectStore, path: str) -> bytes:
        if failures:
            raise failures.pop()
        return get(self, path)

    monkeypatch.setattr(ObjectStore, "get", failing)
    assert (await take(trigger(version=1).run(), 1))[0]["status"] == "met"
    assert not failures


async def test_a_watcher_fires_for_every_commit(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    for month in ("2019-01", "2019-02", "2019-03"):
        foreign_append(log, {month: [1]})
    events = await take(trigger(after=0).run(), 3)
    assert [event["version"] for event in events] == [1, 2, 3]
    assert events[1]["partitions_added"] == [{"month": "2019-02"}]


async def test_a_watcher_that_dies_before_its_event_is_taken_fires_it_again(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    store = AssetStore()

    def start() -> AsyncIterator[Any]:
        watcher = trigger()
        watcher.asset_state_store = store  # type: ignore[assignment]
        return watcher.run()

    store.kept["delta_log_version"] = 0
    foreign_append(log, {"2019-01": [1]})
    foreign_append(log, {"2019-01": [2]})
    first = start()
    assert [event["version"] for event in await take(first, 2)] == [1, 2]
    # Version 2 was yielded, but nobody asked for more: nobody knows whether it was taken.
    assert store.kept["delta_log_version"] == 1
    assert [event["version"] for event in await take(start(), 1)] == [2]


async def test_a_watcher_that_starts_for_the_first_time_remembers_where(tmp_path: Path) -> None:
    import asyncio

    make_table(tmp_path / "trips")
    store = AssetStore()
    watcher = trigger()
    watcher.asset_state_store = store  # type: ignore[assignment]
    waiting = asyncio.create_task(take(watcher.run(), 1))
    await asyncio.sleep(0.1)
    waiting.cancel()
    assert store.kept == {"delta_log_version": 0}
