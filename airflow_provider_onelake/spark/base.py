"""A Spark job as plain values, what is known of it when it is done, and what the engines that run it have in common.

An engine of one's own is one module with a class that inherits from :class:`Engine`, and one line in the registry
(``hooks/spark.py``) that names the class for a type of connections.

Do not import pyspark here: Airflow imports this module when it parses a DAG, in a process that it forks for every task.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from airflow_provider_onelake.exceptions import OneLakeError, SparkJobError, SparkJobTimeoutError

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.storage.spark import SparkAccess
    from airflow_provider_onelake.storage.stores import Store

ANALYSING = "analysing"
"""The kind of a job that tells what another job would write."""

ONLY_CONNECT = (
    "A function that makes a data frame (@task.onelake_write) runs in the task, which needs a connection of the type "
    "'spark_connect'. Elsewhere say it in SQL: OneLakeWriteOperator(source=…, steps={…}). Nothing was staged."
)
"""The message of engines other than Spark Connect, which refuse rows that a function makes."""


@attrs.frozen(kw_only=True)
class SparkJob:
    """One job. All fields can be written as JSON.

    :param table_uri: the address of the job's table for Spark.
    :param attempt: id of the attempt. Spark's own records name the job by it.
    :param label: what the job is in words, for messages and for people who look at Spark's UI: ``DELETE of task d``, or
        of a job about rows whose they are, ``writer eu of task load.write``. Default: empty.
    :param owner: names the task in its run: equal for all its tries, and different for all other tasks. A later try
        finds a driver in cluster mode by it. Default: empty, so that no try finds the driver.
    """

    doing: ClassVar[str]

    table_uri: str
    attempt: str
    label: str = ""
    owner: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Return the job's fields as ``spark.jobs`` reads them."""
        return attrs.asdict(self)


@attrs.frozen(kw_only=True)
class StageJob(SparkJob):
    """What one writer reads, how it is transformed, and where the rows go.

    It also takes the parameters of a :class:`SparkJob`. The target may not exist yet. The append's ``userMetadata``
    names the attempt (protocol: exactly version 1, attempt id).

    :param source: ``{"kind": "sql", "query": …}``, ``{"kind": "files", "path": […], "format": …, "options": {…},
        "schema": DDL or None}`` or ``{"kind": "function"}``. The key ``"view"`` names the source for the steps; its
        default is ``source``.
    :param rows: the function that makes the data frame of the kind ``function``. It is called with the job's session,
        in this process.
    :param buffer_uri: the buffer's address for Spark. Default: none, for a job that is only analysed.
    :param metadata: the body of the buffer's ``metaData`` action. Required with a ``buffer_uri``.
    :param other_uri: another address of the same table, by which a job may read the table that it writes. Default:
        none.
    :param target_uri: the address of what the job may read of its own table under the name ``target``. Default: it
        reads nothing under that name.
    :param where: a filter on the source. It applies before the steps, so that Spark pushes it down. Default: all rows.
    :param steps: queries by name, run in order. Each can read those before it, and the rows of the last one are
        written. Default: the rows of the source.
    :param generated: generated columns of the target, name to SQL expression. Default: none.
    :param schema: the columns of a table that is to be created, as Spark DDL. An analysis then skips the source.
        Default: the columns of the rows.
    :param evolves: whether the target exists and takes new columns. The rows may then lack nullable columns that other
        writers added. Default: no.
    :param target_file_size: bytes of rows before compression. Spark merges the rows of several tasks until a file has
        this size, but does not split the rows of one task. Default: one file for each task and partition.
    :param v_order: whether Fabric's Spark writes V-Order; others do nothing with it. Default: as the session and the
        table say.
    :param fingerprint: fingerprint of the source as the writer saw it. A job with another fingerprint is other work.
        Default: unknown.
    :param preflight: whether to check first that Spark has what the job needs, before Spark reads the source. Default:
        yes.
    :param checks: conditions on the staged rows in Spark SQL, by name. The job evaluates them over the buffer's files
        when it has written them. Default: none.
    :param routes: of a shared scan, the filter of each writer by its name. The column ``onelake_writer`` of the buffer
        gets the name, and a row that satisfies two filters fails the job. ``where`` is then what all rows satisfy.
        Nothing is written if the job reads its target, or if ``steps`` do not treat every row by itself. Default: the
        rows are of one writer.
    """

    doing: ClassVar[str] = "staging"

    source: Mapping[str, Any]
    rows: Callable[[Any], Any] | None = attrs.field(default=None, repr=False)
    buffer_uri: str | None = None
    metadata: Mapping[str, Any] | None = attrs.field(default=None, repr=False)
    other_uri: str | None = None
    target_uri: str | None = None
    where: str | None = None
    steps: Mapping[str, str] = attrs.field(factory=dict)
    generated: Mapping[str, str] = attrs.field(factory=dict)
    schema: str | None = None
    evolves: bool = False
    target_file_size: int | None = None
    v_order: bool | None = None
    fingerprint: str = ""
    preflight: bool = True
    checks: Mapping[str, str] = attrs.field(factory=dict)
    routes: Mapping[str, str] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AuditJob(SparkJob):
    """An evaluation of checks over rows that an earlier job has staged.

    It also takes the parameters of a :class:`SparkJob`.

    :param buffer_uri: the buffer's address for Spark.
    :param metadata: the body of the buffer's ``metaData`` action.
    :param checks: conditions on the staged rows in Spark SQL, by name.
    :param by: the column that names the writer of each row of a shared scan. Default: the rows are of one writer.
    """

    doing: ClassVar[str] = "auditing"

    buffer_uri: str
    metadata: Mapping[str, Any] = attrs.field(repr=False)
    checks: Mapping[str, str]
    by: str | None = None


