"""Which loads have buffers that wait to be published, as the table's directory alone tells.

Airflow knows which writers a load should have. The directory knows only those that have begun: a writer that never
began has left nothing there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import read_open_buffer
from airflow_provider_onelake.buffers.claims import claimant
from airflow_provider_onelake.buffers.layout import WriterDirectory
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError
from airflow_provider_onelake.storage.concurrent import map_concurrently

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
    from airflow_provider_onelake.buffers.layout import AttemptDirectory
    from airflow_provider_onelake.buffers.spec import WriteSpec
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store


@attrs.frozen
class WaitingLoad:
    """A load with at least one complete buffer that is neither published nor set aside.

    :param load: whose writers they are.
    :param writers: keys of the writers that have begun and whose rows are not in the table, with and without a complete
        buffer.
    :param publish: when the buffers are to become visible.
    :param written: when the newest object of these writers was written, by the store's clock.
    """

    load: Load
    writers: tuple[str, ...]
    publish: PublishMode
    written: datetime


@attrs.frozen
class _WaitingWriter:
    """A writer whose newest generation is not in the table.

    :param specs: of its open and complete buffers.
    """

    identity: WriterIdentity
    directory: WriterDirectory
    specs: Sequence[WriteSpec]
    complete: bool


def loads_waiting(log: DeltaLog, snapshot: Snapshot, listing: Iterable[ObjectInfo]) -> list[WaitingLoad]:
    """Return the loads with complete buffers that wait, in the order of their ids.

    The listing must be older than the snapshot. Then the snapshot has every buffer that was published before.

    :param listing: of ``staged``, in the order of paths; objects elsewhere are skipped.
    :raises BufferInvalidError: a claim is damaged, so nobody knows whose it is.
    """
    directories = WriterDirectory.all_in(listing)
    with_buffers = [directory for directory in directories if _open_buffers(directory)]
    # Most directories are of writers that are done. They are asked who they are only if some load waits at all.
    begun = _waiting_writers(log.store, snapshot, with_buffers)
    loads = {one.identity.load for one in begun if one.complete}
    if not loads:
        return []
    others = [directory for directory in directories if directory.is_of_a_writer and not _open_buffers(directory)]
    begun += _waiting_writers(log.store, snapshot, others)
    return [
        _load([one for one in begun if one.identity.load == load]) for load in sorted(loads, key=lambda load: load.id)
    ]


def _load(begun: Sequence[_WaitingWriter]) -> WaitingLoad:
    together = any(spec.publish is PublishMode.TOGETHER for one in begun for spec in one.specs)
    return WaitingLoad(
        load=begun[0].identity.load,
        writers=tuple(sorted(one.identity.key for one in begun)),
        publish=PublishMode.TOGETHER if together else PublishMode.EACH,
        written=max(one.directory.newest for one in begun),
    )


def _waiting_writers(store: Store, snapshot: Snapshot, directories: Sequence[WriterDirectory]) -> list[_WaitingWriter]:
    found = map_concurrently(store, lambda directory: _look_at(store, directory), directories)
    return [
        one
        for one in found
        if one is not None and not one.directory.is_published(snapshot.txns.get(one.identity.app_id))
    ]


def _look_at(store: Store, directory: WriterDirectory) -> _WaitingWriter | None:
    """Return whose a directory is, or ``None`` if it is of a compaction, a statement or a scan."""
    attempts = {attempt.path: attempt for attempt in _open_buffers(directory)}
    specs: dict[str, WriteSpec] = {}
    for path in attempts:
        try:
            specs[path] = read_open_buffer(store, path).spec
        except (BufferIncompleteError, BufferInvalidError):
            continue  # If it is a writer's, the writer has a claim, and the reconciliation says what is wrong.
    identity = next((spec.identity for spec in specs.values()), None)
    if identity is None and directory.is_of_a_writer:
        identity = claimant(store, directory.claims[max(directory.claims)])
    if identity is None:
        return None
    current = {path: spec for path, spec in specs.items() if spec.generation >= directory.generation}
    complete = any(attempts[path].completed for path in current)
    return _WaitingWriter(identity, directory, tuple(current.values()), complete)


def _open_buffers(directory: WriterDirectory) -> list[AttemptDirectory]:
    return [attempt for attempt in directory.attempts if attempt.opened and attempt.marker is None]
