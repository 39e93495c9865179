"""The operator that ends a load: it publishes staged rows, decides on refused ones, and names the missing writers."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TaskInstanceState, TriggerRule

from airflow_provider_onelake.assets.uris import uris_beside_shortcut
from airflow_provider_onelake.choices import OnMissingWriter, OnSetAside, Policy, PublishMode, check_choice
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.observability.lineage import Lineage, lineage_of
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.operators._load import LoadTaskOperator
from airflow_provider_onelake.operators._outlets import aliases_of, check_outlets, tell_outlets
from airflow_provider_onelake.operators._parameters import check_message, rendered_message
from airflow_provider_onelake.operators._roles import Reconciler, is_a, is_writer
from airflow_provider_onelake.operators._writers_of_run import Names, WritersOfRun, names_of, states_of, take_roll
from airflow_provider_onelake.operators.staged import OneLakeStagedOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.buffers.identity import Load
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.writes.audits import Audit
    from airflow_provider_onelake.writes.orphans import Orphan
    from airflow_provider_onelake.writes.report import Report


class OneLakeReconcileOperator(Reconciler, LoadTaskOperator):
    """Settle the writers of a load, whatever the outcome of their tasks.

    The task publishes complete buffers, decides once more on those that were refused, and checks that as many rows were
    committed as staged. It fails without a retry if writers are missing, and names them: Airflow judges a run by its
    last tasks, so without this failure a run with a missing writer would be green. To mend the run, clear the missing
    writers with their downstream tasks.

    If a :class:`~airflow_provider_onelake.operators.staged.OneLakeStagedOperator` stands directly before it, each other
    task directly before it that is no writer is an **audit** of the staged rows. If one of them has not succeeded, or
    if a writer has staged other rows since, nothing is published, and the task fails with ``AuditRefusedError``.

    Every decision is in the task's log and in XCom, under these keys:

    - ``return_value`` (dict), which is there when the task fails too:

      - ``load`` (str), ``table`` (str): the load and the table's address.
      - ``version`` (int or None): the newest version that rows of the load came with.
      - ``missing`` (list of str): writers without a complete buffer, and tasks that never named their writer.
      - ``writers`` (list of dict): one entry for each expected writer, with ``writer``, ``status``, ``buffer`` and
        ``error`` (str or None), ``version``, ``rows_staged``, ``rows_published``, ``rows_in_table`` (how many are there
        now) and ``rows_unexpected`` (int or None), ``lost_races`` (int), ``decisions`` (list of sentences: what this
        task did that the writer's had not, and how conflicts were settled), ``aftermath`` (list of sentences: what
        happened to the rows since) and ``replaced`` (bool: whether other writes have replaced some of them, or all).
        The ``status`` of a ``merge`` may also be ``nothing_to_do``, and ``waiting`` where its rows are staged and its
        own task has yet to merge them: this task then fails.
      - ``checks`` (list of dict): one entry for each check of the rows that this task published, held back or refused,
        with ``name``, ``sql``, ``each_row`` and ``passed`` (bool; over all writers), ``failed`` (int or None: how many
        rows do not meet it), and, if it failed, ``done`` (str: ``refused`` or ``warned``) and ``writers`` (list of str:
        the first ten whose rows fail it).
      - ``left_out`` (dict of lists of sentences): by key, the writers that have rows which are not in the table,
        because other writes stand there instead.
      - ``skipped`` (list of str): keys of the writers whose rows were in the table already.
      - ``orphans`` (list of dict): what the run also published under keys that no task has any more, with ``group``,
        ``writer`` and ``task`` (str), ``version`` and ``rows`` (int or None).

    - ``txns`` (dict of int): the generation that the table stores for each writer, by application id. A
      :class:`~airflow_provider_onelake.sensors.delta_log.DeltaLogSensor` takes it as its ``writers``.
    - ``partitions`` (list of dict, or None): the partitions that got files, as values by column, for an
      :class:`~airflow_provider_onelake.operators.optimize.OneLakeOptimizeOperator`. ``None`` stands for all: there are
      too many to name, or the log no longer names them.

    If no writer was to run, ``return_value`` has no ``load``, and ``partitions`` and ``txns`` are empty.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param write_task_ids: ids of the writers' tasks. Default: all write tasks directly upstream. Not templated.
    :param publish: the writers' ``publish``: ``each`` or ``together``. Default: ``each`` (templated).
    :param on_conflict: the policy that decides whose rows are seen where two writes replaced the same partition:
        ``last_writer_wins`` (the write that finished last), ``first_writer_wins`` (the write that landed first) or
        ``fail``. These settle a write as a whole. Default: ``last_writer_wins`` (templated).
    :param on_missing_writer: whether the other writers are published when one is missing, or its rows fail a check:
        ``publish_others`` or ``publish_nothing``. Writers that are published ``together`` are not published if rows of
        one of them fail a check. Default: ``publish_others`` (templated).
    :param on_set_aside: what it means for the load that rows of a writer are not in the table, because ``on_conflict``
        counts another write more (``set_aside``, ``superseded``): with ``warn`` and ``skip`` this task says so in the
        log and in its report, and is green, so that what stands behind it runs; with ``fail`` it is red after all has
        been settled and published. A write of another load that came before this task counts too. Default: ``warn``
        (templated).
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. The commits that
        this task makes carry it in their ``userMetadata``, beside the messages of the writers. Default: none
        (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param outlets: assets that the load updates, made by :func:`~airflow_provider_onelake.assets.tables.table_asset`.
        Their events name the load's commits, version and rows. An asset with ``partitioned_by`` gets one event for each
        partition that the load touched. Airflow records the events only after this task has succeeded, so never for
        half a load. An asset with a watcher of the log is refused. If ``table`` is a shortcut of OneLake, an asset that
        some DAG has under the address of the shortcut's target is told too, without partitions, by an
        :class:`~airflow.sdk.AssetAlias` that this class adds. Default: none. Not templated.
    :param trigger_rule: Airflow's trigger rule. Default: ``all_done``, because the task must run when a writer has
        failed. Not templated.
    :param map_index_template: Airflow's label of the task. Default: a label that says, when the task has ended, how
        many of the load's rows are in the table, and which writers have others. Airflow renders it.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = (
        *("table", "publish", "on_conflict", "on_missing_writer", "on_set_aside", "commit_message"),
    )
    ui_color = "#f3ead9"

    def __init__(
        self,
        *,
        table: str,
        write_task_ids: Sequence[str] | None = None,
        publish: str = "each",
        on_conflict: str = "last_writer_wins",
        on_missing_writer: str = "publish_others",
        on_set_aside: str = "warn",
        commit_message: str | None = None,
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        trigger_rule: str = TriggerRule.ALL_DONE,
        map_index_template: str | None = "{{ load_outcome | default('') }}",
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, map_index_template=map_index_template, **kwargs)
        self.table = table
        self.write_task_ids = write_task_ids
        self.publish = publish
        self.on_conflict = on_conflict
        self.on_missing_writer = on_missing_writer
        self.on_set_aside = on_set_aside
        self.onelake_conn_id = onelake_conn_id
        self.commit_message = commit_message
        self._check_choices()
        check_message(commit_message)
        check_outlets(self.task_id, self.outlets)
        self.outlets = [*self.outlets, *aliases_of(self.outlets)]

    def _check_choices(self) -> None:
        check_choice("publish", self.publish, PublishMode)
        check_choice("on_conflict", self.on_conflict, Policy)
        check_choice("on_missing_writer", self.on_missing_writer, OnMissingWriter)
        check_choice("on_set_aside", self.on_set_aside, OnSetAside)

    def execute(self, context: Context) -> dict[str, Any]:
        """Reconcile the load.

        :param context: of the running task.
        :returns: the report for XCom, as the class describes it.
        :raises AirflowFailException: writers are missing, or something was refused.
        """
        from airflow_provider_onelake.steps.outcomes import checks_told
        from airflow_provider_onelake.writes.losses import check_load

        with self.errors_explained():
            self._check_choices()
            rendered_message(self.commit_message)
            tasks = self.writers()
            roll = take_roll(context, [str(task.task_id) for task in tasks])
            if not roll.named and not roll.unnamed:
                self.log.info("%s: no writer was to run, so there is nothing to reconcile", self.table)
                context["ti"].xcom_push(key="partitions", value=[])
                # The sensor behind this task waits for these.
                context["ti"].xcom_push(key="txns", value={})
                return {
                    "table": self.table,
                    "version": None,
                    "missing": [],
                    "writers": [],
                    "checks": [],
                    "left_out": {},
                    "skipped": [],
                    "orphans": [],
                }
            table = self.begin(context)
            log, metrics = table.log, Metrics.of(context["ti"], table.address)
            load = self.load_of(context, tasks, table.log)
            roll, own = self.started_generations(context, log, load, roll)
            report, txns, partitions = self._reconcile(table, load, roll, own, self._audit(context), metrics)
            left = self._orphans(log, load, names_of(context, load.group), roll.named)
            metrics.reconciled(report)
            context["load_outcome"] = report.in_short  # type: ignore[typeddict-unknown-key]
            self.show_commit(report.version)
            result = {
                **report.to_json(),
                "checks": checks_told(report.decided),
                "left_out": report.left_out,
                "skipped": list(roll.skipped),
                "orphans": [one.to_json() for one in left],
            }
            # Airflow stores what a task returns only if the task succeeds, and a person needs it above all if it fails.
            context["ti"].xcom_push(key="return_value", value=result)
            context["ti"].xcom_push(key="txns", value=txns)
            context["ti"].xcom_push(key="partitions", value=partitions)
            report.raise_for_failures()
            self._check_doubled(log, load, left, report)
            if self.on_set_aside == "fail":
                check_load(report)
            others = uris_beside_shortcut(table, self.onelake_conn_id)
            tell_outlets(context, self.outlets, log, report, others)
        return result

    def _reconcile(
        self,
        table: Table,
        load: Load,
        roll: WritersOfRun,
        own: Mapping[str, int] | None,
        audit: Audit | None,
        metrics: Metrics,
    ) -> tuple[Report, dict[str, int], list[dict[str, str | None]] | None]:
        from airflow_provider_onelake.choices import OnMissingWriter, Policy, PublishMode
        from airflow_provider_onelake.writes.publish import Publication
        from airflow_provider_onelake.writes.reconcile import reconcile

        publications: list[Publication] = []

        def observe(publication: Publication) -> None:
            publications.append(publication)
            metrics.published(publication)

        report = reconcile(
            table.committer(observe, rendered_message(self.commit_message)),
            load,
            roll.named,
            publish=PublishMode(self.publish),
            on_conflict=Policy(self.on_conflict),
            on_missing_writer=OnMissingWriter(self.on_missing_writer),
            unnamed=roll.unnamed,
            generations=own,
            audit=audit,
            ended=roll.ended,
        )
        self.log.info("%s, load %s:", table.name, report.load)
        for line in report.table_lines():
            self.log.info("%s", line)
        for outcome in report.outcomes:
            for decision in (*outcome.decisions, *outcome.aftermath):
                self.log.warning("%s: writer %s: %s", table.name, outcome.writer, decision)
        snapshot = table.log.snapshot()
        lineage = Lineage(table=table.address)
        self._lineage = lineage_of(
            lambda: lineage.with_checks(report.decided).with_snapshot(snapshot).with_publications(publications)
        )
        app_ids = [load.writer(key).app_id for key in roll.named]
        txns = {app_id: snapshot.txns[app_id] for app_id in app_ids if app_id in snapshot.txns}
        return report, txns, report.touched_partitions(table.log)

    def _audit(self, context: Context) -> Audit | None:
        """Return what the audits agreed to; ``None`` if this load has none."""
        from airflow_provider_onelake.writes.audits import Audit

        dag = self.get_dag()
        assert dag is not None
        before = {task_id: dag.get_task(task_id) for task_id in sorted(self.upstream_task_ids)}
        listing = next((task_id for task_id, task in before.items() if is_a(task, OneLakeStagedOperator)), None)
        if listing is None:
            return None
        audits = [task_id for task_id, task in before.items() if not is_writer(task)]
        states = states_of(context, audits)
        against = [f"{label} is {state}" for label, state in states.items() if state != TaskInstanceState.SUCCESS]
        staged = context["ti"].xcom_pull(task_ids=listing) or []
        seen = {one["writer"]: one["buffer"] for one in staged}
        return Audit(seen, "; ".join(against) or None, again=listing)

    def _orphans(self, log: DeltaLog, load: Load, names: Names, named: Iterable[str]) -> list[Orphan]:
        """Find what the run published under keys that no task has any more, and warn of it."""
        from airflow_provider_onelake.writes.orphans import orphans

        snapshot = log.snapshot()
        found = [
            orphan
            for orphan in orphans(log, load, {*names.keys, *named}, {*names.groups, load.group}, snapshot)
            # A task that has not named its key yet may be the writer that looks like an orphan.
            if names.complete or orphan.identity.load.group != load.group
        ]
        for orphan in found:
            self.log.warning("%s: this run also published %s, which no task names any more", log.table, orphan)
        return found

    @staticmethod
    def _check_doubled(log: DeltaLog, load: Load, found: list[Orphan], report: Report) -> None:
        from airflow_provider_onelake.writes.orphans import doubled

        published = [one.writer for one in report.outcomes if one.version is not None]
        if (error := doubled(log, load, found, published)) is not None:
            raise error
