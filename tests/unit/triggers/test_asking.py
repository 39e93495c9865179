"""Triggers that block must not stop those of others."""

from __future__ import annotations

import asyncio
import threading

from airflow_provider_onelake.triggers.asking import in_thread


async def test_triggers_that_block_leave_the_event_loops_own_threads_alone() -> None:
    ends = threading.Event()
    blocked = [asyncio.ensure_future(in_thread(ends.wait, 30)) for _ in range(40)]
    await asyncio.sleep(0)
    try:
        assert await asyncio.wait_for(asyncio.to_thread(lambda: "another trigger's"), 5) == "another trigger's"
    finally:
        ends.set()
        await asyncio.gather(*blocked)
