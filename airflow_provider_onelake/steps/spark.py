"""The Spark work of one running task: its engine, what an earlier try left at work, and how all of it ends."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from airflow.providers.common.compat.sdk import AirflowException

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.spark.base import StageJob

if TYPE_CHECKING:
    from airflow_provider_onelake.spark.base import Engine
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)

_STOP_SECONDS = 8


class SparkWork:
    """The Spark work of one running task.

    :param open_engine: makes the task's engine. It is called when Spark is needed for the first time.
    """

    def __init__(self, open_engine: Callable[[], Engine]) -> None:
        self._open_engine = open_engine
        self._engine: Engine | None = None
        self._left: Callable[[], None] | None = None
        self._stopped = False

    def engine(self) -> Engine:
        """Return the task's engine, which is made at the first call.

        :raises AirflowException: the task was stopped; Spark was not asked.
        """
        self.check_not_stopped()
        if self._engine is None:
            self._engine = self._open_engine()
        return self._engine

    def check_not_stopped(self) -> None:
        """Raise if the task was stopped, because after a SIGTERM Airflow lets ``execute`` run on.

        :raises AirflowException: the task was stopped. Rows that it has not published stay unpublished.
        """
        if self._stopped:
            raise AirflowException("The task was stopped, its Spark work with it. Nothing was published after that.")

    def settle_earlier(self, table: Table, attempts: Iterable[tuple[str, bool]]) -> bool:
        """Wait for Spark jobs that earlier tries left running, or kill those whose work has changed since.

        Only some engines' jobs go on when the task's worker dies. The caller finds the rows that such a job staged
        among the writer's buffers.

        :param attempts: ids of the earlier tries, and whether it is the same work. The generation is claimed: a zombie,
            or a second task with the same key, must not touch another task's driver.
        :returns: whether there was such a job, so that time has passed.
        """
        found = False
        for attempt, is_same in attempts if self.engine().outlives_the_task else ():
            end = self.wait_for_job if is_same else self.kill_job
            end(table, attempt, StageJob.doing)
            found = True
        return found

    def left_at_work(self, table: Table, owner: str, doing: str) -> list[str]:
        """Return the earlier attempts whose Spark jobs may still run.

        :param owner: the name of the task in its run, which its jobs record.
        :param doing: the kind of the jobs, such as ``VacuumJob.doing``.
        """
        return self.engine().left_at_work(table.address.spark_uri, owner, doing)

    def wait_for_job(self, table: Table, attempt: str, doing: str) -> None:
        """Wait for the Spark job of an earlier attempt.

        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        """
        self.engine().wait_for(table.address.spark_uri, attempt, doing)
        self.check_not_stopped()

    def kill_job(self, table: Table, attempt: str, doing: str) -> None:
        """Kill the Spark job of an earlier attempt.

        :param attempt: id of the earlier attempt.
        :param doing: the kind of its job, such as ``StageJob.doing``.
        """
        self.engine().kill(table.address.spark_uri, attempt, doing)
        self.check_not_stopped()

    def take_back(self, table: Table, attempt: str, engine: Engine) -> None:
        """Remember the driver we deferred on, so that :meth:`stop` can end it before an engine has attached to it.

        :param attempt: whose rows the driver stages.
        :param engine: to end the driver with. It is not the task's own, which is stopped first.
        """
        self._left = partial(engine.kill, table.address.spark_uri, attempt, StageJob.doing)

    def stop(self) -> None:
        """Stop all of it for good. A signal handler may call this."""
        self._stopped = True
        if self._engine is not None:
            self._engine.stop()
        if self._left is not None:
            # Use a thread: this may be a signal handler, and the store or the cluster may not answer.
            ending = threading.Thread(target=_end, args=[self._left], name="end-driver", daemon=True)
            ending.start()
            ending.join(_STOP_SECONDS)


def _end(driver: Callable[[], None]) -> None:
    try:
        driver()
    except OneLakeError as error:
        logger.warning("The driver at work could not be ended; a retry finds it: %s", error)
