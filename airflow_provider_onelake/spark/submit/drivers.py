"""Engines whose drivers outlive the task: how a driver is waited for, found again, taken over, given up and killed.

Job and result go through the table's store, in the job's spool (:mod:`~airflow_provider_onelake.spark.submit.spool`).
How a driver is started is the engine's own matter: by ``spark-submit`` in cluster mode, or by Livy.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    OneLakeError,
    SparkJobError,
    SparkUnavailableError,
    TransientError,
)
from airflow_provider_onelake.spark.base import (
    ANALYSING,
    ONLY_CONNECT,
    Engine,
    EngineContext,
    SparkJob,
    StageJob,
    error_of_end,
    in_words,
    time_limit,
)
from airflow_provider_onelake.spark.errors import ReportedError, translate
from airflow_provider_onelake.spark.submit.settings import check_job
from airflow_provider_onelake.spark.submit.spool import JobSpool

if TYPE_CHECKING:
    from airflow_provider_onelake.spark.submit.clusters import Cluster
    from airflow_provider_onelake.spark.submit.package import JobResult
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

_POLL_SECONDS = 1.0
_SLOWER = 1.2
_LONGEST_PAUSE = 15.0
_PATIENCE = 15
# A submission that is older, and whose driver nobody has heard of yet, is given up.
_UNSEEN_SECONDS = 180
_TELL_SECONDS = 30.0
_STOP_SECONDS = 8
# A driver that does not reach the table's store cannot write its result there, so point to the cluster's log.
_SILENT = "Its log is on the cluster: one that lacks JARs, settings or rights for the table's store says so only there."


@attrs.define
class Driver:
    """A job's driver, whether or not it is known yet.

    :param cluster: where it runs.
    :param spool: its job's.
    :param where: the master, for the log.
    """

    cluster: Cluster
    spool: JobSpool
    where: str
    _shown: bool = attrs.field(default=False, init=False)

    def is_over(self) -> bool:
        """Return whether the driver has ended, or is given up and will do nothing.

        :raises TransientError: the store or the cluster does not answer.
        """
        result = self.spool.result
        # A result ends the wait. An error does not, because the cluster may start a failed driver again.
        if result is not None and result.returned is not None:
            return True
        over = self._look()
        if over is None and (self.spool.withdrawn or self.spool.age > _UNSEEN_SECONDS):
            return self._give_up()
        return bool(over)

    def came_to_nothing(self) -> bool:
        """Return whether a failed submission has left no driver, and no driver of it can start any work later."""
        try:
            return self._look() is None and self._give_up()
        except TransientError as error:
            logger.warning("Spark at %s: whether there is a driver is not known yet: %s", self.where, error)
            return False

    def at_work(self) -> bool:
        """Return whether a driver that is not over is known, and has written no result and no error yet.

        :raises StoreUnavailableError: the store did not answer.
        """
        result = self.spool.result
        return (result is None or not result.is_final) and (self._shown or self.spool.driver is not None)

    def kill(self) -> bool:
        """Try to end the driver, also if it has not started yet.

        :returns: whether the store and the cluster took the order. If not, the driver may go on.
        """
        done = True
        # Take the job file back first: a driver that the cluster starts late, or again, then finds nothing to do.
        for step in (self.spool.withdraw, self._kill):
            try:
                step()
            except OneLakeError as error:
                done = False
                logger.warning("A driver at %s could not be killed: %s", self.where, error)
        return done

    def _kill(self) -> None:
        over = self._look()
        if over is None and self.spool.driver is not None:
            raise SparkUnavailableError(f"Spark at {self.where} does not show the driver {self.spool.driver} yet.")
        if over is False:
            logger.info("Killing the driver of attempt %s at %s", self.spool.attempt, self.where)
            self.cluster.kill(self.spool)

    def _look(self) -> bool | None:
        """Return whether the driver has ended; ``None`` if it is not known, or not shown yet."""
        over = self.cluster.look(self.spool)
        self._shown = self._shown or over is not None
        if over is None and self.spool.driver is not None and self.spool.age > self.cluster.appears_seconds:
            self._shown = True
        # A cluster forgets drivers that have ended.
        return True if over is None and self._shown else over

    def _give_up(self) -> bool:
        """Take the driver's job file back, so that it does nothing if it still starts. Return whether it had not."""
        given_up = self.spool.withdraw()
        if given_up:
            said = "Spark at %s: nobody has heard of the driver of attempt %s; if it still starts, it finds no job file"
            logger.warning(said, self.where, self.spool.attempt)
        return given_up


