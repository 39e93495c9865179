"""A writer's job as plain values, and the protocols of the engines that run it.

Do not import pyspark here: Airflow imports this module when it parses a DAG, in a process that it forks for every task.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

import attrs

from airflow_provider_onelake.engines.jobs import SparkJob, SparkResult, check_file_size
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.spark_jobs.stage import RESERVED_SETTINGS

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.maintenance import OptimizeJob, VacuumJob


ONLY_CONNECT = (
    "A function that makes a data frame (@task.onelake_write) runs in the task, which needs a connection of the type "
    "'spark_connect'. Elsewhere say it in SQL: OneLakeWriteOperator(source=…, steps={…}). Nothing was staged."
)
"""The message of engines other than Spark Connect, which refuse rows that a function makes."""


@attrs.frozen(kw_only=True)
class StageJob(SparkJob):
    """What one writer reads, how it is transformed, and where the rows go.

    It also takes the parameters of a :class:`~airflow_provider_onelake.engines.jobs.SparkJob`. The target may not exist
    yet. The attempt becomes the append's ``txnAppId`` (protocol: exactly version 1, attempt id).

    :param source: ``{"kind": "sql", "query": …}``, ``{"kind": "files", "path": […], "format": …, "options": {…},
        "schema": DDL or None}`` or ``{"kind": "function"}``. The key ``"view"`` names the source for the steps; its
        default is ``source``.
    :param rows: the function that makes the data frame of the kind ``function``. It is called with the job's session,
        in this process.
    :param buffer_uri: the buffer's address for Spark. Default: none, for a job that is only analysed.
    :param other_uri: another address of the same table, by which a job may read the table that it writes. Default:
        none.
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
    :param fingerprint: fingerprint of the source as the writer saw it. A job with another fingerprint is other work.
        Default: unknown.
    :param preflight: whether to check first that Spark has what the job needs, before Spark reads the source. Default:
        yes.
    :raises InvalidWriteError: a field contradicts another, or a setting is one that staging needs for itself.
    """

    doing: ClassVar[str] = "staging"
    reserved: ClassVar[Collection[str]] = RESERVED_SETTINGS

    source: Mapping[str, Any]
    rows: Callable[[Any], Any] | None = attrs.field(default=None, repr=False)
    buffer_uri: str | None = None
    other_uri: str | None = None
    where: str | None = None
    steps: Mapping[str, str] = attrs.field(factory=dict)
    generated: Mapping[str, str] = attrs.field(factory=dict)
    schema: str | None = None
    evolves: bool = False
    target_file_size: int | None = None
    fingerprint: str = ""
    preflight: bool = True

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        kind = self.source.get("kind")
        if kind not in ("sql", "files", "function"):
            raise InvalidWriteError(f"source kind {kind!r}: it is 'sql', 'files' or 'function'.")
        if (kind == "function") != (self.rows is not None):
            raise InvalidWriteError(f"source kind {kind!r}: a function's rows are made by `rows`, and no others are.")
        view = str(self.source.get("view") or "source")
        if any(name.lower() == view.lower() for name in self.steps):
            raise InvalidWriteError(f"A step has the name of the source's view, {view!r}: give one of them another.")
        check_file_size(self.target_file_size)

    def to_json(self) -> str:
        """Return the job as JSON, in which steps keep their order.

        :raises InvalidWriteError: a function makes the rows. It runs in the task, and cannot be sent to Spark as JSON.
        """
        if self.rows is not None:
            raise InvalidWriteError(ONLY_CONNECT)
        return json.dumps(self.as_dict())

    @classmethod
    def from_json(cls, text: str) -> StageJob:
        """Return the job that :meth:`to_json` wrote.

        :param text: JSON.
        """
        return cls(**json.loads(text))


@attrs.frozen
class Analysis:
    """What a job would write.

    :param schema_json: schema of the rows with the generated columns, as Spark's JSON.
    :param input_files: the files that the source reads, as far as Spark knows them.
    :param reads_target: whether the job reads the table that it writes to (protocol: reads its target).
    """

    schema_json: str
    input_files: list[str] = attrs.field(repr=False)
    reads_target: bool


@attrs.frozen(kw_only=True)
class StageResult(SparkResult):
    """What an engine knows about rows that it staged.

    :param reads_target: whether the job read the table that it writes to (protocol: reads its target).
    :param log_stores: Spark's settings that choose Delta's log stores. Empty without a preflight.
    """

    reads_target: bool
    log_stores: Mapping[str, str] = attrs.field(factory=dict)


class Engine(Protocol):
    """Runs jobs on Spark. One engine serves one task, and its jobs run one after another."""

    def analyze(self, job: StageJob) -> Analysis:
        """Return what the job would write, without writing it.

        :param job: its ``buffer_uri`` is not used.
        :raises OneLakeError: as for :meth:`stage`.
        """

    def stage(self, job: StageJob) -> StageResult:
        """Append the job's rows to its buffer. If it is called twice, the buffer still has one copy.

        :param job: with a ``buffer_uri``.
        :raises SchemaMismatchError: the rows do not have the table's columns or types; nothing was written.
        :raises ConstraintViolatedError: a row violates NOT NULL, a CHECK or a generation expression.
        :raises SparkQueryError: Spark refuses the source, a step or a value.
        :raises SparkUnavailableError: Spark does not answer, or stopped answering.
        :raises SparkJobTimeoutError: the job took too long and was stopped.
        :raises SparkJobError: Spark failed for a reason that may pass, or :meth:`stop` was called.
        """

    def optimize(self, job: OptimizeJob) -> SparkResult:
        """Rewrite the files of a shadow table. If it is called twice, the files are rewritten once.

        :param job: of one compaction.
        :raises OneLakeError: as for :meth:`stage`.
        """

    def vacuum(self, job: VacuumJob) -> SparkResult:
        """Delete files that the table no longer names. It is safe to call it twice.

        :param job: of one table.
        :raises OneLakeError: as for :meth:`stage`.
        """

    def stop(self) -> None:
        """Stop this engine's Spark work for good. It may be called from another thread or a signal handler."""


@runtime_checkable
class DurableEngine(Protocol):
    """An engine whose Spark jobs may go on after the task's worker has died."""

    @property
    def outlives_the_task(self) -> bool:
        """Whether the Spark jobs of this connection go on after the task's worker has died."""

    def left_at_work(self, table_uri: str, owner: str, doing: str) -> list[str]:
        """Return the attempts of a task whose jobs may still run, or have ended without a reader of their verdict.

        :param table_uri: the table's address for Spark.
        :param owner: the ``owner`` of the jobs.
        :param doing: the kind of the jobs, such as ``VacuumJob.doing``.
        """

    def settle(self, table_uri: str, attempt: str, doing: str, *, wanted: bool) -> None:
        """End the job that an earlier attempt left running, so that no work is done twice.

        :param table_uri: the table's address for Spark.
        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        :param wanted: whether to wait until the job has ended. If not, the job is killed.
        :raises SparkJobError: :meth:`Engine.stop` was called while this waited.
        :raises SparkJobTimeoutError: the job took too long since it was submitted, and was killed.
        :raises SparkUnavailableError: the cluster does not answer. The job goes on.
        """
