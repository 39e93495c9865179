"""Publishing a batch of buffers: decide on a given snapshot whether it may be published, and what is put."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import StrEnum
from typing import Any

import attrs

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.commit.batch import Batch, place, read_partition
from airflow_provider_onelake.commit.checks import (
    check_audited,
    check_definition,
    check_is_rows,
    check_no_path_twice,
    check_not_brought_back,
    check_paths_relative,
    check_whole,
    check_winners_known,
    is_done,
    is_in_table,
    stale_reads,
)
from airflow_provider_onelake.commit.colleagues import RowsOfLoad
from airflow_provider_onelake.commit.conflicts import KnownConflicts
from airflow_provider_onelake.commit.entry import Entry, build_entry
from airflow_provider_onelake.commit.policy import Settlement, settle
from airflow_provider_onelake.commit.transaction import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.commit.unique import check_compared
from airflow_provider_onelake.exceptions import CommitContentionError, ConflictError, RerunRefusedError
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.commits import Commit, PublishedWriter
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import NO_TABLE, Snapshot
from airflow_provider_onelake.staging.buffers import Buffer, read_marker, try_to_mark
from airflow_provider_onelake.staging.footers import with_statistics
from airflow_provider_onelake.staging.identity import WriterIdentity
from airflow_provider_onelake.staging.layout import writer_directory
from airflow_provider_onelake.staging.published import (
    Publishing,
    files_to_take_back,
    record_of,
)
from airflow_provider_onelake.storage.at_once import ahead, each

_NARROW = (
    "If the query needs some partitions only, name them by `reads`, so that changes in other partitions do not matter."
)
_NARROWER = (
    "If this happens often, name fewer partitions by `reads`, or raise max_rounds; for an append, with "
    "isolation='write_serializable', others' appends may count as later."
)


class Status(StrEnum):
    """How publishing a batch ended."""

    PUBLISHED = "published"
    ALREADY = "already_published"
    SET_ASIDE = "set_aside"
    CONFLICTED = "conflicted"
    NOTHING = "nothing_to_do"


@attrs.frozen
class Publication:
    """How publishing a batch ended.

    :param status: published now, published before, set aside, left to reconcile, or neither rows nor a table there.
    :param version: of the table in which the rows, or the decision to leave them out, were committed; ``None`` where
        nothing was committed, or the log no longer says.
    :param entry: the entry that this call put; ``None`` where it put none.
    :param batch: as it was decided on; ``None`` where no buffer was left to publish.
    :param settlements: how the policy settled the conflicts.
    :param conflicts: descriptions of the conflicts that are left to reconcile.
    """

    status: Status
    version: int | None
    entry: Entry | None = None
    batch: Batch | None = None
    settlements: tuple[Settlement, ...] = ()
    conflicts: tuple[str, ...] = ()
    tally: Tally = attrs.field(factory=Tally)


@attrs.define
class Committer(Transactions):
    """Publishes buffers into one table.

    :param observer: called with the result of every publishing that did not fail.
    :param message: of the author of the task that commits, for people who read the table's history.
    """

    observer: Callable[[Publication], None] | None = None
    message: str | None = None

    def publish(
        self,
        buffers: Sequence[Buffer],
        policy: Policy | None = None,
        colleagues: Iterable[WriterIdentity] = (),
        *,
        all_or_none: bool = False,
    ) -> Publication:
        """Publish buffers in one version.

        :param buffers: complete ones; more than one only where their writers are colleagues.
        :param policy: for true conflicts; ``None`` leaves them to reconcile.
        :param colleagues: other writers of the same load that were published before; their rows are not replaced.
        :param all_or_none: whether to publish none if one of the buffers was set aside meanwhile. Default: the others.
        :returns: how it ended. A conflict without a policy is a result, not an error.
        :raises ChecksFailedError: rows fail a check of their writer.
        :raises AuditRefusedError: the load was checked as a whole, and rows of one of its writers were set aside since.
        :raises MissingWritersError: the same of a load with ``all_or_none``.
        :raises BufferDoesNotFitError: the table changed in a way that the files do not follow.
        :raises BufferLostError: a buffer is too old to be published safely.
        :raises UnexpectedRowsError: rows lie outside of what is expected of a writer, and it asked to be refused then.
        :raises UncomparedKeysError: others brought rows since the keys of a writer were compared, which must be unique.
        :raises ConflictError: the policy does not settle a conflict.
        :raises ZombieWriterError: a newer generation of a writer was published.
        :raises RerunRefusedError: other work of the writer was published while this buffer was staged.
        :raises CommitContentionError: the budget is used up; the buffers stay publishable.
        :raises StoreUnavailableError: the store did not answer until the budget was used up; a rerun settles it.
        """
        for buffer in buffers:
            check_is_rows(buffer, self.log.table)
        check_audited(buffers, self.log.table)
        # Read footers here, not in `decide`: they do not change, and a commit that waits for them loses its race.
        complete = with_statistics(self.log, buffers)
        ended = self.commit(_Publishing(self, complete, policy, tuple(colleagues), all_or_none))
        if self.observer is not None:
            self.observer(ended)
        return ended


@attrs.define(eq=False)
class _Publishing(Proposal[Publication]):
    """One call of :meth:`Committer.publish`."""

    creates_table = True

    _committer: Committer
    _buffers: tuple[Buffer, ...]
    _policy: Policy | None
    _given: tuple[WriterIdentity, ...]
    _all_or_none: bool
    _colleagues: tuple[str, ...] = ()
    _markers: dict[str, Mapping[str, Any] | None] = attrs.field(factory=dict)
    _read_after: int | None = None
    _looked_at: int = 0
    _placed: tuple[Snapshot, Batch] | None = None
    _put: tuple[Batch, Entry, tuple[Settlement, ...]] | None = None

    def __attrs_post_init__(self) -> None:
        self._log = self._committer.log
        self._replaced = _Replaced(self._committer)
        self._rows = RowsOfLoad(self._log)
        self._conflicts = KnownConflicts()
        self._marker_of: Callable[[str], Mapping[str, Any] | None] = self._read_marker
        self.name = f"writers {self._names}"
        self.read_version = min(buffer.read_version for buffer in self._buffers)

    def look_ahead(self) -> AbstractContextManager[object]:
        """Begin to read the markers, which :meth:`_is_open` wants before the first put only."""
        # Before the table is loaded for the first time, the answers would be too old, see `_pending`.
        return nullcontext() if self._put is not None or not self._log.loads else self._reading_markers()

    @contextmanager
    def _reading_markers(self) -> Iterator[None]:
        self._read_after = self._log.loads
        with ahead(self._log.store, self._read_marker, [buffer.path for buffer in self._buffers]) as self._marker_of:
            yield

    def decide(self, view: View) -> Put | Publication:
        """Run the checks in the order of :mod:`~airflow_provider_onelake.commit.checks`, then build the entry."""
        if view.snapshot is NO_TABLE:
            view = attrs.evolve(view, snapshot=self._log.planned or self._log.snapshot())
        snapshot, table = view.snapshot, self._log.table
        buffers = self._pending(view)
        if not buffers:
            return self._ended_without_put(view)
        if snapshot.version == NO_TABLE.version and not any(buffer.adds for buffer in buffers):
            return Publication(Status.NOTHING, None, tally=view.tally)
        # Colleagues that another reconciliation published meanwhile keep their rows as well.
        dropped = [buffer for buffer in self._buffers if buffer not in buffers]
        set_aside = [buffer for buffer in dropped if self._was_set_aside(buffer, snapshot)]
        check_whole(buffers, set_aside, table, all_or_none=self._all_or_none)
        others = (*self._given, *(buffer.spec.identity for buffer in dropped))
        self._colleagues = tuple(identity.directory for identity in others)
        now = self._log.clock.now()
        for buffer in buffers:
            buffer.check_age(now, snapshot.retention_days)
        check_not_brought_back(buffers, snapshot, self._log)
        check_no_path_twice(buffers, view.winners[self._looked_at :], table)
        self._looked_at = len(view.winners)
        batch = self._place(buffers, snapshot)
        check_winners_known(batch, view, table)
        if stale := stale_reads(buffers, view.winners, snapshot.partitioning):
            return self._leave_or_refuse(batch, stale, view)
        check_compared(batch, others, view.winners, snapshot, table)
        removable = self._replaced.files(batch, view, self._colleagues)
        conflicts = []
        if batch.replaces_anything:
            self._rows.check_apart(others, removable, batch.names, view)
            rivals = [w for w in view.winners if w.version > batch.read_version and not self._is_allied(w)]
            conflicts = self._conflicts.find(batch, rivals, snapshot)
        if conflicts and self._policy is None:
            described = tuple(conflict.describe(snapshot.partitioning) for conflict in conflicts)
            return Publication(Status.CONFLICTED, None, batch=batch, conflicts=described, tally=view.tally)
        settled = settle(batch, conflicts, removable, self._policy or Policy.FAIL, snapshot.partitioning, table)
        removed = [] if settled.set_aside else removable
        entry = build_entry(
            batch, snapshot, removed, settled, view.txn_id, self._log.clock.now(), self._committer.message
        )
        self._put = (batch, entry, settled.settlements)
        return Put(entry.actions)

    def _pending(self, view: View) -> tuple[Buffer, ...]:
        """Return the buffers that neither the table, nor a marker, nor newer work of their writers settles."""
        # Loading the table takes long. Somebody may have set a buffer aside meanwhile, so read the markers afterwards.
        too_old = view.tally.attempts == 0 and self._read_after != self._log.loads
        with self._reading_markers() if too_old else nullcontext():
            return tuple(
                buffer
                for buffer in self._buffers
                if self._is_open(buffer, view) and not is_done(buffer, view, self._log)
            )

    def _is_open(self, buffer: Buffer, view: View) -> bool:
        """Say whether neither the table nor a marker has an answer for a buffer."""
        if is_in_table(buffer, view, self._log):
            return False
        if view.tally.attempts == 0:
            # Read the marker only before our first put. Later, only another committer's commit closes the buffer, and
            # the txn in the snapshot shows that.
            self._markers[buffer.path] = self._marker_of(buffer.path)
        return self._markers.get(buffer.path) is None

    def _was_set_aside(self, buffer: Buffer, snapshot: Snapshot) -> bool:
        """Say whether a buffer was closed without being published.

        A marker is newer than the snapshot, and may say that another committer has published the buffer since.
        """
        spec, marker = buffer.spec, self._markers.get(buffer.path)
        is_in = snapshot.txns.get(spec.identity.app_id) == spec.generation
        return marker is not None and "version" not in marker and not is_in

    def _read_marker(self, path: str) -> Mapping[str, Any] | None:
        return read_marker(self._log.store, path)

    def _place(self, buffers: tuple[Buffer, ...], snapshot: Snapshot) -> Batch:
        """Check the table's definition and sort the files. Repeat this only if the definition or the buffers change."""
        if self._placed is not None:
            before, batch = self._placed
            same = before.metadata is snapshot.metadata and before.protocol is snapshot.protocol
            if same and batch.buffers == buffers:
                return batch
        for buffer in buffers:
            check_definition(buffer, snapshot, self._log.table)
        batch = place(buffers, snapshot)
        self._placed = (snapshot, batch)
        return batch

    def _leave_or_refuse(self, batch: Batch, stale: list[Commit], view: View) -> Publication:
        """Publish nothing, as what the rows were computed from has changed in the table since.

        Without a policy, the conflict is left to reconcile. With one it is refused, as no policy settles it.

        Protocol: reads its target.
        """
        described = tuple(
            f"version {commit.version} ({commit.operation or 'an unknown operation'}) changed rows after the table was "
            f"read at version {batch.read_version}"
            for commit in stale
        )
        declared = all(buffer.reads is not None for buffer in batch.buffers if buffer.reads_target)
        if self._policy is None:
            return Publication(Status.CONFLICTED, None, batch=batch, conflicts=described, tally=view.tally)
        raise ConflictError(
            f"Writers {self._names} computed their rows from {self._log.table} itself, and {described[0]}, so that "
            "they are out of date. Nothing was published: clear the writers to compute them from the newest version. "
            f"No policy settles this. {_NARROWER if declared else _NARROW}"
        )

    def _is_allied(self, winner: Commit) -> bool:
        return bool(winner.writers) and all(self._allied(writer) for writer in winner.writers)

    def _allied(self, writer: PublishedWriter) -> bool:
        """Say whether a writer is a colleague, or an older generation of one of these writers.

        A rerun replaces an older generation, whenever that one finished (protocol: generation).
        """
        if writer_directory(writer.buffer) in self._colleagues:
            return True
        specs = (buffer.spec for buffer in self._buffers)
        return any(spec.identity.app_id == writer.app_id and spec.generation > writer.generation for spec in specs)

    def _ended_without_put(self, view: View) -> Publication:
        """Say why there is nothing to publish: the rows are in the table, or the buffers were set aside."""
        markers = [
            self._markers.get(buffer.path)
            if view.snapshot.txns.get(buffer.spec.identity.app_id) != buffer.spec.generation
            else None
            for buffer in self._buffers
        ]
        if all(marker is not None and "version" not in marker for marker in markers):
            return Publication(Status.SET_ASIDE, None, tally=view.tally)
        found = record_of(self._buffers[-1].spec.identity, view.winners)
        return Publication(Status.ALREADY, found.version if found else None, tally=view.tally)

    def committed(self, version: int, tally: Tally) -> Publication:
        """Mark the buffers as published.

        :param version: in which they were published.
        """
        assert self._put is not None
        assert self._placed is not None
        batch, entry, settlements = self._put
        table_id = self._placed[0].table_id

        def mark(record: PublishedWriter) -> None:
            try_to_mark(self._log, record.buffer, Publishing(version, record).marker(table_id))

        for _ in each(self._log.store, mark, entry.writers):
            pass
        # The policy may have left out all rows. The commit then has the txns alone.
        nothing_seen = all(record.set_aside for record in entry.writers)
        status = Status.SET_ASIDE if nothing_seen else Status.PUBLISHED
        return Publication(status, version, entry=entry, batch=batch, settlements=settlements, tally=tally)

    def give_up(self, tally: Tally) -> Publication:
        """Leave the buffers to a later task.

        :raises CommitContentionError: always.
        """
        raise CommitContentionError(
            f"{self._log.table}: {tally.lost_races} of {tally.attempts} puts of {self.name} met another's "
            f"commit, and the budget of {self._committer.backoff.budget:g} s is used up. Nothing was lost: the buffers "
            "stay, and clearing this task or reconcile publishes them without running Spark again."
        )

    @property
    def _names(self) -> str:
        return ", ".join(repr(buffer.spec.identity.key) for buffer in self._buffers)


