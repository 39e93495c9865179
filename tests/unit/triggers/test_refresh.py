"""The trigger behind a refresh, on the local OneLake; what it waits for is tested with its operators."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider_onelake.fabric.semantic_model import SemanticModel
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers.refresh import RefreshTrigger
from local_onelake.faults import Fault
from tests.support.contexts import connect
from tests.support.onelake import MODEL_GUID, WORKSPACE_GUID, OneLake


@pytest.fixture
def server(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    onelake.add_model()
    said = json.loads(onelake.connection(patience="0"))
    # A trigger asks for the connection without blocking, which environment variables do not show.
    connect(monkeypatch, OneLakeHook, **said["extra"])
    connection: Any = OneLakeHook.get_connection("onelake_default")
    connection.password = said["password"]
    yield onelake
    onelake.served.faults.clear("refresh_hangs")


def model() -> SemanticModel:
    return FabricHook().semantic_model(MODEL_GUID, WORKSPACE_GUID)


def trigger(refresh: str | None, **fields: Any) -> RefreshTrigger:
    given = {"kind": "model", "own": True, "poll_interval": 0.01, **fields}
    return RefreshTrigger(
        workspace=WORKSPACE_GUID, target=MODEL_GUID, refresh=refresh, onelake_conn_id="onelake_default", **given
    )


async def fired(waiting: RefreshTrigger) -> str:
    (event,) = [event.payload async for event in waiting.run()]
    assert event["refresh"] == waiting.refresh
    return str(event["reason"])


async def test_it_asks_again_while_power_bi_is_away_and_fires_at_the_end(server: OneLake) -> None:
    server.served.faults.set("refresh_hangs", Fault())
    begun = model().begin(None, timedelta(hours=1))
    server.served.faults.set("error_503", Fault(count=2))
    server.served.faults.set("refresh_hangs", Fault(count=2))
    assert await fired(trigger(begun)) == "the refresh has ended"
    assert sum(asked.method == "GET" for asked in server.asked) >= 5


async def test_what_the_task_must_see_by_itself_wakes_it(server: OneLake) -> None:
    begun = model().begin(None, timedelta(hours=1))
    assert await fired(trigger("dropped")) == "the refresh has ended"
    assert await fired(trigger(None)) == "another refresh may have ended"
    server.served.faults.set("capacity_paused", Fault())
    assert "CapacityNotActive" in await fired(trigger(begun))
