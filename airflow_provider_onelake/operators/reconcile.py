"""The last word on a load: publish what is staged, settle conflicts, name who is missing."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseOperator, TriggerRule

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.task_run import run_name, shares_its_name, write_group
from airflow_provider_onelake.lineage import Lineage, facets_of, lineage_of
from airflow_provider_onelake.links.onelake import CommitLink, TableLink, show
from airflow_provider_onelake.metrics import Metrics
from airflow_provider_onelake.operators._outlets import check_outlets, tell_outlets
from airflow_provider_onelake.operators._roll import Names, Roll, is_writer, names_of, take_roll
from airflow_provider_onelake.operators._terms import check_choice, terminal_errors_fail

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.commit.report import Report
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.staging.identity import Load
    from airflow_provider_onelake.staging.orphans import Orphan

_CHOOSING = ("publish", "on_conflict", "on_missing_writer")


class OneLakeReconcileOperator(BaseOperator):
    """Settle the writers of a load, whatever became of their tasks.

    It publishes complete buffers, settles the conflicts that writers left, checks that rows committed equal rows
    staged, and fails, without a retry, naming the writers that are missing: Airflow judges a run by its leaves, and a
    green run with a missing vendor is a lie. Clearing a missing writer with what follows it heals the run.

    Every decision is in the log and in XCom: ``return_value`` (and ``report``, which is there when it fails too), and
    ``txns``, what a :class:`~airflow_provider_onelake.sensors.delta_log.DeltaLogSensor` takes as its ``writers``, and
    ``partitions``, those that got files, for an
    :class:`~airflow_provider_onelake.operators.optimize.OneLakeOptimizeOperator`.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param write_task_ids: ids of the writers' tasks. Default: all the write tasks directly upstream.
    :param publish: what the writers were given: ``each`` or ``together``. Default: ``each`` (templated).
    :param on_conflict: whose rows are seen where two writes replaced the same partition: ``last_writer_wins`` (the one
        that finished last), ``first_writer_wins`` or ``fail``. A write is one thing: all of it is settled alike; with
        ``last_writer_wins_per_partition`` and ``first_writer_wins_per_partition`` each of its partitions is, so that it
        may be there by half. Default: ``last_writer_wins`` (templated).
    :param on_missing_writer: ``publish_others`` or ``publish_nothing``. Default: ``publish_others`` (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param outlets: assets that the load updates, made by :func:`~airflow_provider_onelake.assets.tables.table_asset`.
        Their events say its commits, version and rows, and for an asset with ``partitioned_by`` there is one for each
        partition that it touched. Airflow records them once this task has succeeded, so never for half a load. An asset
        with a watcher of the log is refused.
    :param trigger_rule: Default: ``all_done``, because it must run when a writer has failed.
    """

    operator_extra_links = (TableLink(), CommitLink())
    template_fields: Collection[str] = ("table", "publish", "on_conflict", "on_missing_writer")
    ui_color = "#f3ead9"

    def __init__(
        self,
        *,
        table: str,
        write_task_ids: Sequence[str] | None = None,
        publish: str = "each",
        on_conflict: str = "last_writer_wins",
        on_missing_writer: str = "publish_others",
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.table = table
        self.write_task_ids = write_task_ids
        self.publish = publish
        self.on_conflict = on_conflict
        self.on_missing_writer = on_missing_writer
        self.onelake_conn_id = onelake_conn_id
        self._lineage: Lineage | None = None
        for name in _CHOOSING:
            check_choice(name, getattr(self, name))
        check_outlets(self.task_id, self.outlets)

    @cached_property
    def hook(self) -> OneLakeHook:
        """The lakehouse."""
        return OneLakeHook(self.onelake_conn_id)

    def execute(self, context: Context) -> dict[str, Any]:
        """Reconcile.

        :param context: of the running task.
        :returns: the report, for XCom.
        :raises AirflowFailException: writers are missing, or something was refused.
        """
        with terminal_errors_fail():
            for name in _CHOOSING:
                check_choice(name, getattr(self, name))
            tasks = self._writers()
            roll = take_roll(context, [str(task.task_id) for task in tasks])
            if not roll.named and not roll.unnamed:
                self.log.info("%s: no writer was to run, so there is nothing to reconcile", self.table)
                context["ti"].xcom_push(key="partitions", value=[])
                return {
                    "table": self.table,
                    "version": None,
                    "missing": [],
                    "writers": [],
                    "skipped": [],
                    "orphans": [],
                }
            log = self.hook.delta_log(self.table)
            metrics = Metrics.of(context["ti"], self.hook.address(self.table))
            show(self, context["ti"], TableLink, lambda: self.hook.table_page(self.table))
            load = self._load(context, tasks)
            roll, generations = self._begun(log, load, roll)
            # Runs of one partition are one load; each publishes its own.
            own = generations if shares_its_name(context) else None
            report, txns, partitions = self._reconcile(log, load, roll, own, metrics)
            left = self._orphans(log, load, names_of(context, load.group), roll.named)
            metrics.reconciled(report)
            if (version := report.version) is not None:
                show(self, context["ti"], CommitLink, lambda: self.hook.commit_page(self.table, version))
            result = {**report.to_json(), "skipped": list(roll.skipped), "orphans": [attrs.asdict(one) for one in left]}
            context["ti"].xcom_push(key="report", value=result)
            context["ti"].xcom_push(key="txns", value=txns)
            context["ti"].xcom_push(key="partitions", value=partitions)
            report.raise_for_failures()
            self._check_doubled(log, load, left, report)
            tell_outlets(context, self.outlets, log, report)
        return result

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Say what was published, where OpenLineage's provider is installed and asks; also where a writer is missing.

        :param task_instance: that ended.
        """
        return facets_of(self._lineage)

    def _reconcile(
        self, log: DeltaLog, load: Load, roll: Roll, own: Mapping[str, int] | None, metrics: Metrics
    ) -> tuple[Report, dict[str, int], list[dict[str, str | None]] | None]:
        from airflow_provider_onelake.commit.policy import Policy
        from airflow_provider_onelake.commit.publish import Publication
        from airflow_provider_onelake.commit.reconcile import OnMissingWriter, reconcile
        from airflow_provider_onelake.commit.touched import touched_partitions
        from airflow_provider_onelake.staging.spec import PublishMode

        publications: list[Publication] = []

        def observe(publication: Publication) -> None:
            publications.append(publication)
            metrics.published(publication)

        report = reconcile(
            self.hook.committer(log, self.table, observe),
            load,
            roll.named,
            publish=PublishMode(self.publish),
            on_conflict=Policy(self.on_conflict),
            on_missing_writer=OnMissingWriter(self.on_missing_writer),
            unnamed=roll.unnamed,
            generations=own,
        )
        for outcome in report.outcomes:
            where = "" if outcome.version is None else f" in version {outcome.version}, {outcome.rows_published} rows"
            self.log.info("%s: writer %s: %s%s", log.table, outcome.writer, outcome.status, where)
            for decision in (*outcome.decisions, *outcome.aftermath):
                self.log.warning("%s: writer %s: %s", log.table, outcome.writer, decision)
        snapshot = log.snapshot()
        table = Lineage(table=self.hook.address(self.table))
        self._lineage = lineage_of(lambda: table.with_snapshot(snapshot).with_publications(publications))
        stored = snapshot.txns if snapshot is not None else {}
        app_ids = [load.writer(key).app_id for key in roll.named]
        txns = {app_id: stored[app_id] for app_id in app_ids if app_id in stored}
        return report, txns, touched_partitions(log, report)

    def _begun(self, log: DeltaLog, load: Load, roll: Roll) -> tuple[Roll, dict[str, int]]:
        """Look up in the claims which generation each writer began; one that got no claim has not begun.

        What a writer published before is not what it was to write now, so it must not stand for it.
        """
        from airflow_provider_onelake.staging.claims import generation_of, standing

        generations: dict[str, int] = {}
        for key in roll.named:
            generation = generation_of(log.store, load.writer(key), roll.deeds[key]) if key in roll.deeds else None
            if generation is not None:
                generations[key] = generation
        late = [
            key
            for key in roll.named
            # Without any claim, they were lost with a full VACUUM, or nothing was begun: the table's word counts.
            if key in roll.deeds and key not in generations and standing(log.store, load.writer(key)).generation
        ]
        return roll.without(late), generations

    def _orphans(self, log: DeltaLog, load: Load, names: Names, named: Iterable[str]) -> list[Orphan]:
        """Find and tell of what the run published under names that are gone."""
        from airflow_provider_onelake.staging.orphans import orphans

        snapshot = log.snapshot()
        assert snapshot is not None
        found = [
            orphan
            for orphan in orphans(log, load, {*names.keys, *named}, {*names.groups, load.group}, snapshot)
            # Where a task has not said its key, it may be that one.
            if names.complete or orphan.group != load.group
        ]
        for orphan in found:
            self.log.warning("%s: this run also published %s, which no task names any more", log.table, orphan)
        return found

    @staticmethod
    def _check_doubled(log: DeltaLog, load: Load, found: Iterable[Orphan], report: Report) -> None:
        from airflow_provider_onelake.staging.orphans import doubled

        published = [(one.writer, one.version) for one in report.outcomes if one.version is not None]
        if (error := doubled(log, load, found, published)) is not None:
            raise error

    def _writers(self) -> list[Any]:
        dag = self.get_dag()
        assert dag is not None
        if self.write_task_ids is not None:
            return [dag.get_task(task_id) for task_id in self.write_task_ids]
        tasks = [
            dag.get_task(task_id) for task_id in sorted(self.upstream_task_ids) if is_writer(dag.get_task(task_id))
        ]
        if not tasks:
            raise InvalidWriteError(f"{self.task_id} has no writers: put it behind OneLakeWriteOperators.")
        return tasks

    def _load(self, context: Context, tasks: Iterable[Any]) -> Load:
        from airflow_provider_onelake.staging.identity import Load

        groups = {write_group(task) for task in tasks}
        if len(groups) != 1:
            raise InvalidWriteError(
                f"{self.task_id} reconciles one write group, and its writers are of {', '.join(sorted(groups))}: put "
                "them into one OneLakeWriteTaskGroup."
            )
        return Load(namespace=self.hook.namespace, dag=context["ti"].dag_id, group=groups.pop(), run=run_name(context))
