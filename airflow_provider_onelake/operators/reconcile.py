"""The last word on a load: publish what is staged, settle conflicts, name who is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import BaseOperator, TaskInstanceState, TriggerRule

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.task_run import run_name, shares_its_name, write_group
from airflow_provider_onelake.lineage import Lineage, facets_of, lineage_of
from airflow_provider_onelake.links.onelake import CommitLink, TableLink, show
from airflow_provider_onelake.metrics import Metrics
from airflow_provider_onelake.operators.outlets import check_outlets, tell_outlets
from airflow_provider_onelake.operators.terms import check_choice, terminal_errors_fail
from airflow_provider_onelake.operators.write import WRITER_XCOM, OneLakeWriteOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.commit.report import Report
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.staging.identity import Load

_NOT_EXPECTED = (TaskInstanceState.SKIPPED, TaskInstanceState.REMOVED)
_CHOOSING = ("publish", "on_conflict", "on_missing_writer")


@attrs.frozen
class Roll:
    """The writers of a load, as Airflow knows them.

    :param named: keys of the writers that said who they are.
    :param skipped: those of them whose rows were in the table before.
    :param unnamed: labels and states of tasks that failed or never ran before they could, or whose key another has.
    :param generations: of those that said who they are, by key.
    """

    named: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    generations: Mapping[str, int] = attrs.field(factory=dict, eq=False)


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
        that finished last), ``first_writer_wins`` or ``fail``. Default: ``last_writer_wins`` (templated).
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
                return {"table": self.table, "version": None, "missing": [], "writers": [], "skipped": []}
            log = self.hook.delta_log(self.table)
            metrics = Metrics.of(context["ti"], self.hook.address(self.table))
            show(self, context["ti"], TableLink, lambda: self.hook.table_page(self.table))
            # Runs of one partition are one load; each publishes its own.
            own = roll.generations if shares_its_name(context) else None
            report, txns, partitions = self._reconcile(log, self._load(context, tasks), roll, own, metrics)
            metrics.reconciled(report)
            if (version := report.version) is not None:
                show(self, context["ti"], CommitLink, lambda: self.hook.commit_page(self.table, version))
            result = {**report.to_json(), "skipped": list(roll.skipped)}
            context["ti"].xcom_push(key="report", value=result)
            context["ti"].xcom_push(key="txns", value=txns)
            context["ti"].xcom_push(key="partitions", value=partitions)
            report.raise_for_failures()
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


def is_writer(task: Any) -> bool:
    """Say whether a task, mapped or not, is a writer.

    :param task: of a DAG.
    """
    kind = getattr(task, "operator_class", type(task))
    return isinstance(kind, type) and issubclass(kind, OneLakeWriteOperator)


def take_roll(context: Context, task_ids: Sequence[str]) -> Roll:
    """Find out who was to write, from what the writers said of themselves and from the states of their tasks.

    :param context: of the running task.
    :param task_ids: of the writers' tasks.
    :returns: who they are.
    """
    ti = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id]).get(ti.run_id, {})
    entries = _pull(ti, task_ids, WRITER_XCOM)
    said = {entry["task"]: entry["writer"] for entry in entries}
    generations = {entry["writer"]: entry["generation"] for entry in entries}
    skipped = {r["writer"] for r in _pull(ti, task_ids, "return_value") if r.get("status") == "skipped"}
    unnamed = []
    taken = Counter(said.values())
    for label, state in _labels(states, task_ids).items():
        if state in _NOT_EXPECTED:
            said.pop(label, None)
        elif label not in said:
            unnamed.append(f"{label} ({state})")
        elif taken[said[label]] > 1 and state == TaskInstanceState.FAILED:
            # Its key is another's, so its rows are not among those that the key stands for.
            unnamed.append(f"{label} ({state}: its key {said[label]!r} is another writer's)")
    named = dict.fromkeys(said.values())
    return Roll(tuple(named), tuple(key for key in named if key in skipped), tuple(unnamed), generations)


def _pull(ti: Any, task_ids: Sequence[str], key: str) -> list[dict[str, Any]]:
    # Asked for a list of tasks, Airflow answers with a flat list over their map indexes, and None for a task with none.
    return [value for value in ti.xcom_pull(task_ids=list(task_ids), key=key) or [] if isinstance(value, dict)]


def _labels(states: dict[str, Any], task_ids: Sequence[str]) -> dict[str, str | None]:
    """Turn Airflow's ``task_3`` for the mapped ``task[3]`` into what people call it."""
    labels: dict[str, str | None] = {}
    for name, state in states.items():
        task_id, _, index = name.rpartition("_")
        if name not in task_ids and task_id in task_ids and index.isdigit():
            labels[f"{task_id}[{index}]"] = state
        else:
            labels[name] = state
    return labels
