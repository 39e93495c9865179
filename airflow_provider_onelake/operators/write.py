"""The operator of one writer: it stages the rows, and publishes them unless they conflict with other commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import AirflowSkipException

from airflow_provider_onelake.buffers.spec import Promise
from airflow_provider_onelake.choices import OnSetAside, Policy, PublishMode, chosen
from airflow_provider_onelake.exceptions import (
    ConflictError,
    InvalidWriteError,
    OneLakeError,
    RowsSetAsideError,
    TablePropertyError,
)
from airflow_provider_onelake.hooks.context import clears_of, start_of, task_run_of
from airflow_provider_onelake.modes import Append, Mode
from airflow_provider_onelake.observability.lineage import Lineage, inputs_of, lineage_of
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.operators._parameters import (
    check_checks,
    check_gone,
    check_key,
    check_message,
    check_rendered,
    check_table,
    own_or,
    terminal_errors_fail,
)
from airflow_provider_onelake.operators._roles import Writer
from airflow_provider_onelake.operators._shared_scan import offered
from airflow_provider_onelake.operators._source_files import seen_files
from airflow_provider_onelake.operators._source_templates import SourceTemplates
from airflow_provider_onelake.operators._spark_task import DeferrableSparkTaskOperator
from airflow_provider_onelake.operators._writers_of_run import (
    OUR_LABEL,
    WRITER_XCOM,
    check_orphans,
    check_published,
    key_of,
    rivals,
)
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sources import FileSource, Source
from airflow_provider_onelake.steps.write_terms import Definition, PartitionBy, Query, WriteTerms
from airflow_provider_onelake.templates import text_or_none

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.steps.outcomes import Written
    from airflow_provider_onelake.table import Table


class OneLakeWriteOperator(Writer, SourceTemplates, DeferrableSparkTaskOperator):
    """Write the rows of one writer into a Delta table that others write at the same time.

    Spark stages the rows into a buffer beside the table, and a small commit makes them visible. A retry finds the
    buffer or the commit, and does nothing twice. The operator can be mapped:
    ``OneLakeWriteOperator.partial(…).expand_kwargs([{"writer": …}])``.

    Rows may come too late: another write finished later, and has replaced a part of what they replace. Or the job reads
    the table that it writes, and another commit has changed rows there meanwhile; with ``reads``, only changes in the
    partitions that it reads count. The rows are then set aside, and Spark runs again on the newest version, at most
    three times. After that, the task fails. With ``publish="together"`` the job does not run again: reconcile refuses
    the load, and you clear the writer.

    Inside an :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup`, a parameter that is not given
    here takes the group's value. Each writer settles its conflicts itself, by ``on_conflict``. It succeeds only if its
    rows are in the table, or if that policy left them out; with ``publish="together"``, if they are staged. A
    ``Merge`` publishes itself, also in a group: only Spark can merge its rows, on the newest version. The group's
    ``reconcile`` says whether it has.

    The result in XCom is a :class:`~airflow_provider_onelake.results.WriteResult`.

    :param source: the source of the rows: a ``FileSource`` or a ``SqlSource`` (its fields are templated).
    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param steps: Spark SQL queries by name, run in order. Each can read the source and the steps before it, and the
        rows of the last one are written. Default: the rows of the source (templated).
    :param where: a filter on the source, in Spark SQL. It applies before the steps, and Spark pushes it down. Default:
        all rows (templated).
    :param files: the files, or globs of files, that this writer reads of a ``FileSource``, as a plan divides them. The
        columns that Spark reads from directory names stay those of the whole source. Default: all paths of the source
        (templated).
    :param planned: what a plan says of ``files``: pass it on as it is. If the source has become larger than the plan's
        ``max_bytes`` when the task starts, the task fails before Spark is asked. If files of a plan of new files
        (``only_new``) are not as they were planned when Spark has read them, nothing is published. Default: no such
        plan. Not templated.
    :param writer: the writer's key, unique among the writers of the group. A clear finds by this key what the writer
        wrote, so never change it. Default: the task's id without the group's prefix; for a mapped task the rendered
        ``map_index_template``, and without that template the key is required (templated).
    :param mode: what becomes of the rows that are there: ``append``, ``overwrite`` (the whole table),
        ``overwrite_partitions`` (those that get rows); or a mode with terms of its own, as
        :class:`ReplaceWhere("month = '2019-01'") <airflow_provider_onelake.modes.ReplaceWhere>`,
        :class:`Merge(keys=["id"]) <airflow_provider_onelake.modes.Merge>` and
        :class:`Overwrite(allow_empty=True) <airflow_provider_onelake.modes.Overwrite>`. A task that computes it leaves
        a dict in XCom, ``{"mode": "replace_where", "replace_where": …}``. Default: ``append`` (templated).
    :param reads: the part of the table itself that the source or the steps read, under the name ``target``: a predicate
        on partition columns, such as ``month = '2019-01'``, or ``True`` for the whole table. Spark sees the rows of
        these partitions only, and those of one version. If others change rows there before the writer commits, it runs
        again, at most three times; with ``publish="together"`` it is refused. What others do elsewhere does not matter.
        Default: nothing is read under that name. A job that reads the table by its path is found out, and then a change
        in any partition counts (templated).
    :param expected_partitions: a predicate on partition columns that the rows should satisfy. Default: no restriction
        (templated).
    :param on_unexpected_rows: what happens to rows that do not satisfy ``expected_partitions``: ``set_aside`` reports
        them and does not publish them; ``refuse`` publishes nothing. Default: ``set_aside`` (templated).
    :param publish: ``each`` (this task commits) or ``together`` (reconcile commits all writers in one version).
        Default: ``each`` (templated).
    :param on_rerun: what a clear of committed work does: ``skip``, ``replace`` or ``append``. ``replace`` takes an
        append back only if each of its files is live and unchanged. Default: ``skip`` for appends, ``replace`` for
        overwrites (templated).
    :param on_conflict: the policy that decides whose rows are seen where two writes replaced the same partition; see
        :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator`. In a group, it is the group's.
        Default: ``last_writer_wins`` (templated).
    :param on_set_aside: what it means for the task that its rows are not in the table, because ``on_conflict`` counts
        another write more: ``warn`` says so in the log, with ``skip`` the task ends skipped, and with ``fail`` it is
        red, both after the commit. Airflow skips the tasks directly behind a skipped one too, unless their trigger rule
        is one such as ``none_failed``; what a group adds runs. In a group, it is the group's. Default: ``warn``
        (templated).
    :param partition_by: the table's partition columns: a list of names, a text with commas between them, or a dict of
        names with the SQL that generates each from other columns. It is used when the table is created. A table that is
        partitioned otherwise is refused. Default: no partition columns for a new table, any for an existing one
        (templated).
    :param new_table: what the table is made with if it is not there yet, besides: a
        :class:`~airflow_provider_onelake.options.NewTable`. Default: the columns of the rows (its fields are
        templated).
    :param schema_evolution: ``add_columns`` adds the columns that only the rows have to the table. They are nullable
        and come in a commit of their own before anything is staged. Rows may also lack nullable columns, which become
        NULL. So writers of an old and of a new schema work side by side. It costs an analysis of the job. With
        ``none``, the rows must have the table's columns. Default: ``none`` (templated).
    :param tuning: how the files are written, and whether the store is tried first: a
        :class:`~airflow_provider_onelake.options.Tuning`. Default: as Spark and the table say. Not templated.
    :param checks: conditions that the staged rows must meet before anything of them is published, in Spark SQL, as a
        dict by name, such as ``{"no negative fares": "fare >= 0", "some rows": "count(*) > 0"}``. A condition with an
        aggregate function is about all rows of the writer together, any other about each row. NULL is not true. Spark
        evaluates them over the staged files, by one query; it does not read the source again. In place of a condition,
        :func:`~airflow_provider_onelake.checks.rows_like_last` compares the number of rows with the last loads. Checks
        belong to the work: a clear with other checks is a clear of other work. Default: none, also ``{}`` in a group
        that has some (templated, but for the names).
    :param on_failed_check: what happens if the rows fail a check: ``refuse`` publishes nothing of the writer, and its
        task fails for good. With ``publish="together"``, nothing of the load is published. ``warn`` publishes the rows
        and says so in the log, in the result, in the label and in the table's history. Default: ``refuse`` (templated).
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands in the
        ``userMetadata`` of every commit that this writer's rows come with, beside the DAG, the run and the writer. It
        is no part of the work: a clear with another message is a clear of the same work. Rows that were staged already
        keep the message with which they were staged. Default: none (templated).
    :param map_index_template: Airflow's label of a mapped task. A label of your own is also the default of ``writer``.
        Default: a label that shows the writer's key, and when the task has ended what became of its rows, as in
        ``eu · published 200 rows in version 3``. Airflow renders it.
    :param kwargs: ``onelake_conn_id``, ``spark_conn_id``, ``spark_timeout`` and ``deferrable`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.DeferrableSparkTaskOperator`, and the parameters of
        every operator.
    """

    template_fields: Collection[str] = (
        *("table", "source", "steps", "where", "files", "writer", "mode", "reads", "expected_partitions"),
        *("on_unexpected_rows", "publish", "on_rerun", "on_conflict", "on_set_aside", "partition_by", "new_table"),
        *("schema_evolution", "checks", "on_failed_check", "commit_message"),
    )
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("source", "steps", "new_table", "checks"), "json"),
        **dict.fromkeys(("where", "reads", "expected_partitions"), "sql"),
    }
    ui_color = "#e3f0e8"
    takes_groups_defaults = True

    def __init__(
        self,
        *,
        source: Source,
        table: str | None = None,
        steps: Mapping[str, str] | None = None,
        where: str | None = None,
        files: Sequence[str] | None = None,
        planned: Mapping[str, Any] | None = None,
        writer: str | None = None,
        mode: str | Mapping[str, Any] | Mode | None = None,
        reads: str | bool | None = None,
        expected_partitions: str | None = None,
        on_unexpected_rows: str | None = None,
        publish: str | None = None,
        on_rerun: str | None = None,
        on_conflict: str | None = None,
        on_set_aside: str | None = None,
        partition_by: PartitionBy | None = None,
        new_table: NewTable | None = None,
        schema_evolution: str | None = None,
        tuning: Tuning | None = None,
        checks: Mapping[str, str] | None = None,
        on_failed_check: str | None = None,
        commit_message: str | None = None,
        map_index_template: str | None = OUR_LABEL,
        **kwargs: Any,
    ) -> None:
        check_gone(kwargs)
        super().__init__(map_index_template=map_index_template, **kwargs)
        group = self.groups_defaults
        self.source = source
        self.steps = {} if steps is None else steps
        self.where = where
        self.files = files
        self.planned = planned
        self.writer = writer
        self.reads = reads
        self.table = own_or(table, group.get("table")) or ""
        self.mode = own_or(mode, group.get("mode"))
        self.expected_partitions = own_or(expected_partitions, group.get("expected_partitions"))
        self.on_unexpected_rows = own_or(on_unexpected_rows, group.get("on_unexpected_rows"))
        self.publish = own_or(publish, group.get("publish")) or PublishMode.EACH.value
        self.on_rerun = own_or(on_rerun, group.get("on_rerun"))
        self.on_conflict = own_or(on_conflict, group.get("on_conflict"))
        self.on_set_aside = own_or(on_set_aside, group.get("on_set_aside"))
        self.partition_by = group.get("partition_by") if partition_by is None else partition_by
        self.new_table = own_or(new_table, group.get("new_table"))
        self.schema_evolution = own_or(schema_evolution, group.get("schema_evolution"))
        self.tuning = own_or(tuning, group.get("tuning"))
        self.checks = group.get("checks", {}) if checks is None else checks
        self.on_failed_check = own_or(on_failed_check, group.get("on_failed_check"))
        self.commit_message = own_or(commit_message, group.get("commit_message"))
        try:
            self._known_terms()
        except (InvalidWriteError, TablePropertyError) as error:
            # A check of one value does not know whose it is, and a DAG may have many writers.
            raise type(error)(f"{self.task_id}: {error}") from None

    @classmethod
    def partial(cls, **kwargs: Any) -> Any:
        """Map the operator, as Airflow does.

        :param kwargs: the parameters that all mapped tasks share.
        :raises InvalidWriteError: a parameter is gone; the message says what to take.
        """
        check_gone(kwargs)
        return super().partial(**kwargs)

    def _known_terms(self) -> WriteTerms:
        """Return what is asked, as far as it is known now: templates stay as they are.

        :raises InvalidWriteError: a parameter is wrong, whatever its templates render to.
        """
        if not self.table:
            raise InvalidWriteError("`table` is missing: give it here, or to the task group.")
        check_table("table", self.table)
        check_key(self.writer)
        check_checks(self.checks)
        check_message(self.commit_message)
        self._policies()
        return WriteTerms(
            query=Query(
                source=self.source,
                steps=self.steps,
                where=self.where,
                files=self.files,
                planned=self.planned,
                reads=self.reads,
            ),
            promise=Promise(
                mode=self.mode or Append(),
                expected_partitions=self.expected_partitions,
                on_unexpected_rows=self.on_unexpected_rows,
                publish=self.publish,
                on_rerun=self.on_rerun,
                checks=self.checks,
                on_failed_check=self.on_failed_check,
                message=self.commit_message,
            ),
            definition=Definition(
                partition_by=self.partition_by, new_table=self.new_table, schema_evolution=self.schema_evolution
            ),
            tuning=self.tuning,
        )

    def _policies(self) -> tuple[Policy, OnSetAside]:
        """Return how the writer settles its conflicts, and what its task says of rows that are left out."""
        return (
            chosen("on_conflict", self.on_conflict, Policy, Policy.LAST_WRITER_WINS),
            chosen("on_set_aside", self.on_set_aside, OnSetAside, OnSetAside.WARN),
        )

    def terms(self) -> WriteTerms:
        """Return what is asked, once Airflow has rendered it.

        :raises InvalidWriteError: a parameter is wrong, or still holds a template.
        """
        self.check_partition_key()
        # Not those of a subclass: the arguments of a function are the author's.
        for name in OneLakeWriteOperator.template_fields:
            check_rendered(name, getattr(self, name))
        return self._known_terms().restricted(self.task_id)

    def resolve_template_files(self) -> None:
        """Read the templates that are files. Airflow calls this once the DAG is complete.

        :raises InvalidWriteError: ``publish`` is ``together``, and no reconciliation would publish the rows; or the
            reconciliation has another ``on_conflict``.
        """
        if self.get_dag() is not None:
            check_published(self)
        super().resolve_template_files()

    def execute(self, context: Context) -> dict[str, Any]:
        """Stage the rows, and publish them.

        :param context: of the running task.
        :returns: the result for XCom.
        :raises AirflowFailException: a person has to act; nothing is retried. So it is with rows that fail a check.
        :raises AirflowSkipException: the policy left the rows out, and ``on_set_aside`` is ``skip``.
        """
        from airflow_provider_onelake.buffers.beginnings import beginning_of
        from airflow_provider_onelake.buffers.claims import begin
        from airflow_provider_onelake.steps.write import write
        from airflow_provider_onelake.writes.losses import loss_of
        from airflow_provider_onelake.writes.orphans import check_former_name

        with terminal_errors_fail(self.hook):
            terms, run = self.terms(), task_run_of(context)
            # Below Airflow 3.3 the table's store is asked, which may refuse it.
            with self.errors_explained():
                task_start = start_of(context, self.task_state(context))
            key = text_or_none(self.writer) or key_of(self, context, run.map_index)
            # Our default map_index_template shows this key as the label of the mapped task.
            context["writer"] = key  # type: ignore[typeddict-unknown-key]
            dag = run.load_name or run.dag
            identity = {"writer": key, "dag": dag, "group": run.group, "run": run.run, "task": run.label}
            more = {"deed": task_start.id, "clears": clears_of(context), "map_index": run.map_index}
            context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more})
            check_published(self)
            files = seen_files(terms.query.source, self.hook)
            terms.query.check_size(files, self.task_id)
            table = self.begin(context)
            run = run.found_in(table.log, self.hook.namespace)
            if run.run != identity["run"]:
                identity["run"] = run.run
                context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more})
            who = run.load(self.hook.namespace).writer(key)
            # The claim is the load's first write, so who may not write learns it here, before Spark is asked.
            with self.errors_explained():
                turn = begin(table.log, who, task_start, prove=terms.tuning.preflight, is_rival=rivals(context))
                began = beginning_of(table.log.store, who.load, turn, task_start.life)
                spec = terms.spec(who, run, turn.generation, files, began)
                check_former_name(table.log, spec, run.former)
                check_orphans(context, table.log, spec, turn.snapshot, run.former)
            self.log.info("Writer %s of %s: generation %d, attempt %s", key, table.name, spec.generation, run.attempt)
            policy, on_set_aside = self._policies()
            metrics = Metrics.of(context["ti"], table.address)
            check_files = partial(self._check_planned, terms.query) if spec.planned is not None else None
            scan = offered(context)
            retried = run.number > task_start.first_try
            try:
                done = write(spec, turn, terms, table, self.spark, metrics, policy, scan, check_files, retried=retried)
            except OneLakeError as error:
                # By this, reconcile says what it made good; and of a rerun that was refused, it tells an earlier try's
                # rows from those of a worker that died after its commit.
                context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more, "error": type(error).__name__})
                if isinstance(error, ConflictError):
                    context["writer_outcome"] = "refused"  # type: ignore[typeddict-unknown-key]
                raise
            result = {**identity, "table": str(table), "mode": spec.mode.name, **done.to_json()}
            losses = done.left_out(table.log)
            if done.status != "staged":
                result["left_out"] = losses
            context["writer_outcome"] = done.in_short  # type: ignore[typeddict-unknown-key]
            metrics.written(result)
            # Before a refusal is raised: OpenLineage asks for the lineage of a failed task too.
            self._lineage = lineage_of(lambda: self._lineage_of(table, terms, done))
            if done.buffer is not None and done.refused:
                # Airflow stores what a task returns only if the task succeeds.
                context["ti"].xcom_push(key="return_value", value=result)
                raise done.buffer.refusal(table.log)
            self.show_commit(done.version)
            if said := loss_of(losses, key, f"version {done.version} of {table.log.table}", on_set_aside):
                if on_set_aside is OnSetAside.FAIL:
                    raise RowsSetAsideError(said)
                context["ti"].xcom_push(key="return_value", value=result)
                # By this, reconcile tells this writer from one that a branch skipped.
                context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more, "left_out": True})
                raise AirflowSkipException(said)
            return result

    def _check_planned(self, query: Query) -> None:
        # The files of a function are not seen here.
        if isinstance(query.source, FileSource):
            query.check_planned(seen_files(query.source, self.hook), self.task_id)

    @staticmethod
    def _lineage_of(table: Table, terms: WriteTerms, done: Written) -> Lineage:
        found = Lineage(
            table=table.address,
            inputs=inputs_of(terms.query.source, terms.query.steps),
            read_version=done.buffer.read_version if done.buffer is not None and done.buffer.reads_target else None,
        )
        if done.buffer is not None:
            found = found.with_checks([done.buffer])
        return found.with_snapshot(table.log.snapshot()).with_publications(done.publications)
