"""Which writers are at work, and which files of the table must stay as they are for them.

A file's path tells whose rows are in it, until a compaction merges the file with others. A writer needs to recognise:

* the files of its load's other writers, whose rows it must not replace (protocol: colleagues);
* the files that it published itself before, which a rerun takes back (protocol: take back whole).

A statement in flight needs the files that Spark reads for it: it would have to read again what a compaction
moved.

So a compaction leaves these files out until the writer is settled, and never makes a writer fail.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import lifetime, read_open_buffer
from airflow_provider_onelake.buffers.claims import claimant
from airflow_provider_onelake.buffers.identity import WriterIdentity, writers_among
from airflow_provider_onelake.buffers.layout import CHANGES, WriterDirectory, writer_directory
from airflow_provider_onelake.buffers.markers import read_marker
from airflow_provider_onelake.exceptions import BufferIncompleteError, BufferInvalidError
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.statements.round_tables import files_of_round
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot


@attrs.define(slots=False)
class WritersInFlight:
    """The writers that have begun, are not settled, and are still young enough to be published.

    :param loads: ids of their loads.
    :param changing: the paths of the files that a statement in flight reads.
    """

    loads: frozenset[str]
    changing: frozenset[str] = attrs.field(repr=False)
    _log: DeltaLog = attrs.field(repr=False)
    # The newest claim in each writer's directory, and the writers that are known already.
    _claims: dict[str, str] = attrs.field(repr=False)
    _writers: dict[str, WriterIdentity | None] = attrs.field(repr=False)

    def why_needed(self, file: Add) -> str | None:
        """Say why a live file must stay as it is, or ``None`` where no writer needs it.

        :param file: the raw ``add``.
        """
        if file["path"] in self.changing:
            return "a statement in flight reads it"
        directory = writer_directory(file["path"])
        if self.loads and directory in self._claims:
            if directory not in self._writers:
                self._writers[directory] = claimant(self._log.store, self._claims[directory])
            writer = self._writers[directory]
            if writer is not None and writer.load.id in self.loads:
                return f"its load {writer.load.id} has a writer in flight"
        return None


def writers_in_flight(log: DeltaLog, snapshot: Snapshot, abandoned_after: timedelta | None = None) -> WritersInFlight:
    """Look for writers in flight, in one listing of the buffers.

    :param snapshot: of the table; a writer that begins later is formed on it, or on a newer one.
    :param abandoned_after: a writer that wrote nothing for this long is not in flight. Default: half of the table's
        retention, after which its buffer is not published any more (protocol: young).
    :raises StoreUnavailableError: the store did not answer.
    :raises BufferInvalidError: a claim is damaged, so the writer that is in flight is not known.
    """
    age = lifetime(snapshot.retention_days) if abandoned_after is None else abandoned_after
    now = log.clock.now()
    # The table's txns name most writers. Only for the others is a claim read from the store, one by one.
    writers: dict[str, WriterIdentity | None] = {writer.directory: writer for writer in writers_among(snapshot.txns)}
    claims: dict[str, str] = {}
    loads: set[str] = set()
    changing: set[str] = set()
    for directory in WriterDirectory.all_in(log.store.list(STAGED_DIRECTORY)):
        if directory.path.startswith(CHANGES):
            for attempt in directory.attempts:
                if attempt.opened and not attempt.marker and now - attempt.newest < age:
                    changing |= files_of_round(log.store, attempt.path)
            continue
        if not directory.claims:
            continue  # not a writer's directory: a shadow, or one of a stranger
        generation = max(directory.claims)
        path = claims[directory.path] = directory.claims[generation]
        if now - directory.newest >= age or generation in directory.skipped:
            continue
        writer = writers.get(directory.path) or claimant(log.store, path)
        if writer is None or snapshot.txns.get(writer.app_id, 0) >= generation:
            continue
        pending = [attempt.path for attempt in directory.attempts if attempt.opened and not attempt.marker]
        if not pending and _is_closed(log, directory, generation):
            continue
        loads.add(writer.load.id)
    return WritersInFlight(frozenset(loads), frozenset(changing), log, claims, writers)


def _is_closed(log: DeltaLog, directory: WriterDirectory, generation: int) -> bool:
    """Say whether a buffer of a generation is closed.

    A closed buffer of an older generation does not settle a rerun that has a claim and no buffer yet.
    """
    claimed = directory.objects[directory.claims[generation]].modified
    for attempt in directory.attempts:
        if not attempt.marker or attempt.marker.modified < claimed:
            continue  # A buffer that was closed before its writer claimed this generation is of an older one.
        writer = (read_marker(log.store, attempt.path) or {}).get("writer")
        try:
            of = writer["generation"] if writer else read_open_buffer(log.store, attempt.path).spec.generation
        except (BufferIncompleteError, BufferInvalidError):
            # The marker names no writer, and the log is gone or damaged. All that is known is that the buffer was
            # closed after this generation was claimed.
            of = generation
        if of == generation:
            return True
    return False
