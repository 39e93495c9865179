"""Refreshes of semantic models and of SQL endpoints. Nothing is computed: they are recorded, with their states.

A refresh shows the versions that the tables had when it was asked for. It ends when somebody looks, so tests need not
wait; by the faults ``refresh_hangs`` and ``refresh_fails`` it goes on, or fails. What is recorded is in the part
:data:`REFRESHES` of ``fabric.json``, the oldest first, by the GUID of the model or of the endpoint's lakehouse.
"""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Any

from local_onelake.calls import Call
from local_onelake.names import Item

REFRESHES = "refreshes"
RUNNING, COMPLETED, FAILED, CANCELLED = "InProgress", "Completed", "Failed", "Cancelled"
_NOT_STARTED = "NotStarted"
_MOST_KEPT = 200

Refresh = dict[str, Any]


def begin(call: Call, item: Item, **said: Any) -> Refresh | None:
    """Record a refresh, unless one is at work: then nothing is recorded, and ``None`` is returned.

    :param call: that asks for it.
    :param item: the semantic model, or the endpoint's lakehouse.
    :param said: what else is recorded.
    """
    look(call, item)
    with call.lake.kept.changing() as document:
        known: list[Refresh] = document.setdefault(REFRESHES, {}).setdefault(item.guid, [])
        if any(is_running(each) for each in known):
            return None
        made = {"id": str(uuid.uuid4()), "by": call.identity, "status": _NOT_STARTED, "started": now(), **said}
        known.append(made)
        del known[:-_MOST_KEPT]
    return made


def look(call: Call, item: Item) -> list[Refresh]:
    """Return the refreshes of an item, the newest first. One at work ends by that, unless a fault lets it go on."""
    with call.lake.kept.changing() as document:
        known: list[Refresh] = document.get(REFRESHES, {}).get(item.guid, [])
        for each in known:
            if is_running(each):
                _go_on(call, each)
    return known[::-1]


def end(call: Call, item: Item, refresh: str, status: str) -> bool:
    """End a refresh.

    :returns: whether it was at work.
    """
    with call.lake.kept.changing() as document:
        for each in document.get(REFRESHES, {}).get(item.guid, []):
            if each["id"] == refresh and is_running(each):
                each |= {"status": status, "ended": now()}
                return True
    return False


def is_running(refresh: Refresh) -> bool:
    """Say whether a refresh has not ended."""
    return refresh["status"] in (RUNNING, _NOT_STARTED)


def _go_on(call: Call, refresh: Refresh) -> None:
    if call.strikes("refresh_hangs"):
        refresh["status"] = RUNNING
        return
    failed = refresh.get("error") or call.strikes("refresh_fails")
    refresh |= {"status": FAILED if failed else COMPLETED, "ended": now()}


def now() -> str:
    """Return this instant as Fabric spells it."""
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
