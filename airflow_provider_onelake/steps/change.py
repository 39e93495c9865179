"""The steps of one DELETE or UPDATE of rows: Spark runs it in shadows, and one commit publishes what came out."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.choices import OnStatementRerun
from airflow_provider_onelake.commit.words import rows_in_words
from airflow_provider_onelake.exceptions import BufferInvalidError, BufferLostError, BufferSetAsideError, TransientError
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.vectors import to_z85
from airflow_provider_onelake.rows.concerned import concerned
from airflow_provider_onelake.spark.base import ChangeJob
from airflow_provider_onelake.statements.change import change
from airflow_provider_onelake.statements.engine import Changed, TakenOver
from airflow_provider_onelake.statements.round_tables import Ran, may_move_rows, read_round, reopen_round
from airflow_provider_onelake.statements.statement import UPDATE, Statement, StatementStatus
from airflow_provider_onelake.steps.private_tables import PrivateTables

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.buffers.layout import AttemptDirectory
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
    :param start: the id of the task's start, and ``statement`` a digest of what it does: rounds of an earlier try are
        only taken over if both are the same.
    :param job: fields of :class:`~airflow_provider_onelake.spark.base.ChangeJob` that say the statement.
    :param reading: how what Spark left is read, see
        :func:`~airflow_provider_onelake.statements.round_tables.read_round`.
    """

    doing: str = ChangeJob.doing
    label: str
    start: str
    statement: str
    job: Callable[[int], dict[str, Any]]
    reading: Callable[[Snapshot], dict[str, Any]]
    _ended: set[str] = attrs.field(factory=set, init=False)

    def run(self, number: int, snapshot: Snapshot, files: Sequence[Add]) -> Ran:
        """Run the statement on some files alone, and read what came out.

        :param number: of the round, from 1.
        """
        opened, told = self.open(number, snapshot, files)
        self.spark.engine().change(ChangeJob(**told, label=f"{self.operation} of {self.label}", **self.job(number)))
        self.spark.check_not_stopped()
        ran = read_round(self.table.log.store, opened, **self.reading(snapshot))
        self._ended.add(opened.path)
        return ran

    def take_over(self, snapshot: Snapshot) -> list[TakenOver]:
        """Return what Spark has done for earlier tries of the same start, the oldest first.

        Of a try that is given up and still lives, nothing is disturbed: its copies of deletion vectors are its own, as
        ours are ours, and whichever of both commits first is found by the other (protocol: rounds of an earlier try).

        :param snapshot: the newest of the table.
        """
        found = []
        for earlier in self.end_earlier():
            ran = self._ran_in(earlier, snapshot)
            if ran is None:
                self.drop(earlier)
            else:
                assert earlier.opened is not None
                found.append((earlier.opened.modified, earlier.path, ran))
        return [ran for _, _, ran in sorted(found, key=lambda each: each[:2])]

    def _ran_in(self, earlier: AttemptDirectory, snapshot: Snapshot) -> TakenOver | None:
        log, now = self.table.log, self.table.log.clock.now()
        if earlier.opened is None or earlier.completed is None:
            return None
        opened = reopen_round(log, snapshot, self.table.address.spark_uri, earlier.path, self.label_of_table)
        if opened is None:
            return None
        try:
            ran = read_round(log.store, opened, **self.reading(snapshot), renamed=self._renamed)
        except (BufferInvalidError, BufferLostError) as error:
            logger.info("%s: Spark runs the %s anew: %s", self.table.name, self.operation, error)
            return None
        if ran.oldest is not None and now - ran.oldest >= lifetime(snapshot.retention_days):
            return None
        self._opened.append(opened)
        self._ended.add(opened.path)
        return TakenOver(tuple(opened.inputs.values()), ran)

    def _renamed(self, name: str) -> str:
        """Return the name of our own copy of an earlier try's vectors, which that try does not delete."""
        return to_z85(uuid.uuid5(uuid.NAMESPACE_URL, f"{self.attempt}/{name}").bytes)

    @property
    def label_of_table(self) -> dict[str, object]:
        """What a private table says of the statement."""
        return {**super().label_of_table, "start": self.start, "statement": self.statement}

    def publish(self, commit: Callable[[], _Done]) -> _Done:
        """Commit what the rounds do, and mark their private tables as done with.

        After an error that may pass, those of the rounds that have ended stay open, because a retry takes them over.
        But nobody takes over what was done with rows that were set aside.

        :param commit: runs the rounds, and commits.
        """
        not_published = {"reason": f"the {self.operation} was not published"}
        try:
            done = commit()
        except TransientError as error:
            self.close(not_published, spared=() if isinstance(error, BufferSetAsideError) else self._ended)
            raise
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
            start=self.task_start.id,
            statement=self.statement.digest,
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
                take_over=rounds.take_over,
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
