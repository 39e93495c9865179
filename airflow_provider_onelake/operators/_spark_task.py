"""The bases of operators on a table: its links and lineage; and where Spark works, its engine and what a stop ends."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import conf
from airflow.sdk import BaseOperator

from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.spark import DEFAULT_SPARK_CONN_ID, engine_for
from airflow_provider_onelake.hooks.task_state import TaskState
from airflow_provider_onelake.links.onelake import LINKS, LakehouseLink, SparkUiLink, TableLink, show
from airflow_provider_onelake.links.view import page_of
from airflow_provider_onelake.observability.lineage import Lineage, facets_of
from airflow_provider_onelake.operators._parameters import (
    check_duration,
    check_flag,
    group_defaults,
    terminal_errors_fail,
)
from airflow_provider_onelake.steps.spark import SparkWork

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_provider_onelake.spark.base import Engine
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)


class TableTaskOperator(BaseOperator):
    """A task on a table of a lakehouse, with its links and its lineage."""

    table: str
    onelake_conn_id: str
    _ti: Any = None
    _table: Table | None = None
    _lineage: Lineage | None = None
    _came_back: bool = False
    follows: str | None = None
    """The id of the reconcile task that stands before this one in a write group; its load may have made no table."""

    @cached_property
    def hook(self) -> OneLakeHook:
        """The hook of the lakehouse."""
        return OneLakeHook(self.onelake_conn_id)

    @cached_property
    def fabric(self) -> FabricHook:
        """The hook of Fabric, beside the lakehouse."""
        return FabricHook(lakehouse=self.hook)

    def task_state(self, context: Context) -> TaskState:
        """Return what the task keeps over its tries.

        :param context: of the running task.
        """
        return TaskState(context, self.hook.namespace, lambda: self.hook.table(self.table).log.store, self._came_back)

    def begin(self, context: Context) -> Table:
        """Open the table, say once where it is, and show the links to its pages.

        :param context: of the running task.
        """
        self._ti = context["ti"]
        self._table = table = self.hook.table(self.table)
        logger.info("%s is %s", table.name, table)
        show(self, self._ti, LakehouseLink, partial(page_of, self.hook, table))
        show(self, self._ti, TableLink, table.page)
        return table

    def is_without_table(self, context: Context, table: Table) -> bool:
        """Say, also in the log, whether there is no table because the load that the task follows committed nothing.

        The task is green then, because a skipped one would have Airflow skip what stands behind the group.

        :param context: of the running task.
        :param table: of the load.
        """
        left = context["ti"].xcom_pull(task_ids=self.follows, key="txns") if self.follows is not None else None
        if left != {} or table.log.snapshot_or_none() is not None:
            return False
        logger.info("There is no table at %s, as the load that the task follows committed nothing", table.name)
        return True

    def errors_explained(self) -> terminal_errors_fail:
        """Return what fails the task for good where another try cannot help.

        Of a refusal of the table's store it says which step decided: a role, a permission, a rule or a shortcut.
        """
        return terminal_errors_fail(self.hook, lambda error: self.fabric.explained(self.table, error))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return what the task read and wrote. OpenLineage's provider calls this, also where the task has failed.

        :param task_instance: the task instance that ended. It is not used.
        """
        return facets_of(self._lineage)

    def show_commit(self, version: int | None) -> None:
        """Show the links to the table's version that holds the task's rows.

        :param version: of the table. ``None`` shows no link.
        """
        if self._table is not None and version is not None:
            show(self, self._ti, LakehouseLink, partial(page_of, self.hook, self._table, version))