class DriverEngine(Engine):
    """Runs each job as an application of its own, whose driver may run elsewhere and outlive the task.

    :param where: names Spark in messages.
    :param cluster: where drivers run; ``None`` if a driver is a child of the task, which the subclass then runs.
    :param around: what the task gives. Job and result go through its ``store``, which is refused without one. ``seen``
        is called when a job's driver has ended, and its own UI with it.
    """

    def __init__(self, where: str, cluster: Cluster | None, around: EngineContext) -> None:
        self._where, self._cluster, self._around, self._timeout = where, cluster, around, around.timeout
        self.outlives_the_task = cluster is not None
        self._stopped = self._may_work_on = False
        self._ended: str | None = None
        # Make it here at the latest: two threads that need it first at the same time would make two.
        self._wake.clear()
        self._end_done = threading.Event()
        self._driver: Driver | None = None

    @cached_property
    def _wake(self) -> threading.Event:
        """Set when a job is to be ended. A subclass may hand it over before this class is set up."""
        return threading.Event()

    def _submit_job(self, spool: JobSpool, job: SparkJob) -> tuple[str | None, str | None]:
        """Start a job's driver, whose files are in the spool.

        :returns: why there is certainly no driver, or ``None``; and the driver's id, if it is known at once. If both
            are ``None``, the driver is looked for on the cluster.
        :raises OneLakeError: there is no driver, and the error says why.
        """
        raise NotImplementedError

    def _stop_submitting(self) -> None:
        """End a submission that is under way."""

    def _attached(self, kind: str, job: SparkJob) -> tuple[JobResult | None, str | None]:
        """Run a job whose driver is a child of this process. Return its result, or why there is none."""
        raise NotImplementedError

    def _without_secrets(self, text: str) -> str:
        """Return a text of Spark's without what nobody may read."""
        return text

    def left_at_work(self, table_uri: str, owner: str, doing: str) -> list[str]:
        """Return the attempts of a task whose jobs may still run; see :meth:`Engine.left_at_work`."""
        if self._cluster is None:
            return []
        return [found.attempt for found in JobSpool.owned(self._open_store(), table_uri, owner, doing)]

    def wait_for(self, table_uri: str, attempt: str, doing: str) -> None:
        """Wait for the job that an earlier attempt left running; see :meth:`Engine.wait_for`."""
        self._end_earlier(table_uri, attempt, doing, killing=False)

    def kill(self, table_uri: str, attempt: str, doing: str) -> None:
        """Kill the job that an earlier attempt left running; see :meth:`Engine.kill`."""
        self._end_earlier(table_uri, attempt, doing, killing=True)

    @classmethod
    def has_ended(cls, store: Store, attempt: str, doing: str) -> bool:
        """Return whether a driver has left a result or an error; see :meth:`Engine.has_ended`."""
        result = JobSpool.at(store, "", attempt, doing).result
        return result is not None and result.is_final

    def _end_earlier(self, table_uri: str, attempt: str, doing: str, *, killing: bool) -> None:
        if self._cluster is None:
            return
        spool = JobSpool.at(self._open_store(), table_uri, attempt, doing)
        if spool.submitted:
            with self._limited():
                self._attend(spool, doing, killing=killing)
            spool.clear()

    def _attend(self, spool: JobSpool, doing: str, *, killing: bool) -> None:
        """Wait until the driver of an earlier attempt has ended.

        :param killing: whether to kill it first.
        """
        assert self._cluster is not None
        what = f"waiting for the driver that attempt {spool.attempt} left at work ({doing}), in {spool.uri}"
        logger.info("Spark at %s: %s; nothing is submitted meanwhile", self._where, what)
        self._driver = driver = Driver(self._cluster, spool, self._where)
        if killing:
            logger.info("Spark at %s: the driver is killed: nobody wants it any more", self._where)
            driver.kill()
        if not killing or spool.driver is not None:
            # Wait also for a killed driver until it is gone, because the order to kill it may have got lost.
            self._wait(driver, leaving=not killing and doing == StageJob.doing, killing=killing)
        self._raise_if_ended(what)
        self._driver = None

    def stop(self) -> None:
        """Stop what runs, in bounded time, and refuse further jobs."""
        self._stopped = True
        self._end("stopped")

    def run(self, kind: str, job: SparkJob) -> dict[str, Any]:
        """Submit one job and wait for its driver; see :meth:`Engine.run`."""
        what = in_words(kind, job)
        if self._stopped:
            raise SparkJobError(f"Stopped before {what}, as asked. The table is unchanged.")
        if isinstance(job, StageJob) and job.rows is not None:
            raise InvalidWriteError(ONLY_CONNECT)
        logger.info("Spark at %s: %s", self._where, what)
        with self._limited():
            result, said = self._attached(kind, job) if self._cluster is None else self._clustered(kind, job)
            if result is not None and result.returned is not None:
                if self._around.on_started is not None:
                    self._around.on_started(result.returned.get("application_id"), None, result.returned.get("ui"))
                return dict(result.returned)
            self._raise_if_ended(what)
        raise self._explain(result, said, what)

    def _clustered(self, kind: str, job: SparkJob) -> tuple[JobResult | None, str | None]:
        """Run a job whose driver runs on the cluster. If this attempt has submitted it before, only wait for it."""
        assert self._cluster is not None
        check_job(job)
        spool, said = JobSpool.at(self._open_store(), job.table_uri, job.attempt, kind), None
        self._cluster.check()
        found = self._found_by_another_try(kind, job) if isinstance(job, StageJob) and kind == ANALYSING else None
        if found is not None:
            return found, None
        self._driver = driver = Driver(self._cluster, spool, self._where)
        if spool.send(kind, job.as_dict(), self._cluster.files(), job.owner):
            try:
                said, known = self._submit_job(spool, job)
            except OneLakeError:
                spool.clear()
                raise
            if said is not None and driver.came_to_nothing():
                spool.clear()
                return None, said
            if known is not None:
                spool.remember(driver=known)
                logger.info("Spark at %s: driver %s", self._where, known)
            if self._ended is not None:
                # stop() or the timer ran before the driver was known, so kill the driver here.
                self._kill(driver)
        self._wait(driver, leaving=kind == StageJob.doing)
        result = spool.result
        if self._ended is None:
            if result is None or not result.is_final:
                said = said or self._cluster.last_words(spool)
            spool.clear()
        return result, said

    def _found_by_another_try(self, kind: str, job: StageJob) -> JobResult | None:
        """Return the result of another try of the same analysis, and wait for it if that try still runs."""
        for spool in JobSpool.owned(self._open_store(), job.table_uri, job.owner, kind):
            if spool.attempt == job.attempt:
                continue
            # Without a fingerprint, the source may have changed since (protocol: same source).
            same = bool(job.fingerprint) and spool.does_work_of(kind, job.as_dict())
            self._attend(spool, kind, killing=not same)
            result = spool.result
            spool.clear()
            if same and result is not None and result.returned is not None:
                return result
        return None

    def _wait(self, driver: Driver, *, leaving: bool = False, killing: bool = False) -> None:
        """Wait until a driver has ended or is given up.

        :param leaving: whether to hand the wait over once the driver works.
        :param killing: whether to repeat the order to kill the driver.
        """
        missed, pause = 0, _POLL_SECONDS
        began = told = time.monotonic()
        while self._ended is None:
            try:
                if driver.is_over():
                    return
                left = None if self._timeout is None else self._timeout - driver.spool.age
                if left is not None and left <= 0:
                    # An earlier process may have submitted the job, so this process's timer is not enough.
                    self._end("expired")
                    return
                if leaving and self._around.leave is not None and driver.at_work():
                    self._around.leave(driver.spool.attempt, left)
                if killing:
                    driver.kill()
                missed = 0
            except TransientError as error:
                missed += 1
                logger.warning("Spark at %s: its driver cannot be asked (%d): %s", self._where, missed, error)
                if missed > _PATIENCE:
                    raise SparkUnavailableError(
                        f"Spark at {self._where} cannot be asked for the driver any more. It goes on there, and a "
                        f"retry finds it again. The table is unchanged. ({error})"
                    ) from error
            if (now := time.monotonic()) - told >= _TELL_SECONDS:
                told = now
                logger.info("Spark at %s: waited %.0f s for the driver, whose log says more", self._where, now - began)
            self._wake.wait(pause)
            pause = min(pause * _SLOWER, _LONGEST_PAUSE)

    @contextmanager
    def _limited(self) -> Iterator[None]:
        """Run a block with a fresh end state, under the engine's timeout."""
        self._wake.clear()
        self._end_done.clear()
        self._ended = None
        self._may_work_on = False
        if self._stopped:
            # stop() ran after the check above and before this job could see it, so end the job here.
            self._end("stopped")
        try:
            with time_limit(self._timeout, self._end, "expired"):
                yield
        finally:
            self._driver = None

    def _end(self, why: str) -> None:
        self._ended = self._ended or why
        self._wake.set()
        driver = self._driver
        self._stop_submitting()
        if driver is not None:
            # Use a thread: this may be a signal handler, and the cluster may not answer.
            killer = threading.Thread(target=self._kill, args=[driver], name="kill-driver", daemon=True)
            killer.start()
            killer.join(_STOP_SECONDS)
        self._end_done.set()

    def _kill(self, driver: Driver) -> None:
        self._may_work_on = True
        self._may_work_on = not driver.kill()

    def _raise_if_ended(self, what: str) -> None:
        if self._ended is None:
            return
        # Another thread is killing the driver. Wait for it, or this process may exit first.
        self._end_done.wait(2 * _STOP_SECONDS)
        doubt = f"could not be ended for certain and may go on at {self._where}, where a retry finds it"
        raise error_of_end(self._ended, what, doubt if self._may_work_on else "was ended", self._timeout)

    def _explain(self, result: JobResult | None, said: str | None, what: str) -> OneLakeError:
        error = result.error if result is not None else None
        silent = ReportedError("", f"The driver ended without a result. {said or _SILENT}")
        found = translate(error or silent, what, self._where)
        if result is not None and result.starting and type(found) is SparkJobError:
            found = SparkUnavailableError(
                f"Spark at {self._where} could not be started, so {what} did not begin. The table is unchanged. "
                f"Spark said: {error}"
            )
        return type(found)(self._without_secrets(str(found)))

    def _open_store(self) -> Store:
        if self._around.store is None:
            raise InvalidWriteError("A driver on a cluster needs the table's store, by which it is talked to.")
        return self._around.store()
