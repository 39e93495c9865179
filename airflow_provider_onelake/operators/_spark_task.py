"""What every operator has that gives Spark work: its connections, its engine, and that both stop with the task."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowException

from airflow_provider_onelake.exceptions import BufferInvalidError, OneLakeError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.spark import DEFAULT_SPARK_CONN_ID, engine_for
from airflow_provider_onelake.lineage import Lineage, facets_of
from airflow_provider_onelake.links.onelake import LINKS, CommitLink, SparkUiLink, TableLink, show
from airflow_provider_onelake.metrics import Metrics

if TYPE_CHECKING:
    from airflow.sdk import BaseOperatorLink, Context

    from airflow_provider_onelake.commit.publish import Publication
    from airflow_provider_onelake.engines.base import Engine
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.staging.spec import WriteSpec
    from airflow_provider_onelake.storage.spark import SparkAccess
    from airflow_provider_onelake.storage.stores import Store

_STOP_SECONDS = 8


class SparkTaskOperator(BaseOperator):
    """A task that gives work to Spark on a table of a lakehouse.

    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param spark_conn_id: the connection of Spark; its type chooses the engine. Default: ``spark_connect_default``.
    :param spark_timeout: in seconds, after which the Spark job is stopped and the task fails, to be retried.
        Default: none; ``execution_timeout`` stops the Spark job too, also one for which a deferred task waits.
    :param deferrable: whether to wait in the triggerer for rows that a driver in cluster mode stages; other Spark work
        is the worker's to wait for. Default: Airflow's ``[operators] default_deferrable``.
    """

    operator_extra_links: Collection[BaseOperatorLink] = LINKS

    table: str

    def __init__(
        self,
        *,
        onelake_conn_id: str | None = None,
        spark_conn_id: str | None = None,
        spark_timeout: float | timedelta | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name
        self.spark_conn_id = spark_conn_id or DEFAULT_SPARK_CONN_ID
        self.spark_timeout = spark_timeout
        self.deferrable = conf.getboolean("operators", "default_deferrable") if deferrable is None else deferrable
        self._engine: Engine | None = None
        self._ti: Any = None
        self._publications: list[Publication] = []
        self._lineage: Lineage | None = None
        self._left: Callable[[], None] | None = None
        self._stopped = False

    @cached_property
    def hook(self) -> OneLakeHook:
        """The lakehouse."""
        return OneLakeHook(self.onelake_conn_id)

    def engine(self) -> Engine:
        """Return the way to Spark, the same for all of the task.

        :raises AirflowException: the task was stopped; Spark was not asked.
        """
        self.check_not_stopped()
        if self._engine is None:
            leave = self._leave if self.deferrable else None
            self._engine = engine_for(
                self.spark_conn_id, self._longest(), self._access, self._store, leave, self._show_spark_ui
            )
        return self._engine

    def begin(self, context: Context) -> None:
        """Show the table's page from now on, and Spark's UI as soon as Spark is given work.

        :param context: of the running task.
        """
        self._ti = context["ti"]
        show(self, self._ti, TableLink, lambda: self.hook.table_page(self.table))

    @property
    def metrics(self) -> Metrics:
        """What the task reports about its table."""
        return Metrics.of(self._ti, self.hook.address(self.table))

    def observe(self, publication: Publication) -> None:
        """Take note of what was published.

        :param publication: of the task's buffers.
        """
        self._publications.append(publication)
        self.metrics.published(publication)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Say what was read and written, where OpenLineage's provider is installed and asks.

        :param task_instance: that ended.
        """
        return facets_of(self._lineage)

    def show_commit(self, version: int | None) -> None:
        """Show the page of the version that the task made, or found made.

        :param version: of the table; ``None`` for none.
        """
        if self._ti is not None and version is not None:
            show(self, self._ti, CommitLink, lambda: self.hook.commit_page(self.table, version))

    def _show_spark_ui(self, page: str) -> None:
        if self._ti is not None:
            show(self, self._ti, SparkUiLink, lambda: page)

    def _longest(self) -> float | None:
        """Return for how many seconds a Spark job may go on."""
        # Airflow gives a task that comes back from the triggerer its whole execution_timeout anew.
        limits = (self.spark_timeout, self.execution_timeout if self.deferrable else None)
        seconds = [limit.total_seconds() if isinstance(limit, timedelta) else limit for limit in limits]
        return min((limit for limit in seconds if limit is not None), default=None)

    def settle_earlier(self, log: DeltaLog, spec: WriteSpec, *, prove: bool = False) -> None:
        """Wait for a Spark job that an earlier try left at work when its worker died, or kill it if its work changed.

        Only a driver in cluster mode outlives its task. What it staged is found where buffers are looked for.

        :param log: of the table.
        :param spec: of the attempt.
        :param prove: whether to prove, with the claim, that the store is one to commit to.
        :raises DuplicateWriterError: another task of the run has the writer's key.
        :raises ZombieWriterError: a newer generation of the writer has begun.
        """
        from airflow_provider_onelake.engines.base import DurableEngine, StageJob
        from airflow_provider_onelake.staging.buffers import attempts, closed, read_open_buffer
        from airflow_provider_onelake.staging.claims import claim
        from airflow_provider_onelake.staging.prepare import same_work

        engine = self.engine()
        if not isinstance(engine, DurableEngine) or not engine.outlives_the_task:
            return
        # Neither a zombie nor a second task with the key may touch the driver of another.
        claim(log.store, spec, log.table if prove else None)
        for path in attempts(log.store, spec.identity.directory):
            try:
                earlier = read_open_buffer(log.store, path).spec
            except BufferInvalidError:
                continue  # not ours; nobody publishes it
            if closed(log.store, path) is None and earlier.attempt != spec.attempt:
                self.settle(earlier.attempt, StageJob.doing, wanted=same_work(earlier, spec))

    def left_at_work(self, owner: str, doing: str) -> list[str]:
        """Return the earlier tries whose Spark jobs may still be at work, as a driver in cluster mode is.

        :param owner: the task in its run, as its jobs say.
        :param doing: what the jobs do.
        """
        from airflow_provider_onelake.engines.base import DurableEngine

        engine = self.engine()
        if not isinstance(engine, DurableEngine) or not engine.outlives_the_task:
            return []
        return engine.left_at_work(self.hook.address(self.table).spark_uri, owner, doing)

    def settle(self, attempt: str, doing: str, *, wanted: bool) -> None:
        """Wait for the Spark job of an earlier try, or kill it.

        :param attempt: the earlier try.
        :param doing: what its job does.
        :param wanted: whether what it does is of use.
        """
        from airflow_provider_onelake.engines.base import DurableEngine

        engine = self.engine()
        if isinstance(engine, DurableEngine):
            engine.settle(self.hook.address(self.table).spark_uri, attempt, doing, wanted=wanted)
        self.check_not_stopped()

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Carry on after the triggerer: everything up to the driver finds itself done, and the driver is asked.

        :param context: of the resumed task.
        :param event: what the trigger fired.
        :returns: what ``execute`` returns.
        """
        self.log.info("Back from the triggerer: %s", event.get("reason"))
        if attempt := event.get("attempt"):
            self._take_back(str(attempt))
        # Unwrapped, as Airflow's guard against calls of execute() from elsewhere would warn of this one.
        return inspect.unwrap(type(self).execute)(self, context)

    def _take_back(self, attempt: str) -> None:
        """Know from now on which driver a stop is to end: the engine does not, until it is asked to stage again."""
        from airflow_provider_onelake.engines.base import DurableEngine, StageJob

        self.check_not_stopped()
        # Of its own, as the task's is stopped before; made now, while connections may be asked for.
        engine = engine_for(self.spark_conn_id, None, None, self._store)
        if isinstance(engine, DurableEngine):
            uri = self.hook.address(self.table).spark_uri
            self._left = partial(engine.settle, uri, attempt, StageJob.doing, wanted=False)

    def _end_left(self, end: Callable[[], None]) -> None:
        try:
            end()
        except OneLakeError as error:
            self.log.warning("The driver at work could not be ended; a retry finds it: %s", error)

    def _leave(self, attempt: str, seconds: float | None) -> None:
        from airflow_provider_onelake.triggers.driver import LONGEST_LOOK, DriverTrigger

        self.log.info("The driver is at work; the triggerer waits for it")
        self.defer(
            trigger=DriverTrigger(
                table=self.table,
                attempt=attempt,
                onelake_conn_id=self.onelake_conn_id,
                spark_conn_id=self.spark_conn_id,
                seconds=LONGEST_LOOK if seconds is None else min(LONGEST_LOOK, seconds),
            ),
            method_name="resume",
        )

    def _access(self) -> SparkAccess:
        return self.hook.spark_access(self.table)

    def _store(self) -> Store:
        return self.hook.delta_log(self.table).store

    def check_not_stopped(self) -> None:
        """Go on only where nobody stopped the task: after a SIGTERM Airflow lets ``execute`` run on.

        :raises AirflowException: the task was stopped; what it has not published stays unpublished.
        """
        if self._stopped:
            raise AirflowException("The task was stopped, its Spark work with it. Nothing was published after that.")

    def on_kill(self) -> None:
        """Stop the Spark work of a task that is stopped, timed out or marked by hand."""
        self._stopped = True
        if self._engine is not None:
            self._engine.stop()
        if self._left is not None:
            # In a thread, as this may be a signal handler, and neither store nor cluster may answer.
            ending = threading.Thread(target=self._end_left, args=[self._left], name="end-driver", daemon=True)
            ending.start()
            ending.join(_STOP_SECONDS)
