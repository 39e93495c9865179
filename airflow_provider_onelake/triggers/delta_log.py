"""The trigger behind the sensor, and behind an asset that a table's commits update."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_onelake.exceptions import TerminalError, TransientError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers.watch import Awaited, LogWatch, describe

_WATERMARK = "delta_log_version"
_LONGEST_PAUSE = 60.0


class DeltaLogTrigger(BaseEventTrigger):
    """Follow a table's log in the triggerer: every commit, in order, none skipped.

    With something to wait for, it fires once and ends: ``{"status": "met", …}``, or ``{"status": "error", "message":
    …}`` for what a person has to look at. With nothing to wait for, it fires for every commit, for ever: that is an
    ``AssetWatcher``'s. There it keeps the last version that was taken in the asset's state store, so that a triggerer
    that starts again carries on where the last one stopped.

    A store that does not answer is asked again; a table that does not exist is waited for.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection. Default: ``onelake_default``.
    :param after: the last version already seen. Default: the version of now.
    :param writers: wait until these ``txn`` ids are in the table, each with its generation.
    :param version: wait until the table has this version.
    :param partition: wait for rows added where this predicate on partition columns holds.
    :param operation: wait for a commit of this operation.
    :param poll_interval: between two looks, in seconds. Default: 5.
    """

    def __init__(
        self,
        table: str,
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        after: int | None = None,
        writers: Mapping[str, int] | None = None,
        version: int | None = None,
        partition: str | None = None,
        operation: str | None = None,
        poll_interval: float = 5.0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.onelake_conn_id = onelake_conn_id
        self.after = after
        self.awaited = Awaited(writers, version, partition, operation)
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what makes this trigger again in the triggerer."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table": self.table,
                "onelake_conn_id": self.onelake_conn_id,
                "after": self.after,
                "writers": dict(self.awaited.writers) if self.awaited.writers is not None else None,
                "version": self.awaited.version,
                "partition": self.awaited.partition,
                "operation": self.awaited.operation,
                "poll_interval": self.poll_interval,
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the log.

        :returns: the events.
        """
        if self.awaited.anything:
            async for event in self._every_commit():
                yield event
        else:
            yield await self._wait()

    async def _wait(self) -> TriggerEvent:
        try:
            watch = await self._open(self.after)
            while True:
                await self._poll(watch)
                if watch.met is not None:
                    return _event({"status": "met", "table": watch.log.table, **watch.met})
                await asyncio.sleep(self.poll_interval)
        except TerminalError as error:
            return _event({"status": "error", "message": str(error)})

    async def _every_commit(self) -> AsyncIterator[TriggerEvent]:
        store = self.asset_state_store
        kept = await store.aget(_WATERMARK) if store is not None else None
        after = int(kept) if isinstance(kept, int | str) else self.after
        watch = await self._open(after)
        if after is None:
            await self._poll(watch)
            if store is not None:
                await store.aset(_WATERMARK, watch.cursor)
        while True:
            for commit in await self._poll(watch):
                yield _event({"table": watch.log.table, **describe(commit)})
                # Only now is the event taken: kept before, a triggerer that died in between would lose the commit.
                if store is not None:
                    await store.aset(_WATERMARK, commit.version)
            await asyncio.sleep(self.poll_interval)

    async def _open(self, after: int | None) -> LogWatch:
        hook = await OneLakeHook.from_async(self.onelake_conn_id)
        log = await asyncio.to_thread(hook.delta_log, self.table)
        return LogWatch(log, self.awaited, after)

    async def _poll(self, watch: LogWatch) -> list[Any]:
        pause = self.poll_interval
        while True:
            try:
                return list(await asyncio.to_thread(watch.poll))
            except TransientError as error:
                self.log.warning("%s: %s; asking again in %.0f s", self.table, error, pause)
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, pause * 2)


def _event(payload: dict[str, Any]) -> TriggerEvent:
    return TriggerEvent(payload)  # type: ignore[no-untyped-call]