@attrs.frozen(kw_only=True)
class OptimizeJob(SparkJob):
    """One compaction, which rewrites the files of a shadow table.

    It also takes the parameters of a :class:`SparkJob`.

    :param shadow_uri: the shadow's address for Spark.
    :param target_file_size: the size of the new files in bytes.
    :param zorder_by: columns of Z-order. Default: none. A clustered table sorts itself.
    :param v_order: as of a :class:`StageJob`.
    """

    doing: ClassVar[str] = "compacting"

    shadow_uri: str
    target_file_size: int
    zorder_by: tuple[str, ...] = ()
    v_order: bool | None = None


@attrs.frozen(kw_only=True)
class ChangeJob(SparkJob):
    """One round of a DELETE, UPDATE or MERGE, which Spark runs in a shadow table.

    It also takes the parameters of a :class:`SparkJob`.

    :param shadow_uri: the shadow's address for Spark.
    :param where: the rows that it is done to, in Spark SQL; of a MERGE, when a row of ``target`` and one of ``source``
        match.
    :param assignments: of an UPDATE: by column, its new value in Spark SQL. Default: a DELETE, or a MERGE.
    :param source_uri: of a MERGE: the address of the table whose version 1 is its source. Default: no MERGE.
    :param source_files: of a MERGE: the addresses of the files of its source, where Spark reads the same rows from them
        as plain Parquet. Default: Spark reads the source by its log.
    :param source_schema: the columns of these files, as Spark's JSON.
    :param when: of a MERGE: its clauses in SQL.
    :param keys: of a MERGE: columns that no two rows of the source may have equal, or NULL, which is looked at first.
        Default: it is not.
    :param v_order: as of a :class:`StageJob`.
    """

    doing: ClassVar[str] = "changing"

    shadow_uri: str
    where: str
    assignments: Mapping[str, str] = attrs.field(factory=dict)
    source_uri: str | None = None
    source_files: tuple[str, ...] = ()
    source_schema: str | None = None
    when: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    v_order: bool | None = None


@attrs.frozen(kw_only=True)
class AlterJob(SparkJob):
    """One round of an ALTER TABLE, which Spark runs in a shadow table.

    It also takes the parameters of a :class:`SparkJob`.

    :param shadow_uri: the shadow's address for Spark.
    :param statements: in order, each without ``ALTER TABLE`` and the table's name.
    """

    doing: ClassVar[str] = "altering"

    shadow_uri: str
    statements: tuple[str, ...]


@attrs.frozen(kw_only=True)
class VacuumJob(SparkJob):
    """One VACUUM by an inventory.

    It also takes the parameters of a :class:`SparkJob`.

    :param inventory_uri: Spark's address of a Parquet file that lists the files that may be deleted. Its columns are
        ``path`` (relative to the table), ``length``, ``isDir`` and ``modificationTime``.
    :param log_entries: whether Spark records the VACUUM in the table's log. Only say yes where Spark's commit is safe
        with several drivers (protocol: no Spark commit to the shared log). Default: no.
    """

    doing: ClassVar[str] = "vacuuming"

    inventory_uri: str
    log_entries: bool = False


@attrs.frozen(kw_only=True)
class SparkResult:
    """What an engine knows about a finished job. What the job wrote is read from the store.

    :param engine: the engine's name.
    :param application_id: Spark's application, if it is known.
    :param session_id: Spark's session, if there is one.
    :param ui: the address of the application's UI, if it is known and outlives the job.
    """

    engine: str
    application_id: str | None = None
    session_id: str | None = None
    ui: str | None = None


