"""Tries of tasks that leave their workers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from tests.support.contexts import context_of


def deferral(task: Any, **terms: Any) -> Any:
    """The trigger with which a task leaves its worker."""
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context_of(task, **terms))
    return deferred.value.trigger


async def fired(trigger: Any) -> list[Any]:
    return [event.payload async for event in trigger.run()]


def tried(make: Callable[[], Any], comes_back: int = 100, **ti: Any) -> Any:
    """A try of a task, with its triggerer; each time that it comes back, it does so in a new process.

    :param comes_back: so often at the most; then its trigger is returned.
    """
    task = make()
    try:
        return task.execute(context_of(task, **ti))
    except TaskDeferred as deferred:
        trigger: Any = deferred.trigger
    for _ in range(comes_back):
        _, fields = trigger.serialize()
        assert json.loads(json.dumps(fields)) == fields
        (event,) = asyncio.run(fired(type(trigger)(**fields)))
        task = make()
        try:
            return task.resume(context_of(task, **ti), event)
        except TaskDeferred as deferred:
            trigger = deferred.trigger
    return trigger
