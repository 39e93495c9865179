"""The steps of one DELETE or UPDATE of rows: Spark runs it in shadows, and one commit publishes what came out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from airflow_provider_onelake.choices import OnStatementRerun
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.rows.concerned import concerned
from airflow_provider_onelake.spark.base import ChangeJob
from airflow_provider_onelake.statements.change import change
from airflow_provider_onelake.statements.engine import Changed
from airflow_provider_onelake.statements.round_tables import Ran, may_move_rows, read_round
from airflow_provider_onelake.statements.statement import UPDATE, Statement, StatementStatus
from airflow_provider_onelake.steps.private_tables import PrivateTables
from airflow_provider_onelake.texts import rows_in_words

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.statements.asker import Asker
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)

_Done = TypeVar("_Done", bound=Changed)


@attrs.define(kw_only=True)
class StatementRounds(PrivateTables):
    """The rounds in which Spark runs a statement. It also takes the parameters of :class:`PrivateTables`.

    :param label: whose statement it is, in words: ``task d``.
    :param job: fields of :class:`~airflow_provider_onelake.spark.base.ChangeJob` that say the statement.
    :param reading: how what Spark left is read, see
        :func:`~airflow_provider_onelake.statements.round_tables.read_round`.
    """

    doing: str = ChangeJob.doing
    label: str
    job: Callable[[int], dict[str, Any]]
    reading: Callable[[Snapshot], dict[str, Any]]

    def run(self, number: int, snapshot: Snapshot, files: Sequence[Add]) -> Ran:
        """Run the statement on some files alone, and read what came out.

        :param number: of the round, from 1.
        """
        opened, told = self.open(number, snapshot, files)
        self.spark.engine().change(ChangeJob(**told, label=f"{self.operation} of {self.label}", **self.job(number)))
        self.spark.check_not_stopped()
        return read_round(self.table.log.store, opened, **self.reading(snapshot))

    def publish(self, commit: Callable[[], _Done]) -> _Done:
        """Commit what the rounds do, and mark their private tables as done with.

        :param commit: runs the rounds, and commits.
        """
        not_published = {"reason": f"the {self.operation} was not published"}
        try:
            done = commit()
        except BaseException:
            self.close(not_published)
            raise
        self.close(not_published if done.version is None else {"version": done.version})
        return done


@attrs.define(kw_only=True)
class RowChange:
    """One task's DELETE or UPDATE of rows of one table.

    :param statement: what is done.
    :param on_rerun: what a clear does.
    :param max_rounds: how many times Spark may run it before it gives up.
    :param run: the try of the task.
    :param task_start: the task's first start or last clear; all tries of it are one start.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    """

    table: Table
    spark: SparkWork
    statement: Statement
    on_rerun: OnStatementRerun
    max_rounds: int
    run: TaskRun
    task_start: Start
    namespace: str
    message: str | None = None

    def carry_out(self) -> Changed:
        """Change the rows.

        :raises OneLakeError: as :func:`~airflow_provider_onelake.statements.change.change`, and as an engine's
            ``change``.
        """
        asker = self.begin()
        rounds = StatementRounds(
            table=self.table,
            spark=self.spark,
            operation=self.statement.operation,
            owner=self.run.owner(self.namespace),
            attempt=self.run.attempt,
            label=f"task {self.run.label}",
            name=f"{self.namespace}/{self.run.dag}/{self.run.label}",
            job=lambda _: {"where": self.statement.where, "assignments": self.statement.assignments},
            reading=self._reading,
        )
        done = rounds.publish(
            lambda: change(
                self.table.committer(),
                self.statement,
                asker,
                rounds.run,
                on_rerun=self.on_rerun,
                most_rounds=self.max_rounds,
                concerned=partial(concerned, self.statement.where),
            )
        )
        logger.info("%s: %s", self.table.name, summary_of(self.statement, done))
        return done

    def begin(self) -> Asker:
        """Return who runs the statement, with the generation that the task's start has claimed.

        :raises ZombieWriterError: a newer start of the task has claimed one.
        """
        asked = f"{self.statement.operation.lower()}/where={self.statement.digest}"
        return self.run.asker(self.table.log, asked, self.task_start, self.namespace, self.message)

    def _reading(self, snapshot: Snapshot) -> dict[str, Any]:
        is_update = self.statement.operation == UPDATE
        moves_rows = is_update and may_move_rows(snapshot, self.statement.assignments)
        return {"keeps_rows": is_update, "moves_rows": moves_rows}


def describe_change(statement: Statement, done: Changed) -> dict[str, Any]:
    """Return the result of a DELETE or UPDATE for XCom."""
    result = {**attrs.asdict(done), "status": str(done.status)}
    rows = "rows_updated" if statement.operation == UPDATE else "rows_deleted"
    return {rows: result.pop("rows"), **result, "summary": summary_of(statement, done)}


def summary_of(statement: Statement, done: Changed) -> str:
    """Return one sentence that says what was done."""
    if done.status is StatementStatus.NOTHING_TO_DO:
        return "no row of the table matches; nothing to do"
    verb = "updated" if statement.operation == UPDATE else "deleted"
    what = f"{verb} {rows_in_words(done.rows)}"
    if done.status is StatementStatus.ALREADY:
        where = "" if done.version is None else f" in version {done.version}"
        return f"an earlier try or start {what}{where}"
    rounds = "one round" if done.rounds == 1 else f"{done.rounds} rounds"
    return f"version {done.version} {what}, in {rounds} of Spark"