@attrs.frozen(kw_only=True)
class StageResult(SparkResult):
    """What an engine knows about rows that it staged.

    :param reads_target: whether the job read the table that it writes to, not counting what it read under the name
        ``target`` (protocol: reads its target).
    :param why_not_shared: of a shared scan whose steps must see the rows of one writer only: why. Nothing was written.
    :param buffer_uri: the buffer to which the job itself says that it has appended all of its rows. An engine may
        return the result of an earlier job of the same attempt, so a caller for whom a buffer without rows is a result
        compares this. Default: unknown.
    :param checks: what the job's checks say of the staged rows, by the name of the writer in a shared scan; ``""``
        stands for all rows, and in a shared scan for a writer without rows. Each entry has ``rows`` (how many) and
        ``results``: for each check ``each_row`` (whether it is about each row), ``failed`` (how many rows do not meet
        it, ``None`` for a check of all rows together) and ``met`` (``None`` where the condition is NULL). Empty where
        the job did not evaluate them.
    """

    reads_target: bool
    why_not_shared: str | None = None
    buffer_uri: str | None = None
    checks: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)


@attrs.frozen(kw_only=True)
class AuditResult(SparkResult):
    """What checks say of rows that were staged before.

    :param checks: as in a :class:`StageResult`.
    """

    checks: Mapping[str, Mapping[str, Any]]


Seen = Callable[[str | None, str | None, str | None], None]
"""Called as soon as it is known where a job runs, with Spark's application, its session and its UI's address."""


@attrs.frozen(kw_only=True)
class EngineContext:
    """What a task gives to its engine.

    :param timeout: seconds after which a job is stopped. Default: never.
    :param access: returns what Spark needs to reach the table's store. An engine whose Spark is set up for the store
        beforehand does not call it. Default: Spark needs nothing.
    :param store: opens the table's store, for an engine that exchanges files with its jobs there. Default: none.
    :param leave: called while a staging job that outlives the task is at work, with the attempt and the seconds that
        are left. It may raise to leave the wait to others; staging or awaiting the same job then finds the job again.
        Default: the engine waits.
    :param on_started: called as soon as it is known where a job runs. Default: no call.
    """

    timeout: float | None = None
    access: Callable[[], SparkAccess] | None = None
    store: Callable[[], Store] | None = None
    leave: Callable[[str, float | None], None] | None = None
    on_started: Seen | None = None


