"""Reconcile: publish what is staged, decide on what was refused, name who is missing, and check what was committed.

Trino calls this step commit reconciliation. It decides last on a load, and it also runs when writers failed. What it
did is a :class:`~airflow_provider_onelake.writes.report.Report`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.claims import retired
from airflow_provider_onelake.buffers.identity import RETIRED, Load, WriterIdentity
from airflow_provider_onelake.buffers.markers import MERGED, read_marker, set_aside
from airflow_provider_onelake.buffers.progress import WriterProgress, newest_or_planned, progress_of
from airflow_provider_onelake.buffers.spec import equal_terms
from airflow_provider_onelake.choices import OnMissingWriter, Policy, PublishMode
from airflow_provider_onelake.exceptions import (
    AuditRefusedError,
    CommitContentionError,
    ConflictError,
    MissingWritersError,
    ReconciliationMismatchError,
    RowsRestoredAwayError,
    StoreUnavailableError,
    TableNotFoundError,
    TerminalError,
    TwoWorksError,
    ZombieWriterError,
)
from airflow_provider_onelake.history.published import (
    Aftermath,
    Fate,
    Publishing,
)
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import total_rows
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.writes.audits import Audit
from airflow_provider_onelake.writes.policy import Settlement, left_out_as
from airflow_provider_onelake.writes.publish import Committer, Publication, PublishStatus
from airflow_provider_onelake.writes.report import Report, WriterOutcome

_CONFLICTS = (ConflictError, *ConflictError.__subclasses__())
# What ended a task that has not published its rows, by the name of its error.
_ENDED = {
    CommitContentionError.__name__: "its task gave up after lost races",
    StoreUnavailableError.__name__: "the store had not answered its task",
    **dict.fromkeys(map(attrgetter("__name__"), _CONFLICTS), "its task was refused"),
}


@attrs.frozen
class _StagedWriter:
    """An expected writer, and how far it has come.

    :param refused: a buffer whose rows fail one of its checks.
    :param merged: the buffer of a merge that had nothing to do.
    :param retired: whether another run has taken over its files, so that nothing of it is published.
    """

    identity: WriterIdentity
    generation: int
    buffer: Buffer | None
    published: bool
    refused: Buffer | None = None
    merged: Buffer | None = None
    retired: bool = False

    @property
    def is_missing(self) -> bool:
        """Whether a person has to see to it that the writer leaves a buffer."""
        ended = self.published or self.retired
        return self.buffer is None and not ended and self.refused is None and self.merged is None

    def finished(self) -> tuple[datetime, str]:
        """Return when the writer finished; the second part settles ties."""
        assert self.buffer is not None
        return self.buffer.finished, self.identity.app_id


def reconcile(
    committer: Committer,
    load: Load,
    writers: Sequence[str],
    *,
    publish: PublishMode = PublishMode.EACH,
    on_conflict: Policy = Policy.LAST_WRITER_WINS,
    on_missing_writer: OnMissingWriter = OnMissingWriter.PUBLISH_OTHERS,
    unnamed: Iterable[str] = (),
    generations: Mapping[str, int] | None = None,
    audit: Audit | None = None,
    ended: Mapping[str, str] | None = None,
) -> Report:
    """Publish a load's complete buffers, and report every decision.

    Calling again is safe: what is in the table is recognised by its ``txn``.

    :param committer: of the table.
    :param load: to reconcile; the buffers of other loads are not read.
    :param writers: keys of the writers that the load should have.
    :param publish: in one version each, or together in one.
    :param on_conflict: which write is seen where a winner replaced or changed the same partition.
    :param on_missing_writer: what is published where a writer is missing, or its rows fail one of its checks. Of
        writers that are published together, nothing is published where rows fail a check.
    :param unnamed: tasks that failed or never ran before they could name their writer, and keys of writers whose rerun
        was refused, as rows of other work of theirs are in the table; they count as missing.
    :param generations: by writer's key, the generation that the caller's run began. Another run may have a load of the
        same name; a newer generation belongs to that run, which publishes it itself. Default: the newest generation
        counts, whichever run began it.
    :param audit: what audits of the staged rows agreed to. If they did not agree to all of what would be published,
        nothing is published. Default: nobody is asked.
    :param ended: by writer's key, the name of the error that ended its task. Default: none is known.
    :returns: what was done. Store the report, then call :meth:`Report.raise_for_failures`.
    :raises TableNotFoundError: there is no table.
    :raises CommitContentionError: the budget is used up; calling again carries on.
    :raises StoreUnavailableError: the store did not answer; calling again carries on.
    """
    snapshot = newest_or_planned(committer.log, map(load.writer, writers))
    if snapshot is None:
        raise TableNotFoundError(
            f"There is no Delta table at {committer.log.table}: none of the writers left rows that would make it."
        )
    terms = (load, publish, on_conflict, dict(generations or {}), audit, dict(ended or {}))
    return _Reconciliation(committer, committer.log, *terms).run(snapshot, writers, on_missing_writer, tuple(unnamed))


@attrs.define(eq=False)
class _Reconciliation:
    _committer: Committer
    _log: DeltaLog
    _load: Load
    _publish: PublishMode
    _policy: Policy
    _generations: Mapping[str, int]
    _audit: Audit | None
    _ended: Mapping[str, str]
    _outcomes: dict[str, WriterOutcome] = attrs.field(factory=dict)
    _publishings: dict[str, Publishing] = attrs.field(factory=dict)
    _failures: list[TerminalError] = attrs.field(factory=list)

    def run(
        self, snapshot: Snapshot, writers: Sequence[str], on_missing: OnMissingWriter, unnamed: tuple[str, ...]
    ) -> Report:
        identities = [self._load.writer(key) for key in dict.fromkeys(writers)]
        seen = progress_of(self._log, identities, snapshot, self._generations)
        states = [self._look_at(identity, found, snapshot) for identity, found in zip(identities, seen, strict=True)]
        snapshot = self._log.snapshot()
        missing = [state.identity.key for state in states if state.is_missing]
        for state in states:
            if state.published and state.identity.key not in unnamed:
                self._outcomes[state.identity.key] = self._already(state, snapshot)
            elif state.merged is not None:
                self._outcomes[state.identity.key] = _nothing_to_do(state.identity.key, state.merged)
            elif state.buffer is None:
                self._outcomes.setdefault(state.identity.key, self._missing(state, snapshot))
        waiting = [state for state in states if state.buffer is not None and self._waits(state, state.buffer)]
        ready = [state for state in states if state.buffer is not None and not state.buffer.spec.mode.in_rounds]
        ready.sort(key=_StagedWriter.finished)
        all_or_none = on_missing is OnMissingWriter.PUBLISH_NOTHING
        if ready and all_or_none and self._publish is PublishMode.TOGETHER:
            # What a policy has left out is in no version, so beside it the others would be half a load.
            missing += [key for key, found in self._publishings.items() if found.record.set_aside]
        incomplete = bool(missing or unnamed or waiting) or any(state.retired for state in states)
        fails_check = any(state.refused is not None for state in states)
        refusal = self._refused_by_audit(ready)
        # Writers that are published together are checked together: one whose rows are refused stops the load.
        if refusal is not None:
            self._failures.append(refusal)
            self._hold_back(ready)
        elif (incomplete and all_or_none) or (fails_check and (all_or_none or self._publish is PublishMode.TOGETHER)):
            self._hold_back(ready)
        elif self._publish is PublishMode.TOGETHER:
            # A writer whose rerun is missing is a colleague too: the rows that it published before stay.
            published = [state.identity for state in states if state.buffer is None]
            self._publish_batch(ready, published, all_or_none=all_or_none)
        else:
            for state in ready:
                self._publish_batch([state], ())
        self._tell_aftermath(states)
        ordered = tuple(self._outcomes[state.identity.key] for state in states)
        return Report(
            load=self._load.id,
            table=self._log.table,
            address=self._log.address,
            outcomes=ordered,
            missing=tuple(dict.fromkeys((*missing, *unnamed))),
            failures=tuple(self._failures),
            decided=tuple(buffer for state in states if (buffer := state.buffer or state.refused) is not None),
        )

    def _waits(self, state: _StagedWriter, source: Buffer) -> bool:
        """Record what became of a merge whose rows are staged, and say whether it is still to be done.

        Spark merges rows, in the writer's own task.
        """
        if not source.spec.mode.in_rounds:
            return False
        outcome = self._told_of(self._settled_by_others(state, self._log.snapshot()))
        if outcome is None:
            error = MissingWritersError(
                f"Writer {state.identity.key!r} of load {self._load.id} has staged the rows that it merges into "
                f"{self._log.table}, in {source.path}, and its task ended before it had merged them. Nothing of it was "
                "published, and Spark is needed for it: mend what the task's own log says, and clear it with its "
                "downstream tasks."
            )
            self._failures.append(error)
            self._record(state, WriterOutcome(writer=state.identity.key, status="waiting", error=str(error)))
            return True
        self._record(state, outcome)
        return False

    def _refused_by_audit(self, ready: Sequence[_StagedWriter]) -> AuditRefusedError | None:
        if self._audit is None or not ready:
            return None
        staged = {state.identity.key: state.buffer.path for state in ready if state.buffer is not None}
        return self._audit.refusal(self._load, self._log.table, staged)

    def _hold_back(self, ready: Sequence[_StagedWriter]) -> None:
        for state in ready:
            self._record(state, WriterOutcome(writer=state.identity.key, status="held_back"))

    def _look_at(self, identity: WriterIdentity, seen: WriterProgress, snapshot: Snapshot) -> _StagedWriter:
        begun, complete, lost = seen.directory, seen.complete, seen.lost
        if seen.of_later_run:
            error = ZombieWriterError(
                f"A later run of load {self._load.id} has begun writer {identity.key!r} anew (generation "
                f"{begun.generation}, after {self._generations[identity.key]}), and publishes its rows itself. Nothing "
                "of it was touched: look at that run."
            )
            return self._failed(identity, begun.generation, error)
        stored = snapshot.txns.get(identity.app_id)
        if not complete and not begun.is_published(stored):
            # A task that still runs may have published and closed the buffer since the snapshot was read.
            stored = self._log.snapshot().txns.get(identity.app_id)
        if stored == RETIRED:
            state = self._failed(identity, stored, retired(identity, self._log.table), status="retired")
            return attrs.evolve(state, retired=True)
        if stored is not None and begun.is_published(stored):
            return _StagedWriter(identity, stored, None, published=True)
        if len(complete) > 1 and not all(equal_terms(complete[0].spec, extra.spec) for extra in complete[1:]):
            # prepare sets buffers of other work aside, but only those that it sees.
            undecided = TwoWorksError(
                f"Two attempts of writer {identity.key!r} of load {self._load.id} staged different work at the same "
                f"time, in {' and '.join(buffer.path for buffer in complete)}, and nobody can tell which is wanted. "
                f"Neither was published: clear {complete[0].spec.task or 'its task'}."
            )
            return self._failed(identity, begun.generation, undecided, status="refused")
        # A zombie may have completed a second buffer of the same work. The buffer that was complete first counts.
        # Of a MERGE nothing is published here, and its own task may be at work on any of them.
        for extra in () if complete and complete[0].spec.mode.in_rounds else complete[1:]:
            set_aside(self._log.store, extra.path, f"{complete[0].path} of the same writer was complete first")
        if seen.refused is not None and not complete:
            refusal = seen.refused.refusal(self._log)
            state = self._failed(identity, begun.generation, refusal, status="refused", buffer=seen.refused.path)
            outcome = attrs.evolve(self._outcomes[identity.key], rows_staged=seen.refused.rows)
            self._outcomes[identity.key] = outcome
            return attrs.evolve(state, refused=seen.refused)
        if lost and not complete:
            return self._failed(identity, begun.generation, lost[1], buffer=lost[0])
        buffer = complete[0] if complete else None
        return _StagedWriter(
            identity, begun.generation, buffer, published=False, merged=None if complete else seen.merged
        )

    def _failed(
        self,
        identity: WriterIdentity,
        generation: int,
        error: TerminalError,
        status: str = "missing",
        buffer: str | None = None,
    ) -> _StagedWriter:
        """Record why nothing of a writer can be published, and return its state."""
        self._failures.append(error)
        outcome = WriterOutcome(writer=identity.key, status=status, buffer=buffer, error=str(error))
        self._outcomes[identity.key] = outcome
        return _StagedWriter(identity, generation, None, published=False)

    def _already(self, state: _StagedWriter, snapshot: Snapshot) -> WriterOutcome:
        history = WriterHistory(self._log, state.identity, snapshot)
        found = history.find(state.generation if history.stored is None else history.stored)
        if found is None:
            return WriterOutcome(writer=state.identity.key, status=PublishStatus.ALREADY.value)
        if found.record.nothing:
            return WriterOutcome(writer=found.record.writer, status="nothing_to_do", rows_staged=found.record.staged)
        self._publishings[state.identity.key] = found
        commit = self._log.commit(found.version) if found.record.set_aside else None
        settlements = Settlement.of(commit) if commit is not None else ()
        return WriterOutcome(
            writer=state.identity.key,
            status=left_out_as(settlements).value if found.record.set_aside else PublishStatus.ALREADY.value,
            version=found.version,
            rows_staged=found.record.rows_staged,
            rows_published=found.record.rows,
            rows_in_table=0 if found.record.set_aside else None,
            buffer=found.record.buffer,
            decisions=tuple(map(str, settlements)),
        )

    def _tell_aftermath(self, states: list[_StagedWriter]) -> None:
        """Say which published rows are still there, as rows that are gone must not be called published."""
        snapshot = self._log.snapshot()
        for state in states:
            outcome, found = self._outcomes[state.identity.key], self._publishings.get(state.identity.key)
            if found is None or outcome.status not in (PublishStatus.PUBLISHED, PublishStatus.ALREADY, "missing"):
                continue
            # Of a writer without rows, none have gone.
            has_rows = found.record.rows != 0
            history = WriterHistory(self._log, state.identity, snapshot)
            since = history.since(found) if has_rows else Aftermath(Fate.LIVE, rows=0)
            now = attrs.evolve(outcome, rows_in_table=since.rows, aftermath=since.story)
            if outcome.status == "missing":
                now = attrs.evolve(now, version=None if since.gone else found.version)
            else:
                status = outcome.status if since.fate is Fate.LIVE else since.fate.value
                now = attrs.evolve(now, status=status, replaced=since.replaced)
            self._outcomes[outcome.writer] = now
            if now.status == Fate.RESTORED_AWAY:
                self._failures.append(self._restored_away(history, found, since))

    def _restored_away(self, history: WriterHistory, found: Publishing, since: Aftermath) -> RowsRestoredAwayError:
        older = history.still_there()
        ways = (
            "clear the writer with on_rerun='append' or a mode that overwrites to publish its rows again, or mark this "
            "task as successful if they are to stay away"
            if older is None
            else f"what the writer published in version {older.version} is in the table, and on_rerun='append' would "
            "add rows beside it. If that is what you want to have, mark this task as successful"
        )
        return RowsRestoredAwayError(
            f"Writer {history.writer.key!r} is not in the table any more: it was published in version {found.version} "
            f"of {self._log.table}, and {'; '.join(since.story)}. Nothing was changed: {ways}."
        )

    def _missing(self, state: _StagedWriter, snapshot: Snapshot) -> WriterOutcome:
        """Say that a writer is missing, and in which version its rows are if only its rerun is missing."""
        before = WriterHistory(self._log, state.identity, snapshot).newest
        if before is None or before.record.set_aside:
            return WriterOutcome(writer=state.identity.key, status="missing")
        self._publishings[state.identity.key] = before
        return WriterOutcome(writer=state.identity.key, status="missing", version=before.version)

    def _publish_batch(
        self, states: list[_StagedWriter], colleagues: Sequence[WriterIdentity], *, all_or_none: bool = False
    ) -> None:
        buffers = [state.buffer for state in states if state.buffer is not None]
        if not buffers:
            return
        try:
            publication = self._committer.publish(buffers, self._policy, colleagues, all_or_none=all_or_none)
        except TerminalError as error:
            self._refuse(states, error)
            return
        for state in states:
            self._record(state, self._outcome(state, publication))
        try:
            check_committed(self._log, publication)
        except ReconciliationMismatchError as error:
            self._failures.append(error)
            for state in states:
                outcome = self._outcomes[state.identity.key]
                self._outcomes[outcome.writer] = attrs.evolve(outcome, error=str(error))

    def _outcome(self, state: _StagedWriter, publication: Publication) -> WriterOutcome:
        key, app_id = state.identity.key, state.identity.app_id
        written = publication.entry.writers if publication.entry is not None else ()
        record = next((w for w in written if w.app_id == app_id), None)
        assert state.buffer is not None
        if publication.status is PublishStatus.NOTHING:
            return _nothing_to_do(key, state.buffer)
        if record is None or publication.batch is None:
            # Another process published or closed this buffer first, though perhaps not the others of its batch.
            settled = self._told_of(self._settled_by_others(state, self._log.snapshot()))
            return settled or self._already(state, self._log.snapshot())
        assert publication.version is not None
        self._publishings[key] = Publishing(publication.version, record)
        # By its path: what was published has statistics that the staged buffer lacks.
        path = state.buffer.path
        placed = next(p for p in publication.batch.placed if p.buffer.path == path)
        done = publication.status.value.replace("_", " ")
        # Together, nobody publishes before this.
        late = self._publish is PublishMode.EACH
        why = _ENDED.get(self._ended.get(key, ""), "its task had not published its rows")
        told = [f"{done} now; {why}"] if late else []
        return WriterOutcome(
            writer=key,
            status=publication.status.value,
            version=publication.version,
            rows_published=record.rows,
            rows_in_table=0 if record.set_aside else None,
            rows_unexpected=placed.rows_unexpected,
            lost_races=publication.tally.lost_races,
            decisions=(*told, *map(str, publication.settlements)),
        )

    def _record(self, state: _StagedWriter, outcome: WriterOutcome) -> None:
        assert state.buffer is not None
        self._outcomes[outcome.writer] = attrs.evolve(outcome, rows_staged=state.buffer.rows, buffer=state.buffer.path)

    def _settled_by_others(self, state: _StagedWriter, snapshot: Snapshot) -> WriterOutcome | None:
        """Return what became of a buffer that another process published or set aside; ``None`` if nobody did.

        No policy has set it aside, as that would be in the table, so a person has to know that its rows are not there.
        """
        assert state.buffer is not None
        if snapshot.txns.get(state.identity.app_id) == state.generation:
            return self._already(state, snapshot)
        marker = read_marker(self._log.store, state.buffer.path)
        if marker is not None and marker.get(MERGED):
            return _nothing_to_do(state.identity.key, state.buffer)
        if marker is not None and "version" not in marker:
            error = (
                f"What writer {state.identity.key!r} had staged was closed meanwhile ({marker.get('reason')}), so "
                f"its rows are not in {self._log.table}. Clear it with its downstream tasks."
            )
            return WriterOutcome(writer=state.identity.key, status=PublishStatus.SET_ASIDE.value, error=error)
        return None

    def _told_of(self, outcome: WriterOutcome | None) -> WriterOutcome | None:
        """Record as a failure that a buffer was set aside, and return what became of it."""
        if outcome is not None and outcome.status == PublishStatus.SET_ASIDE and outcome.error is not None:
            self._failures.append(MissingWritersError(outcome.error))
        return outcome

    def _refuse(self, states: list[_StagedWriter], error: TerminalError) -> None:
        """Record that an error refuses a batch, but not the writers that others have published or set aside since."""
        snapshot = self._log.snapshot()
        settled = [self._settled_by_others(state, snapshot) for state in states]
        for state, outcome in zip(states, settled, strict=True):
            refused = WriterOutcome(writer=state.identity.key, status="refused", error=str(error))
            self._record(state, outcome or refused)
        if None in settled:
            self._failures.append(error)
        else:
            for outcome in settled:
                self._told_of(outcome)


def _nothing_to_do(writer: str, source: Buffer) -> WriterOutcome:
    return WriterOutcome(writer=writer, status="nothing_to_do", rows_staged=source.rows, buffer=source.path)


def check_committed(log: DeltaLog, publication: Publication) -> None:
    """Read a commit back, and compare it with what was staged.

    :param publication: one that put nothing has nothing to compare.
    :raises ReconciliationMismatchError: rows or files differ, or a file is in twice.
    """
    if publication.entry is None:
        return
    assert publication.version is not None
    # From the store: the log may know what was put, and what stands there is asked.
    commit = log.anew().commit(publication.version)
    if commit is None:
        raise ReconciliationMismatchError(
            f"Version {publication.version} of {log.table} is gone right after it was committed."
        )
    paths = [add["path"] for add in commit.adds]
    problems = []
    if len(set(paths)) != len(paths):
        problems.append("a file is in it twice")
    if len(paths) != publication.entry.files:
        problems.append(f"it has {len(paths)} files instead of {publication.entry.files}")
    for record in publication.entry.writers:
        rows = total_rows(add for add in commit.adds if add["path"].startswith(f"{record.buffer}/"))
        if rows != record.rows:
            problems.append(f"it has {rows} rows of writer {record.writer!r} instead of {record.rows}")
    if problems:
        raise ReconciliationMismatchError(
            f"Version {publication.version} of {log.table} is not what was staged: {'; '.join(problems)}. Look at it "
            "before anybody reads the table; RESTORE to the version before takes it back."
        )
