"""Markers: a small file beside a buffer that closes it (protocol: publishing closes)."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.buffers.layout import CLOSED, WriterDirectory, json_at
from airflow_provider_onelake.exceptions import (
    BufferSetAsideError,
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
)
from airflow_provider_onelake.log.commits import PublishedWriter

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import OpenBuffer
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)


def write_marker(store: Store, path: str, outcome: Mapping[str, Any]) -> None:
    """Close a buffer (protocol: publishing closes), and overwrite the marker that it may have.

    :param path: of the buffer, relative to the table.
    :param outcome: what happened to it: the commit's version and record, or the reason.
    """
    store.put(f"{path}/{CLOSED}", json.dumps(outcome).encode())


MERGED = "merged"
"""In a marker: the rows were merged, and no row of the table had to change."""


def try_to_mark(log: DeltaLog, path: str, outcome: Mapping[str, Any]) -> None:
    """Write the marker of what a commit has settled; where the store does not take it, only say so.

    What was committed is in the table, whatever the store says now: a full disk must not make that a failure. The
    ``txn`` is what counts. The marker only saves reading the log, and lets the buffer's own log be cleaned up earlier.

    :param path: of the buffer or compaction, relative to the table.
    :param outcome: what happened to it.
    """
    try:
        write_marker(log.store, path, outcome)
    except OneLakeError as error:
        logger.warning("%s: the marker of %s was not written: %s", log.table, path, error)


def set_aside(store: Store, path: str, reason: str) -> None:
    """Mark a buffer as one that is not to be published, unless it is closed already.

    :param path: of the buffer, relative to the table.
    :param reason: what people are told.
    """
    with suppress(ObjectExistsError):
        store.create(f"{path}/{CLOSED}", json.dumps({"reason": f"set aside: {reason}"}).encode())


def read_marker(store: Store, path: str) -> dict[str, Any] | None:
    """Return what a closed buffer's marker says, or ``None`` for a buffer that is not closed.

    A marker that cannot be read closes the buffer too. It does not tell whether the rows were published; the ``txn`` in
    the table does.

    :param path: of the buffer, relative to the table.
    """
    try:
        marker = json_at(store, f"{path}/{CLOSED}")
    except ObjectNotFoundError:
        return None
    if marker and _is_readable(marker):
        return marker
    logger.warning("The marker of %s is damaged; the buffer counts as closed, and not as published.", path)
    return {"reason": "its marker is damaged"}


def check_not_set_aside(store: Store, buffer: OpenBuffer) -> None:
    """Refuse to go on with a buffer that was set aside, as it will never be published.

    :raises BufferSetAsideError: a newer attempt of other work, reconcile or a person set the buffer aside.
    """
    marker = read_marker(store, buffer.path)
    if marker is not None and "version" not in marker:
        raise BufferSetAsideError(
            f"The buffer {buffer.path} of writer {buffer.spec.identity.key!r} was closed while its writer worked "
            f"({marker.get('reason')}). Its rows are not published by anybody: a retry stages them again."
        )


def _is_readable(marker: Mapping[str, Any]) -> bool:
    if not isinstance(marker.get("version", 0), int):
        return False
    try:
        return "writer" not in marker or PublishedWriter.from_json(marker["writer"]) is not None
    except ValueError:
        return False


def markers(store: Store, directory: str) -> Iterator[dict[str, Any]]:
    """Yield the markers of a writer's closed buffers, including buffers whose own log was deleted since.

    :param directory: of the writer.
    """
    for attempt in WriterDirectory.read(store, directory).attempts:
        if attempt.marker and (marker := read_marker(store, attempt.path)):
            yield marker
