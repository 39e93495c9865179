"""The task group of a load: its writers, their reconciliation and the sensor behind it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import Asset, BaseOperator, TaskGroup, XComArg, chain

from airflow_provider_onelake._airflow import NO_RETRY_POLICY, RELEASE
from airflow_provider_onelake.buffers.spec import Promise
from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, OnSetAside, Policy, PublishMode, check_choice
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.spark import DEFAULT_SPARK_CONN_ID
from airflow_provider_onelake.modes import Append, Mode
from airflow_provider_onelake.operators._parameters import (
    check_checks,
    check_duration,
    check_flag,
    check_gone,
    check_load_name,
    check_message,
    check_table,
)
from airflow_provider_onelake.operators._roles import is_writer
from airflow_provider_onelake.operators._shared_scan import OF_SCAN, is_branch, sharable_tasks, value_of
from airflow_provider_onelake.operators._spark_task import TableTaskOperator
from airflow_provider_onelake.operators._writers_of_run import OUR_LABEL, check_mapped_key
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.operators.refresh import (
    OneLakeRefreshSemanticModelOperator,
    OneLakeRefreshSqlEndpointOperator,
)
from airflow_provider_onelake.operators.scan import OneLakeScanOperator
from airflow_provider_onelake.operators.staged import OneLakeStagedOperator
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.options import NewTable, Tuning
from airflow_provider_onelake.sensors.delta_log import DeltaLogSensor
from airflow_provider_onelake.steps.write_terms import Definition, PartitionBy
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

# Airflow's name for the pool of tasks that are given none.
_NO_POOL = "default_pool"

# Airflow runs the scan where it runs the writers, because both need the same Spark and the same store.
_RUN_AS_WRITERS = (
    *("pool", "pool_slots", "queue", "executor", "executor_config", "run_as_user", "priority_weight"),
    *("retry_delay", "retry_exponential_backoff", "max_retry_delay"),
)
# What the DAG's default_args mean for its own tasks. A scan that waits for another run, is left out, or fails for a
# callback's error would take its writers with it; an outlet would say that the load has written.
_OWN_OF_SCAN: Mapping[str, Any] = {
    "trigger_rule": "all_success",
    "depends_on_past": False,
    "wait_for_downstream": False,
    "inlets": None,
    "outlets": None,
    "pre_execute": None,
    "post_execute": None,
    **NO_RETRY_POLICY,
    **{f"on_{event}_callback": None for event in ("execute", "failure", "success", "retry", "skipped")},
    "execution_timeout": None,
    "do_xcom_push": True,
    "multiple_outputs": False,
}
_ENDS = ("on_success_callback", "on_failure_callback")
_FOR_REFRESH = ("table", "onelake_conn_id")
_FOR_UPKEEP = (*_FOR_REFRESH, "spark_conn_id", "spark_timeout")
_BEHIND: Mapping[str, tuple[type[BaseOperator], tuple[str, ...]]] = {
    "optimize": (OneLakeOptimizeOperator, _FOR_UPKEEP),
    "refresh_sql_endpoint": (OneLakeRefreshSqlEndpointOperator, _FOR_REFRESH),
    "refresh_semantic_model": (OneLakeRefreshSemanticModelOperator, _FOR_REFRESH),
    "vacuum": (OneLakeVacuumOperator, _FOR_UPKEEP),
}
"""The tasks at the end of a group that are asked for, in their order, each with what it shares with the group."""


_OF_WRITERS = {"of_writers": True}
"""Marks the parameters that are defaults of the writers in a group."""


@attrs.define(repr=False, kw_only=True)
class OneLakeWriteTaskGroup(TaskGroup):
    """Writers of one table that run at the same time, with the tasks that settle and check their load.

    The parameters are the defaults of every ``OneLakeWriteOperator`` that is made inside the ``with`` block. At the end
    of the block, the group adds ``reconcile`` behind the writers. Behind it comes ``committed``, a sensor that succeeds
    when the table shows the rows of the writers, then ``optimize``, ``refresh_sql_endpoint``,
    ``refresh_semantic_model`` and ``vacuum`` if you ask for them.

    The group's id is part of the writers' identity in the table's log. If you change it, a rerun writes again.

    :param group_id: the id of the task group. Not templated.
    :param table: see :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator`, as for all parameters
        from here to ``deferrable``. A writer's own ``mode``, ``new_table``, ``tuning`` or ``checks`` takes the place of
        the group's as a whole. The operators render the templates of the parameters that are templated there. A group
        with ``publish="together"`` takes no ``checks``.
    :param on_conflict: see :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator`. Default:
        ``last_writer_wins`` (templated).
    :param on_missing_writer: see :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator`.
        Default: ``publish_others`` (templated).
    :param on_set_aside: see :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator` for the writers,
        and :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator` for ``reconcile``. Default:
        ``warn`` (templated).
    :param shared_scan: whether to add the task ``scan`` before writers that share a source and differ in ``where``, if
        there are two or more of them. It reads the source once, and the writers publish their rows without Spark; see
        :class:`~airflow_provider_onelake.operators.scan.OneLakeScanOperator`. With ``False``, each writer scans for
        itself. Default: yes. Not templated.
    :param pool: Airflow's pool for the writers that name no pool. Its slots limit how many of them run at once, over
        all runs, backfills and DAGs that use the pool. The pool must exist: else the writers wait for ever, and only
        their pages in the UI say why. Default: ``default_pool``. Not templated.
    :param notifiers: called with the context when ``reconcile`` has ended, whether it succeeded or failed: an
        :class:`~airflow_provider_onelake.notifications.onelake.OneLakeLoadNotifier`, for instance. They are its
        ``on_success_callback`` and its ``on_failure_callback``. Default: those in ``default_args``, if there are any.
        Not templated.
    :param outlets: assets that the load updates; see
        :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator`. Default: none. Not templated.
    :param load_name: the name in place of the DAG's id in the identity of the writers. If you rename a DAG, say its old
        id here: the tables then know its loads as before. DAGs that share a ``load_name`` are one load to a table, with
        one set of groups and keys, so give it to one DAG only. Default: the DAG's id. Not templated.
    :param committed: whether to add the sensor. Default: yes. Not templated.
    :param committed_timeout: a ``timedelta``, how long the sensor waits. Default: 1 hour. Not templated.
    :param optimize: whether to compact at the end the partitions that the run touched, if that pays; or a dict of
        parameters for that :class:`~airflow_provider_onelake.operators.optimize.OneLakeOptimizeOperator`, which takes
        the ``v_order`` of the group's ``tuning`` unless it has one of its own. After that, ``on_rerun="replace"`` can
        no longer take the run's appended rows back. Tasks behind the group wait for this task and for those below, and
        do not run if one of them fails, although all rows are committed. Default: no.
    :param refresh_sql_endpoint: whether to let the lakehouse's SQL endpoint see the table's newest version after that;
        or a dict of parameters for that
        :class:`~airflow_provider_onelake.operators.refresh.OneLakeRefreshSqlEndpointOperator`. Default: no.
    :param refresh_semantic_model: a dict of parameters for a
        :class:`~airflow_provider_onelake.operators.refresh.OneLakeRefreshSemanticModelOperator` after that, such as
        ``{"semantic_model": "Trips"}``. Reports then show the table's newest version, before ``vacuum`` takes files of
        older ones. Default: none.
    :param vacuum: whether to vacuum the table after that; or a dict of parameters for that
        :class:`~airflow_provider_onelake.operators.vacuum.OneLakeVacuumOperator`. Default: no.
    """

    table: str = attrs.field(metadata=_OF_WRITERS)
    mode: str | Mapping[str, Any] | Mode | None = attrs.field(default=None, metadata=_OF_WRITERS)
    publish: str = attrs.field(default="each", metadata=_OF_WRITERS)
    expected_partitions: str | None = attrs.field(default=None, metadata=_OF_WRITERS)
    on_unexpected_rows: str | None = attrs.field(default=None, metadata=_OF_WRITERS)
    on_rerun: str | None = attrs.field(default=None, metadata=_OF_WRITERS)
    partition_by: PartitionBy | None = attrs.field(default=None, metadata=_OF_WRITERS)
    new_table: NewTable | None = attrs.field(default=None, metadata=_OF_WRITERS)
    schema_evolution: str | None = attrs.field(default=None, metadata=_OF_WRITERS)
    tuning: Tuning | None = attrs.field(default=None, metadata=_OF_WRITERS)
    checks: Mapping[str, str] | None = attrs.field(default=None, metadata=_OF_WRITERS)
    on_failed_check: str | None = attrs.field(default=None, metadata=_OF_WRITERS)
    commit_message: str | None = attrs.field(default=None, metadata=_OF_WRITERS)
    onelake_conn_id: str = attrs.field(default=OneLakeHook.default_conn_name, metadata=_OF_WRITERS)
    spark_conn_id: str = attrs.field(default=DEFAULT_SPARK_CONN_ID, metadata=_OF_WRITERS)
    spark_timeout: float | timedelta | None = attrs.field(default=None, metadata=_OF_WRITERS)
    deferrable: bool | None = attrs.field(default=None, metadata=_OF_WRITERS)
    on_conflict: str = attrs.field(default="last_writer_wins", metadata=_OF_WRITERS)
    on_missing_writer: str = "publish_others"
    on_set_aside: str = attrs.field(default="warn", metadata=_OF_WRITERS)
    shared_scan: bool = True
    pool: str | None = None
    notifiers: Sequence[Callable[[Context], object]] = ()
    outlets: Sequence[Asset] = ()
    load_name: str | None = None
    committed: bool = True
    committed_timeout: timedelta = timedelta(hours=1)
    optimize: bool | Mapping[str, Any] | None = False
    refresh_sql_endpoint: bool | Mapping[str, Any] | None = False
    refresh_semantic_model: Mapping[str, Any] | None = None
    vacuum: bool | Mapping[str, Any] | None = False

    def __new__(cls, *args: Any, **given: Any) -> Any:
        """Make a group.

        :raises InvalidWriteError: a parameter is gone; the message says what to take.
        """
        check_gone(given)
        return super().__new__(cls)

    def __attrs_post_init__(self) -> None:
        check_table("table", self.table)
        check_message(self.commit_message)
        check_checks(self.checks)
        if self.checks and self.publish == PublishMode.TOGETHER:
            raise InvalidWriteError(
                f"{self.group_id}: checks of all writers of a load together are gone, so a group with "
                "publish='together' takes no `checks`. Give `checks` to each writer, which are about its own rows; or "
                "let an audit look at all staged rows before they are published: `look(load.staged())` in the group, "
                "with a task `look` of yours."
            )
        check_choice("on_conflict", self.on_conflict, Policy)
        check_choice("on_set_aside", self.on_set_aside, OnSetAside)
        check_choice("on_missing_writer", self.on_missing_writer, OnMissingWriter)
        check_duration("spark_timeout", self.spark_timeout)
        check_flag("deferrable", self.deferrable, or_none=True)
        self._promise()
        Definition(partition_by=self.partition_by, new_table=self.new_table, schema_evolution=self.schema_evolution)
        check_load_name(self.load_name)
        check_flag("shared_scan", self.shared_scan)
        check_flag("committed", self.committed)
        for name in ("optimize", "refresh_sql_endpoint", "vacuum"):
            asked = getattr(self, name)
            if not isinstance(asked, Mapping | bool | None):
                raise InvalidWriteError(
                    f"{name}={asked!r} must be True, False, None, or a dict of the operator's parameters; Airflow "
                    "renders no templates in it."
                )
        outlets: object = self.outlets
        if isinstance(outlets, str) or not isinstance(outlets, Collection):
            raise InvalidWriteError(f"outlets={outlets!r} must be a list of assets, [table_asset(…)].")
        pool: object = self.pool
        if pool is not None and (not isinstance(pool, str) or not pool.strip() or not is_final(pool)):
            raise InvalidWriteError(f"pool={self.pool!r} must be a pool's name; Airflow renders no templates in it.")
        notifiers: object = self.notifiers
        if not isinstance(notifiers, Collection) or not all(map(callable, notifiers)):
            raise InvalidWriteError(
                f"notifiers={self.notifiers!r} must be a list of notifiers, or of functions that take the context."
            )
        model = self.refresh_semantic_model
        if model is not None and not (isinstance(model, Mapping) and "semantic_model" in model):
            raise InvalidWriteError(
                f"refresh_semantic_model={model!r} must be parameters, such as {{'semantic_model': 'Trips'}}."
            )
        super().__attrs_post_init__()  # type: ignore[no-untyped-call]

    @property
    def write_defaults(self) -> dict[str, Any]:
        """The defaults of the writers in the group.

        They are not Airflow's ``default_args``, which would apply to every operator with a ``table`` or a ``mode``.
        """
        given = {
            field.name: getattr(self, field.name)
            for field in attrs.fields(OneLakeWriteTaskGroup)
            if field.metadata.get("of_writers")
        }
        return {name: value for name, value in given.items() if value is not None}

    def _promise(self) -> Promise:
        return Promise(
            mode=self.mode or Append(),
            expected_partitions=self.expected_partitions,
            on_unexpected_rows=self.on_unexpected_rows,
            publish=self.publish,
            on_rerun=self.on_rerun,
            checks=self.checks or {},
            on_failed_check=self.on_failed_check,
            message=self.commit_message,
        )

    def staged(self) -> XComArg:
        """Add the task ``staged`` behind the writers, which tells audits what is to be published.

        Tasks behind it in the group are **audits** of the load: a function that looks at the staged rows, a person who
        approves, any operator. ``reconcile`` waits for them, and publishes only if each of them has succeeded.

        :returns: the task's result, as :class:`~airflow_provider_onelake.operators.staged.OneLakeStagedOperator`
            describes it, for the audits.
        :raises InvalidWriteError: writers publish before anybody could look, because ``publish`` is not ``together``.
        """
        if self.publish != PublishMode.TOGETHER:
            raise InvalidWriteError(
                f"{self.group_id}: publish={self.publish!r} has writers publish as soon as they have staged, so there "
                "is nothing left to audit. Use publish='together'."
            )
        there = self.children.get(self.child_id("staged"))  # type: ignore[no-untyped-call]
        task = (
            there
            if isinstance(there, OneLakeStagedOperator)
            else OneLakeStagedOperator(
                task_id="staged", task_group=self, table=self.table, onelake_conn_id=self.onelake_conn_id
            )
        )
        return XComArg(task)

    def update_relative(self, other: Any, upstream: bool = True, edge_modifier: Any = None) -> None:
        """Note that tasks stand before or behind the group, as every task group does.

        A branch before the group may choose some of the writers. It would skip the scan, and so the writers that it has
        chosen. So behind a branch, each writer scans for itself.

        :param other: the tasks.
        :param upstream: whether they stand before the group.
        :param edge_modifier: the label of the edges.
        """
        if upstream and any(is_branch(task) for task in other.leaves):
            self._remove_scan()
        super().update_relative(other, upstream, edge_modifier)

    def __exit__(
        self, exc_type: type[BaseException] | None, exc_value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Add the tasks behind the writers, and close the group."""
        try:
            if exc_type is None:
                self._add_reconcile()
        finally:
            super().__exit__(exc_type, exc_value, traceback)  # type: ignore[no-untyped-call]

    def _add_reconcile(self) -> None:
        writers: list[Any] = [task for task in self.iter_tasks() if is_writer(task)]
        if not writers:
            raise InvalidWriteError(
                f"The task group {self.group_id} has no OneLakeWriteOperator in it: put one there, or leave the group "
                "out."
            )
        for task in writers:
            # Set the pool here: a mapped task takes it only from default_args, which would apply to other tasks too.
            if self.pool is not None and task.pool == _NO_POOL:
                task.pool = self.pool
            if task.map_index_template is None and RELEASE < (3, 3):
                # There, partial() does not know the operator's default.
                task.map_index_template = OUR_LABEL
            check_mapped_key(task)
            # Refuse a writer that differs in one of these, because reconcile would settle it by the wrong rules.
            for name in ("table", "publish", "on_conflict", "on_set_aside", "onelake_conn_id"):
                own = getattr(task, "partial_kwargs", {}).get(name, getattr(task, name, None))
                if own is not None and own != getattr(self, name):
                    raise InvalidWriteError(f"{task.task_id}: {name}={own!r}; in a write group it is the group's.")
        self._add_scan(writers)
        # Where the group has none, its default_args apply, which an empty list would replace.
        callbacks: dict[str, Any] = {end: list(self.notifiers) for end in _ENDS} if self.notifiers else {}
        reconcile = OneLakeReconcileOperator(
            task_id="reconcile",
            task_group=self,
            table=self.table,
            publish=self.publish,
            on_conflict=self.on_conflict,
            on_missing_writer=self.on_missing_writer,
            on_set_aside=self.on_set_aside,
            outlets=list(self.outlets),
            onelake_conn_id=self.onelake_conn_id,
            **callbacks,
        )
        behind: list[BaseOperator] = [reconcile]
        if self.committed:
            behind.append(
                DeltaLogSensor(
                    task_id="committed",
                    task_group=self,
                    table=self.table,
                    writers=XComArg(reconcile, key="txns"),
                    onelake_conn_id=self.onelake_conn_id,
                    deferrable=True,
                    timeout=self.committed_timeout,
                )
            )
        touched = {"partitions": XComArg(reconcile, key="partitions")}
        own = {"optimize": touched if self.tuning is None else {**touched, "v_order": self.tuning.v_order}}
        for task_id, (kind, shared) in _BEHIND.items():
            asked = getattr(self, task_id)
            if asked not in (None, False):
                given = {**{name: getattr(self, name) for name in shared}, **own.get(task_id, {})}
                given |= {} if asked is True else asked
                behind.append(kind(task_id=task_id, task_group=self, **given))
        for task in behind:
            # A table that is named there anew is none that the load could have made.
            if isinstance(task, TableTaskOperator) and task.table == self.table:
                task.follows = reconcile.task_id
        chain(writers, *behind)
        self._add_audits(writers, reconcile)

    def _add_audits(self, writers: Sequence[Any], reconcile: BaseOperator) -> None:
        """Put the tasks behind ``staged`` before the reconciliation, and ``staged`` behind the writers."""
        staged = self.children.get(self.child_id("staged"))  # type: ignore[no-untyped-call]
        if not isinstance(staged, OneLakeStagedOperator):
            return
        inside = {task.task_id for task in self.iter_tasks()}
        audits = [task for task in staged.get_flat_relatives(upstream=False) if task.task_id in inside]
        chain(writers, staged, reconcile)
        for audit in audits:
            if not audit.downstream_task_ids & inside:
                audit >> reconcile

    def _add_scan(self, writers: Sequence[Any]) -> None:
        """Add the scan that writers of one source share, if there are such writers."""
        shares = sharable_tasks(writers, self.write_defaults) if self.shared_scan else []
        # A DAG may have a task of that name in the group already.
        if not shares or self.child_id("scan") in self.children:  # type: ignore[no-untyped-call]
            return
        tasks = [task for task in writers if task.task_id in {share["task_id"] for share in shares}]
        first, defaults = tasks[0], self.write_defaults
        appends = all((value_of(task, "mode", defaults) or Append.name) in (Append.name, Append()) for task in tasks)
        reruns = {value_of(task, "on_rerun", defaults) or OnRerun.SKIP for task in tasks}
        # A writer's time limits the scan's Spark job, and after it the writers scan for themselves. As Airflow's limit
        # of the task, it would fail the scan, and no writer would run.
        limits = (value_of(first, "spark_timeout", defaults), first.execution_timeout)
        seconds = [limit.total_seconds() if isinstance(limit, timedelta) else limit for limit in limits]
        scan = OneLakeScanOperator(
            task_id="scan",
            task_group=self,
            table=self.table,
            writers=shares,
            skips=appends and reruns <= {OnRerun.SKIP},
            onelake_conn_id=self.onelake_conn_id,
            spark_timeout=min((limit for limit in seconds if limit is not None), default=None),
            # A worker that dies must not fail writers that could do without the scan.
            retries=first.retries + 1,
            **{name: value_of(first, name, defaults) for name in OF_SCAN},
            **_OWN_OF_SCAN,
            **{name: getattr(first, name) for name in _RUN_AS_WRITERS},
        )
        # Airflow 3.1 takes its object not as an argument.
        scan.weight_rule = first.weight_rule
        for before in first.upstream_list:
            before >> scan
        chain(scan, tasks)

    def _remove_scan(self) -> None:
        """Remove the scan. Tasks that were set before the group since its end come before the writers instead."""
        task_id = self.child_id("scan")  # type: ignore[no-untyped-call]
        scan: Any = self.children.get(task_id)
        if not isinstance(scan, OneLakeScanOperator):
            return
        for before in scan.upstream_list:
            before.downstream_task_ids.discard(task_id)
        for writer in scan.downstream_list:
            writer.upstream_task_ids.discard(task_id)
            for before in scan.upstream_list:
                if before.task_id not in writer.upstream_task_ids:
                    before >> writer
        del self.children[task_id], self.dag.task_dict[task_id]
