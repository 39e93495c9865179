"""Cleaning up behind writers: the logs of buffers that nobody needs any more.

Only a buffer's own ``_delta_log`` is ever deleted. The data files of a published buffer are the table's; those of an
abandoned one belong to nobody, and a full VACUUM of the table takes them after its retention.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from itertools import groupby
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError, InvalidWriteError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY
from airflow_provider_onelake.staging.buffers import CLOSED, read_open_buffer
from airflow_provider_onelake.staging.identity import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import ObjectInfo

logger = logging.getLogger(__name__)


@attrs.frozen
class Remains:
    """A buffer whose own log was deleted.

    :param path: of the buffer, relative to the table.
    :param writer: the writer's key.
    :param age: since the last of its objects was written; of a closed buffer, that is its marker.
    :param abandoned: whether its rows were neither published nor set aside; its files wait for a full VACUUM.
    """

    path: str
    writer: str
    age: timedelta
    abandoned: bool


def clean_up(log: DeltaLog, older_than: timedelta) -> list[Remains]:
    """Delete the logs of closed buffers, and of open or complete ones that were abandoned.

    The markers of closed buffers stay: a rerun asks them where its rows are. Calling again is safe.

    :param log: of the table.
    :param older_than: nothing younger is touched; above the longest time that a writer takes from its first to its last
        file and until its load is reconciled.
    :returns: what was cleaned up, the abandoned ones for people to know of.
    :raises InvalidWriteError: the age is not above zero.
    :raises StoreUnavailableError: the store did not answer; calling again carries on.
    """
    if older_than <= timedelta(0):
        raise InvalidWriteError(
            f"older_than={older_than} would take buffers that are being written. Nothing was deleted."
        )
    snapshot = log.snapshot()
    if snapshot is None:
        return []
    now = log.clock.now()
    cleaned = []
    for path, objects in _buffers(log):
        entries = [info.path for info in objects if info.path.startswith(f"{path}/{LOG_DIRECTORY}/")]
        # Of a closed buffer, the marker is the last; of any other, what its writer wrote last.
        age = now - max(info.modified for info in objects)
        if not entries or age < older_than:
            continue
        try:
            spec = read_open_buffer(log.store, path).spec
        except (BufferIncompleteError, BufferInvalidError) as error:
            logger.info("%s: %s is left alone: %s", log.table, path, error)
            continue
        # A marker can be missing where the store did not answer; the txn is what counts.
        marked = any(info.path == f"{path}/{CLOSED}" for info in objects)
        settled = marked or snapshot.txns.get(spec.identity.app_id, 0) >= spec.generation
        # Version 0 last: an interrupted clean-up is carried on by the next.
        for entry in sorted(entries, reverse=True):
            log.store.delete(entry)
        cleaned.append(Remains(path, spec.identity.key, age, abandoned=not settled))
        if not settled:
            logger.warning(
                "%s: the buffer %s of writer %s was abandoned %s ago; a full VACUUM takes its files",
                log.table,
                path,
                spec.identity.key,
                age,
            )
    return cleaned


def _buffers(log: DeltaLog) -> Iterator[tuple[str, list[ObjectInfo]]]:
    """Yield what stands below each ``staged/<writer>/<attempt>``; listings are in the order of paths."""
    depth = len((STAGED_DIRECTORY, "writer", "attempt"))
    for path, objects in groupby(log.store.list(STAGED_DIRECTORY), lambda info: "/".join(info.path.split("/")[:depth])):
        yield path, list(objects)
