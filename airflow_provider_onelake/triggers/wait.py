"""The trigger behind the sensor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from airflow.triggers.base import BaseTrigger, TriggerEvent
from tenacity import stop_after_attempt

from airflow_provider_onelake.exceptions import ConnectionUnavailableError, TerminalError, TransientError
from airflow_provider_onelake.following.watch import Awaited, watch_for
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers.asking import asking, in_thread, open_log

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog

# With the default interval, a connection that is not defined fails the sensor after about two minutes.
_TRIES = 6


class DeltaLogWaitTrigger(BaseTrigger):
    """Follow a table's log in the triggerer until the condition is met; then fire one event and end.

    The event is ``{"status": "met", …}``, or ``{"status": "error", "message": …}`` if a person has to act. If a store
    does not answer, the trigger asks again. If the table does not exist, the trigger waits.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param after: the last version already seen. Default: the table's version when the trigger starts.
    :param digest: of that version's log entry, by which a table that was made again is recognised. Default: the one
        that is there when the trigger starts.
    :param poll_interval: seconds between two polls. Default: 5.
    :param awaited: the one condition, as a field of :class:`~airflow_provider_onelake.following.watch.Awaited`.
    """

    def __init__(
        self,
        table: str,
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        after: int | None = None,
        digest: str | None = None,
        poll_interval: float = 5.0,
        **awaited: Any,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.table = table
        self.onelake_conn_id = onelake_conn_id
        self.after = after
        self.digest = digest
        self.poll_interval = poll_interval
        self.awaited = Awaited(**awaited)

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments from which the triggerer makes this trigger again."""
        return (
            f"{type(self).__module__}.{type(self).__qualname__}",
            {
                "table": self.table,
                "onelake_conn_id": self.onelake_conn_id,
                "after": self.after,
                "digest": self.digest,
                "poll_interval": self.poll_interval,
                **{name: value for name, value in attrs.asdict(self.awaited).items() if value is not None},
            },
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the log until the condition is met.

        :returns: one event.
        """
        yield TriggerEvent(await self._wait())  # type: ignore[no-untyped-call]

    async def _wait(self) -> dict[str, Any]:
        ask = partial(asking, self.table, self.poll_interval)
        opening, polling = ask(ConnectionUnavailableError, stop=stop_after_attempt(_TRIES)), ask(TransientError)
        try:
            log: DeltaLog = await opening(open_log, self.table, self.onelake_conn_id)
            watch = watch_for(log, self.awaited, self.after, self.digest)
            while True:
                await polling(in_thread, watch.poll)
                if watch.met is not None:
                    return {"status": "met", "table": log.address, **watch.met}
                await asyncio.sleep(self.poll_interval)
        except (TerminalError, ConnectionUnavailableError) as error:
            return {"status": "error", "message": str(error)}
