"""The trigger behind a task that waits for a refresh."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import attrs
from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_provider_onelake.exceptions import OneLakeError, TransientError
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers._fields import FieldsTrigger
from airflow_provider_onelake.triggers.asking import in_thread

if TYPE_CHECKING:
    from airflow_provider_onelake.fabric.operations import Item


@attrs.define(slots=False, eq=False, repr=False)
class RefreshTrigger(FieldsTrigger, BaseTrigger):
    """Wait in the triggerer until a refresh has ended. The task then looks how.

    :param kind: ``model`` or ``endpoint``.
    :param workspace: the GUID of the workspace.
    :param target: the GUID of the semantic model, or of the SQL endpoint.
    :param refresh: the id of the refresh, or of the operation. ``None`` for one whose id is not known: then the task is
        woken after ``poll_interval``.
    :param own: whether the task has asked for it. Then a user who ends the task ends the refresh of a model too.
    :param onelake_conn_id: the connection of the lakehouse.
    :param poll_interval: seconds between two looks. Default: 15.
    """

    kind: str
    workspace: str
    target: str
    refresh: str | None
    own: bool
    onelake_conn_id: str
    poll_interval: float = 15.0

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait for the end.

        :returns: one event, ``{"reason": …, "refresh": …}``.
        """
        yield TriggerEvent({"reason": await self._wait(), "refresh": self.refresh})  # type: ignore[no-untyped-call]

    async def _wait(self) -> str:
        if self.refresh is None:
            await asyncio.sleep(self.poll_interval)
            return "another refresh may have ended"
        client = await self._client()
        while True:
            try:
                if await in_thread(client.has_ended, self.refresh):
                    return "the refresh has ended"
            except TransientError as error:
                self.log.warning("%s; asking again in %.0f s", error, self.poll_interval)
            except OneLakeError as error:
                # The task will meet the same error, and fail with it.
                return str(error)
            await asyncio.sleep(self.poll_interval)

    async def on_kill(self) -> None:
        """Cancel the task's own refresh of a model, for a user who ended the deferred task."""
        if self.own and self.refresh is not None:
            client = await self._client()
            await in_thread(client.cancel, self.refresh)

    async def _client(self) -> Item:
        from airflow_provider_onelake.fabric.semantic_model import SemanticModel
        from airflow_provider_onelake.fabric.sql_endpoint import SqlEndpoint

        hook = FabricHook(lakehouse=await OneLakeHook.from_async(self.onelake_conn_id))
        if self.kind == "model":
            return SemanticModel(hook.power_bi(), self.workspace, self.target)
        return SqlEndpoint(hook.get_conn(), self.workspace, self.target)
