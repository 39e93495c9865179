"""The trigger behind a deferred writer whose Spark job outlives its task."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from pkgutil import resolve_name
from typing import TYPE_CHECKING

import attrs
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.triggers._fields import FieldsTrigger
from airflow_provider_onelake.triggers.asking import in_thread, open_log

if TYPE_CHECKING:
    from airflow_provider_onelake.spark.base import Engine

LONGEST_LOOK = 600.0
"""Seconds after which the trigger wakes the task, which then asks the cluster whether its driver still lives."""


@attrs.define(slots=False, eq=False, repr=False)
class DriverTrigger(FieldsTrigger, BaseTrigger):
    """Wait in the triggerer until a driver that stages rows has left its result.

    The trigger asks only the table's store, because the triggerer may have no access to the cluster. It cannot see that
    a driver died without a result, so it wakes the task after ``seconds`` in any case, and the task asks the cluster.

    :param engine: the class of the engine that submitted the driver, as ``module:class``.
    :param table: an address, or a path in the connection's lakehouse.
    :param attempt: id of the attempt whose rows are staged.
    :param onelake_conn_id: the connection of the lakehouse.
    :param spark_conn_id: the connection of Spark. It is used only to kill the driver.
    :param seconds: seconds after which the task is woken without a result. Default: 600.
    :param poll_interval: seconds between two looks at the store. Default: 5.
    """

    engine: str
    table: str
    attempt: str
    onelake_conn_id: str
    spark_conn_id: str
    seconds: float = LONGEST_LOOK
    poll_interval: float = 5.0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the result.

        :returns: one event, ``{"reason": …, "attempt": …}``. The task reads the result itself.
        """
        deadline = time.monotonic() + self.seconds
        log = await open_log(self.table, self.onelake_conn_id)
        engine: type[Engine] = await in_thread(resolve_name, self.engine)
        reason = f"no result for {self.seconds:.0f} s"
        while time.monotonic() < deadline:
            try:
                if await in_thread(engine.has_ended, log.store, self.attempt, StageJob.doing):
                    reason = "the driver's result is there"
                    break
            except OneLakeError as error:
                self.log.warning("%s: %s; asking again in %.0f s", self.table, error, self.poll_interval)
            await asyncio.sleep(self.poll_interval)
        yield TriggerEvent({"reason": reason, "attempt": self.attempt})  # type: ignore[no-untyped-call]

    async def on_kill(self) -> None:
        """Kill the driver of a task that a user ended while the task was deferred."""
        hook = await OneLakeHook.from_async(self.onelake_conn_id)

        def kill() -> None:
            table = hook.table(self.table)
            engine = engine_for(self.spark_conn_id, None, None, lambda: table.log.store)
            engine.kill(table.address.spark_uri, self.attempt, StageJob.doing)

        await in_thread(kill)
