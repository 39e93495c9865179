"""DELETE and UPDATE with a predicate on rows, as the engine of rounds asks them.

Such a statement maps every row by itself, so what it does to a table is what it does to each of its files: it is done
to a version as soon as every live file of that version was read by a round, or is what a round has made of it, or has
no row that the statement concerns (protocol: statements map rows).
"""

from __future__ import annotations

import json
from collections.abc import Callable

import attrs

from airflow_provider_onelake.choices import OnStatementRerun
from airflow_provider_onelake.commit.loop import Transactions, View
from airflow_provider_onelake.exceptions import RerunRefusedError
from airflow_provider_onelake.log.actions import Add, Remove, total
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.statements.asker import Asker
from airflow_provider_onelake.statements.engine import (
    MOST_ROUNDS,
    Changed,
    RowStatement,
    RunRound,
    StatementCommit,
    in_rounds,
)
from airflow_provider_onelake.statements.proposal import covered
from airflow_provider_onelake.statements.rounds import Rounds
from airflow_provider_onelake.statements.statement import UPDATE, Statement
from airflow_provider_onelake.storage.clock import whole_number

Concerned = Callable[[Snapshot], Callable[[Add], bool] | None]
"""Returns, for a snapshot, what says whether the statement may concern a row of a file; ``None`` where nobody knows."""


def change(
    transactions: Transactions,
    statement: Statement,
    asker: Asker,
    run_round: RunRound,
    *,
    on_rerun: OnStatementRerun,
    most_rounds: int = MOST_ROUNDS,
    concerned: Concerned = lambda _: None,
) -> Changed:
    """Do a statement to the rows of a table.

    :param asker: who runs it.
    :param run_round: runs it on some files.
    :param on_rerun: what a clear does.
    :param most_rounds: after how many rounds it gives up.
    :param concerned: rules out files that have no row for which the predicate is true. Default: none are.
    :raises RerunRefusedError: the statement was done by an earlier start, is to be skipped, and rows that it may touch
        were changed since.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.statements.engine.in_rounds`.
    """
    asked = _Change(transactions.log, statement, asker, on_rerun, concerned)
    return in_rounds(transactions, asked, run_round, most_rounds)


class _Change(RowStatement):
    """One call of :func:`change`."""

    def __init__(
        self, log: DeltaLog, statement: Statement, asker: Asker, on_rerun: OnStatementRerun, concerned: Concerned
    ) -> None:
        rows = "numUpdatedRows" if statement.operation == UPDATE else "numDeletedRows"
        counts = {"rows": rows, "files_removed": "numRemovedFiles", "files_added": "numAddedFiles"}
        super().__init__(statement.operation, str(statement), statement.covers, asker, counts)
        self._log, self._statement, self._on_rerun, self._concerned = log, statement, on_rerun, concerned
        # The generation that the table had when the log was walked. No generation is -1: it was not walked yet.
        self._walked_at: int | None = -1

    def settled(self, view: View) -> Changed | None:
        """Return what an older start did, if it is to be skipped and stands as it was."""
        snapshot = view.snapshot
        stored = snapshot.txns.get(self.asker.app_id)
        # The log is walked once, and once more only if an older start comes in meanwhile.
        if self._on_rerun is not OnStatementRerun.SKIP or self._walked_at == stored:
            return None
        self._walked_at = stored
        earlier = self.asker.done_by_older_start(self._log, snapshot)
        if earlier is None:
            return None
        if earlier.commit is None:
            why = "the log since then was cleaned up, so nobody knows what became of its rows"
        else:
            split = snapshot.partitioning
            looked_at = covered(self.covers, split)
            changed = next((one for one in earlier.later if _touches(one, looked_at, split)), None)
            if changed is None:
                return self.already(earlier)
            why = f"version {changed.version} ({changed.author}) changed rows that it may concern"
        at = "" if earlier.commit is None else f" in version {earlier.commit.version}"
        raise RerunRefusedError(
            f"An earlier start of this task did {self.name} to {self._log.table}{at}. It is not skipped, because "
            f"{why}, and it is not done again, because that could change rows twice. Nothing was changed: set "
            "on_rerun='again' to do it to the rows as they are now, or mark the task as successful."
        )

    def concerns(self, snapshot: Snapshot) -> Callable[[Add], bool] | None:
        """Return what says whether a file may have a row for which the predicate is true."""
        return self._concerned(snapshot)

    def says(self, done: Rounds, counted: Changed, snapshot: Snapshot) -> StatementCommit:
        """Return the predicate, and how many rows were deleted or updated."""
        if self.operation == UPDATE:
            whole = [ran.metrics if len(kept) == len(ran.pieces) else {} for ran, kept in done.ran if kept]
            rows = total(whole_number(metrics.get(self.counts["rows"])) for metrics in whole)
        else:
            rows = total(piece.rows_gone for piece in done.pieces)
        return StatementCommit(
            result=attrs.evolve(counted, rows=rows),
            parameters={"predicate": json.dumps([self._statement.predicate], ensure_ascii=False)},
            metrics={"numDeletionVectorsAdded": done.vectors_given},
            record={"covers": self.covers} if self.covers else {},
        )


def _touches(commit: Commit, looked_at: Callable[[Partition], bool], split: Partitioning) -> bool:
    """Say whether a commit changed rows of some partitions, as far as it tells; else it did."""
    both: list[Add | Remove] = [*commit.adds, *commit.removes]
    files = [file for file in both if file.get("dataChange", True)]
    return any(not split.named_by(file) or looked_at(split.partition(file["partitionValues"])) for file in files)
