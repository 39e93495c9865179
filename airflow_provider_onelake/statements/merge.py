"""MERGE: its source is staged once, Spark runs it in rounds, and one commit has the result.

A MERGE that inserts nothing maps every row of the table by itself, as DELETE and UPDATE do, so it takes their rounds
(:mod:`~airflow_provider_onelake.statements.change`). One that inserts does not: a row of the source is inserted if *no*
row of the table matches it. What a round has decided stays right as long as the same rows of the source match. So if a
file came that may hold a match, or one went that may have held one, the whole MERGE runs again on the staged source
(protocol: a merge that inserts sees every match).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.claims import check_not_ended
from airflow_provider_onelake.buffers.footers import with_statistics
from airflow_provider_onelake.buffers.markers import MERGED, read_marker, try_to_mark
from airflow_provider_onelake.buffers.reads import read_changed
from airflow_provider_onelake.buffers.spec import equal_work
from airflow_provider_onelake.choices import Isolation, OnRerun
from airflow_provider_onelake.clauses import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE
from airflow_provider_onelake.commit.loop import Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task, task_in_words
from airflow_provider_onelake.exceptions import (
    BufferSetAsideError,
    LogGapError,
    OutOfDateError,
    RerunRefusedError,
    StatementRefusedError,
    UnexpectedRowsError,
    ZombieWriterError,
)
from airflow_provider_onelake.history.published import Publishing, commit_that_set, record_of
from airflow_provider_onelake.history.reruns import check_not_set_aside, check_not_taken_back, check_same_work
from airflow_provider_onelake.log.actions import Action, Add, FileKey
from airflow_provider_onelake.log.commits import CHANGE, STAGED, Commit, PublishedWriter
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.statements.change import (
    MOST_ROUNDS,
    Change,
    Changed,
    RunRound,
    TakenOver,
    TakeOver,
    in_rounds,
)
from airflow_provider_onelake.statements.key_range import KeyRange
from airflow_provider_onelake.statements.round_tables import Piece
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.storage.clock import whole_number

MERGE = "MERGE"
_COUNTS = {
    "rows_inserted": "numTargetRowsInserted",
    "rows_updated": "numTargetRowsUpdated",
    "rows_deleted": "numTargetRowsDeleted",
}


@attrs.frozen(kw_only=True)
class Merged(Changed):
    """How a MERGE ended.

    :param rows_inserted: how many rows of the source became rows of the table, ``rows_updated`` and ``rows_deleted``
        how many rows of the table were updated and deleted; ``None`` where that is not known.
    """

    rows_inserted: int | None = 0
    rows_updated: int | None = 0
    rows_deleted: int | None = 0


@attrs.frozen
class MergeStatement:
    """A MERGE, as rounds know it.

    :param mode: with its terms.
    """

    mode: Merge
    operation: str = MERGE

    @property
    def covers(self) -> str | None:
        """A predicate on partition columns; no other partitions are looked at."""
        return self.mode.covers

    @property
    def predicate(self) -> str:
        """When rows match."""
        return self.mode.condition

    def __str__(self) -> str:
        return f"MERGE ON {self.predicate}"


def merge(
    transactions: Transactions,
    source: Buffer,
    run_round: RunRound,
    *,
    isolation: Isolation = Isolation.SERIALIZABLE,
    most_rounds: int = MOST_ROUNDS,
    take_over: TakeOver = lambda _: (),
    retried: bool = False,
) -> Merged:
    """Merge a writer's rows into a table.

    :param source: the writer's buffer, complete.
    :param run_round: runs the MERGE on some files.
    :param isolation: with ``write_serializable``, appends that did not read the table and that land after the last
        round count as later than the MERGE, if nothing but such appends came after them, also where they bring a key of
        the source.
    :param most_rounds: after how many rounds it gives up.
    :param take_over: returns what rounds of an earlier try on the same source have done. Default: nothing.
    :param retried: whether an older try of the same generation may still be at work. Of an older generation, the
        writer's ``txn`` tells.
    :returns: how it ended. A source that is out of date is a result, not an error.
    :raises StatementRefusedError: the table is append-only, was made again meanwhile, or no longer has the definition
        under which Spark ran.
    :raises ZombieWriterError: a newer generation of the writer is in the table, or has found nothing to do.
    :raises RerunRefusedError: with ``on_rerun='skip'``, an older generation came into the table meanwhile; or another
        try has merged the same generation, and a RESTORE has taken that back; or another try, of another source or
        code, has merged it or found nothing to do.
    :raises ConflictError: others changed rows that may match in every round; nothing was changed.
    :raises UnexpectedRowsError: a row would come into a partition that ``covers`` leaves out.
    :raises BufferLostError: the source, or what Spark wrote, is too old to be published safely.
    :raises BufferSetAsideError: the source was set aside while Spark was at work.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.statements.change.change`.
    """
    (complete,) = with_statistics(transactions.log, [source])
    merging = _Merging(transactions, complete, isolation, retried)
    ended = in_rounds(transactions, merging, run_round, most_rounds, take_over)
    assert isinstance(ended, Merged)
    return ended


class _Merging(Change):
    """One call of :func:`merge`."""

    def __init__(self, transactions: Transactions, source: Buffer, isolation: Isolation, retried: bool) -> None:
        mode = source.spec.mode
        assert isinstance(mode, Merge)
        super().__init__(transactions, MergeStatement(mode), isolation)
        self._mode, self._source, self._spec, self._retried = mode, source, source.spec, retried
        self._stored: int | None = None
        self._keys: tuple[Snapshot, KeyRange] | None = None
        if source.reads_target:
            self.read_version = source.read_version

    # -- what was done before -----------------------------------------------------------------------------------------

    def _ended(self, view: View) -> Put | Changed | None:
        snapshot = view.snapshot
        app_id, generation = self._spec.identity.app_id, self._spec.generation
        stored = snapshot.txns.get(app_id, 0)
        if self._stored is None:
            self._stored = stored
        if stored == generation:
            commit = commit_that_set(self._log, app_id, generation, snapshot)
            self._check_is_ours(commit, snapshot)
            return _already(commit)
        if stored > generation:
            self.done.forget_vectors()
            raise ZombieWriterError(
                f"Generation {stored} of writer {self._spec.identity.key!r} is in {self.table} already; this one is of "
                f"generation {generation}. Nothing was merged on top of newer data."
            )
        try:
            check_not_ended(self._spec, snapshot, self.table)
        except ZombieWriterError:
            self.done.forget_vectors()
            raise
        if snapshot.txns.get(self._spec.identity.ended_id) == generation:
            self._check_ended_as_ours(snapshot)
            return Merged(status=StatementStatus.NOTHING_TO_DO)
        if stored != self._stored and self._spec.on_rerun is OnRerun.SKIP:
            self.done.forget_vectors()
            raise RerunRefusedError(
                f"Generation {stored} of writer {self._spec.identity.key!r} came into {self.table} while generation "
                f"{generation} was staged, so merging it could change rows twice. Nothing was merged: set "
                "on_rerun='replace' to merge it into the rows as they are now."
            )
        if snapshot.table_id != self._source.table_id:
            raise StatementRefusedError(
                f"{self.table} was replaced by another table since writer {self._spec.identity.key!r} staged its rows. "
                "Nothing was merged: clear the task if they are wanted in the new table."
            )
        if view.tally.attempts == 0:
            self._check_open()
        self._source.check_age(self._log.clock.now(), snapshot.retention_days)
        if (stale := self._stale(snapshot)) is not None:
            self.done.forget_vectors()
            raise OutOfDateError(
                f"Writer {self._spec.identity.key!r} computed the source of its MERGE from {self.table} itself, and "
                f"{stale}. Nothing was merged: clear the writer when fewer others are at work."
            )
        if not self._source.adds and not (self._mode.looks_everywhere and self._spec.allow_empty):
            return self._without_change(Merged(status=StatementStatus.NOTHING_TO_DO), view)
        return None

    def _check_open(self) -> None:
        """Refuse to merge a source that was set aside while Spark was at work, as by a retry of other work.

        Protocol: publishing closes. A try of the same work that found nothing to do has closed it too; that does not
        matter.
        """
        marker = read_marker(self._log.store, self._source.path)
        if marker is not None and MERGED not in marker:
            try:
                check_not_set_aside(self._log.store, self._source)
            except BufferSetAsideError:
                self.done.forget_vectors()
                raise

    def _check_ended_as_ours(self, snapshot: Snapshot) -> None:
        """Refuse to call a source merged of which another attempt of the generation, of other work, had nothing to do.

        Which of the two attempts is the older one is not known, so its rows are not merged either.
        """
        commit = commit_that_set(self._log, self._spec.identity.ended_id, self._spec.generation, snapshot)
        staged: Any = commit.info.get(STAGED) if commit is not None else None
        record = staged.get(CHANGE) if isinstance(staged, Mapping) else None
        fingerprint = record.get("fingerprint") if isinstance(record, Mapping) else None
        if not (record and fingerprint and self._spec.fingerprint):
            return
        if not equal_work(attrs.evolve(self._spec, fingerprint=fingerprint, source=record.get("source")), self._spec):
            self.done.forget_vectors()
            raise RerunRefusedError(
                f"Another attempt of writer {self._spec.identity.key!r}, of another source or code, has found nothing "
                f"to do in {self.table}, and nobody knows which of the two is the newer one. Nothing was merged: clear "
                "the writer's task."
            )

    def _check_is_ours(self, commit: Commit | None, snapshot: Snapshot) -> None:
        found = record_of(self._spec.identity, [commit]) if commit is not None else None
        if found is None:
            return
        try:
            check_same_work(found, self._source, self._log)
            check_not_taken_back(found, snapshot, self._log)
        except RerunRefusedError:
            self.done.forget_vectors()
            raise

    def _stale(self, snapshot: Snapshot) -> str | None:
        """Say what makes a source out of date that was computed from the table itself (protocol: reads its target).

        A compaction of ours, and any other commit that changes no data, does not.
        """
        if not self._source.reads_target:
            return None
        read = self._source.read_version
        try:
            commits = self._log.commits_between(read, snapshot.version)
        except LogGapError:
            return f"the log since version {read}, at which the table was read, was cleaned up"
        changed = next(iter(read_changed(self._source.reads, commits, snapshot.partitioning)), None)
        if changed is None:
            return None
        return f"version {changed.version} ({changed.author}) changed rows after the table was read at version {read}"

    def _is_undone(self, snapshot: Snapshot) -> bool:
        # Then there is nothing to do, as the generation is in the table.
        return False

    # -- the table as it is -------------------------------------------------------------------------------------------

    def _in_range(self, file: Add, snapshot: Snapshot) -> bool:
        if not self._mode.keys or self._mode.looks_everywhere:
            return True
        if self._keys is None or self._keys[0].metadata is not snapshot.metadata:
            self._keys = snapshot, KeyRange.of(self._source, snapshot, self._mode.keys)
        return self._keys[1](file)

    def _drop_lost(self, present: dict[FileKey, Add], view: View | None = None) -> None:
        if not self._mode.inserts:
            super()._drop_lost(present, view)
            return
        if self._mode.touches_matches:
            # Rows that others have hidden beside ours matched nothing.
            self.done.carry_over(present)
        # A file that was left alone held no match, if every match is updated or deleted.
        gone = set() if self._mode.touches_matches else self.done.files_read.keys() - present.keys()
        lost = gone or not self.done.hold(present)
        unseen = self.done.unseen(present)
        later = view is not None and self._all_later(unseen, view)
        if lost or (unseen and not later):
            self.done.forget()
        self.done.forget_unwanted_vectors()

    def _can_take_over(self, earlier: TakenOver, present: Mapping[FileKey, Add]) -> bool:
        # What a MERGE inserts, it inserts once, whatever files it was shown.
        return not self.done.ran if self._mode.inserts else super()._can_take_over(earlier, present)

    def _needs_round(self, unseen: list[Add], view: View) -> bool:
        # Also where no file may hold a match: the rows are to be inserted then.
        return super()._needs_round(unseen, view) or (self._mode.inserts and not self.done.ran)

    # -- the commit ---------------------------------------------------------------------------------------------------

    def _entry(self, snapshot: Snapshot, txn_id: str) -> list[Action]:
        self._check_covered(snapshot)
        return super()._entry(snapshot, txn_id)

    def _check_covered(self, snapshot: Snapshot) -> None:
        """Refuse rows in partitions that ``covers`` leaves out: a row with their keys may be there already."""
        split = snapshot.partitioning
        covered = self.covers(split)
        added = (file for piece in self.done.pieces for file in piece.added)
        outside = [at for file in added if not covered(at := split.partition(file["partitionValues"]))]
        if outside:
            self.done.forget_vectors()
            raise UnexpectedRowsError(
                f"{self.name} would put rows of writer {self._spec.identity.key!r} into the partition "
                f"{split.describe(outside[0])} of {self.table}, which covers={self._mode.covers!r} leaves out, so "
                "nobody has looked there for rows that match. Nothing was merged: widen `covers`, or leave such rows "
                "out of the source by `where`, and clear the task."
            )

    def _nothing_to_do(self) -> Changed:
        return Merged(status=StatementStatus.NOTHING_TO_DO, rounds=self.done.count)

    def _counted(self, pieces: Iterable[Piece], files_removed: int, files_added: int) -> Changed:
        return Merged(
            status=StatementStatus.DONE,
            files_removed=files_removed,
            files_added=files_added,
            rounds=self.done.count,
            rows_inserted=self._sum("numTargetRowsInserted"),
            rows_updated=self._sum("numTargetRowsUpdated"),
            rows_deleted=self._sum("numTargetRowsDeleted"),
        )

    def _sum(self, metric: str) -> int | None:
        counts = [whole_number(ran.metrics.get(metric)) for ran, kept in self.done.ran if kept]
        return None if None in counts else sum(count or 0 for count in counts)

    def _fence(self, snapshot: Snapshot) -> Mapping[str, int]:
        identity, generation = self._spec.identity, self._spec.generation
        # Where the generation before is in the table, no older one can come into it any more.
        older = snapshot.txns.get(identity.app_id, 0) < generation - 1
        return {identity.ended_id: generation} if older or self._retried else {}

    def _fence_record(self) -> dict[str, object]:
        # No record of the writer, as its rows did not come into the table.
        spec = self._spec
        ours = {"fingerprint": spec.fingerprint, "source": spec.source} if spec.fingerprint else {}
        return {"rounds": self.done.count, "readVersion": self.read_version, **ours}

    def _turns(self, snapshot: Snapshot) -> dict[str, int]:
        return {self._spec.identity.app_id: self._spec.generation}

    def _parameters(self) -> dict[str, str]:
        said = {"predicate": json.dumps([self._statement.predicate], ensure_ascii=False)}
        names = {MATCHED: "matched", NOT_MATCHED: "notMatched", NOT_MATCHED_BY_SOURCE: "notMatchedBySource"}
        for case, name in names.items():
            clauses: list[dict[str, str]] = [
                {**({"predicate": clause.condition} if clause.condition else {}), "actionType": clause.action.lower()}
                for clause in self._mode.clauses
                if clause.case == case
            ]
            said[f"{name}Predicates"] = json.dumps(clauses, ensure_ascii=False)
        return said

    def _message(self) -> str:
        load = self._spec.identity.load
        who = task_in_words(load.dag, load.group, load.run, load.namespace)
        return of_task(f"{who}: {self._spec.identity.key}", self.name, self._spec.message)

    def _record(self) -> dict[str, object]:
        writer = _record_of(self._source).to_json()
        return {"rounds": self.done.count, "readVersion": self.read_version, "writer": writer}

    def _metrics(self, again: Any) -> dict[str, int | None]:
        assert isinstance(self._put, Merged)
        counted = {metric: getattr(self._put, name) for name, metric in _COUNTS.items()}
        return {
            "numSourceRows": self._source.rows,
            **counted,
            "numTargetFilesRemoved": self._put.files_removed,
            "numTargetFilesAdded": self._put.files_added,
            "numTargetDeletionVectorsAdded": len(again),
        }

    def committed(self, version: int, tally: Tally) -> Changed:
        """Mark the source as merged.

        :param version: in which it was.
        """
        done = super().committed(version, tally)
        if done.status is StatementStatus.NOTHING_TO_DO:
            return done
        marker = Publishing(version, _record_of(self._source)).marker(self._source.table_id)
        try_to_mark(self._log, self._source.path, marker)
        return done


def _record_of(source: Buffer) -> PublishedWriter:
    spec = source.spec
    return PublishedWriter(
        app_id=spec.identity.app_id,
        writer=spec.identity.key,
        generation=spec.generation,
        buffer=source.path,
        finished=source.finished,
        rows=source.rows,
        fingerprint=spec.fingerprint,
        merged=True,
        reads=source.computed_from,
        source=spec.source,
    )


def _already(commit: Commit | None) -> Merged:
    metrics: Any = (commit.info.get("operationMetrics") or {}) if commit is not None else {}

    def count(metric: str) -> int | None:
        return whole_number(metrics.get(metric))

    return Merged(
        status=StatementStatus.ALREADY,
        version=commit.version if commit is not None else None,
        files_removed=count("numTargetFilesRemoved"),
        files_added=count("numTargetFilesAdded"),
        rows_inserted=count("numTargetRowsInserted"),
        rows_updated=count("numTargetRowsUpdated"),
        rows_deleted=count("numTargetRowsDeleted"),
    )