@attrs.define(eq=False)
class _Replaced:
    """The live files that one publication removes, kept up to date from attempt to attempt.

    It replaces files by partition, and files that its writers appended before (protocol: take back whole).
    """

    _committer: Transactions
    _live: tuple[tuple[Buffer, ...], LiveFiles] | None = None

    def files(self, batch: Batch, view: View, colleagues: tuple[str, ...]) -> list[Add]:
        """Return the raw ``add`` actions of the files that the batch removes, without colleagues' files.

        :param colleagues: directories of writers of the load that were published before.
        :raises RerunRefusedError: files of the batch were in the table, or the files that it takes back have changed.
        :raises UnsupportedFeatureError: a file to remove has an absolute path.
        """
        if not batch.replaces_anything:
            if not view.complete:
                self._check_never_there(batch, view.snapshot)
            return self._taken_back(batch, view.snapshot)
        files = self._live_files(batch, view)
        return [file for file in files if writer_directory(file["path"]) not in colleagues]

    def _taken_back(self, batch: Batch, snapshot: Snapshot) -> list[Add]:
        """Return what the batch's writers appended in their last generation, where the rerun replaces it."""
        files: list[Add] = []
        for spec in (buffer.spec for buffer in batch.buffers):
            stored = snapshot.txns.get(spec.identity.app_id)
            if spec.takes_back and stored is not None:
                files += files_to_take_back(self._committer.log, spec.identity, stored, snapshot)
        if files and snapshot.append_only:
            raise RerunRefusedError(
                f"{self._committer.log.table} is append-only, so what writers {batch.names} appended before is not "
                "taken back. Nothing was published: on_rerun='append' adds the rows beside it."
            )
        return files

    def _live_files(self, batch: Batch, view: View) -> LiveFiles:
        snapshot = view.snapshot
        if self._live is not None and self._live[0] == batch.buffers:
            files = self._live[1]
            files.follow(view.winners)
            return files
        read = read_partition(batch.mode, snapshot.partitioning)
        files = self._committer.live_in(snapshot, batch.replaces, read)
        check_paths_relative(files, self._committer.log.table)
        self._live = (batch.buffers, files)
        return files

    def _check_never_there(self, batch: Batch, snapshot: Snapshot) -> None:
        own = Below(tuple(f"{buffer.path}/" for buffer in batch.buffers))
        if len(self._committer.log.live_files(own, snapshot.version)):
            raise RerunRefusedError(
                f"Files of writers {batch.names} are in {self._committer.log.table} already; nothing was published."
            )
