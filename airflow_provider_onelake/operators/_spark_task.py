"""The base of every operator that gives work to Spark: its connections, its engine, and what a stop ends."""

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

    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param spark_conn_id: the connection of Spark. Its type chooses the engine. Default: ``spark_connect_default``. Not
        templated.
    :param spark_timeout: seconds, or a ``timedelta``, after which the Spark job is stopped and the task fails and may
        be retried. ``execution_timeout`` stops the Spark job too, also while the task is deferred. Default: no limit.
        Not templated.
    :param deferrable: whether the task waits in the triggerer while a driver in cluster mode stages its rows. The
        worker waits for all other Spark work. Default: Airflow's ``[operators] default_deferrable``. Not templated.
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
        """The hook of the lakehouse."""
        return OneLakeHook(self.onelake_conn_id)

    def engine(self) -> Engine:
        """Return the task's engine, which is made at the first call.

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
        """Show the link to the table's page, and remember the task instance for the links that follow.

        :param context: of the running task.
        """
        self._ti = context["ti"]
        show(self, self._ti, TableLink, lambda: self.hook.table_page(self.table))

    @property
    def metrics(self) -> Metrics:
        """The metrics that the task reports about its table."""
        return Metrics.of(self._ti, self.hook.address(self.table))

    def observe(self, publication: Publication) -> None:
        """Remember a publication for lineage, and report its metrics.

        :param publication: of the task's buffers.
        """
        self._publications.append(publication)
        self.metrics.published(publication)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> Any:
        """Return what the task read and wrote. OpenLineage's provider calls this where it is installed.

        :param task_instance: the task instance that ended. It is not used.
        """
        return facets_of(self._lineage)

    def show_commit(self, version: int | None) -> None:
        """Show the link to the table's version that holds the task's rows.

        :param version: of the table. ``None`` shows no link.
        """
        if self._ti is not None and version is not None:
            show(self, self._ti, CommitLink, lambda: self.hook.commit_page(self.table, version))

    def _show_spark_ui(self, page: str) -> None:
        if self._ti is not None:
            show(self, self._ti, SparkUiLink, lambda: page)

    def _longest(self) -> float | None:
        """Return how many seconds a Spark job may take; ``None`` for no limit."""
        # Airflow starts execution_timeout again when a task comes back from the triggerer, so we apply it ourselves.
        limits = (self.spark_timeout, self.execution_timeout if self.deferrable else None)
        seconds = [limit.total_seconds() if isinstance(limit, timedelta) else limit for limit in limits]
        return min((limit for limit in seconds if limit is not None), default=None)

    def settle_earlier(self, log: DeltaLog, spec: WriteSpec, *, prove: bool = False) -> None:
        """Wait for a Spark job that an earlier try left running, or kill the job if the work has changed since.

        Only some engines' jobs go on when the task's worker dies. The caller finds the rows that such a job staged
        among the writer's buffers.

        :param log: of the table.
        :param spec: of this attempt.
        :param prove: whether to prove with the claim that the store refuses a second create-only put.
        :raises DuplicateWriterError: another task of the run has the writer's key.
        :raises ZombieWriterError: a newer generation of the writer has begun.
        """
        from airflow_provider_onelake.engines.base import StageJob
        from airflow_provider_onelake.staging.buffers import read_marker, read_open_buffer
        from airflow_provider_onelake.staging.claims import claim
        from airflow_provider_onelake.staging.layout import WriterDirectory
        from airflow_provider_onelake.staging.prepare import same_work

        if not self.engine().outlives_the_task:
            return
        # Claim first: a zombie, or a second task with the same key, must not touch another task's driver.
        claim(log, spec, prove=prove)
        for path in WriterDirectory.read(log.store, spec.identity.directory).buffers:
            try:
                earlier = read_open_buffer(log.store, path).spec
            except BufferInvalidError:
                continue  # It holds no spec of a writer, so it is never published.
            if read_marker(log.store, path) is None and earlier.attempt != spec.attempt:
                end = self.wait_for_job if same_work(earlier, spec) else self.kill_job
                end(earlier.attempt, StageJob.doing)

    def left_at_work(self, owner: str, doing: str) -> list[str]:
        """Return the earlier attempts whose Spark jobs may still run.

        :param owner: the name of the task in its run, which its jobs record.
        :param doing: the kind of the jobs, such as ``VacuumJob.doing``.
        """
        return self.engine().left_at_work(self._spark_uri, owner, doing)

    def wait_for_job(self, attempt: str, doing: str) -> None:
        """Wait for the Spark job of an earlier attempt.

        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        """
        self.engine().wait_for(self._spark_uri, attempt, doing)
        self.check_not_stopped()

    def kill_job(self, attempt: str, doing: str) -> None:
        """Kill the Spark job of an earlier attempt.

        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        """
        self.engine().kill(self._spark_uri, attempt, doing)
        self.check_not_stopped()

    @property
    def _spark_uri(self) -> str:
        return self.hook.address(self.table).spark_uri

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Carry on after the triggerer.

        ``execute`` runs again. Each step finds what it did before, down to the driver, whose verdict is read then.

        :param context: of the resumed task.
        :param event: the trigger's event.
        :returns: what ``execute`` returns.
        """
        self.log.info("Back from the triggerer: %s", event.get("reason"))
        if attempt := event.get("attempt"):
            self._take_back(str(attempt))
        # Unwrap execute(): Airflow's guard against calling execute() directly would warn of this call.
        return inspect.unwrap(type(self).execute)(self, context)

    def _take_back(self, attempt: str) -> None:
        """Remember the driver we deferred on, so that on_kill can end it before an engine has attached to it again."""
        from airflow_provider_onelake.engines.base import StageJob

        self.check_not_stopped()
        # Use a second engine, because on_kill stops the task's engine first. Make it now, because on_kill may be unable
        # to ask Airflow for the connection.
        engine = engine_for(self.spark_conn_id, None, None, self._store)
        self._left = partial(engine.kill, self._spark_uri, attempt, StageJob.doing)

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
                engine=f"{type(self._engine).__module__}:{type(self._engine).__qualname__}",
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
        """Raise if the task was stopped, because after a SIGTERM Airflow lets ``execute`` run on.

        :raises AirflowException: the task was stopped. Rows that it has not published stay unpublished.
        """
        if self._stopped:
            raise AirflowException("The task was stopped, its Spark work with it. Nothing was published after that.")

    def on_kill(self) -> None:
        """Stop the Spark work of a task that is stopped, timed out or marked by hand."""
        self._stopped = True
        if self._engine is not None:
            self._engine.stop()
        if self._left is not None:
            # Use a thread: this may be a signal handler, and the store or the cluster may not answer.
            ending = threading.Thread(target=self._end_left, args=[self._left], name="end-driver", daemon=True)
            ending.start()
            ending.join(_STOP_SECONDS)
