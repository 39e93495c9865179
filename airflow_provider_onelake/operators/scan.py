"""The operator of a shared scan: one Spark job for writers of one source that differ in their filters."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import attrs

from airflow_provider_onelake._airflow import TaskDeferralError
from airflow_provider_onelake.buffers.spec import Promise
from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError, SparkJobTimeoutError, TransientError
from airflow_provider_onelake.hooks.context import life_of, start_of, task_run_of
from airflow_provider_onelake.modes import Append
from airflow_provider_onelake.operators._parameters import check_flag, check_rendered
from airflow_provider_onelake.operators._source_files import seen_files
from airflow_provider_onelake.operators._source_templates import SourceTemplates
from airflow_provider_onelake.operators._spark_task import DeferrableSparkTaskOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sources import FileSource, SqlSource
from airflow_provider_onelake.steps.write_terms import Definition, PartitionBy, Query, WriteTerms
from airflow_provider_onelake.task_run import TaskRun

if TYPE_CHECKING:
    import jinja2
    from airflow.sdk import Context

    from airflow_provider_onelake.buffers.scan import ScanShare

_MAY_DIFFER = ("writer", "where", "expected_partitions", "mode")
"""What one writer of a shared scan may have another than the others."""
_OF_ALL = ("source", "steps", "partition_by", "new_table", "checks", "on_failed_check")
"""What is equal for all writers, and templated."""


class OneLakeScanOperator(SourceTemplates, DeferrableSparkTaskOperator):
    """Read a source once for several writers, each of which then publishes its own rows without Spark.

    A :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup` adds this task before its writers; it
    is not for use elsewhere. One Spark job writes the rows of each writer into files of their own. The writer finds
    them and makes them its buffer, so conflicts, reruns and reconciliation are as without the scan. Whenever the rows
    cannot be shared, or anything fails, the task succeeds and says why, and each writer scans for itself. A failure
    that may pass is retried first, as often as the writers would be. The task has one retry more than them, because a
    try whose worker dies cannot say anything, and would fail the writers.

    The result in XCom is a dict:

    - ``status`` (str): ``shared`` or ``not_shared``; ``table`` (str): the table's address.
    - ``reason`` (str, only when not shared): why each writer scans for itself. The keys below are then missing.
    - ``scan`` (str): where the files lie below the table; ``read_version`` (int): the version that the writes are
      formed on.
    - ``rows`` (int, or None without statistics), ``files`` (int), ``writers`` (int): what was written, and for how many
      writers.
    - ``reused`` (bool): whether an earlier try had finished the scan; ``run`` (dict): when the run began, and how often
      it was cleared before. A writer of that run takes rows of the scan that this result names, and of no other.

    :param table: the table of the group (templated).
    :param source: the source that the writers share (templated).
    :param writers: for each task that writes, its ``task_id``, the parameters of its writers that are equal, and the
        list of those that differ, which may be another task's output (templated).
    :param steps: as of the writers; each must treat every row by itself and keep all columns (templated).
    :param partition_by: as of the writers, which refuse a table that is partitioned otherwise (templated).
    :param new_table: as of the writers (its fields are templated).
    :param checks: as of the writers; the scan's Spark job evaluates them over the rows of each writer (templated).
    :param on_failed_check: as of the writers, which apply it (templated).
    :param skips: whether a clear of writers whose rows are in the table does nothing. Not templated.
    :param tuning: as of the writers. Not templated.
    :param kwargs: the connections, ``spark_timeout`` and ``deferrable`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.DeferrableSparkTaskOperator`, and the parameters of
        every operator.
    """

    template_fields: Collection[str] = ("table", "writers", *_OF_ALL)
    template_fields_renderers: ClassVar[dict[str, str]] = {"source": "json", "writers": "json", "checks": "json"}
    ui_color = "#e3eef0"

    _not_rendered: str | None = None

    def __init__(
        self,
        *,
        table: str,
        source: FileSource | SqlSource,
        writers: Sequence[Mapping[str, Any]],
        steps: Mapping[str, str] | None = None,
        partition_by: PartitionBy | None = None,
        new_table: NewTable | None = None,
        checks: Mapping[str, str] | None = None,
        on_failed_check: str | None = None,
        skips: bool = False,
        tuning: Tuning | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_flag("skips", skips)
        self.table = table
        self.source = source
        self.writers = writers
        self.steps = steps
        self.partition_by = partition_by
        self.new_table = new_table
        self.checks = checks
        self.on_failed_check = on_failed_check
        self.skips = skips
        self.tuning = tuning

    def render_template_fields(self, context: Context, jinja_env: jinja2.Environment | None = None) -> None:
        """Render the templates. Where one cannot be rendered, :meth:`execute` says so.

        A writer's template may use what only the writer has, such as its ``params``. An error here would fail the scan,
        and with it the writers, whose own rendering succeeds.

        :param context: of the running task.
        :param jinja_env: to render with.
        """
        try:
            super().render_template_fields(context, jinja_env)
        except Exception as error:
            self._not_rendered = f"a template cannot be rendered in this task: {type(error).__name__}: {error}"

    def execute(self, context: Context) -> dict[str, Any]:
        """Scan, or say why each writer scans for itself.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises TransientError: the scan failed for a reason that may pass, and two tries are left.
        """
        return self._unless_it_fails(context, partial(self._scan, context))

    def resume_execution(self, next_method: str, next_kwargs: dict[str, Any] | None, context: Context) -> Any:
        """Carry on after the triggerer, or say why each writer scans for itself.

        :param next_method: as of every operator.
        :param next_kwargs: as of every operator.
        :param context: of the resumed task.
        :returns: what :meth:`execute` returns.
        :raises TaskDeferralError: the triggerer failed, and two tries are left.
        """
        return self._unless_it_fails(context, partial(super().resume_execution, next_method, next_kwargs, context))

    def _unless_it_fails(self, context: Context, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Return the result of some work. Whatever fails there must not fail writers that can do without it."""
        from airflow_provider_onelake.steps.scan import NotSharedError

        try:
            return work()
        except Exception as error:
            # A task that is being stopped must not succeed.
            self.spark.check_not_stopped()
            # Leave the last try to a worker that dies.
            if _may_pass(error) and context["ti"].try_number < context["ti"].max_tries:
                raise
            expected = isinstance(error, NotSharedError | OneLakeError)
            reason = str(error) if expected else f"{type(error).__name__}: {error}"
            table = self._table
            name = self.table if table is None else table.name
            self.log.warning("%s: each writer scans for itself: %s", name, reason, exc_info=not expected)
            return {"status": "not_shared", "table": str(table or self.table), "reason": reason}

    def _scan(self, context: Context) -> dict[str, Any]:
        from airflow_provider_onelake.steps.scan import NotSharedError, SharedScan

        if self._not_rendered is not None:
            raise NotSharedError(self._not_rendered)
        self.check_partition_key()
        check_rendered("table", self.table)
        table = self.begin(context)
        for name in _OF_ALL:
            check_rendered(name, getattr(self, name))
        self._check_upstream(context)
        task_start = start_of(context, self.task_state(context))
        run = task_run_of(context).found_in(table.log, self.hook.namespace)
        terms = WriteTerms(
            query=Query(source=self.source, steps=self.steps or {}),
            promise=Promise(checks=self.checks or {}, on_failed_check=self.on_failed_check),
            definition=Definition(partition_by=self.partition_by, new_table=self.new_table),
            tuning=self.tuning,
        )
        scan = SharedScan(
            table=table,
            spark=self.spark,
            terms=terms,
            shares=self._shares(run, terms),
            skips=self.skips,
            run=run,
            task_start=task_start.id,
            namespace=self.hook.namespace,
        )
        return {**scan.scan(), "table": str(table), "run": life_of(context)}

    def _check_upstream(self, context: Context) -> None:
        """Refuse to read a source that a task may still change which only the writers wait for."""
        from airflow_provider_onelake.steps.scan import NotSharedError

        dag = context["task"].get_dag()
        for writer in self.writers:
            task = dag.get_task(writer["task_id"]) if dag is not None else None
            others = task.upstream_task_ids - {self.task_id} - self.upstream_task_ids if task is not None else ()
            if others:
                raise NotSharedError(
                    f"{writer['task_id']} waits for {', '.join(sorted(others))}, and the scan does not"
                )

    def _shares(self, run: TaskRun, common: WriteTerms) -> list[ScanShare]:
        """Return what each writer wants, once Airflow has rendered it.

        :param common: what all of them want.
        """
        from airflow_provider_onelake.buffers.scan import ScanShare
        from airflow_provider_onelake.steps.scan import NotSharedError

        files = seen_files(self.source, self.hook)
        load = run.load(self.hook.namespace)
        shares = []
        for task in self.writers:
            for item in task["items"]:
                given = {**task["equal"], **item} if isinstance(item, Mapping) else {}
                odd = sorted(given.keys() - set(_MAY_DIFFER))
                where, key = (str(given.get(name) or "").strip() for name in ("where", "writer"))
                if odd or not where or not key:
                    what = f"differ in {', '.join(odd)}" if odd else "have no filter, or no key"
                    raise NotSharedError(f"writers of {task['task_id']} {what}")
                try:
                    for name in _MAY_DIFFER:
                        check_rendered(name, given.get(name))
                    promise = attrs.evolve(
                        common.promise,
                        mode=given.get("mode") or Append(),
                        expected_partitions=given.get("expected_partitions"),
                    )
                except InvalidWriteError as error:
                    raise NotSharedError(str(error)) from None
                if promise.mode.in_rounds:
                    raise NotSharedError(f"{task['task_id']} merges its source, which Spark reads in each round")
                terms = attrs.evolve(common, query=attrs.evolve(common.query, where=where), promise=promise)
                shares.append(
                    ScanShare(
                        identity=load.writer(key),
                        where=where,
                        fingerprint=terms.digest(files),
                    )
                )
        return shares


def _may_pass(error: Exception) -> bool:
    """Say whether another try may succeed. One that took longer than a writer may take would take as long again."""
    return isinstance(error, TransientError | TaskDeferralError) and not isinstance(error, SparkJobTimeoutError)
