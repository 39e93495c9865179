"""MERGE: its source is staged once, Spark runs it in rounds, and one commit has the result.

A MERGE that inserts nothing maps every row of the table by itself, as DELETE and UPDATE do, so it takes their rounds
(:mod:`~airflow_provider_onelake.statements.change`). One that inserts does not: a row of the source is inserted if *no*
row of the table matches it. What a round has decided stays right as long as the same rows of the source match. So if a
file came that may hold a match, or one went that may have held one, the whole MERGE runs again on the staged source
(protocol: a merge that inserts sees every match).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.markers import MERGED, check_not_set_aside, read_marker, try_to_mark
from airflow_provider_onelake.buffers.reads import read_changed
from airflow_provider_onelake.choices import OnRerun
from airflow_provider_onelake.clauses import MATCHED, NOT_MATCHED, NOT_MATCHED_BY_SOURCE
from airflow_provider_onelake.commit.loop import Transactions, View
from airflow_provider_onelake.commit.words import task_in_words
from airflow_provider_onelake.exceptions import (
    LogGapError,
    OutOfDateError,
    RerunRefusedError,
    StatementRefusedError,
    UnexpectedRowsError,
)
from airflow_provider_onelake.history.published import Publishing, record_of
from airflow_provider_onelake.history.reruns import check_same_work
from airflow_provider_onelake.log.actions import Add, FileKey, total
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.statements.asker import Asker, Earlier
from airflow_provider_onelake.statements.engine import (
    MOST_ROUNDS,
    Changed,
    RowStatement,
    RunRound,
    StatementCommit,
    in_rounds,
)
from airflow_provider_onelake.statements.key_range import KeyRange
from airflow_provider_onelake.statements.proposal import covered
from airflow_provider_onelake.statements.rounds import Rounds
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.storage.clock import whole_number

MERGE = "MERGE"
_ROWS = {
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


def merge(
    transactions: Transactions,
    source: Buffer,
    run_round: RunRound,
    *,
    most_rounds: int = MOST_ROUNDS,
    retried: bool = False,
) -> Merged:
    """Merge a writer's rows into a table.

    :param source: the writer's buffer, complete.
    :param run_round: runs the MERGE on some files.
    :param most_rounds: after how many rounds it gives up.
    :param retried: whether an older try of the same generation may still be at work.
    :returns: how it ended.
    :raises StatementRefusedError: the table is append-only, was made again meanwhile, or no longer has the definition
        under which Spark ran.
    :raises ZombieWriterError: a newer generation of the writer is in the table.
    :raises RerunRefusedError: with ``on_rerun='skip'``, an older generation came into the table meanwhile; or another
        try has merged the same generation, of another source or code, or a RESTORE has taken it back.
    :raises UnexpectedRowsError: a row would come into a partition that ``covers`` leaves out.
    :raises BufferLostError: the source, or what Spark wrote, is too old to be published safely.
    :raises BufferSetAsideError: the source was set aside while Spark was at work.
    :raises OutOfDateError: the source was computed from rows of the table that have changed since.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.statements.engine.in_rounds`.
    """
    log = transactions.log
    if source.adds or log.snapshot_or_none() is not None:
        done = in_rounds(transactions, _MergeStatement(log, source, retried), run_round, most_rounds)
        assert isinstance(done, Merged)
    else:
        done = Merged(status=StatementStatus.NOTHING_TO_DO)
    marker: dict[str, object] = {MERGED: True, "reason": "merged, and no row of the table had to change"}
    if done.version is not None:
        marker = Publishing(done.version, source.record(source.rows, merged=True)).marker(source.table_id)
    if done.status is not StatementStatus.ALREADY:
        try_to_mark(log, source.path, marker)
    return done


class _MergeStatement(RowStatement):
    """One call of :func:`merge`."""

    result = Merged

    def __init__(self, log: DeltaLog, source: Buffer, retried: bool) -> None:
        spec, mode = source.spec, source.spec.mode
        assert isinstance(mode, Merge)
        load = spec.identity.load
        asker = Asker(
            identity=spec.identity,
            generation=spec.generation,
            retried=retried,
            by=f"{task_in_words(load.dag, load.group, load.run, load.namespace)}: {spec.identity.key}",
            message=spec.message,
        )
        counts = {**_ROWS, "files_removed": "numTargetFilesRemoved", "files_added": "numTargetFilesAdded"}
        super().__init__(MERGE, f"MERGE ON {mode.condition}", mode.covers, asker, counts)
        self._log, self._mode, self._source, self._spec = log, mode, source, spec
        self._stored: int | None = None
        self._is_idle = not source.adds and not (mode.looks_everywhere and spec.allow_empty)

    # -- what was done before, and what refuses it ---------------------------------------------------------------------

    def already(self, earlier: Earlier) -> Changed:
        """Return what another try of the same generation has merged.

        :raises RerunRefusedError: it was of another source or code.
        """
        commit = earlier.commit
        if commit is not None and (found := record_of(self._spec.identity, [commit])) is not None:
            check_same_work(found, self._spec, self._log.table)
        return super().already(earlier)

    def settled(self, view: View) -> None:
        """Refuse a source that is not to be merged, or not any more."""
        snapshot, spec, table = view.snapshot, self._spec, self._log.table
        stored = snapshot.txns.get(spec.identity.app_id, 0)
        if self._stored is None:
            self._stored = stored
        if stored != self._stored and spec.on_rerun is OnRerun.SKIP:
            raise RerunRefusedError(
                f"Generation {stored} of writer {spec.identity.key!r} came into {table} while generation "
                f"{spec.generation} was staged, so merging it could change rows twice. Nothing was merged: set "
                "on_rerun='replace' to merge it into the rows as they are now."
            )
        if snapshot.table_id != self._source.table_id:
            raise StatementRefusedError(
                f"{table} was replaced by another table since writer {spec.identity.key!r} staged its rows. Nothing "
                "was merged: clear the task if they are wanted in the new table."
            )
        if view.tally.attempts == 0:
            self._check_open()
        self._source.check_age(self._log.clock.now(), snapshot.retention_days)
        if (stale := self._stale(snapshot)) is not None:
            raise OutOfDateError(
                f"Writer {spec.identity.key!r} computed the source of its MERGE from {table} itself, and {stale}. "
                "Nothing was merged: clear the writer when fewer others are at work."
            )

    def _check_open(self) -> None:
        """Refuse to merge a source that was set aside while Spark was at work, as by a retry of other work.

        Protocol: publishing closes. A try of the same work that found nothing to do has closed it too; that does not
        matter.
        """
        marker = read_marker(self._log.store, self._source.path)
        if marker is not None and MERGED not in marker:
            check_not_set_aside(self._log.store, self._source)

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

    # -- the three questions -------------------------------------------------------------------------------------------

    def concerns(self, snapshot: Snapshot) -> Callable[[Add], bool] | None:
        """Return what says whether a file may hold a key of the source."""
        if self._is_idle:
            return lambda _: False
        if not self._mode.keys or self._mode.looks_everywhere:
            return None
        return KeyRange.of(self._source, snapshot, self._mode.keys)

    def unread(self, done: Rounds, present: Mapping[FileKey, Add]) -> list[Add] | None:
        """Return what the next round has to read: all files, once more, if one came or went that may hold a match."""
        if not self._mode.inserts:
            return super().unread(done, present)
        if self._is_idle:
            return None
        # A file that was left alone held no match, if every match is updated or deleted.
        gone = set() if self._mode.touches_matches else done.files_read - present.keys()
        if gone or not done.hold(present) or done.unseen(present):
            done.forget()
        # Also where no file may hold a match: the rows are to be inserted then.
        return None if done.ran else list(present.values())

    def says(self, done: Rounds, counted: Changed, snapshot: Snapshot) -> StatementCommit:
        """Return the clauses, the writer, and how many rows were inserted, updated and deleted.

        :raises UnexpectedRowsError: a row would come into a partition that ``covers`` leaves out.
        """
        self._check_covered(done, snapshot.partitioning)
        metrics = [ran.metrics for ran, kept in done.ran if kept]
        rows: Any = {field: total(whole_number(each.get(name)) for each in metrics) for field, name in _ROWS.items()}
        nothing = counted.status is StatementStatus.NOTHING_TO_DO
        record = self._source.record(0 if nothing else self._source.rows, merged=True, nothing=nothing)
        return StatementCommit(
            result=Merged(**attrs.asdict(counted), **rows),
            parameters=self._parameters(),
            metrics={"numSourceRows": self._source.rows, "numTargetDeletionVectorsAdded": done.vectors_given},
            record={"writer": record.to_json()},
        )

    def _check_covered(self, done: Rounds, split: Partitioning) -> None:
        """Refuse rows in partitions that ``covers`` leaves out: a row with their keys may be there already."""
        looked_at = covered(self.covers, split)
        added = (file for piece in done.pieces for file in piece.added)
        outside = [at for file in added if not looked_at(at := split.partition(file["partitionValues"]))]
        if outside:
            raise UnexpectedRowsError(
                f"{self.name} would put rows of writer {self._spec.identity.key!r} into the partition "
                f"{split.describe(outside[0])} of {self._log.table}, which covers={self.covers!r} leaves out, so "
                "nobody has looked there for rows that match. Nothing was merged: widen `covers`, or leave such rows "
                "out of the source by `where`, and clear the task."
            )

    def _parameters(self) -> dict[str, str]:
        said = {"predicate": json.dumps([self._mode.condition], ensure_ascii=False)}
        names = {MATCHED: "matched", NOT_MATCHED: "notMatched", NOT_MATCHED_BY_SOURCE: "notMatchedBySource"}
        for case, name in names.items():
            clauses: list[dict[str, str]] = [
                {**({"predicate": clause.condition} if clause.condition else {}), "actionType": clause.action.lower()}
                for clause in self._mode.clauses
                if clause.case == case
            ]
            said[f"{name}Predicates"] = json.dumps(clauses, ensure_ascii=False)
        return said