class SparkTaskOperator(TableTaskOperator):
    """A task that gives work to Spark on a table of a lakehouse. Its worker waits for Spark.

    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param spark_conn_id: the connection of Spark. Its type chooses the engine. Default: ``spark_connect_default``. Not
        templated.
    :param spark_timeout: seconds, or a ``timedelta``, after which the Spark job is stopped and the task fails and may
        be retried. ``execution_timeout`` stops the Spark job too. Default: no limit. Not templated.
    """

    operator_extra_links: Collection[BaseOperatorLink] = LINKS
    takes_groups_defaults: ClassVar[bool] = False
    """Whether a parameter that is not given takes the value of the write group around the task."""

    def __init__(
        self,
        *,
        onelake_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        spark_timeout: float | timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        check_duration("spark_timeout", spark_timeout)
        group = self.groups_defaults
        self.onelake_conn_id: str = onelake_conn_id or group.get("onelake_conn_id") or OneLakeHook.default_conn_name
        self.spark_conn_id: str = spark_conn_id or group.get("spark_conn_id") or DEFAULT_SPARK_CONN_ID
        self.spark_timeout = group.get("spark_timeout") if spark_timeout is None else spark_timeout

    @property
    def groups_defaults(self) -> Mapping[str, Any]:
        """The values of the write group around the task, by parameter, if the task takes them."""
        return group_defaults(self) if self.takes_groups_defaults else {}

    @cached_property
    def spark(self) -> SparkWork:
        """The task's Spark work."""
        return SparkWork(self._open_engine)

    def _show_spark_ui(self, page: str) -> None:
        if self._ti is not None:
            show(self, self._ti, SparkUiLink, lambda: page)

    def _longest(self) -> float | None:
        """Return how many seconds a Spark job may take; ``None`` for no limit."""
        limit = self.spark_timeout
        return limit.total_seconds() if isinstance(limit, timedelta) else limit

    def _leaver(self) -> Callable[[str, float | None], None] | None:
        """Return what leaves the wait for a driver to the triggerer; ``None`` where the worker waits."""
        return None

    def _open_engine(self) -> Engine:
        return engine_for(
            self.spark_conn_id,
            self._longest(),
            lambda: self._opened().spark_access(),
            lambda: self._opened().log.store,
            self._leaver(),
            self._show_spark_ui,
        )

    def _opened(self) -> Table:
        assert self._table is not None
        return self._table

    def on_kill(self) -> None:
        """Stop the Spark work of a task that is stopped, timed out or marked by hand."""
        self.spark.stop()


class DeferrableSparkTaskOperator(SparkTaskOperator):
    """A task that has rows staged by Spark. It also takes the parameters of :class:`SparkTaskOperator`.

    :param deferrable: whether the task waits in the triggerer while a driver in cluster mode stages its rows. The
        worker waits for all other Spark work. ``execution_timeout`` stops the driver also while the task is deferred.
        Default: Airflow's ``[operators] default_deferrable``. Not templated.
    """

    def __init__(self, *, deferrable: bool | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        check_flag("deferrable", deferrable, or_none=True)
        asked = self.groups_defaults.get("deferrable") if deferrable is None else deferrable
        self.deferrable: bool = conf.getboolean("operators", "default_deferrable") if asked is None else asked

    def _longest(self) -> float | None:
        longest, limit = super()._longest(), self.execution_timeout
        if limit is None or not self.deferrable:
            return longest
        # Airflow starts execution_timeout again when a task comes back from the triggerer, so we apply it ourselves.
        return limit.total_seconds() if longest is None else min(longest, limit.total_seconds())

    def _leaver(self) -> Callable[[str, float | None], None] | None:
        return self._leave if self.deferrable else None

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Carry on after the triggerer.

        ``execute`` runs again. Each step finds what it did before, down to the driver, whose result is read then.

        :param context: of the resumed task.
        :param event: the trigger's event.
        :returns: what ``execute`` returns.
        """
        self.log.info("Back from the triggerer: %s", event.get("reason"))
        if attempt := event.get("attempt"):
            with terminal_errors_fail(self.hook):
                self.spark.check_not_stopped()
                table = self.hook.table(self.table)
                # Make the engine now, because on_kill may be unable to ask Airflow for the connection.
                engine = engine_for(self.spark_conn_id, None, None, lambda: table.log.store)
                self.spark.take_back(table, str(attempt), engine)
        # Unwrap execute(): Airflow's guard against calling execute() directly would warn of this call.
        return inspect.unwrap(type(self).execute)(self, context)

    def _leave(self, attempt: str, seconds: float | None) -> None:
        from airflow_provider_onelake.triggers.driver import LONGEST_LOOK, DriverTrigger

        self.log.info("The driver is at work; the triggerer waits for it")
        engine = type(self.spark.engine())
        self.defer(
            trigger=DriverTrigger(
                engine=f"{engine.__module__}:{engine.__qualname__}",
                table=self.table,
                attempt=attempt,
                onelake_conn_id=self.onelake_conn_id,
                spark_conn_id=self.spark_conn_id,
                seconds=LONGEST_LOOK if seconds is None else min(LONGEST_LOOK, seconds),
            ),
            method_name="resume",
        )
