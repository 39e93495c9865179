"""A writer's job as plain values, and what every engine does with it.

pyspark is not imported here: Airflow imports this when it parses a DAG, in a process that is forked for every task.
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
"""Why a function's rows are refused by every other engine, and the way out."""


@attrs.frozen(kw_only=True)
class StageJob(SparkJob):
    """What one writer reads, how it is transformed, and where the rows go.

    Further parameters: those of a :class:`~airflow_provider_onelake.engines.jobs.SparkJob`. The target may not exist
    yet; the attempt becomes the append's ``txnAppId`` (protocol: exactly version 1, attempt id).

    :param source: ``{"kind": "sql", "query": …}``, ``{"kind": "files", "path": […], "format": …, "options": {…},
        "schema": DDL or None}`` or ``{"kind": "function"}``, whose rows ``rows`` makes; ``"view"`` names it
        for the steps, default ``source``.
    :param rows: makes the data frame of the kind ``function``: it is called with the job's session, in this process.
    :param buffer_uri: of the buffer, as Spark addresses it. Default: none, for a job that is only analysed.
    :param other_uri: of the same table: a job may read the table that it writes by the other one. Default: none.
    :param where: filter on the source, before the steps, so that Spark pushes it down. Default: all rows.
    :param steps: named queries, run in order; each can read those before it. The last one's rows are written.
        Default: the source as it is.
    :param generated: generated columns of the target, name to SQL expression. Default: none.
    :param schema: columns of a table that is to be made, as Spark DDL; an analysis then does not look at the source.
        Default: those that the rows have.
    :param evolves: whether the target is there and takes new columns, so that rows may lack those that came with
        others. Default: no.
    :param target_file_size: in bytes, of rows before they are compressed: Spark merges what several tasks write until
        a file is that large; it does not split what one task writes. Default: a file for each task and partition.
    :param fingerprint: of the source as the writer saw it: with another one it is other work. Default: not known.
    :param preflight: whether Spark says first what it lacks, before it looks at the source. Default: yes.
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

        :raises InvalidWriteError: its rows are made by a function, which runs in the task and does not travel.
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
    :param input_files: the files that the source reads, where Spark knows them.
    :param reads_target: whether the job reads the table that it writes to (protocol: reads its target).
    """

    schema_json: str
    input_files: list[str] = attrs.field(repr=False)
    reads_target: bool


@attrs.frozen(kw_only=True)
class StageResult(SparkResult):
    """What an engine knows of rows that it staged.

    :param reads_target: whether the job read the table that it writes to (protocol: reads its target).
    :param log_stores: Spark's settings that choose Delta's log stores, where a preflight read them.
    """

    reads_target: bool
    log_stores: Mapping[str, str] = attrs.field(factory=dict)


class Engine(Protocol):
    """A way to Spark. One engine serves one task: its jobs run one after another."""

    def analyze(self, job: StageJob) -> Analysis:
        """Tell what the job would write, without writing.

        :param job: its ``buffer_uri`` is not used.
        :raises OneLakeError: as for :meth:`stage`.
        """

    def stage(self, job: StageJob) -> StageResult:
        """Append the job's rows to its buffer. Doing it twice leaves one copy.

        :param job: with a ``buffer_uri``.
        :raises SchemaMismatchError: the rows do not have the table's columns or types; nothing was written.
        :raises ConstraintViolatedError: a row violates NOT NULL, a CHECK or a generation expression.
        :raises SparkQueryError: Spark refuses the source, a step or a value.
        :raises SparkUnavailableError: no Spark answers, or it went away.
        :raises SparkJobTimeoutError: the job took too long and was stopped.
        :raises SparkJobError: Spark failed for a reason that may pass, or :meth:`stop` was called.
        """

    def optimize(self, job: OptimizeJob) -> SparkResult:
        """Rewrite the files of a shadow table. Doing it twice rewrites once.

        :param job: of one compaction.
        :raises OneLakeError: as for :meth:`stage`.
        """

    def vacuum(self, job: VacuumJob) -> SparkResult:
        """Delete files that the table no longer names. Doing it twice is safe.

        :param job: of one table.
        :raises OneLakeError: as for :meth:`stage`.
        """

    def stop(self) -> None:
        """Stop this engine's Spark work, for good. May be called from another thread or a signal handler."""


@runtime_checkable
class DurableEngine(Protocol):
    """An engine whose Spark work may go on when the task's worker dies."""

    @property
    def outlives_the_task(self) -> bool:
        """Whether it does, with this connection."""

    def left_at_work(self, table_uri: str, owner: str, doing: str) -> list[str]:
        """Return the attempts of a task whose jobs may still be at work, or have ended unheard.

        :param table_uri: of the table, as Spark addresses it.
        :param owner: whose work it is, as the jobs say.
        :param doing: what the jobs do, such as ``VacuumJob.doing``.
        """

    def settle(self, table_uri: str, attempt: str, doing: str, *, wanted: bool) -> None:
        """Bring what an earlier attempt left at work to its end, so that no work is done twice.

        :param table_uri: of the table, as Spark addresses it.
        :param attempt: the earlier one's id.
        :param doing: what its job does, such as ``StageJob.doing``.
        :param wanted: whether what it does is of use: it is waited for then, and killed otherwise.
        :raises SparkJobError: :meth:`Engine.stop` was called meanwhile.
        :raises SparkJobTimeoutError: it took too long since it was submitted, and was killed.
        :raises SparkUnavailableError: its cluster does not answer; the work goes on.
        """
