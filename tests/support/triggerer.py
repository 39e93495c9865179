"""A triggerer in this process: Airflow's own sharing of streams, and a database that outlives it."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from tests.support.versions import skip_below

# Seconds that a condition is waited for; less where tests are to fail, as with a bug put into the code.
PATIENCE = float(os.environ.get("TESTS_PATIENCE", "60"))


@attrs.define
class AssetStore:
    """Airflow's state store of the one asset of a watcher."""

    kept: dict[str, Any] = attrs.field(factory=dict)

    async def aget(self, key: str) -> Any:
        return self.kept.get(key)

    async def aset(self, key: str, value: Any) -> None:
        self.kept[key] = value

    def __getitem__(self, asset: Any) -> AssetStore:
        return self


@attrs.define
class Database:
    """What a crash of the triggerer leaves: the assets' events and what is kept for them."""

    events: list[tuple[str, dict[str, Any]]] = attrs.field(factory=list)
    stores: dict[str, AssetStore] = attrs.field(factory=dict)
    triggerers: list[Triggerer] = attrs.field(factory=list)

    def store(self, asset: str) -> AssetStore:
        return self.stores.setdefault(asset, AssetStore())

    def versions(self, asset: str) -> list[int]:
        return [payload["version"] for name, payload in self.events if name == asset]

    def first_seen(self, asset: str) -> list[int]:
        return list(dict.fromkeys(self.versions(asset)))


class Triggerer:
    """Runs watchers as Airflow's ``TriggerRunner.run_trigger`` does, one asset each."""

    def __init__(self, database: Database, **watchers: DeltaLogTrigger) -> None:
        skip_below("3.3", "shared streams of triggers")
        from airflow.triggers.shared_stream import SharedStreamManager

        self.database = database
        database.triggerers.append(self)
        self.manager = SharedStreamManager()
        self.fired: deque[tuple[str, dict[str, Any], int | None]] = deque()
        self.unconfirmed: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []
        for asset, watcher in watchers.items():
            self.start(asset, watcher)

    def start(self, asset: str, watcher: DeltaLogTrigger) -> None:
        watcher.asset_state_store = self.database.store(asset)
        self.tasks.append(asyncio.create_task(self._run(len(self.tasks), asset, watcher)))

    async def _run(self, trigger_id: int, asset: str, watcher: DeltaLogTrigger) -> None:
        key = watcher.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=trigger_id, trigger=watcher, key=key)
        try:
            async for event in watcher.filter_shared_stream(stream):
                # As Airflow's own loop, which may be away between the two.
                await asyncio.sleep(0)
                seq = self.manager.bind_pending_event(trigger_id=trigger_id, key=key)
                self.fired.append((asset, event.payload, seq))
        finally:
            await self.manager.unsubscribe(trigger_id, key)

    def persist(self, most: int | None = None) -> None:
        """Put events into the database; the watchers are told by ``confirm``."""
        for _ in range(len(self.fired) if most is None else min(most, len(self.fired))):
            asset, payload, seq = self.fired.popleft()
            self.database.events.append((asset, payload))
            if seq is not None:
                self.unconfirmed.append(seq)

    def confirm(self) -> None:
        self.manager.confirm_persisted(self.unconfirmed)
        self.unconfirmed.clear()

    async def until(self, condition: Callable[[], bool], confirming: bool = True) -> None:
        """Go on until something is so; the events are put into the database meanwhile."""

        async def go_on() -> None:
            while not condition():
                self.persist()
                if confirming:
                    self.confirm()
                await asyncio.sleep(0.005)

        try:
            await asyncio.wait_for(go_on(), PATIENCE)
        except TimeoutError:
            pytest.fail(f"waited {PATIENCE:.0f} s in vain; there are {self.database.events[-5:]}")

    async def crash(self) -> None:
        """End at once: what is not in the database is lost, and nobody is told of what is."""
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.manager.stop_all()
