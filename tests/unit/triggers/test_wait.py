"""The trigger behind the sensor: serialisable, patient with stores, and it fires once."""

from __future__ import annotations

import asyncio
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowNotFoundException

from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.triggers.wait import DeltaLogWaitTrigger
from tests.support.contexts import connect
from tests.support.tables import foreign_append, make_table


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))


def trigger(**arguments: Any) -> DeltaLogWaitTrigger:
    return DeltaLogWaitTrigger(table="trips", poll_interval=0.01, **arguments)


async def fired(waiting: DeltaLogWaitTrigger) -> Any:
    (event,) = [event.payload async for event in waiting.run()]
    return event


@pytest.mark.parametrize(
    "arguments",
    [
        {"version": 3, "after": 2},
        {"writers": {"a": 1}},
        {"partition": "month = '2019-01'", "rows_at_least": 3},
        {"operation": "WRITE"},
        {"fresher_than": 60.0},
    ],
    ids=str,
)
def test_it_is_made_again_from_what_it_serialises(arguments: dict[str, Any]) -> None:
    path, kwargs = trigger(**arguments).serialize()
    module, _, name = path.rpartition(".")
    again = getattr(import_module(module), name)(**json.loads(json.dumps(kwargs)))
    assert again.serialize() == (path, kwargs)


async def test_it_fires_once_for_what_it_waits_for(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    foreign_append(log, {"2019-01": [1]})
    event = await fired(trigger(version=1))
    assert (event["status"], event["version"]) == ("met", 1)


async def test_it_waits_until_it_happens(tmp_path: Path) -> None:
    waiting = asyncio.create_task(fired(trigger(rows_at_least=2)))
    log = make_table(tmp_path / "trips")
    foreign_append(log, {"2019-01": [1]})
    await asyncio.sleep(0.05)
    assert not waiting.done()
    foreign_append(log, {"2019-01": [1]})
    event = await asyncio.wait_for(waiting, 60)
    assert (event["version"], event["rows"]) == (2, 2)


async def test_what_a_person_must_look_at_is_an_event(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    for _ in range(3):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / "trips" / "_delta_log" / f"{2:020d}.json").unlink()
    event = await fired(trigger(operation="OPTIMIZE", after=1))
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
    assert (await fired(trigger(version=1)))["status"] == "met"
    assert not failures


def unavailable(monkeypatch: pytest.MonkeyPatch, times: int) -> list[int]:
    """A connection that Airflow gives only after some times."""
    asked: list[int] = []
    give = OneLakeHook.aget_connection

    async def shaky(cls: type, conn_id: str) -> Any:
        asked.append(1)
        if len(asked) <= times:
            raise AirflowNotFoundException(f"The conn_id `{conn_id}` isn't defined")
        return await give(conn_id)

    monkeypatch.setattr(OneLakeHook, "aget_connection", classmethod(shaky))
    return asked


async def test_a_connection_not_given_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    asked = unavailable(monkeypatch, 2)
    assert (await fired(trigger(version=1)))["status"] == "met"
    assert len(asked) == 3


async def test_a_connection_that_is_not_there_is_an_event(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = unavailable(monkeypatch, 1000)
    event = await fired(trigger(version=1))
    assert event["status"] == "error"
    assert "'onelake_default'" in event["message"]
    assert 1 < len(asked) < 10
