"""Reconcile: publish what is staged, settle conflicts, name who is missing, and check what was committed.

Trino calls this step commit reconciliation. It decides last on a load, and it also runs when writers failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import attrs

from airflow_provider_onelake.choices import OnMissingWriter, Policy, PublishMode
from airflow_provider_onelake.commit.publish import Committer, Publication, Status
from airflow_provider_onelake.commit.report import Report, WriterOutcome
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    ConflictError,
    ReconciliationMismatchError,
    RowsRestoredAwayError,
    TableNotFoundError,
    TerminalError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.actions import total_rows
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.buffers import Buffer, read_buffer, read_marker, set_aside
from airflow_provider_onelake.staging.identity import Load, WriterIdentity
from airflow_provider_onelake.staging.layout import WriterDirectory
from airflow_provider_onelake.staging.prepare import equal_terms
from airflow_provider_onelake.staging.published import Fate, Publishing, aftermath, find_published, is_scattered


@attrs.frozen
class _Staged:
    """An expected writer, and how far it has come."""

    identity: WriterIdentity
    generation: int
    buffer: Buffer | None
    published: bool

    def finished(self) -> tuple[datetime, str]:
        """Return when the buffer became complete; the second part settles ties."""
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
) -> Report:
    """Publish a load's complete buffers, and report every decision.

    Calling again is safe: what is in the table is recognised by its ``txn``.

    :param committer: of the table.
    :param load: to reconcile; the buffers of other loads are not read.
    :param writers: keys of the writers that the load should have.
    :param publish: in one version each, or together in one.
    :param on_conflict: which write is seen where a winner replaced or changed the same partition.
    :param on_missing_writer: what is published where a writer is missing.
    :param unnamed: tasks that failed or never ran before they could name their writer; they count as missing.
    :param generations: by writer's key, the generation that the caller's run began. Another run may have a load of the
        same name; a newer generation belongs to that run, which publishes it itself. Default: the newest generation
        counts, whichever run began it.
    :returns: what was done. Store the report, then call :meth:`Report.raise_for_failures`.
    :raises TableNotFoundError: there is no table.
    :raises CommitContentionError: the budget is used up; calling again carries on.
    :raises StoreUnavailableError: the store did not answer; calling again carries on.
    """
    snapshot = committer.log.snapshot_or_none()
    if snapshot is None:
        raise TableNotFoundError(
            f"There is no Delta table at {committer.log.table}: none of the writers got as far as creating it."
        )
    return _Reconciliation(committer, load, publish, on_conflict, dict(generations or {})).run(
        snapshot, writers, on_missing_writer, tuple(unnamed)
    )


class _Reconciliation:
    def __init__(
        self, committer: Committer, load: Load, publish: PublishMode, policy: Policy, generations: Mapping[str, int]
    ) -> None:
        self._committer = committer
        self._log: DeltaLog = committer.log
        self._load = load
        self._publish = publish
        self._policy = policy
        self._generations = generations
        self._outcomes: dict[str, WriterOutcome] = {}
        self._publishings: dict[str, Publishing] = {}
        self._failures: list[TerminalError] = []

    def run(
        self, snapshot: Snapshot, writers: Sequence[str], on_missing: OnMissingWriter, unnamed: tuple[str, ...]
    ) -> Report:
        states = [self._look_at(self._load.writer(key), snapshot) for key in dict.fromkeys(writers)]
        snapshot = self._newest()
        missing = [s.identity.key for s in states if s.buffer is None and not s.published]
        for state in states:
            if state.published:
                self._outcomes[state.identity.key] = self._already(state, snapshot)
            elif state.buffer is None:
                self._outcomes.setdefault(state.identity.key, self._missing(state, snapshot))
        ready = [state for state in states if state.buffer is not None]
        ready.sort(key=_Staged.finished)
        if (missing or unnamed) and on_missing is OnMissingWriter.PUBLISH_NOTHING:
            for state in ready:
                self._record(state, WriterOutcome(writer=state.identity.key, status="held_back"))
        elif self._publish is PublishMode.TOGETHER:
            self._publish_together(ready, states, snapshot)
        else:
            for state in ready:
                self._publish_batch([state], ())
        self._tell_aftermath(states)
        ordered = tuple(self._outcomes[state.identity.key] for state in states)
        return Report(
            load=self._load.id,
            table=self._log.table,
            outcomes=ordered,
            missing=(*missing, *unnamed),
            failures=tuple(self._failures),
        )

    def _look_at(self, identity: WriterIdentity, snapshot: Snapshot) -> _Staged:
        begun = WriterDirectory.read(self._log.store, identity.directory)
        if begun.generation > self._generations.get(identity.key, begun.generation):
            return self._superseded(identity, begun.generation)
        if begun.is_published(snapshot.txns.get(identity.app_id)):
            return _Staged(identity, snapshot.txns[identity.app_id], None, published=True)
        complete: list[Buffer] = []
        lost: list[tuple[str, TerminalError]] = []
        for path in WriterDirectory.read(self._log.store, identity.directory).buffers:
            try:
                buffer = read_buffer(self._log.store, path)
            except BufferIncompleteError:
                continue
            except TerminalError as error:
                lost.append((path, error))
                continue
            if buffer.spec.generation == begun.generation and read_marker(self._log.store, path) is None:
                complete.append(buffer)
        if not complete and begun.is_published((newest := self._newest()).txns.get(identity.app_id)):
            # A task that still runs has published and closed the buffer since the snapshot was read.
            return _Staged(identity, newest.txns[identity.app_id], None, published=True)
        complete.sort(key=lambda buffer: buffer.finished)
        if len(complete) > 1 and not all(equal_terms(complete[0].spec, extra.spec) for extra in complete[1:]):
            return self._undecided(identity, begun.generation, complete)
        # A zombie may have completed a second buffer of the same work. The buffer that was complete first counts.
        for extra in complete[1:]:
            set_aside(self._log.store, extra.path, f"{complete[0].path} of the same writer was complete first")
        if lost and not complete:
            path, reason = lost[-1]
            self._failures.append(reason)
            self._outcomes[identity.key] = WriterOutcome(
                writer=identity.key, status="missing", buffer=path, error=str(reason)
            )
        return _Staged(identity, begun.generation, complete[0] if complete else None, published=False)

    def _superseded(self, identity: WriterIdentity, generation: int) -> _Staged:
        error = ZombieWriterError(
            f"A later run of load {self._load.id} has begun writer {identity.key!r} anew (generation {generation}, "
            f"after {self._generations[identity.key]}), and publishes its rows itself. Nothing of it was touched: "
            "look at that run."
        )
        self._failures.append(error)
        self._outcomes[identity.key] = WriterOutcome(writer=identity.key, status="missing", error=str(error))
        return _Staged(identity, generation, None, published=False)

    def _undecided(self, identity: WriterIdentity, generation: int, complete: list[Buffer]) -> _Staged:
        """Refuse to choose between two attempts that staged different work.

        ``prepare`` sets buffers of other work aside, but only those that it sees.
        """
        error = ConflictError(
            f"Two attempts of writer {identity.key!r} of load {self._load.id} staged different work at the same time, "
            f"in {' and '.join(buffer.path for buffer in complete)}, and nobody can tell which is wanted. Neither was "
            f"published: clear {complete[0].spec.task or 'its task'}."
        )
        self._failures.append(error)
        self._outcomes[identity.key] = WriterOutcome(writer=identity.key, status="refused", error=str(error))
        return _Staged(identity, generation, None, published=False)

    def _already(self, state: _Staged, snapshot: Snapshot) -> WriterOutcome:
        generation = snapshot.txns.get(state.identity.app_id, state.generation)
        found = find_published(self._log, state.identity, generation, snapshot)
        if found is None:
            return WriterOutcome(writer=state.identity.key, status=Status.ALREADY.value)
        self._publishings[state.identity.key] = found
        status = Status.SET_ASIDE if found.record.set_aside else Status.ALREADY
        return WriterOutcome(
            writer=state.identity.key,
            status=status.value,
            version=found.version,
            rows_published=found.record.rows,
            buffer=found.record.buffer,
        )

    def _tell_aftermath(self, states: list[_Staged]) -> None:
        """Say which published rows are still there, as rows that are gone must not be called published."""
        snapshot = self._newest()
        for state in states:
            outcome, found = self._outcomes[state.identity.key], self._publishings.get(state.identity.key)
            if found is None or outcome.status not in (Status.PUBLISHED, Status.ALREADY):
                continue
            since = aftermath(self._log, found, snapshot)
            status = outcome.status if since.fate is Fate.LIVE else since.fate.value
            outcome = attrs.evolve(outcome, status=status, aftermath=since.story)
            self._outcomes[outcome.writer] = outcome
            if since.fate is Fate.RESTORED_AWAY:
                self._failures.append(
                    RowsRestoredAwayError(
                        f"Writer {outcome.writer!r} is not in the table any more: it was published in version "
                        f"{found.version} of {self._log.table}, and {'; '.join(since.story)}. Nothing was changed: "
                        "clear the writer with on_rerun='append' or a mode that overwrites to publish its rows again, "
                        "or mark this task as successful if they are to stay away."
                    )
                )

    def _missing(self, state: _Staged, snapshot: Snapshot) -> WriterOutcome:
        """Say that a writer is missing, and in which version its rows are if only its rerun is missing."""
        stored = snapshot.txns.get(state.identity.app_id)
        before = stored and find_published(self._log, state.identity, stored, snapshot)
        version = before.version if before else None
        return WriterOutcome(writer=state.identity.key, status="missing", version=version)

    def _publish_together(self, ready: list[_Staged], states: list[_Staged], snapshot: Snapshot) -> None:
        if not ready:
            return
        # A writer whose rerun is missing is a colleague too: the rows that it published before stay.
        colleagues = [state.identity for state in states if state.buffer is None]
        try:
            self._check_colleagues_live(ready, colleagues, snapshot)
        except TerminalError as error:
            # Another reconciliation may have published these buffers since this one read them.
            newest = self._newest()
            left = [s for s in ready if newest.txns.get(s.identity.app_id) != s.generation]
            for state in ready:
                if state not in left:
                    self._record(state, self._already(state, newest))
            if left:
                self._refuse(left, error)
            return
        self._publish_batch(ready, colleagues)

    def _check_colleagues_live(
        self, ready: list[_Staged], colleagues: list[WriterIdentity], snapshot: Snapshot
    ) -> None:
        """Refuse a write that replaces rows if the files of colleagues were rewritten, so that their rows are mixed."""
        if ready[0].buffer is None or not ready[0].buffer.spec.mode.replaces:
            return
        for identity in colleagues:
            stored = snapshot.txns.get(identity.app_id)
            if stored is None:
                continue
            found = find_published(self._log, identity, stored, snapshot)
            if found is None or is_scattered(self._log, identity, found, snapshot):
                raise ConflictError(
                    f"Writer {identity.key!r} of load {self._load.id} was published before, and its files were "
                    "rewritten since, so they cannot be told from the rows that "
                    f"{', '.join(repr(s.identity.key) for s in ready)} replace. Nothing was published: clear all "
                    "writers of the load."
                )

    def _newest(self) -> Snapshot:
        return self._log.snapshot()

    def _publish_batch(self, states: list[_Staged], colleagues: Sequence[WriterIdentity]) -> None:
        buffers = [state.buffer for state in states if state.buffer is not None]
        try:
            publication = self._committer.publish(buffers, self._policy, colleagues)
            if publication.entry is not None:
                check_committed(self._log, publication)
        except TerminalError as error:
            self._refuse(states, error)
            return
        for state in states:
            self._record(state, self._outcome(state, publication))

    def _outcome(self, state: _Staged, publication: Publication) -> WriterOutcome:
        key = state.identity.key
        written = publication.entry.writers if publication.entry is not None else ()
        record = next((w for w in written if w.app_id == state.identity.app_id), None)
        if record is None or publication.batch is None:
            # Another process published or closed this buffer first, though perhaps not the others of its batch.
            assert state.buffer is not None
            marker = read_marker(self._log.store, state.buffer.path)
            if marker is not None and "version" not in marker:
                return WriterOutcome(writer=key, status=Status.SET_ASIDE.value)
            return self._already(state, self._newest())
        assert publication.version is not None
        self._publishings[key] = Publishing(publication.version, record)
        placed = next(p for p in publication.batch.placed if p.buffer is state.buffer)
        status = Status.SET_ASIDE if record.set_aside else Status.PUBLISHED
        return WriterOutcome(
            writer=key,
            status=status.value,
            version=publication.version,
            rows_published=record.rows,
            rows_outside=placed.rows_outside,
            lost_races=publication.tally.lost_races,
            decisions=tuple(str(settlement) for settlement in publication.settlements),
        )

    def _record(self, state: _Staged, outcome: WriterOutcome) -> None:
        assert state.buffer is not None
        self._outcomes[outcome.writer] = attrs.evolve(outcome, rows_staged=state.buffer.rows, buffer=state.buffer.path)

    def _refuse(self, states: list[_Staged], error: TerminalError) -> None:
        self._failures.append(error)
        for state in states:
            self._record(state, WriterOutcome(writer=state.identity.key, status="refused", error=str(error)))


def check_committed(log: DeltaLog, publication: Publication) -> None:
    """Read a commit back, and compare it with what was staged.

    :raises ReconciliationMismatchError: rows or files differ, or a file is in twice.
    """
    assert publication.entry is not None
    assert publication.version is not None
    commit = log.commit(publication.version)
    if commit is None:
        raise ReconciliationMismatchError(
            f"Version {publication.version} of {log.table} is gone right after it was committed."
        )
    paths = [add["path"] for add in commit.adds]
    expected = {record.buffer: record for record in publication.entry.writers}
    problems = []
    if len(set(paths)) != len(paths):
        problems.append("a file is in it twice")
    if len(paths) != publication.entry.files:
        problems.append(f"it has {len(paths)} files instead of {publication.entry.files}")
    for buffer, record in expected.items():
        rows = total_rows(add for add in commit.adds if add["path"].startswith(f"{buffer}/"))
        if rows != record.rows:
            problems.append(f"it has {rows} rows of writer {record.writer!r} instead of {record.rows}")
    if problems:
        raise ReconciliationMismatchError(
            f"Version {publication.version} of {log.table} is not what was staged: {'; '.join(problems)}. Look at it "
            "before anybody reads the table; RESTORE to the version before takes it back."
        )
