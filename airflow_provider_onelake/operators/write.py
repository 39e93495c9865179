"""The operator of one writer: it stages the rows, and publishes them unless they conflict with other commits."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_onelake.choices import Isolation, OnRerun, OnSetAside, Policy
from airflow_provider_onelake.exceptions import (
    ConflictError,
    InvalidWriteError,
    OneLakeError,
    RowsSetAsideError,
    TablePropertyError,
)
from airflow_provider_onelake.hooks.task_run import TaskRun, clears_of, deed_of
from airflow_provider_onelake.lineage import Lineage, inputs_of, lineage_of
from airflow_provider_onelake.metrics import Metrics
from airflow_provider_onelake.operators._roll import (
    OUR_LABEL,
    WRITER_XCOM,
    key_of,
    names_of,
    reconciler_of,
    rivals,
)
from airflow_provider_onelake.operators._sharing import offered
from airflow_provider_onelake.operators._source_files import seen_files
from airflow_provider_onelake.operators._source_templates import SourceTemplates
from airflow_provider_onelake.operators._spark_task import DeferrableSparkTaskOperator
from airflow_provider_onelake.operators._terms import (
    check_checks,
    check_choices,
    check_definition,
    check_files,
    check_key,
    check_message,
    check_rendered,
    check_size,
    check_steps,
    check_table,
    check_unrendered,
    check_whole,
    given,
    group_defaults,
    is_final,
    terminal_errors_fail,
)
from airflow_provider_onelake.sources import TARGET, FileSource, Source
from airflow_provider_onelake.staging.modes import Append, mode_of
from airflow_provider_onelake.work.terms import (
    CHOICES,
    CONNECTIONS,
    DEFAULTS,
    FLAGS,
    MAY_BE_BLANK,
    TEMPLATED,
    PartitionBy,
    WriteTerms,
    partition_columns,
    without_blanks,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.staging.spec import WriteSpec
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.results import Written


class OneLakeWriteOperator(SourceTemplates, DeferrableSparkTaskOperator):
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
    rows are in the table, or if that policy left them out; with ``publish="together"``, if they are staged.

    A ``merge`` publishes itself, also in a group: only Spark can merge its rows, on the newest version. The group's
    ``reconcile`` says whether it has.

    The result in XCom is a dict:

    - ``status`` (str): ``published``, ``already_published``, ``superseded``, ``set_aside`` or ``skipped``; ``staged``
      with ``publish="together"``; ``nothing_to_do`` without rows where there is no table. Of a task that failed because
      its rows fail a check: ``refused``.
    - ``version`` (int or None): the table's version that holds the rows.
    - ``reason`` (str, only when skipped): why the writer was skipped. The keys after ``mode`` are then missing.
    - ``writer``, ``dag`` (or the group's ``load_name``), ``group``, ``run``, ``task`` (str): the parts of the writer's
      identity, and the task's label.
    - ``table`` (str): the table's address; ``mode`` (str): the mode.
    - ``rows`` (int, or None without statistics), ``files`` (int), ``bytes`` (int): what was staged.
    - ``partitions`` (list of str): the partitions that were staged, at most 50.
    - ``finished`` (str): when Spark had appended the rows, for those of a shared scan into the scan, in ISO format;
      ``buffer`` (str): the path of the buffer below the table.
    - ``read_version`` (int): the version of the table that the write was formed on.
    - ``reads_target`` (bool): whether the job read the table that it writes.
    - ``reused`` (bool): whether the buffer was there already; ``reruns`` (int): how often the job ran again.
    - ``without_rows`` (str, only where the source gave no row): that, and what was not replaced because of it.
    - ``checks`` (list of dict, only with ``checks``): for each check ``name`` and ``sql`` (str), ``passed`` (bool),
      what was ``done`` with the rows if it failed (str: ``refused`` or ``warned``), ``each_row`` (bool): whether it is
      about each row or about all of them together, ``failed`` (int or None): how many rows do not meet it, ``met``
      (bool, or None for NULL): what the condition is; of a :func:`~airflow_provider_onelake.checks.rows_like_last` also
      ``found`` (str): what was compared.

    With the mode ``merge``, a ``status`` may also be ``nothing_to_do``, and there are in place of what follows:

    - ``rows_inserted``, ``rows_updated``, ``rows_deleted``, ``files_removed``, ``files_added`` (int or None).
    - ``files_united`` (int): how many files have the union of a deletion vector of ours and one that others gave them
      meanwhile.
    - ``rounds`` (int): how many times Spark ran the MERGE; ``lost_races`` (int); ``decisions`` (an empty list).

    A task that tried to publish its rows itself adds:

    - ``decisions`` (list of str): how conflicts were settled, and ``left_out`` (list of str): those of them by which
      all rows were left out.
    - ``lost_races`` (int): puts that met another commit at the same version.
    - ``rows_published`` (int or None), ``files_removed`` (int or None): what the commit added and removed.
    - ``rows_unexpected`` (int, or None without statistics): rows that ``expected_partitions`` left out.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param source: the source of the rows: a ``FileSource`` or a ``SqlSource`` (its fields are templated).
    :param steps: Spark SQL queries by name, run in order. Each can read the source and the steps before it, and the
        rows of the last one are written. Default: the rows of the source (templated).
    :param where: a filter on the source, in Spark SQL. It applies before the steps, and Spark pushes it down. Default:
        all rows (templated).
    :param files: the files, or globs of files, that this writer reads of a ``FileSource``, as a plan divides them. The
        columns that Spark reads from directory names stay those of the whole source. Default: all paths of the source
        (templated).
    :param max_bytes: the most bytes that the source's files may have when the task starts. With more, the task fails
        before Spark is asked. Only files on this machine and in the connection's lakehouse count. Default: no limit.
        Not templated.
    :param planned: what a plan of new files (``only_new``) says of ``files``: pass it on as it is. If the files are not
        as they were planned when Spark has read them, nothing is published. Default: no such plan. Not templated.
    :param writer: the writer's key, unique among the writers of the group. A clear finds by this key what the writer
        wrote, so never change it. Default: the task's id without the group's prefix; for a mapped task the rendered
        ``map_index_template``, and without that template the key is required (templated).
    :param mode: ``append``, ``overwrite`` (the whole table), ``overwrite_partitions`` (those that get rows),
        ``replace_where`` or ``merge``. Default: ``append`` (templated).
    :param replace_where: the predicate on partition columns whose rows are replaced. Required with the mode
        ``replace_where``, and refused with any other (templated).
    :param keys: a list of the columns by which a row of the source and one of the table match, with the mode ``merge``.
        No two rows of the source may have equal keys, and none NULL in one. Refused with any other mode (templated).
    :param on: in place of ``keys``, the condition by which a row of ``target`` and one of ``source`` match, in Spark
        SQL, as in ``target.id = source.id AND target.valid_to IS NULL``. Spark then looks at the whole table
        (templated).
    :param when: the clauses of the merge in SQL, in their order, such as ``MATCHED AND source.op = 'd' THEN DELETE``,
        ``MATCHED THEN UPDATE SET target.fare = source.fare``, ``NOT MATCHED THEN INSERT *`` or
        ``NOT MATCHED BY SOURCE AND target.day = '2024-01-01' THEN DELETE``. The source may then have other columns than
        the table. Default: ``MATCHED THEN UPDATE SET *`` and ``NOT MATCHED THEN INSERT *``, with the table's columns
        (templated).
    :param covers: a predicate on partition columns that names the partitions in which a ``merge`` may change, delete or
        insert rows. Spark does not look at others, and what others do there does not matter. A row of the source that
        would come into another partition fails the task. Default: the whole table (templated).
    :param isolation: which commits of others a ``merge`` must have seen: ``serializable`` (all that landed before it)
        or ``write_serializable`` (appends that did not read the table, and that land while Spark is at work, may count
        as later if only such appends came after them: their rows stay as they are, so a key of the source may then be
        in the table twice). A writer with ``reads`` takes ``serializable`` alone. Default: ``serializable``
        (templated).
    :param max_rounds: how many times Spark may run a ``merge`` or a writer with ``reads``, each time because others
        changed rows that it may concern, before the task fails. Default: 5 for a ``merge``, else 4. Not templated.
    :param reads: the part of the table itself that the source or the steps read, under the name ``target``: a predicate
        on partition columns, such as ``month = '2019-01'``, or ``True`` for the whole table. Spark sees the rows of
        these partitions only, and those of one version. If others change rows there before the writer commits, it runs
        again, at most ``max_rounds`` times; with ``publish="together"`` it is refused. What others do elsewhere does
        not matter. Default: nothing is read under that name. A job that reads the table by its path is found out, and
        then a change in any partition counts (templated).
    :param expected_partitions: a predicate on partition columns that the rows should satisfy. Default: no restriction
        (templated).
    :param on_unexpected_rows: what happens to rows that do not satisfy ``expected_partitions``: ``set_aside`` reports
        them and does not publish them; ``refuse`` publishes nothing. Default: ``set_aside`` (templated).
    :param allow_empty: whether an ``overwrite`` without rows empties the table, a ``replace_where`` without rows
        empties its range, and a ``merge`` without rows does what its ``NOT MATCHED BY SOURCE`` says. Default: no. Not
        templated.
    :param publish: ``each`` (this task commits) or ``together`` (reconcile commits all writers in one version).
        Default: ``each`` (templated).
    :param on_conflict: the policy that decides whose rows are seen where two writes replaced the same partition; see
        :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator`. In a group, it is the group's.
        Default: ``last_writer_wins`` (templated).
    :param on_set_aside: what it means for the task that its rows are not in the table, because ``on_conflict`` counts
        another write more: ``warn`` says so in the log, with ``skip`` the task ends skipped, and with ``fail`` it is
        red, both after the commit. Airflow skips the tasks directly behind a skipped one too, unless their trigger rule
        is one such as ``none_failed``; what a group adds runs. In a group, it is the group's. Default: ``warn``
        (templated).
    :param on_rerun: what a clear of committed work does: ``skip``, ``replace`` or ``append``. ``replace`` takes an
        append back only if each of its files is live and unchanged. Default: ``skip`` for appends, ``replace`` for
        overwrites (templated).
    :param partition_by: the table's partition columns: a list of names, a text with commas between them, or a dict of
        names with the SQL that generates each from other columns. It is used when the table is created. A table that is
        partitioned otherwise is refused. Default: no partition columns for a new table, any for an existing one
        (templated).
    :param generated_columns: other columns that the table generates, as a dict of names with their SQL. It is used when
        the table is created, and refused then if it names a column that the table would not have. Default: none
        (templated).
    :param table_properties: the properties of the table when it is created, as a dict of texts. A property that Delta
        does not have, or a value that it does not take, is refused. Default: none (templated).
    :param schema: the table's columns, as Spark DDL such as ``id BIGINT NOT NULL, name STRING COMMENT 'of the trip'``.
        If there is no table, it asks for one before rows are staged; a job that reads the table that it writes needs it
        then. Default: the first commit of rows makes the table, with their columns (templated).
    :param schema_evolution: ``add_columns`` adds the columns that only the rows have to the table. They are nullable
        and come in a commit of their own before anything is staged. Rows may also lack nullable columns, which become
        NULL. So writers of an old and of a new schema work side by side. It costs an analysis of the job.
        ``add_and_widen`` also gives a column the wider type that it has in the rows (a longer integer, DOUBLE instead
        of FLOAT, a larger DECIMAL), if the table has ``delta.enableTypeWidening``. With ``none``, the rows must have
        the table's columns. Default: ``none`` (templated).
    :param target_file_size: the size of the staged files in bytes. Default: Spark's own. Not templated.
    :param v_order: whether the files are written in V-Order, which speeds up Power BI and SQL in Fabric and costs some
        time to write. Only Fabric's Spark writes it: on any other, ``True`` has no effect. A table whose property asks
        for it gets it also with ``False``. Default: as the session and the table say. Not templated.
    :param preflight: whether to check first that the store refuses a second create-only put, that Spark has Delta Lake,
        and that Spark reaches the store. Each check costs one small request. On OneLake, one more request asks whether
        the connection's identity may write. It also warns of Spark's log stores that lose commits. Default: yes. Not
        templated.
    :param checks: conditions that the staged rows must meet before anything of them is published, in Spark SQL, as a
        dict by name, such as ``{"no negative fares": "fare >= 0", "some rows": "count(*) > 0"}``. A condition with an
        aggregate function is about all rows of the writer together, any other about each row. NULL is not true. Spark
        evaluates them over the staged files, by one query; it does not read the source again. In place of a
        condition, :func:`~airflow_provider_onelake.checks.rows_like_last` compares the number of rows with the last
        loads. Checks belong to the work: a clear with other checks is a clear of other work. Default: none, also ``{}``
        in a group that has some (templated, but for the names).
    :param on_failed_check: what happens if the rows fail a check: ``refuse`` publishes nothing of the writer, and its
        task fails for good. With ``publish="together"``, nothing of the load is published. ``warn`` publishes the rows
        and says so in the log, in the result, in the label and in the table's history. Default: ``refuse`` (templated).
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands in the
        ``userMetadata`` of every commit that this writer's rows come with, beside the DAG, the run and the writer. It
        is no part of the work: a clear with another message is a clear of the same work. Rows that were staged already
        keep the message with which they were staged. Default: none (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param spark_conn_id: the connection of Spark. Its type chooses the engine. Default: ``spark_connect_default``. Not
        templated.
    :param spark_timeout: seconds, or a ``timedelta``, after which the Spark job is stopped and the task fails and may
        be retried. ``execution_timeout`` stops the Spark job too, also while the task is deferred. Default: no limit.
        Not templated.
    :param deferrable: whether the task waits in the triggerer while a driver in cluster mode stages its rows. Default:
        Airflow's ``[operators] default_deferrable``. Not templated.
    :param map_index_template: Airflow's label of a mapped task. A label of your own is also the default of ``writer``.
        Default: a label that shows the writer's key, and when the task has ended what became of its rows, as in
        ``eu · published 200 rows in version 3``. Airflow renders it.
    """

    template_fields: Collection[str] = TEMPLATED
    template_ext: Sequence[str] = (".sql",)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        "source": "json",
        "steps": "json",
        "where": "sql",
        "replace_where": "sql",
        "on": "sql",
        "covers": "sql",
        "reads": "sql",
        "expected_partitions": "sql",
        "schema": "sql",
        "checks": "json",
    }
    ui_color = "#e3f0e8"

    # Set by the names in WriteTerms.
    source: Source
    steps: Mapping[str, str]
    files: Sequence[str] | None
    max_bytes: int | None
    planned: Mapping[str, Any] | None
    writer: str | None
    mode: str
    replace_where: str | None
    keys: Sequence[str] | None
    on: str | None
    when: Sequence[str] | None
    covers: str | None
    isolation: str | None
    max_rounds: int | None
    reads: str | bool | None
    expected_partitions: str | None
    schema_evolution: str
    publish: str
    on_rerun: str | None
    partition_by: PartitionBy | None
    target_file_size: int | None
    v_order: bool | None
    checks: Mapping[str, str]
    on_failed_check: str
    commit_message: str | None

    def __init__(
        self,
        *,
        source: Source,
        table: str | None = None,
        steps: Mapping[str, str] | None = None,
        where: str | None = None,
        files: Sequence[str] | None = None,
        max_bytes: int | None = None,
        planned: Mapping[str, Any] | None = None,
        writer: str | None = None,
        mode: str | None = None,
        replace_where: str | None = None,
        keys: Sequence[str] | None = None,
        on: str | None = None,
        when: Sequence[str] | None = None,
        covers: str | None = None,
        isolation: str | None = None,
        max_rounds: int | None = None,
        reads: str | bool | None = None,
        expected_partitions: str | None = None,
        on_unexpected_rows: str | None = None,
        allow_empty: bool | None = None,
        publish: str | None = None,
        on_rerun: str | None = None,
        on_conflict: str | None = None,
        on_set_aside: str | None = None,
        partition_by: PartitionBy | None = None,
        generated_columns: Mapping[str, str] | None = None,
        table_properties: Mapping[str, str] | None = None,
        schema: str | None = None,
        schema_evolution: str | None = None,
        target_file_size: int | None = None,
        v_order: bool | None = None,
        preflight: bool | None = None,
        checks: Mapping[str, str] | None = None,
        on_failed_check: str | None = None,
        commit_message: str | None = None,
        onelake_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        spark_timeout: float | timedelta | None = None,
        deferrable: bool | None = None,
        map_index_template: str | None = OUR_LABEL,
        **kwargs: Any,
    ) -> None:
        super().__init__(map_index_template=map_index_template, deferrable=deferrable, **kwargs)
        given, group = locals(), group_defaults(self)
        for name, default in (*DEFAULTS.items(), *((name, getattr(self, name)) for name in CONNECTIONS)):
            setattr(self, name, _first_given(name, given, group, default))
        try:
            self._check()
        except (InvalidWriteError, TablePropertyError) as error:
            # A check of one value does not know whose it is, and a DAG may have many writers.
            if str(error).startswith(f"{self.task_id}:"):
                raise
            raise type(error)(f"{self.task_id}: {error}") from None

    def _check(self) -> None:
        """Refuse parameters that are wrong whatever their templates render to."""
        if not self.table:
            raise InvalidWriteError(f"{self.task_id}: `table` is missing: give it here, or to the task group.")
        check_table("table", self.table)
        check_key(self.writer)
        if is_final(self.source) and not isinstance(self.source, Source):
            raise InvalidWriteError(
                f"{self.task_id}: source={self.source!r} is neither a FileSource nor a SqlSource. Write "
                "FileSource('/data/x.json', format='json') or SqlSource('SELECT …')."
            )
        if self.files is not None and is_final(self.source) and not isinstance(self.source, FileSource):
            raise InvalidWriteError(f"{self.task_id}: `files` are the paths of a FileSource, not of {self.source!r}.")
        check_files(self.files)
        check_size("max_bytes", self.max_bytes)
        check_choices(self, CHOICES.keys() & DEFAULTS.keys())
        if is_final(self.partition_by):
            partition_columns(self.partition_by)
        check_steps(self.steps, getattr(self.source, "view", ""))
        check_unrendered(self)
        check_message(self.commit_message)
        check_checks(self.checks)
        check_definition(self)
        if self.max_rounds is not None:
            check_whole("max_rounds", self.max_rounds)
        if all(map(is_final, (self.mode, self.keys, self.on, self.when, self.covers))):
            self._check_mode()
        if given(self.reads):
            self._check_reads()

    def _check_mode(self) -> None:
        mode = mode_of(self.mode, vars(self))
        if not mode.in_rounds:
            if (self.isolation or self.max_rounds is not None) and not given(self.reads):
                raise InvalidWriteError(
                    f"{self.task_id}: mode={mode.name!r} takes neither isolation nor max_rounds, which are of "
                    "mode='merge' and of writers with `reads`. Nothing was staged."
                )
            if self.isolation == Isolation.WRITE_SERIALIZABLE:
                raise InvalidWriteError(
                    f"{self.task_id}: isolation='write_serializable' is gone for mode={mode.name!r} with `reads`: take "
                    "'serializable', the default. An append without `reads` never conflicts. Nothing was staged."
                )
            return
        where = f"{self.task_id}: mode={mode.name!r}"
        if self.expected_partitions or self.publish == "together":
            raise InvalidWriteError(
                f"{where} takes neither expected_partitions nor publish='together': it merges all rows of its source, "
                "and only its own task can, because Spark has to do it on the newest version. Leave rows out by "
                "`where`; use a group with publish='each', or put this writer behind the group. Nothing was staged."
            )
        if self.planned is not None:
            raise InvalidWriteError(
                f"{where} takes no plan of new files: a MERGE that changes nothing makes no commit, so the table's log "
                "would not say that the files are loaded. Nothing was staged."
            )
        if mode.own_columns and self.schema_evolution != "none":
            raise InvalidWriteError(
                f"{where} with `when` or `on` takes no schema_evolution, because its source may have columns that are "
                "not for the table. Nothing was staged."
            )

    def _check_reads(self) -> None:
        where = f"{self.task_id}: reads={self.reads!r}"
        if not isinstance(self.reads, str | bool) and is_final(self.reads):
            raise InvalidWriteError(
                f"{where} is neither True, for the whole table, nor a predicate on partition columns. Nothing was "
                "staged."
            )
        steps = self.steps if isinstance(self.steps, Mapping) else ()
        if TARGET in {name.lower() for name in (getattr(self.source, "view", ""), *steps)}:
            raise InvalidWriteError(
                f"{where} makes the table known to the query as {TARGET!r}, and a step or the source's view has that "
                "name already: give it another. Nothing was staged."
            )
        if self.publish == "together" and self.max_rounds is not None:
            raise InvalidWriteError(
                f"{where} takes no max_rounds with publish='together': the rows are published by a reconciliation, "
                "which runs no Spark, and refuses them if what they were computed from has changed. Nothing was staged."
            )
        if self.mode == Append.name and self.on_rerun == OnRerun.REPLACE:
            raise InvalidWriteError(
                f"{where} takes no on_rerun='replace' for an append: its query would read the very rows that the rerun "
                "takes back, and find that they are there already. Use 'skip' or 'append'. Nothing was staged."
            )

    def resolve_template_files(self) -> None:
        """Read the templates that are files. Airflow calls this once the DAG is complete.

        :raises InvalidWriteError: ``publish`` is ``together``, and no reconciliation would publish the rows; or the
            reconciliation has another ``on_conflict``.
        """
        if self.get_dag() is not None:
            self._check_published()
        super().resolve_template_files()

    def _check_published(self) -> None:
        """Refuse ``publish="together"`` without a reconciliation, and one that has another policy."""
        behind = reconciler_of(self)
        if self.publish == "together" and behind is None:
            raise InvalidWriteError(
                f"{self.task_id}: publish='together' leaves the rows to a reconciliation, and there is none behind "
                "this writer, so nobody would publish them. Put it into a OneLakeWriteTaskGroup, or leave "
                "publish='each'. Nothing was staged."
            )
        given = getattr(behind, "partial_kwargs", vars(behind) if behind is not None else {})
        theirs = given.get("on_conflict", Policy.LAST_WRITER_WINS)
        mine = vars(self)["on_conflict"] or Policy.LAST_WRITER_WINS
        if behind is not None and is_final(mine) and is_final(theirs) and mine != theirs:
            raise InvalidWriteError(
                f"{self.task_id}: on_conflict is {str(mine)!r}, and {behind.task_id} behind it has {str(theirs)!r}. A "
                "writer settles its conflicts in its own task, so give both the same. Nothing was staged."
            )

    def execute(self, context: Context) -> dict[str, Any]:
        """Stage the rows, and publish them.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing is retried. So it is with rows that fail a check.
        :raises AirflowSkipException: the policy left the rows out, and ``on_set_aside`` is ``skip``.
        """
        from airflow_provider_onelake.commit.losses import left_out_of, loss_of
        from airflow_provider_onelake.staging.beginnings import beginning_of
        from airflow_provider_onelake.staging.claims import begin
        from airflow_provider_onelake.staging.orphans import check_former_name
        from airflow_provider_onelake.work.write import write

        with terminal_errors_fail(self.hook):
            terms, deed, run = self.terms(), deed_of(context), TaskRun.of(context)
            key = terms.writer or key_of(self, context, run.map_index)
            # Our default map_index_template shows this key as the label of the mapped task.
            context["writer"] = key  # type: ignore[typeddict-unknown-key]
            dag = run.load_name or run.dag
            identity = {"writer": key, "dag": dag, "group": run.group, "run": run.run, "task": run.label}
            more = {"deed": deed.id, "clears": clears_of(context), "map_index": run.map_index}
            context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more})
            self._check_published()
            files = seen_files(terms.source, self.hook)
            terms.check_size(files, self.task_id)
            table = self.begin(context)
            run = run.found_in(table.log, self.hook.namespace)
            if run.run != identity["run"]:
                identity["run"] = run.run
                context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more})
            who = run.load(self.hook.namespace).writer(key)
            if terms.preflight:
                self.fabric.check_may_load(self.table)
            # The claim is the load's first write, so whom the preflight has let pass learns it here, before Spark is
            # asked, if it may not write.
            with self.errors_explained():
                generation = begin(table.log, who, deed, prove=terms.preflight, is_rival=rivals(context))
                began = beginning_of(table.log, who.load, generation, deed.life)
                spec = terms.spec(who, run, generation, files, began)
                check_former_name(table.log, spec, run.former)
                self._check_orphans(context, table.log, spec, run.former)
            self.log.info("Writer %s of %s: generation %d, attempt %s", key, table.name, generation, run.attempt)
            policy = terms.on_conflict or Policy.LAST_WRITER_WINS
            metrics = Metrics.of(context["ti"], table.address)
            check_files = partial(self._check_planned, terms) if terms.planned is not None else None
            scan = offered(context)
            retried = run.number > deed.first_try
            try:
                done = write(spec, terms, table, self.spark, metrics, policy, scan, check_files, retried=retried)
            except OneLakeError as error:
                # By this, reconcile says what it made good; and of a rerun that was refused, it tells an earlier try's
                # rows from those of a worker that died after its commit.
                context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more, "error": type(error).__name__})
                if isinstance(error, ConflictError):
                    context["writer_outcome"] = "refused"  # type: ignore[typeddict-unknown-key]
                raise
            result = {**identity, "table": str(table), "mode": spec.mode.name, **done.to_json()}
            losses = left_out_of(table.log, done.version)
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
            if said := loss_of(losses, key, f"version {done.version} of {table.log.table}", terms.on_set_aside):
                if terms.on_set_aside is OnSetAside.FAIL:
                    raise RowsSetAsideError(said)
                context["ti"].xcom_push(key="return_value", value=result)
                # By this, reconcile tells this writer from one that a branch skipped.
                context["ti"].xcom_push(key=WRITER_XCOM, value={**identity, **more, "left_out": True})
                raise AirflowSkipException(said)
            return result

    def terms(self) -> WriteTerms:
        """Return what is asked, once Airflow has rendered it.

        :raises InvalidWriteError: a parameter is wrong, or still holds a template.
        """
        self.check_partition_key()
        for name in TEMPLATED:
            check_rendered(name, getattr(self, name))
        for name, value in without_blanks({name: getattr(self, name) for name in MAY_BE_BLANK}).items():
            setattr(self, name, value)
        self._check()
        return WriteTerms(**{name: getattr(self, name) for name in DEFAULTS}).restricted(self.task_id)

    def _check_planned(self, terms: WriteTerms) -> None:
        # The files of a function are not seen here.
        if isinstance(terms.source, FileSource):
            terms.check_planned(seen_files(terms.source, self.hook), self.task_id)

    def _check_orphans(self, context: Context, log: DeltaLog, spec: WriteSpec, former: str | None) -> None:
        """Before Spark is asked, refuse to double rows that the run published under a name that no task has now."""
        from airflow_provider_onelake.staging.orphans import check_no_orphans, check_other_dags, is_new_beside_others

        snapshot = log.snapshot_or_none()
        if snapshot is None or spec.identity.app_id in snapshot.txns:
            return
        check_other_dags(log, spec, snapshot, former)
        if not is_new_beside_others(spec.identity, snapshot):
            return
        names = names_of(context, spec.identity.load.group, {spec.task: spec.identity.key})
        check_no_orphans(log, spec, names.keys, names.groups, complete=names.complete)

    @staticmethod
    def _lineage_of(table: Table, terms: WriteTerms, done: Written) -> Lineage:
        found = Lineage(
            table=table.address,
            inputs=inputs_of(terms.source, terms.steps),
            read_version=done.buffer.read_version if done.buffer is not None and done.buffer.reads_target else None,
        )
        if done.buffer is not None:
            found = found.with_checks([done.buffer])
        return found.with_snapshot(table.log.snapshot()).with_publications(done.publications)


def _first_given(name: str, given: Mapping[str, Any], group: Mapping[str, Any], default: Any) -> Any:
    """Return the value of a parameter: what the writer is given, else what its group has, else the default."""
    for value in (given[name], group.get(name)):
        # An empty text counts as not given, but for `partition_by`, where it stands for no partition columns, for
        # `files`, which must not mean all files then, and for what says yes or no. No checks are what a writer may want
        # in a group that has some.
        if value is not None and (name in ("partition_by", "files", "checks", *FLAGS) or value not in ("", {})):
            return value
    return dict(default) if isinstance(default, dict) else default
