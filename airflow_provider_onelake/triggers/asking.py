"""How triggers ask a store, or Airflow, that may not answer: again and again, without blocking the event loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, stop_never, wait_exponential

from airflow_provider_onelake.exceptions import ConnectionUnavailableError, TerminalError
from airflow_provider_onelake.hooks.onelake import OneLakeHook

if TYPE_CHECKING:
    from tenacity.stop import stop_base

    from airflow_provider_onelake.log.delta_log import DeltaLog

logger = logging.getLogger(__name__)

_T = TypeVar("_T")

# All triggers share the event loop's own threads, of which there may be six. A store that hangs must not stop triggers
# of others, so ours have threads of their own.
_THREADS = ThreadPoolExecutor(64, "onelake-trigger")

LONGEST_PAUSE = 60.0
"""The longest pause, in seconds, before a store that does not answer is asked again."""


async def in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Call a function that blocks, without blocking the event loop or other triggers."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, copy_context().run, function, *arguments)


def asking(
    table: str,
    pause: float,
    on: type[Exception],
    unless: type[Exception] | tuple[()] = (),
    stop: stop_base = stop_never,
) -> AsyncRetrying:
    """Return what calls a function again and again until it answers. It is awaited with the function and its arguments.

    :param table: what messages call the table.
    :param pause: seconds before the function is called for the second time. Each further pause is twice as long, up to
        :data:`LONGEST_PAUSE`.
    :param on: the errors that may pass.
    :param unless: the errors among them that are raised at once. Default: none.
    :param stop: when to raise the error nevertheless. Default: never.
    """

    def say(state: RetryCallState) -> None:
        assert state.outcome is not None
        error = state.outcome.exception()
        tell = logger.error if isinstance(error, TerminalError) else logger.warning
        tell("%s: %s: %s; asking again in %.0f s", table, type(error).__name__, error, state.upcoming_sleep)

    return AsyncRetrying(
        retry=retry_if_exception(lambda error: isinstance(error, on) and not isinstance(error, unless)),
        wait=wait_exponential(pause, max=LONGEST_PAUSE),
        stop=stop,
        before_sleep=say,
        reraise=True,
    )


async def open_log(table: str, onelake_conn_id: str) -> DeltaLog:
    """Open a table's log without blocking the event loop.

    :param table: an address, or a path in the connection's lakehouse.
    :raises ConnectionUnavailableError: Airflow does not return the connection.
    :raises TerminalError: the connection's fields are wrong.
    """
    try:
        hook = await OneLakeHook.from_async(onelake_conn_id)
    except Exception as error:
        # Airflow also says "not defined" when its API server did not answer, so take the error as one that may pass.
        raise ConnectionUnavailableError(
            f"Airflow does not give the connection {onelake_conn_id!r} ({type(error).__name__}): it is not defined, or "
            "the API server or the secrets backend did not answer."
        ) from error
    return await in_thread(lambda: hook.table(table).log)
