"""The trigger behind the sensor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import attrs
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_onelake.exceptions import ConnectionUnavailableError, TerminalError, TransientError
from airflow_provider_onelake.following.watch import Awaited, LogWatch
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers.feed import LONGEST_PAUSE, open_log

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog

# A connection that nobody defined is said after about two minutes, by the default interval.
_MORE_TRIES = 5


class DeltaLogWaitTrigger(BaseTrigger):
    """Follow a table's log in the triggerer until what is awaited has happened; then fire once, and end.

    The event is ``{"status": "met", …}``, or ``{"status": "error", "message": …}`` for what a person has to look at. A
    store that does not answer is asked again; a table that does not exist is waited for.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection. Default: ``onelake_default``.
    :param after: the last version already seen. Default: the version of now.
    :param poll_interval: between two looks, in seconds. Default: 5.
    :param awaited: one thing, see :class:`~airflow_provider_onelake.following.watch.Awaited`.
    """

    def __init__(
        self,
        table: str,
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        after: int | None = None,
        poll_interval: float = 5.0,
        **awaited: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.onelake_conn_id = onelake_conn_id
        self.after = after
        self.poll_interval = poll_interval
        self.awaited = Awaited(**awaited)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what makes this trigger again in the triggerer."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table": self.table,
                "onelake_conn_id": self.onelake_conn_id,
                "after": self.after,
                "poll_interval": self.poll_interval,
                **{name: value for name, value in attrs.asdict(self.awaited).items() if value is not None},
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the log.

        :returns: one event.
        """
        yield TriggerEvent(await self._wait())  # type: ignore[no-untyped-call]

    async def _wait(self) -> dict[str, Any]:
        try:
            log = await self._open()
            watch = LogWatch(log, self.awaited, self.after)
            while True:
                await self._poll(watch)
                if watch.met is not None:
                    return {"status": "met", "table": log.table, **watch.met}
                await asyncio.sleep(self.poll_interval)
        except (TerminalError, ConnectionUnavailableError) as error:
            return {"status": "error", "message": str(error)}

    async def _open(self) -> DeltaLog:
        pause = self.poll_interval
        for _ in range(_MORE_TRIES):
            try:
                return await open_log(self.table, self.onelake_conn_id)
            except ConnectionUnavailableError as error:
                self.log.warning("%s: %s Asking again in %.0f s", self.table, error, pause)
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
        return await open_log(self.table, self.onelake_conn_id)

    async def _poll(self, watch: LogWatch) -> None:
        pause = self.poll_interval
        while True:
            try:
                await asyncio.to_thread(watch.poll)
            except TransientError as error:
                self.log.warning("%s: %s; asking again in %.0f s", self.table, error, pause)
            else:
                return
            await asyncio.sleep(pause)
            pause = min(LONGEST_PAUSE, pause * 2)
