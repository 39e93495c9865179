"""How far a writer of a load has come, as the store tells: its newest generation, and the buffers of it that wait."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer, plan_of, read_buffer
from airflow_provider_onelake.buffers.identity import WriterIdentity
from airflow_provider_onelake.buffers.layout import WriterDirectory
from airflow_provider_onelake.buffers.markers import MERGED, read_marker
from airflow_provider_onelake.exceptions import BufferIncompleteError, TerminalError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import NO_TABLE, Snapshot
from airflow_provider_onelake.storage.concurrent import map_concurrently


@attrs.frozen
class WriterProgress:
    """How far a writer has come.

    :param directory: its directory, with its newest generation.
    :param of_later_run: whether another run of the load's name began that generation, and so publishes it itself.
    :param complete: buffers of the newest generation that are neither published nor set aside, the first complete one
        first. That one counts: a zombie may have completed a second buffer of the same work.
    :param refused: a buffer of the newest generation whose rows fail a check.
    :param merged: a buffer of the newest generation whose rows were merged, and no row of the table had to change. So
        no commit names it.
    :param lost: the path of a buffer that cannot be read, and why not.
    """

    directory: WriterDirectory
    of_later_run: bool = False
    complete: tuple[Buffer, ...] = ()
    refused: Buffer | None = None
    merged: Buffer | None = None
    lost: tuple[str, TerminalError] | None = None

    @classmethod
    def of(
        cls, log: DeltaLog, identity: WriterIdentity, snapshot: Snapshot, generation: int | None = None
    ) -> WriterProgress:
        """Read what the store has of a writer, as far as it matters. It may be called from several threads.

        :param snapshot: of the table.
        :param generation: the one that the caller's run began. Default: the newest, whichever run began it.
        """
        begun = WriterDirectory.read(log.store, identity.directory)
        of_later_run = generation is not None and begun.generation > generation
        if of_later_run or begun.is_published(snapshot.txns.get(identity.app_id)):
            return cls(begun, of_later_run)
        complete: list[Buffer] = []
        refused: Buffer | None = None
        merged: Buffer | None = None
        lost: tuple[str, TerminalError] | None = None
        for path in WriterDirectory.read(log.store, identity.directory).buffers:
            try:
                buffer = read_buffer(log.store, path)
            except BufferIncompleteError:
                continue
            except TerminalError as error:
                lost = path, error
                continue
            if buffer.spec.generation != begun.generation:
                continue
            if buffer.refused:
                refused = buffer
            elif (marker := read_marker(log.store, path)) is None:
                complete.append(buffer)
            elif marker.get(MERGED):
                merged = buffer
        complete.sort(key=lambda buffer: buffer.finished)
        return cls(begun, False, tuple(complete), refused, merged, lost)


def newest_or_planned(log: DeltaLog, writers: Iterable[WriterIdentity]) -> Snapshot | None:
    """Return the newest snapshot, or that of the table which staged rows make; ``None`` where there is neither."""
    if (snapshot := log.snapshot_or_none()) is None:
        seen = progress_of(log, writers, NO_TABLE, {})
        found = [b for one in seen for b in (*one.complete, one.refused, one.merged) if b is not None]
        # The last one counts: it has rows, and the most columns.
        for buffer in sorted(found, key=lambda b: (bool(b.adds), len(b.metadata["schemaString"]))):
            plan_of(log, buffer.path)
    return snapshot or log.planned


def progress_of(
    log: DeltaLog, identities: Iterable[WriterIdentity], snapshot: Snapshot, generations: Mapping[str, int]
) -> Iterator[WriterProgress]:
    """Yield how far several writers have come, in their order.

    :param snapshot: of the table.
    :param generations: by writer's key, the one that the caller's run began; see :meth:`WriterProgress.of`.
    """
    return map_concurrently(
        log.store,
        lambda identity: WriterProgress.of(log, identity, snapshot, generations.get(identity.key)),
        identities,
    )