class Engine:
    """Runs jobs on Spark. One engine serves one task, and its jobs run one after another.

    An engine that runs the functions of ``spark.jobs`` has its own :meth:`run`. Another one has a method of its own for
    each kind of job that it takes. An engine whose jobs may go on after the task's worker has died sets
    ``outlives_the_task`` and has its own ``left_at_work``, ``wait_for``, ``kill`` and ``has_ended``. For other engines
    these have nothing to do.
    """

    name: str
    """Names the engine in results."""

    outlives_the_task: bool = False
    """Whether the Spark jobs of this connection go on after the task's worker has died."""

    takes_functions: ClassVar[bool] = False
    """Whether jobs may have the source kind ``function``, whose rows a function makes in this process."""

    @classmethod
    def of(cls, connection: Connection, around: EngineContext) -> Engine:
        """Make the engine of a connection. Do not contact Spark yet.

        :param connection: of the type for which the registry names the class.
        :param around: what the task gives.
        :raises InvalidWriteError: the connection is malformed.
        """
        raise NotImplementedError

    def run(self, kind: str, job: SparkJob) -> dict[str, Any]:
        """Run one job on Spark.

        :param kind: a key of ``spark.jobs.main.JOBS``.
        :param job: what the function reads.
        :returns: what the function returned, and ``session_id`` if there is one.
        :raises OneLakeError: as for :meth:`stage`.
        """
        raise NotImplementedError

    def analyze(self, job: StageJob) -> str:
        """Return the schema of what the job would write, as Spark's JSON, without writing it.

        :param job: its ``buffer_uri`` is not used. The schema has its generated columns.
        :raises OneLakeError: as for :meth:`stage`.
        """
        return str(self.run(ANALYSING, job)["schema_json"])

    def stage(self, job: StageJob) -> StageResult:
        """Append the job's rows to its buffer. If it is called twice, the buffer still has one copy.

        :param job: with a ``buffer_uri``.
        :raises SchemaMismatchError: the rows do not have the table's columns or types; nothing was written.
        :raises ConstraintViolatedError: a row violates NOT NULL, a CHECK or a generation expression.
        :raises InvalidWriteError: Spark does not take one of the job's checks; nothing was written.
        :raises SparkQueryError: Spark refuses the source, a step or a value.
        :raises SparkUnavailableError: Spark does not answer, or stopped answering.
        :raises SparkJobTimeoutError: the job took too long and was stopped.
        :raises SparkJobError: Spark failed for a reason that may pass, or :meth:`stop` was called.
        """
        return StageResult(engine=self.name, **self.run(job.doing, job))

    def audit(self, job: AuditJob) -> AuditResult:
        """Evaluate checks over rows that are staged. Nothing is written.

        :param job: of one buffer, or of one shared scan.
        :raises InvalidWriteError: Spark does not take a check.
        :raises OneLakeError: as for :meth:`stage`.
        """
        return AuditResult(engine=self.name, **self.run(job.doing, job))

    def optimize(self, job: OptimizeJob) -> SparkResult:
        """Rewrite the files of a shadow table. If it is called twice, the files are rewritten once.

        :param job: of one compaction.
        :raises OneLakeError: as for :meth:`stage`.
        """
        return SparkResult(engine=self.name, **self.run(job.doing, job))

    def change(self, job: ChangeJob) -> SparkResult:
        """Run a DELETE, UPDATE or MERGE in a shadow table. If it is called twice, the statement is done once.

        :param job: of one round.
        :raises ConstraintViolatedError: also for a source of a MERGE that has a key twice, or a NULL in one.
        :raises OneLakeError: as for :meth:`stage`.
        """
        return SparkResult(engine=self.name, **self.run(job.doing, job))

    def alter(self, job: AlterJob) -> SparkResult:
        """Run ALTER TABLE statements in a shadow table. If it is called twice, each of them is done once.

        :param job: of one round.
        :raises ConstraintViolatedError: a row of the shadow violates a CHECK that is added.
        :raises OneLakeError: as for :meth:`stage`.
        """
        return SparkResult(engine=self.name, **self.run(job.doing, job))

    def vacuum(self, job: VacuumJob) -> SparkResult:
        """Delete files that the table no longer names. It is safe to call it twice.

        :param job: of one table.
        :raises OneLakeError: as for :meth:`stage`.
        """
        return SparkResult(engine=self.name, **self.run(job.doing, job))

    def stop(self) -> None:
        """Stop this engine's Spark work for good. It may be called from another thread or a signal handler."""

    def left_at_work(self, table_uri: str, owner: str, doing: str) -> list[str]:
        """Return the attempts of a task whose jobs may still run, or have ended without a reader of their result.

        :param table_uri: the table's address for Spark.
        :param owner: the ``owner`` of the jobs.
        :param doing: the kind of the jobs, such as ``VacuumJob.doing``.
        """
        return []

    def wait_for(self, table_uri: str, attempt: str, doing: str) -> None:
        """Wait for the job that an earlier attempt left running, so that no work is done twice.

        :param table_uri: the table's address for Spark.
        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        :raises SparkJobError: :meth:`stop` was called while this waited.
        :raises SparkJobTimeoutError: the job took too long since it was submitted, and was killed.
        :raises SparkUnavailableError: the cluster does not answer. The job goes on.
        """

    def kill(self, table_uri: str, attempt: str, doing: str) -> None:
        """Kill the job that an earlier attempt left running, and wait until it has ended.

        :param table_uri: the table's address for Spark.
        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        :raises OneLakeError: as for :meth:`wait_for`.
        """

    @classmethod
    def has_ended(cls, store: Store, attempt: str, doing: str) -> bool:
        """Return whether the job of an attempt has left a result or an error, for a trigger that waits for it.

        :param store: the table's store. Ask nothing else: a triggerer may reach neither Spark nor the cluster.
        :param attempt: id of the attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        :raises OneLakeError: that is not known now.
        """
        return True


_OF_ROWS = {ANALYSING: "analysing", StageJob.doing: "staging", AuditJob.doing: "checking"}


def in_words(kind: str, job: SparkJob) -> str:
    """Return what a job does, in the words of messages.

    :param kind: of the job, such as ``StageJob.doing``.
    """
    label = job.label or "a job"
    if kind in _OF_ROWS:
        return f"{_OF_ROWS[kind]} the rows of {label}"
    return f"running {label}"


@contextmanager
def time_limit(seconds: float | None, end: Callable[[str], None], why: str) -> Iterator[None]:
    """Call a function from another thread if a block takes longer than so many seconds; ``None`` for no limit.

    :param why: what the function is called with.
    """
    timer = threading.Timer(seconds or 0, end, [why])
    timer.daemon = True
    if seconds is not None:
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


def error_of_end(why: str, what: str, became: str, timeout: float | None) -> OneLakeError:
    """Return the error of a job that was ended.

    :param why: ``stopped``, by :meth:`Engine.stop`, or ``expired``, by the time-out.
    :param what: what the job was doing.
    :param became: what became of its work in Spark.
    :param timeout: seconds; ``None`` for a job without a time-out.
    """
    if why == "stopped":
        return SparkJobError(f"Stopped {what}, as asked. Its Spark work {became}; the table is unchanged.")
    return SparkJobTimeoutError(
        f"Stopped {what}: it took longer than {timeout:g} s. Its Spark work {became}; the table is unchanged. "
        "Raise the time-out, or give the writer fewer rows."
    )
