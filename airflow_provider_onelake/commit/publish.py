"""Publishing a batch: decide on the newest snapshot, put create-only at its next version, rebase if that was taken."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from random import Random
from typing import Any

import attrs

from airflow_provider_onelake.commit.backoff import Backoff, Waits
from airflow_provider_onelake.commit.batch import Batch, place
from airflow_provider_onelake.commit.conflicts import (
    check_fits,
    check_no_path_twice,
    find_conflicts,
    serial_order,
    stale_reads,
)
from airflow_provider_onelake.commit.entry import Entry, build_entry
from airflow_provider_onelake.commit.follow_up import AfterCommit, follow_up
from airflow_provider_onelake.commit.policy import Contest, Policy, Settlement, settle
from airflow_provider_onelake.commit.replaced import Replaced
from airflow_provider_onelake.commit.same_load import SameLoad
from airflow_provider_onelake.exceptions import (
    CommitContentionError,
    ConflictError,
    LogGapError,
    ObjectExistsError,
    OneLakeError,
    RerunRefusedError,
    StoreUnavailableError,
    TableNotFoundError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.commits import Commit, PublishedWriter
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.referee import Referee
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.buffers import Buffer, close, closed
from airflow_provider_onelake.staging.identity import WriterIdentity
from airflow_provider_onelake.staging.published import WAYS, Publishing, undone
from airflow_provider_onelake.staging.spec import OnRerun

logger = logging.getLogger(__name__)


class Status(StrEnum):
    """How publishing a batch ended."""

    PUBLISHED = "published"
    ALREADY = "already_published"
    SET_ASIDE = "set_aside"
    CONFLICTED = "conflicted"


@attrs.frozen
class Publication:
    """How publishing a batch ended.

    :param status: published now, published before, set aside, or left to reconcile.
    :param version: of the table that the rows, or the decision to leave them out, came with; ``None`` where it is left,
        or the log no longer says.
    :param entry: what was put; ``None`` unless it was put now.
    :param batch: as it was decided on; ``None`` where all of it was there already.
    :param settlements: of conflicts, by the policy.
    :param conflicts: found, but left to reconcile.
    :param attempts: puts tried.
    :param lost_races: puts refused because another was first.
    :param unanswered: times that the store did not answer.
    :param rebasing: seconds from the first lost race to the end.
    """

    status: Status
    version: int | None
    entry: Entry | None = None
    batch: Batch | None = None
    settlements: tuple[Settlement, ...] = ()
    conflicts: tuple[str, ...] = ()
    attempts: int = 0
    lost_races: int = 0
    unanswered: int = 0
    rebasing: float = 0.0


@attrs.define
class Committer:
    """Publishes buffers into one table.

    :param log: of the table.
    :param random: for ids and jitter.
    :param backoff: between attempts.
    :param referee: asked before files are removed; ``None`` for no second opinion.
    :param after_commit: called with every version that was put, such as for a checkpoint; its failure is only logged.
    :param observer: told how every publishing ended that did not fail.
    """

    log: DeltaLog
    random: Random = attrs.field(factory=Random)
    backoff: Backoff = attrs.field(factory=Backoff)
    referee: Referee | None = None
    after_commit: AfterCommit | None = None
    observer: Callable[[Publication], None] | None = None

    def publish(
        self, buffers: Sequence[Buffer], policy: Policy | None = None, colleagues: Iterable[WriterIdentity] = ()
    ) -> Publication:
        """Publish buffers in one version.

        :param buffers: complete ones; more than one only where they are colleagues.
        :param policy: for true conflicts; ``None`` leaves them to reconcile.
        :param colleagues: other writers of the same load, published before: their rows are not replaced.
        :returns: how it ended. A conflict without a policy is a result, not an error.
        :raises BufferDoesNotFitError: the table changed in a way that the files do not follow.
        :raises BufferLostError: a buffer is too old to be published safely.
        :raises RowsOutsideError: rows lie outside what a writer covers, and it asked to be refused then.
        :raises ConflictError: the policy does not settle a conflict.
        :raises ZombieWriterError: a newer generation of a writer was published.
        :raises RerunRefusedError: other work of the writer was published while this was staged.
        :raises CommitContentionError: the budget is used up; the buffers stay publishable.
        :raises StoreUnavailableError: the store did not answer until the budget was used up; a rerun settles it.
        """
        ended = _Attempts(self, buffers, policy, colleagues).run()
        if self.observer is not None:
            self.observer(ended)
        return ended


class _Attempts:
    """One call of :meth:`Committer.publish`: what is known of the winners grows from attempt to attempt."""

    def __init__(
        self,
        committer: Committer,
        buffers: Sequence[Buffer],
        policy: Policy | None,
        colleagues: Iterable[WriterIdentity],
    ) -> None:
        self._committer = committer
        self._log = committer.log
        # Hours of Spark's work may lie behind the snapshot: the table may have been made again since.
        self._log.doubt()
        self._buffers = tuple(buffers)
        self._policy = policy
        self._given = tuple(colleagues)
        self._colleagues = _directories(self._given)
        self._markers: dict[str, Mapping[str, Any] | None] = {}
        self._txn_id = str(uuid.UUID(int=committer.random.getrandbits(128), version=4))
        self._seen = min(buffer.read_version for buffer in buffers)
        self._winners: list[Commit] = []
        self._looked_at = 0
        self._log_complete = True
        self._placed: tuple[Snapshot, Batch] | None = None
        self._replaced = Replaced(self._log, committer.referee)
        self._same_load = SameLoad(self._log)
        self._put: tuple[Batch, Entry, tuple[Settlement, ...]] | None = None
        self._attempts = self._lost = self._unanswered = 0
        self._rebasing_since: datetime | None = None
        self._waits = Waits(committer.backoff, committer.random, self._log.clock)

    def run(self) -> Publication:
        """Attempt until the batch is published, found to be, in conflict, or the budget is used up."""
        while True:
            try:
                ended = self._attempt()
                if ended is not None:
                    return ended
                trouble: Exception = self._contention()
            except StoreUnavailableError as error:
                # The put may have taken effect; the next attempt reads the log first and finds it (protocol:
                # create-only).
                logger.warning("%s: attempt %d of %s: %s", self._log.table, self._attempts, self._names, error)
                self._unanswered += 1
                trouble = error
            self._waits.wait_or_raise(trouble)

    def _attempt(self) -> Publication | None:
        snapshot = self._log.snapshot()
        if snapshot is None:
            raise TableNotFoundError(f"There is no Delta table at {self._log.table}.")
        self._take_in(snapshot)
        news = self._winners[self._looked_at :]
        mine = next((commit for commit in news if commit.txn_id == self._txn_id), None)
        if mine is not None:
            # The answer to our put was lost. What stands there is the last that was put: a version is put once.
            return self._published(mine.version, snapshot)
        buffers = tuple(buffer for buffer in self._buffers if self._pending(buffer, snapshot))
        if not buffers:
            return self._ended_without_put(snapshot)
        # Colleagues that another reconciliation published meanwhile keep their rows as well.
        self._colleagues = _directories(
            (*self._given, *(buffer.spec.identity for buffer in self._buffers if buffer not in buffers))
        )
        for buffer in buffers:
            buffer.check_age(self._log.clock.now(), snapshot.retention_days)
        check_no_path_twice(buffers, news, self._log.table)
        self._looked_at = len(self._winners)
        batch = self._place(buffers, snapshot)
        stale = self._stale_reads(batch)
        if stale:
            return self._leave_or_refuse(batch, stale)
        removable = self._replaced.files(batch, snapshot, self._colleagues, self._winners, self._log_complete)
        rivals = self._rivals(batch, snapshot, removable)
        conflicts = list(find_conflicts(batch, rivals, snapshot))
        if conflicts and self._policy is None:
            described = tuple(conflict.describe(snapshot.partitioning) for conflict in conflicts)
            return self._ended(Status.CONFLICTED, None, batch=batch, conflicts=described)
        contest = Contest(
            batch=batch,
            conflicts=conflicts,
            order=[rival.version for rival in rivals],
            commits=self._winners,
            removable=removable,
            partitioning=snapshot.partitioning,
            table=self._log.table,
        )
        settled = settle(contest, self._policy or Policy.FAIL)
        removed = settled.still_removed(removable, snapshot.partitioning)
        now = self._log.clock.now()
        entry = build_entry(batch, snapshot, removed, settled, self._txn_id, now)
        self._put = (batch, entry, tuple(settled.settlements))
        self._attempts += 1
        try:
            self._log.store.create(version_path(snapshot.version + 1), dump_actions(entry.actions))
        except ObjectExistsError:
            self._lost += 1
            self._rebasing_since = self._rebasing_since or now
            return None
        return self._published(snapshot.version + 1, snapshot)

    def _take_in(self, snapshot: Snapshot) -> None:
        try:
            self._winners += self._log.commits_between(self._seen, snapshot.version)
        except LogGapError:
            self._log_complete = False
        self._seen = snapshot.version

    def _place(self, buffers: tuple[Buffer, ...], snapshot: Snapshot) -> Batch:
        """Check that the buffers fit and sort their files: once a definition of the table, not for every attempt."""
        if self._placed is not None:
            before, batch = self._placed
            same = before.metadata is snapshot.metadata and before.protocol is snapshot.protocol
            if same and batch.buffers == buffers:
                return batch
        for buffer in buffers:
            check_fits(buffer, snapshot, self._log.table)
        batch = place(buffers, snapshot)
        self._placed = (snapshot, batch)
        return batch

    def _pending(self, buffer: Buffer, snapshot: Snapshot) -> bool:
        spec = buffer.spec
        stored = snapshot.txns.get(spec.identity.app_id)
        if stored == spec.generation:
            self._check_same_work(buffer)
            return False
        if self._closed(buffer):
            return False
        if stored is None:
            return True
        if stored > spec.generation:
            raise ZombieWriterError(
                f"Generation {stored} of writer {spec.identity.key!r} is in {self._log.table} already; this buffer is "
                f"of generation {spec.generation} and is not put on top of newer data. Nothing was published."
            )
        if spec.on_rerun is not OnRerun.SKIP:
            return True
        found = self._record_of(spec.identity)
        same = found is not None and bool(spec.fingerprint) and found.record.fingerprint == spec.fingerprint
        why_not = undone(self._log, found, snapshot) if same and found else None
        if same and why_not is None:
            return False
        raise RerunRefusedError(
            f"Generation {stored} of writer {spec.identity.key!r} came into {self._log.table} while generation "
            f"{spec.generation} was staged, "
            + (f"and {why_not}" if why_not else "so publishing it would repeat rows")
            + f". Nothing was published: {WAYS}."
        )

    def _check_same_work(self, buffer: Buffer) -> None:
        """Refuse to call rows published that are not: an attempt of other work was under way when it was fenced off."""
        spec, found = buffer.spec, self._record_of(buffer.spec.identity)
        if found is None or found.record.generation != spec.generation or found.record.buffer == buffer.path:
            return
        if spec.fingerprint and found.record.fingerprint and found.record.fingerprint != spec.fingerprint:
            raise RerunRefusedError(
                f"An earlier attempt of writer {spec.identity.key!r}, of another source or code, came into "
                f"{self._log.table} in version {found.version} while this one was staged. Nothing more was published: "
                f"{WAYS}."
            )

    def _closed(self, buffer: Buffer) -> bool:
        # Not asked after the first put: from then on, only a commit of another can close it, and its txn tells.
        if self._attempts == 0:
            self._markers[buffer.path] = closed(self._log.store, buffer.path)
        return self._markers.get(buffer.path) is not None

    def _stale_reads(self, batch: Batch) -> list[Commit]:
        """Return what changed under buffers that were computed from the table itself."""
        if any(buffer.reads_target for buffer in batch.buffers) and not self._log_complete:
            raise ConflictError(
                f"Writers {self._names} read {self._log.table} at version {batch.read_version}, and its log since then "
                "was cleaned up, so nobody knows whether what they read has changed. Nothing was published: clear them."
            )
        others = [w for w in self._winners if not w.writers or not all(self._of_colleague(x) for x in w.writers)]
        found = {commit.version: commit for buffer in batch.buffers for commit in stale_reads(buffer, others)}
        return [found[version] for version in sorted(found)]

    def _leave_or_refuse(self, batch: Batch, stale: list[Commit]) -> Publication:
        """Leave rows computed from what is no longer there to their writer, or refuse them for good.

        Protocol: reads its target.
        """
        described = tuple(
            f"version {commit.version} ({commit.operation or 'an unknown operation'}) changed rows after the table was "
            f"read at version {batch.read_version}"
            for commit in stale
        )
        if self._policy is None:
            return self._ended(Status.CONFLICTED, None, batch=batch, conflicts=described)
        raise ConflictError(
            f"Writers {self._names} computed their rows from {self._log.table} itself, and {described[0]}, so that "
            "they are out of date. Nothing was published: clear the writers to compute them from the newest version. "
            "No policy settles this."
        )

    def _rivals(self, batch: Batch, snapshot: Snapshot, removable: Sequence[dict[str, Any]]) -> list[Commit]:
        """Return the winners that are others', in the order in which their writes count.

        They are neither colleagues' nor what these writers published before. Another writer of the load is a rival
        whether the batch was formed before its commit or on top of it.
        """
        since = [
            winner
            for winner in self._winners
            # Those that only a buffer dropped from the batch had not seen are none.
            if winner.version > batch.read_version
            and not (winner.writers and all(self._allied(writer) for writer in winner.writers))
        ]
        before = self._same_load.commits(batch, snapshot, removable) if batch.replaces_anything else []
        return before + serial_order(since)

    def _allied(self, writer: PublishedWriter) -> bool:
        """Say whether a writer is a colleague, or an older generation of one of these.

        A rerun replaces that, whenever it finished (protocol: generation).
        """
        if self._of_colleague(writer):
            return True
        specs = (buffer.spec for buffer in self._buffers)
        return any(spec.identity.app_id == writer.app_id and spec.generation > writer.generation for spec in specs)

    def _of_colleague(self, writer: PublishedWriter) -> bool:
        return bool(self._colleagues) and writer.buffer.startswith(self._colleagues)

    def _ended_without_put(self, snapshot: Snapshot) -> Publication:
        """Say why there is nothing to publish: it is in the table, or somebody set it aside."""
        markers = [
            self._markers.get(buffer.path)
            if snapshot.txns.get(buffer.spec.identity.app_id) != buffer.spec.generation
            else None
            for buffer in self._buffers
        ]
        if all(marker is not None and "version" not in marker for marker in markers):
            return self._ended(Status.SET_ASIDE, None)
        return self._ended(Status.ALREADY, self._version_of_txn())

    def _published(self, version: int, snapshot: Snapshot) -> Publication:
        assert self._put is not None
        batch, entry, settlements = self._put
        for record in entry.writers:
            try:
                close(self._log.store, record.buffer, {"version": version, "writer": record.to_json()})
            except OneLakeError as error:
                # The rows are in the table, whatever the store says now: a full disk must not make that a failure. The
                # txn is what counts; the marker only saves reading the log.
                logger.warning("%s: the marker of %s was not written: %s", self._log.table, record.buffer, error)
        follow_up(self._committer.after_commit, snapshot, version, self._log.table)
        # With its txn, but without any of its rows: the policy left them out.
        nothing_seen = all(record.set_aside for record in entry.writers)
        status = Status.SET_ASIDE if nothing_seen else Status.PUBLISHED
        return self._ended(status, version, entry=entry, batch=batch, settlements=settlements)

    def _ended(self, status: Status, version: int | None, **known: Any) -> Publication:
        since = self._rebasing_since
        return Publication(
            status,
            version,
            attempts=self._attempts,
            lost_races=self._lost,
            unanswered=self._unanswered,
            rebasing=(self._log.clock.now() - since).total_seconds() if since is not None else 0.0,
            **known,
        )

    def _record_of(self, identity: WriterIdentity) -> Publishing | None:
        records = (
            Publishing(winner.version, writer)
            for winner in reversed(self._winners)
            for writer in winner.writers
            if writer.app_id == identity.app_id
        )
        return next(records, None)

    def _version_of_txn(self) -> int | None:
        found = self._record_of(self._buffers[-1].spec.identity)
        return found.version if found else None

    def _contention(self) -> CommitContentionError:
        return CommitContentionError(
            f"{self._log.table}: {self._lost} of {self._attempts} puts of writers {self._names} met another's commit, "
            f"and the budget of {self._committer.backoff.budget:g} s is used up. Nothing was lost: the buffers stay, "
            "and clearing this task or reconcile publishes them without running Spark again."
        )

    @property
    def _names(self) -> str:
        return ", ".join(repr(buffer.spec.identity.key) for buffer in self._buffers)


def _directories(identities: Iterable[WriterIdentity]) -> tuple[str, ...]:
    return tuple(f"{identity.directory}/" for identity in identities)
