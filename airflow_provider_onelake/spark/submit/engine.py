"""The spark-submit engine: each job is its own Spark application, on the master that the connection names.

In client mode, and with a local master, the driver is a child of the task, and job and result are local files. In
cluster mode the driver runs on the cluster and outlives the task. Job and result then go through the table's store,
and :mod:`~airflow_provider_onelake.spark.submit.clusters` finds the driver again.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.main import ALIVE
from airflow_provider_onelake.spark.submit.clusters import access_in_cluster, cluster_of
from airflow_provider_onelake.spark.submit.drivers import DriverEngine
from airflow_provider_onelake.spark.submit.package import MAIN_FILE, JobResult, dump_job, job_package, load_result
from airflow_provider_onelake.spark.submit.settings import SubmitTarget, secrets
from airflow_provider_onelake.storage.spark import SparkAccess

if TYPE_CHECKING:
    from airflow.sdk import Connection

    from airflow_provider_onelake.spark.base import EngineContext, SparkJob
    from airflow_provider_onelake.spark.submit.hook import SubmitHook
    from airflow_provider_onelake.spark.submit.spool import JobSpool

logger = logging.getLogger(__name__)


class SubmitEngine(DriverEngine):
    """Runs jobs by ``spark-submit``, each as an application of its own.

    :param target: the settings of the Spark connection.
    :param around: what the task gives. Job and result go through its ``store`` in cluster mode, which is refused
        without one. ``seen`` is called when a job's driver has ended, and its own UI with it.
    :raises InvalidWriteError: the connection's master has no such deploy mode.
    """

    name = "submit"

    def __init__(self, target: SubmitTarget, around: EngineContext) -> None:
        from airflow.sdk.log import mask_secret

        self._target = target
        self._access = (around.access or SparkAccess)()
        # Spark's output goes into the task's log, so have Airflow mask the secrets there.
        for value in secrets(self._access.environment):
            mask_secret(value)
        self._submitting: SubmitHook | None = None
        hook = self._hook()
        self._submits_to = cluster_of(hook, target.conf)
        super().__init__(str(hook.resolved["master"]), self._submits_to, around)
        if self._cluster is not None:
            self._access = access_in_cluster(self._access, target.conf)

    @classmethod
    def of(cls, connection: Connection, around: EngineContext) -> SubmitEngine:
        """Make the engine of a connection of the type ``spark``; see :meth:`Engine.of`."""
        return cls(SubmitTarget.of(connection), around)

    def _attached(self, kind: str, job: SparkJob) -> tuple[JobResult | None, str | None]:
        """Run a job whose driver is a child of this process."""
        # A temporary directory is private to this user: a job file may hold secrets in the options of its source.
        with tempfile.TemporaryDirectory(prefix="onelake-") as home:
            package, result = job_package(), Path(home, "result.json")
            todo, alive = Path(home, "job.json"), Path(home, "alive")
            Path(home, package.name).write_bytes(package.content)
            todo.write_bytes(dump_job(kind, job.as_dict()))
            hook = self._hook(
                name=_name(job), py_files=str(Path(home, package.name)), application_args=[str(todo), str(result)]
            )
            with locked(alive):
                said, _ = self._submit(hook, str(MAIN_FILE), {**self._access.environment, ALIVE: str(alive)})
            return load_result(result.read_bytes()) if result.exists() else None, said

    def _submit_job(self, spool: JobSpool, job: SparkJob) -> tuple[str | None, str | None]:
        """Submit a job; see :meth:`DriverEngine._submit_job`."""
        assert self._submits_to is not None
        with tempfile.TemporaryDirectory(prefix="onelake-") as home:
            package = Path(home, job_package().name)
            package.write_bytes(job_package().content)
            options = self._submits_to.options(spool, package)
            application = options.pop("application")
            return self._submit(self._hook(name=_name(job), **options), application, {})

    def _submit(
        self, hook: SubmitHook, application: str, environment: Mapping[str, str]
    ) -> tuple[str | None, str | None]:
        self._submitting = hook
        try:
            said = None if self._ended is not None else hook.run(application, environment)
            return said, hook.driver
        finally:
            self._submitting = None

    def _stop_submitting(self) -> None:
        hook = self._submitting
        if hook is not None:
            logger.info("Stopping spark-submit for %s", self._where)
            hook.stop()

    def _without_secrets(self, text: str) -> str:
        for value in secrets(self._access.environment):
            text = text.replace(value, "***")
        return text

    def _hook(self, **further: Any) -> SubmitHook:
        return self._target.hook(self._access, **further)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Create a file and keep it locked until the block ends or this process dies."""
    with path.open("wb") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _name(job: SparkJob) -> str:
    return f"onelake {job.label}".strip()
