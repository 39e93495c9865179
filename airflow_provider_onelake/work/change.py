"""The steps of one DELETE or UPDATE of rows: Spark runs it in shadows, and one commit publishes what came out."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from airflow_provider_onelake.choices import Isolation, OnStatementRerun
from airflow_provider_onelake.commit.change import Changed, Start, change
from airflow_provider_onelake.commit.statement import UPDATE, Statement, Status
from airflow_provider_onelake.commit.words import rows_in_words, task_in_words
from airflow_provider_onelake.engines.base import ChangeJob
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.staging.buffers import try_to_mark
from airflow_provider_onelake.staging.layout import WriterDirectory, changes_directory
from airflow_provider_onelake.staging.rounds import Ran, Round, may_move_rows, open_round, read_round

if TYPE_CHECKING:
    from airflow_provider_onelake.hooks.task_run import TaskRun
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.spark import SparkWork

logger = logging.getLogger(__name__)


@attrs.define(kw_only=True)
class RowChange:
    """One task's DELETE or UPDATE of rows of one table.

    :param statement: what is done.
    :param isolation: which commits of others it must have seen.
    :param on_rerun: what a clear does.
    :param max_rounds: how many times Spark may run it before it gives up.
    :param run: the try of the task.
    :param deed: the id of the task's first start or last clear; all tries of it are one start.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    """

    table: Table
    spark: SparkWork
    statement: Statement
    isolation: Isolation
    on_rerun: OnStatementRerun
    max_rounds: int
    run: TaskRun
    deed: str
    namespace: str
    message: str | None = None
    _rounds: list[Round] = attrs.field(factory=list, init=False)

    def carry_out(self) -> Changed:
        """Change the rows.

        :raises OneLakeError: as :func:`~airflow_provider_onelake.commit.change.change`, and as an engine's ``change``.
        """
        owner, what = self._owner, self.statement.operation.lower()
        start = Start(
            task_id=f"onelake-{what}/{owner}/where={self.statement.digest}",
            id=f"onelake-{what}/{owner}/{quote(self.deed, safe='')}/where={self.statement.digest}",
            by=task_in_words(self.run.dag, self.run.label, self.run.run_id, self.namespace),
            on_rerun=self.on_rerun,
            message=self.message,
        )
        outcome: dict[str, Any] = {"reason": f"the {self.statement.operation} was not published"}
        try:
            done = change(
                self.table.committer(),
                self.statement,
                start,
                self._run_round,
                isolation=self.isolation,
                most_rounds=self.max_rounds,
            )
            if done.version is not None:
                outcome = {"version": done.version}
        finally:
            for each in self._rounds:
                try_to_mark(self.table.log, each.path, outcome)
        logger.info("%s: %s", self.table, summary_of(self.statement, done))
        return done

    def _run_round(self, number: int, snapshot: Snapshot, files: Sequence[Add]) -> Ran:
        log, address = self.table.log, self.table.address
        if number == 1:
            self._end_earlier()
        logger.info("%s: round %d: Spark looks at %d files", self.table, number, len(files))
        told = {"name": f"{self.namespace}/{self.run.dag}/{self.run.label}", "operation": self.statement.operation}
        # Spark's jobs are told apart by their attempts, and each round is a job of its own.
        attempt = str(uuid.uuid5(uuid.UUID(self.run.attempt), f"round {number}"))
        ran = open_round(log, snapshot, files, address.spark_uri, self._directory, attempt, told)
        self._rounds.append(ran)
        self.spark.engine().change(
            ChangeJob(
                table_uri=address.spark_uri,
                attempt=attempt,
                shadow_uri=address.child(ran.path).spark_uri,
                where=self.statement.where,
                assignments=self.statement.assignments,
                label=f"{self.run.label} {self.statement.operation}",
                owner=self._owner,
            )
        )
        self.spark.check_not_stopped()
        is_update = self.statement.operation == UPDATE
        moves_rows = is_update and may_move_rows(snapshot, self.statement.assignments)
        return read_round(log.store, ran, keeps_rows=is_update, moves_rows=moves_rows)

    def _end_earlier(self) -> None:
        """End what earlier tries left at work, and close their rounds: this try begins anew."""
        log = self.table.log
        for attempt in self.spark.left_at_work(self.table, self._owner, ChangeJob.doing):
            self.spark.kill_job(self.table, attempt, ChangeJob.doing)
        for earlier in WriterDirectory.read(log.store, self._directory).attempts:
            if not earlier.marker:
                try_to_mark(log, earlier.path, {"reason": "another try runs the statement anew"})

    @property
    def _directory(self) -> str:
        return changes_directory(self._owner)

    @property
    def _owner(self) -> str:
        return self.run.owner(self.namespace)


def describe_change(statement: Statement, done: Changed) -> dict[str, Any]:
    """Return the result of a DELETE or UPDATE for XCom."""
    result = {**attrs.asdict(done), "status": str(done.status)}
    rows = "rows_updated" if statement.operation == UPDATE else "rows_deleted"
    return {rows: result.pop("rows"), **result, "summary": summary_of(statement, done)}


def summary_of(statement: Statement, done: Changed) -> str:
    """Return one sentence that says what was done."""
    if done.status is Status.NOTHING_TO_DO:
        return "no row of the table matches; nothing to do"
    verb = "updated" if statement.operation == UPDATE else "deleted"
    what = f"{verb} {rows_in_words(done.rows)}"
    if done.status is Status.ALREADY:
        where = "" if done.version is None else f" in version {done.version}"
        return f"an earlier try or start {what}{where}"
    rounds = "one round" if done.rounds == 1 else f"{done.rounds} rounds"
    return f"version {done.version} {what}, in {rounds} of Spark"
