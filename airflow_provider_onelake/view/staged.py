"""What stands below a table's ``staged`` directory, as people are shown it."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.buffers.layout import attempt_directory
from airflow_provider_onelake.maintenance.clean_up import StagedState, survey
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import ObjectInfo

MOST_OBJECTS = 20_000
"""How many objects of the directory a page looks at: 20 requests of a thousand each, on most stores."""
MOST_STAGED = 500
"""How many buffers a page shows."""


def staged_below(log: DeltaLog) -> list[dict[str, Any]]:
    """Return the buffers, shared scans and compactions below a table: those in flight first, the oldest first.

    It costs one listing of the directory, what a snapshot costs, and a request for each buffer that is not closed.

    :returns: for each ``path``, ``owner`` (or ``None``), ``state``, ``complete`` and ``age_seconds``.
    :raises TableNotFoundError: there is no table.
    """
    return _surveyed(log, list(log.store.list(STAGED_DIRECTORY)))


def page_of_staged(log: DeltaLog, most_objects: int = MOST_OBJECTS) -> dict[str, Any]:
    """Return the first of what :func:`staged_below` returns, for less work where the directory is large.

    The files of published buffers lie in the directory too, so there may be many of them.

    :param most_objects: how many objects of the directory are listed.
    :returns: ``staged``: at most :data:`MOST_STAGED` of them; ``found``: how many were found; and ``whole``: whether
        the listing reached the directory's end.
    :raises TableNotFoundError: there is no table.
    """
    listing = list(islice(log.store.list(STAGED_DIRECTORY), most_objects + 1))
    whole = len(listing) <= most_objects
    if not whole:
        # Of the last one, only a part is known, so nobody can say how far it has come.
        cut = attempt_directory(listing.pop().path)
        listing = [info for info in listing if attempt_directory(info.path) != cut]
    found = _surveyed(log, listing)
    return {"staged": found[:MOST_STAGED], "found": len(found), "whole": whole}


def _surveyed(log: DeltaLog, listing: list[ObjectInfo]) -> list[dict[str, Any]]:
    snapshot = log.snapshot()
    found = survey(log, snapshot, listing, lifetime(snapshot.retention_days))
    return [
        {
            "path": staged.path,
            "owner": staged.owner if staged.owner != staged.path else None,
            "state": staged.state.value,
            "complete": staged.ended is not None,
            "age_seconds": int(staged.age.total_seconds()),
        }
        for staged in sorted(found, key=lambda staged: (staged.state is StagedState.CLOSED, -staged.age))
    ]
