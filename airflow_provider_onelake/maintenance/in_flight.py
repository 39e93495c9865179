"""Which writers are at work, and which files of the table must stay as they are for them.

A file's path tells whose rows are in it, until a compaction merges the file with others. A writer needs to recognise:

* the files of its load's other writers, whose rows it must not replace (protocol: whole writes);
* the files that it published itself before, which a rerun takes back (protocol: take back whole);
* the files that came after its read version, which a reconciliation may keep beside its rows.

So a compaction leaves these files out until the writer is settled, and never makes a writer fail.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    InvalidWriteError,
    LogGapError,
)
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.staging.buffers import closed, read_open_buffer
from airflow_provider_onelake.staging.claims import claimant
from airflow_provider_onelake.staging.identity import WriterIdentity
from airflow_provider_onelake.staging.layout import (
    by_writer,
    closed_in,
    marker_path,
    numbered,
    opened_in,
    writer_directory,
)
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import PartitionPredicate
    from airflow_provider_onelake.log.snapshot import Snapshot


@attrs.frozen
class Formed:
    """A write in flight that replaces rows.

    The files that came after its read version must stay as they are in the partitions that it may replace.

    :param read_version: the version of the table that the write was formed on.
    :param where: the partitions that it may replace; ``None`` for all.
    """

    read_version: int
    where: PartitionPredicate | None


@attrs.define(slots=False)
class WritersInFlight:
    """The writers that have begun, are not settled, and are still young enough to be published.

    :param loads: ids of their loads.
    :param formed: their writes that replace rows.
    """

    loads: frozenset[str]
    formed: tuple[Formed, ...]
    _log: DeltaLog = attrs.field(repr=False)
    _snapshot: Snapshot = attrs.field(repr=False)
    _claims: dict[str, str] = attrs.field(repr=False)
    _load_of: dict[str, str | None] = attrs.field(repr=False)

    @property
    def read_version(self) -> int | None:
        """The oldest read version of the writes that replace rows; ``None`` where there is no such write."""
        return min((write.read_version for write in self.formed), default=None)

    def why_needed(self, file: Add) -> str | None:
        """Say why a live file must stay as it is, or ``None`` where no writer needs it.

        :param file: the raw ``add``.
        """
        if self._came is None:
            return f"the log since version {self.read_version} was cleaned up, and a writer in flight was formed on it"
        came = self._came.get(file["path"])
        if came is not None:
            partition = self._snapshot.partitioning.partition(file["partitionValues"])
            for write in self.formed:
                # Where the predicate cannot be judged, the file stays.
                if came > write.read_version and (write.where is None or write.where.judge(partition) is not False):
                    return f"it came after version {write.read_version}, which a writer in flight was formed on"
        directory = writer_directory(file["path"])
        if self.loads and directory in self._claims:
            load = self._load(directory)
            if load in self.loads:
                return f"its load {load} has a writer in flight"
        return None

    @cached_property
    def _came(self) -> dict[str, int] | None:
        """The version in which each file came, since the oldest read version; ``None`` where the log does not say."""
        if self.read_version is None:
            return {}
        try:
            commits = self._log.commits_between(self.read_version, self._snapshot.version)
        except LogGapError:
            return None
        return {add["path"]: commit.version for commit in commits for add in commit.adds}

    def _load(self, directory: str) -> str | None:
        if directory not in self._load_of:
            writer = claimant(self._log.store, self._claims[directory])
            self._load_of[directory] = writer.load.id if writer is not None else None
        return self._load_of[directory]


def writers_in_flight(log: DeltaLog, snapshot: Snapshot, abandoned_after: timedelta | None = None) -> WritersInFlight:
    """Look for writers in flight, in one listing of the buffers.

    :param snapshot: of the table; a writer that begins later is formed on it, or on a newer one.
    :param abandoned_after: a writer that wrote nothing for this long is not in flight. Default: half of the table's
        retention, after which its buffer is not published any more (protocol: young).
    :raises StoreUnavailableError: the store did not answer.
    :raises BufferInvalidError: a claim is damaged, so the writer that is in flight is not known.
    """
    age = timedelta(days=snapshot.retention_days) / 2 if abandoned_after is None else abandoned_after
    now = log.clock.now()
    # The table's txns name most writers. Only for the others is a claim read from the store, one by one.
    known = {writer.directory: writer for writer in _known(snapshot)}
    claims: dict[str, str] = {}
    loads: set[str] = set()
    formed: list[Formed] = []
    for directory, objects in by_writer(log.store.list(STAGED_DIRECTORY)):
        marks = list(numbered(objects))
        newest = max((mark for mark in marks if not mark.skipped), default=None, key=lambda mark: mark.generation)
        if newest is None:
            continue  # not a writer's directory: a shadow, or one of a stranger
        generation = newest.generation
        claims[directory] = newest.path
        if now - max(info.modified for info in objects) >= age or any(
            mark.skipped and mark.generation == generation for mark in marks
        ):
            continue
        writer = known.get(directory) or claimant(log.store, newest.path)
        if writer is None or snapshot.txns.get(writer.app_id, 0) >= generation:
            continue
        ended = set(closed_in(objects))
        pending = set(opened_in(objects)) - ended
        written = {info.path: info.modified for info in objects}
        # A buffer that was closed before its writer claimed this generation is of an older one.
        since = {path for path in ended if written[marker_path(path)] >= written[newest.path]}
        if not pending and any(_is_of(log, path, generation) for path in since):
            continue
        loads.add(writer.load.id)
        formed += (write for path in sorted(pending) for write in _formed(log, path, snapshot))
    load_of: dict[str, str | None] = {directory: writer.load.id for directory, writer in known.items()}
    return WritersInFlight(frozenset(loads), tuple(formed), log, snapshot, claims, load_of)


def _known(snapshot: Snapshot) -> Iterator[WriterIdentity]:
    """Yield the writers that the table's txns name."""
    for app_id in snapshot.txns:
        if (writer := WriterIdentity.from_app_id(app_id)) is not None:
            yield writer


def _is_of(log: DeltaLog, path: str, generation: int) -> bool:
    """Say whether a closed buffer is of a generation.

    A closed buffer of an older generation does not settle a rerun that has a claim and no buffer yet.
    """
    writer = (closed(log.store, path) or {}).get("writer")
    if writer is not None:
        return bool(writer["generation"] == generation)
    try:
        return read_open_buffer(log.store, path).spec.generation == generation
    except (BufferIncompleteError, BufferInvalidError):
        # The marker names no writer, and the log is gone or damaged. All that is known is that the buffer was closed
        # after this generation was claimed.
        return True


def _formed(log: DeltaLog, path: str, snapshot: Snapshot) -> Iterator[Formed]:
    """Yield a buffer's write if it replaces rows."""
    try:
        buffer = read_open_buffer(log.store, path)
    except (BufferIncompleteError, BufferInvalidError):
        return
    spec = buffer.spec
    if not spec.mode.replaces:
        return
    try:
        where = spec.range(snapshot) if spec.mode.by_partition else None
    except InvalidWriteError:
        # The range does not fit the table's partitioning any more, so the write may replace anything.
        where = None
    yield Formed(buffer.read_version, where)
