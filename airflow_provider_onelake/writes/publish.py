"""Publishing a batch of buffers: decide on a given snapshot whether it may be published, and what is put."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.footers import with_statistics
from airflow_provider_onelake.buffers.identity import WriterIdentity
from airflow_provider_onelake.buffers.layout import writer_directory
from airflow_provider_onelake.buffers.markers import MERGED, read_marker, try_to_mark
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.entry import check_paths_relative
from airflow_provider_onelake.commit.loop import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.exceptions import (
    LogGapError,
    OutOfDateError,
    RerunRefusedError,
    UnknownCommitsError,
)
from airflow_provider_onelake.history.published import Publishing, record_of
from airflow_provider_onelake.history.reruns import in_table
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.commits import Commit, PublishedWriter
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import NO_TABLE, Snapshot
from airflow_provider_onelake.storage.concurrent import map_concurrently, prefetched
from airflow_provider_onelake.writes.batch import Batch, place, read_partition
from airflow_provider_onelake.writes.colleagues import check_apart
from airflow_provider_onelake.writes.commit_checks import (
    check_audited,
    check_definition,
    check_is_rows,
    check_no_path_twice,
    check_not_brought_back,
    check_whole,
    check_winners_known,
    since,
    stale_reads,
)
from airflow_provider_onelake.writes.conflicts import Conflict, conflicts_of, is_own
from airflow_provider_onelake.writes.entry import Published, build_entry
from airflow_provider_onelake.writes.policy import Contest, Settled, Settlement, left_out_as, settle

_NARROW = (
    "If the query needs some partitions only, name them by `reads`, so that changes in other partitions do not matter."
)
_NARROWER = "If this happens often, name fewer partitions by `reads`."


class PublishStatus(StrEnum):
    """How publishing a batch ended."""

    PUBLISHED = "published"
    ALREADY = "already_published"
    SET_ASIDE = "set_aside"
    SUPERSEDED = "superseded"
    NOTHING = "nothing_to_do"


@attrs.frozen
class Publication:
    """How publishing a batch ended.

    :param status: published now, published before, left out whole by the policy (set aside or superseded), or neither
        rows nor a table there.
    :param version: of the table in which the rows, or the decision to leave them out, were committed; ``None`` where
        nothing was committed, or the log no longer says.
    :param entry: the entry that this call put; ``None`` where it put none.
    :param batch: as it was decided on; ``None`` where no buffer was left to publish.
    :param settlements: how the policy settled the conflicts.
    """

    status: PublishStatus
    version: int | None
    entry: Published | None = None
    batch: Batch | None = None
    settlements: tuple[Settlement, ...] = ()
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
        policy: Policy = Policy.LAST_WRITER_WINS,
        colleagues: Iterable[WriterIdentity] = (),
        *,
        all_or_none: bool = False,
    ) -> Publication:
        """Publish buffers in one version.

        :param buffers: complete ones; more than one only where their writers are colleagues.
        :param policy: for conflicts with other writes.
        :param colleagues: other writers of the same load that were published before; their rows are not replaced.
        :param all_or_none: whether to publish none if one of the buffers was set aside meanwhile. Default: the others.
        :returns: how it ended. What the policy left out is a result, not an error.
        :raises ChecksFailedError: rows fail a check of their writer.
        :raises MissingWritersError: rows of one of the buffers were set aside since, and ``all_or_none`` asks for all.
        :raises BufferDoesNotFitError: the table changed in a way that the files do not follow.
        :raises BufferLostError: a buffer is too old to be published safely.
        :raises UnexpectedRowsError: rows lie outside of what is expected of a writer, and it asked to be refused then.
        :raises OutOfDateError: others have changed what the rows were computed from, or finished later and replaced a
            part of what they replace. Rows that are staged anew can be published.
        :raises ConflictError: the policy is ``fail``, and there is a conflict; or nobody knows whether there is one.
        :raises ZombieWriterError: a newer generation of a writer was published.
        :raises RerunRefusedError: other work of the writer was published while this buffer was staged.
        :raises CommitContentionError: the budget is used up; the buffers stay publishable.
        :raises StoreUnavailableError: the store did not answer until the budget was used up; a rerun settles it.
        """
        for buffer in buffers:
            check_is_rows(buffer, self.log.table)
        check_audited(buffers, self.log)
        # Read footers here, not in `decide`: they do not change, and a commit that waits for them loses its race.
        complete = with_statistics(self.log, buffers)
        ended = self.commit(_BatchProposal(self, complete, policy, tuple(colleagues), all_or_none))
        if self.observer is not None:
            self.observer(ended)
        return ended


@attrs.define(eq=False)
class _BatchProposal(Proposal[Publication]):
    """One call of :meth:`Committer.publish`."""

    creates_table = True
    left = (
        "Nothing was lost: the buffers stay, and clearing this task or reconcile publishes them without running Spark "
        "again"
    )

    _committer: Committer
    _buffers: tuple[Buffer, ...]
    _policy: Policy
    _expected: tuple[WriterIdentity, ...]
    _all_or_none: bool
    _colleagues: tuple[str, ...] = ()
    _markers: dict[str, Mapping[str, Any] | None] = attrs.field(factory=dict)
    _read_after: int | None = None
    _looked_at: int = 0
    _placed: tuple[Snapshot, Batch] | None = None
    _conflicts_found: tuple[Batch, int, list[Conflict]] | None = None
    _landed: dict[int, datetime | None] = attrs.field(factory=dict)
    _put: tuple[Batch, Published, Settled] | None = None

    def __attrs_post_init__(self) -> None:
        self._log = self._committer.log
        self._replaced = _Replaced(self._committer)
        self._marker_of: Callable[[str], Mapping[str, Any] | None]
        self.name = f"writers {self._names}"
        self.read_version = min(buffer.read_version for buffer in self._buffers)

    def look_ahead(self) -> AbstractContextManager[object]:
        """Begin to read the markers, which :meth:`_is_open` wants before the first put only."""
        # Before the table is loaded for the first time, the answers would be too old, see `_pending`.
        return nullcontext() if self._put is not None or not self._log.loads else self._reading_markers()

    @contextmanager
    def _reading_markers(self) -> Iterator[None]:
        self._read_after = self._log.loads
        read = partial(read_marker, self._log.store)
        with prefetched(self._log.store, read, [buffer.path for buffer in self._buffers]) as self._marker_of:
            yield

    def decide(self, view: View) -> Put | Publication:
        """Run the checks of :mod:`~airflow_provider_onelake.writes.commit_checks` in order, then build the entry."""
        if view.snapshot is NO_TABLE:
            view = attrs.evolve(view, snapshot=self._log.planned or self._log.snapshot())
        snapshot, table = view.snapshot, self._log.table
        buffers = self._pending(view)
        if not buffers:
            return self._ended_without_put(view)
        if snapshot.version == NO_TABLE.version and not any(buffer.adds for buffer in buffers):
            for buffer in buffers:
                # Else a reconciliation after the table is made would commit them, without a row.
                try_to_mark(self._log, buffer.path, {MERGED: True, "reason": "there is no row, and no table"})
            return Publication(PublishStatus.NOTHING, None, tally=view.tally)
        # Colleagues that another reconciliation published meanwhile keep their rows as well.
        dropped = [buffer for buffer in self._buffers if buffer not in buffers]
        if self._all_or_none:
            check_whole([buffer for buffer in dropped if self._was_set_aside(buffer, snapshot)], table)
        others = (*self._expected, *(buffer.spec.identity for buffer in dropped))
        self._colleagues = tuple(identity.directory for identity in others)
        now = self._log.clock.now()
        for buffer in buffers:
            buffer.check_age(now, snapshot.retention_days)
        check_not_brought_back(buffers, snapshot, self._log)
        check_no_path_twice(buffers, view.winners[self._looked_at :], table)
        self._looked_at = len(view.winners)
        batch = self._place(buffers, snapshot)
        check_winners_known(batch, view, table)
        self._check_up_to_date(batch, view)
        removable = self._replaced.files(batch, view, self._colleagues)
        if batch.replaces_anything:
            check_apart(self._log, others, removable, batch.names, snapshot)
        conflicts = self._conflicts(batch, view)
        # Only `last_writer_wins` asks who finished later, and to know whether times count costs a request.
        asks = bool(conflicts) and self._policy is Policy.LAST_WRITER_WINS
        times_count = not asks or self._times_count(batch)
        news = since(batch.read_version, view.winners)
        contest = Contest(batch, conflicts, news, removable, snapshot.partitioning, times_count, table)
        settled = settle(contest, self._policy)
        removed = [] if settled.left_out else removable
        entry = build_entry(batch, snapshot, removed, settled, now, self._committer.message)
        self._put = (batch, entry, settled)
        return Put(entry.entry, snapshot)

    def _pending(self, view: View) -> tuple[Buffer, ...]:
        """Return the buffers that neither the table, nor a marker, nor newer work of their writers settles."""
        # Loading the table takes long. Somebody may have set a buffer aside meanwhile, so read the markers afterwards.
        too_old = view.tally.attempts == 0 and self._read_after != self._log.loads
        with self._reading_markers() if too_old else nullcontext():
            return tuple(buffer for buffer in self._buffers if self._is_open(buffer, view))

    def _is_open(self, buffer: Buffer, view: View) -> bool:
        """Say whether neither the table nor a marker has an answer for a buffer."""
        if view.snapshot.txns.get(buffer.spec.identity.app_id) != buffer.spec.generation:
            if view.tally.attempts == 0:
                # Read the marker only before our first put. Later, only another committer's commit closes the buffer,
                # and the txn in the snapshot shows that.
                self._markers[buffer.path] = self._marker_of(buffer.path)
            if self._markers.get(buffer.path) is not None:
                return False
        history = WriterHistory(self._log, buffer.spec.identity, view.snapshot, view.winners)
        return in_table(history, buffer.spec) is None

    def _was_set_aside(self, buffer: Buffer, snapshot: Snapshot) -> bool:
        """Say whether a buffer was closed without being published.

        A marker is newer than the snapshot, and may say that another committer has published the buffer since.
        """
        spec, marker = buffer.spec, self._markers.get(buffer.path)
        is_in = snapshot.txns.get(spec.identity.app_id) == spec.generation
        return marker is not None and "version" not in marker and not is_in

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

    def _check_up_to_date(self, batch: Batch, view: View) -> None:
        """Refuse rows that were computed from the table itself, if what they were computed from has changed since.

        Protocol: reads its target.

        :raises OutOfDateError: it has.
        """
        stale = stale_reads(batch.buffers, view.winners, view.snapshot.partitioning)
        if not stale:
            return
        declared = all(buffer.reads is not None for buffer in batch.buffers if buffer.reads_target)
        raise OutOfDateError(
            f"Writers {self._names} computed their rows from {self._log.table} itself, and version {stale[0].version} "
            f"({stale[0].author}) changed rows after the table was read at version {batch.read_version}, so that they "
            "are out of date. Nothing was published: clear the writers to compute them from the newest version. "
            f"No policy settles this. {_NARROWER if declared else _NARROW}"
        )

    def _conflicts(self, batch: Batch, view: View) -> list[Conflict]:
        """Return the batch's conflicts. Each commit is looked at once, however many puts lose their race."""
        if not batch.replaces_anything:
            return []
        if self._conflicts_found is not None and self._conflicts_found[0] is batch:
            _, seen, found = self._conflicts_found
            commits = view.winners[seen:]
        else:
            found, commits = [], [*self._commits_of_load(batch), *since(batch.read_version, view.winners)]
        winners = [winner for winner in commits if not is_own(winner, self._buffers)]
        found = [*found, *conflicts_of(batch, winners, view.snapshot.partitioning)]
        self._conflicts_found = batch, len(view.winners), found
        return found

    def _commits_of_load(self, batch: Batch) -> list[Commit]:
        """Return what others of its load have committed since the load began, though the batch was formed on it.

        ``first_writer_wins`` and ``fail`` ask for that, so that it does not matter how many of the writers had a slot.

        :raises UnknownCommitsError: the log since then was cleaned up.
        """
        (buffer, *_), load = batch.buffers, batch.buffers[0].spec.identity.load
        began = buffer.spec.began
        if (
            self._policy is Policy.LAST_WRITER_WINS
            or buffer.spec.publish is PublishMode.TOGETHER
            or began is None
            or not began.is_of(buffer.table_id)
        ):
            return []
        try:
            commits = self._log.commits_between(began.version, batch.read_version)
        except LogGapError:
            raise UnknownCommitsError(
                f"Writers {batch.names} are not published into {self._log.table}: its log since version "
                f"{began.version}, at which their load {load.id} began, was cleaned up, so nobody knows whether others "
                "of the load have put rows where they replace some. Clear the writers, which begin anew on the newest "
                "version."
            ) from None
        return [
            commit for commit in commits if any(writer.app_id.startswith(load.prefix) for writer in commit.all_writers)
        ]

    def _times_count(self, batch: Batch) -> bool:
        """Say whether the log has the times that it had when the rows were staged. One that was copied has others.

        Another engine may have cleaned up the very entry of the read version, which says nothing of a copy.
        """
        for version, before in {
            (buffer.read_version, buffer.read_time) for buffer in batch.buffers if buffer.read_time
        }:
            if version not in self._landed:
                self._landed[version] = self._log.landed(version)
            if self._landed[version] not in (None, before):
                return False
        return True

    def _ended_without_put(self, view: View) -> Publication:
        """Say why there is nothing to publish: the rows are in the table, or the buffers were set aside."""
        if all(self._was_set_aside(buffer, view.snapshot) for buffer in self._buffers):
            return Publication(PublishStatus.SET_ASIDE, None, tally=view.tally)
        found = record_of(self._buffers[-1].spec.identity, view.winners)
        commit = next((winner for winner in view.winners if found and winner.version == found.version), None)
        if found is None or commit is None or not found.record.set_aside:
            return Publication(PublishStatus.ALREADY, found.version if found else None, tally=view.tally)
        settlements = Settlement.of(commit)
        return Publication(
            PublishStatus(left_out_as(settlements)), found.version, settlements=settlements, tally=view.tally
        )

    def committed(self, version: int, tally: Tally) -> Publication:
        """Mark the buffers as published.

        :param version: in which they were published.
        """
        assert self._put is not None
        assert self._placed is not None
        batch, entry, settled = self._put
        table_id = self._placed[0].table_id

        def mark(record: PublishedWriter) -> None:
            try_to_mark(self._log, record.buffer, Publishing(version, record).marker(table_id))

        for _ in map_concurrently(self._log.store, mark, entry.writers):
            pass
        status = PublishStatus(left_out_as(settled.settlements)) if settled.left_out else PublishStatus.PUBLISHED
        return Publication(status, version, entry=entry, batch=batch, settlements=settled.settlements, tally=tally)

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
            history = WriterHistory(self._committer.log, spec.identity, snapshot)
            if spec.takes_back and history.stored is not None:
                files += history.files_to_take_back()
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
