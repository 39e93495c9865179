"""What stands below a table's ``staged`` directory, as people are shown it."""

from __future__ import annotations

from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.buffers.claims import Start
from airflow_provider_onelake.buffers.layout import WriterDirectory, attempt_directory, json_at, writer_directory
from airflow_provider_onelake.exceptions import ObjectNotFoundError
from airflow_provider_onelake.maintenance.clean_up import Staged, StagedState, survey
from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY
from airflow_provider_onelake.storage.concurrent import map_concurrently
from airflow_provider_onelake.view.commits import instance, named_in

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import ObjectInfo

MOST_OBJECTS = 20_000
"""How many objects of the directory a page looks at: 20 requests of a thousand each, on most stores."""
MOST_STAGED = 500
"""How many buffers a page shows."""


def staged_below(log: DeltaLog) -> list[dict[str, Any]]:
    """Return the buffers, shared scans and compactions below a table: those in flight first, the oldest first.

    It costs one listing of the directory, what a snapshot costs, and two requests for each buffer that is not closed.

    :returns: for each ``path``, ``owner`` (or ``None``), ``state``, ``complete`` and ``age_seconds``; and as far as the
        claim of one that is not closed says, ``by`` (DAG and group, or DAG and task), ``run``, and ``task``, the task
        instance in this deployment; each of them may be ``None``.
    :raises TableNotFoundError: there is no table.
    """
    listing = list(log.store.list(STAGED_DIRECTORY))
    return _rows_of(log, listing, _surveyed(log, listing), "")


def page_of_staged(log: DeltaLog, most_objects: int = MOST_OBJECTS, namespace: str = "") -> dict[str, Any]:
    """Return what is not closed of what :func:`staged_below` returns, for less work where the directory is large.

    The files of published buffers lie in the directory too, so there may be many of them.

    :param most_objects: how many objects of the directory are listed.
    :param namespace: of this deployment: the tasks of another one are not known here. Default: none is known.
    :returns: ``staged``: at most :data:`MOST_STAGED` of them; ``found``: how many were found; ``closed``: how many
        others are closed; ``whole``: whether the listing reached the directory's end; and ``kept``: the versions that
        a vacuum of ours spares, each with ``version``, ``by``, ``since`` and ``until`` (``None``: until released).
    :raises TableNotFoundError: there is no table.
    """
    listing = list(islice(log.store.list(STAGED_DIRECTORY), most_objects + 1))
    whole = len(listing) <= most_objects
    if not whole:
        # Of the last one, only a part is known, so nobody can say how far it has come.
        cut = attempt_directory(listing.pop().path)
        listing = [info for info in listing if attempt_directory(info.path) != cut]
    found = _surveyed(log, listing)
    waiting = [staged for staged in found if staged.state is not StagedState.CLOSED]
    return {
        "staged": _rows_of(log, listing, waiting[:MOST_STAGED], namespace),
        "found": len(waiting),
        "closed": len(found) - len(waiting),
        "whole": whole,
        "kept": [
            {"version": pinned.version, "by": pinned.by, "since": pinned.since, "until": pinned.until}
            for pinned in pinned_versions(log)
        ],
    }


def _surveyed(log: DeltaLog, listing: list[ObjectInfo]) -> list[Staged]:
    snapshot = log.snapshot()
    found = survey(log, snapshot, listing, lifetime(snapshot.retention_days))
    return sorted(found, key=lambda staged: (staged.state is StagedState.CLOSED, -staged.age))


def _rows_of(log: DeltaLog, listing: list[ObjectInfo], found: list[Staged], namespace: str) -> list[dict[str, Any]]:
    claims = {found.path: found.claims[max(found.claims)] for found in WriterDirectory.all_in(listing) if found.claims}

    def row_of(staged: Staged) -> dict[str, Any]:
        claim = None if staged.state is StagedState.CLOSED else claims.get(writer_directory(staged.path))
        return {
            "path": staged.path,
            "owner": staged.owner if staged.owner != staged.path else None,
            "state": staged.state.value,
            "complete": staged.ended is not None,
            "age_seconds": int(staged.age.total_seconds()),
            **_whose(log, claim, namespace),
        }

    return list(map_concurrently(log.store, row_of, found))


def _whose(log: DeltaLog, claim: str | None, namespace: str) -> dict[str, Any]:
    """Say whose a buffer is, by the newest claim of its writer or of its statement."""
    said: dict[str, Any] = {}
    with suppress(ObjectNotFoundError):
        said = json_at(log.store, claim) if claim else {}
    start, whose = Start.from_json(said.get("deed")), named_in([str(said.get("app_id"))])
    if whose is None:
        return {"by": None, "run": None, "task": None}
    at, dag, label, run = whose
    known = start is not None and at == namespace
    return {
        "by": f"{dag}.{label}",
        "run": start.run_id if start else run,
        "task": instance(start.dag or dag, start.run_id, start.task) if start and known else None,
    }
