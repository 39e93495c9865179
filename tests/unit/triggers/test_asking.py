"""Triggers that block must not stop those of others."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers.asking import in_thread
from airflow_provider_onelake.triggers.feed import LogFeed
from airflow_provider_onelake.triggers.wait import DeltaLogWaitTrigger
from tests.support.contexts import connect


async def test_triggers_that_block_leave_the_event_loops_own_threads_alone() -> None:
    ends = threading.Event()
    blocked = [asyncio.ensure_future(in_thread(ends.wait, 30)) for _ in range(40)]
    await asyncio.sleep(0)
    try:
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "another trigger's"), 5) == "another trigger's"
    finally:
        ends.set()
        await asyncio.gather(*blocked)


def watcher(table: str) -> AsyncIterator[Any]:
    return LogFeed(table, OneLakeHook.default_conn_name, 60.0).open_stream()


def sensor(table: str) -> AsyncIterator[Any]:
    return DeltaLogWaitTrigger(table, poll_interval=60.0, version=1).run()


@pytest.mark.parametrize("trigger", [watcher, sensor])
async def test_eight_triggers_whose_store_never_answers_leave_a_thread_to_another_one(
    monkeypatch: pytest.MonkeyPatch, trigger: Callable[[str], AsyncIterator[Any]]
) -> None:
    """All eight wait for the store at once, though the event loop has six threads, as on a machine of two cores."""
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(6))
    held: list[asyncio.StreamWriter] = []
    all_wait = asyncio.Event()

    async def hold(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held.append(writer)
        if len(held) == 8:
            all_wait.set()

    silent = await asyncio.start_server(hold, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{silent.sockets[0].getsockname()[1]}"
    # Less than what a silent request costs, so that none of the eight is made twice.
    connect(monkeypatch, OneLakeHook, lakehouse="s3://bucket/lake", endpoint=url, allow_http=True, patience=0.1)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    blocked = [asyncio.ensure_future(anext(trigger(f"Tables/t{number}"))) for number in range(8)]
    try:
        await asyncio.wait_for(all_wait.wait(), 15)
        assert await asyncio.to_thread(lambda: "another trigger's") == "another trigger's"
        assert not any(each.done() for each in blocked)
    finally:
        silent.close()
        for each in blocked:
            each.cancel()
        for connection in held:
            connection.close()
