"""Cluster mode: a driver that outlives the task, and how it is found again, asked and killed.

What is needed to find it lies in the table's store, under ``staged/jobs/<attempt>/<kind>``: a worker that died leaves
it behind, and the next attempt reads it. The directory is removed when the job's verdict was read; of a job that nobody
asked for any more, VACUUM removes it as any file that the table does not name.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.engines.submit_package import MAIN_FILE, Verdict, dump_plan, job_package, load_verdict
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    ObjectExistsError,
    ObjectNotFoundError,
    SparkSetUpError,
    SparkUnavailableError,
)
from airflow_provider_onelake.staging.identity import STAGED_DIRECTORY

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

    from airflow_provider_onelake.engines.jobs import SparkJob
    from airflow_provider_onelake.storage.stores import Store

_PLAN, _VERDICT, _SUBMISSION = "plan.json", "verdict.json", "submission.json"
_POD = "spark.kubernetes.driver.pod.name"
_HTTP_SECONDS = 15
_HTTP_NOT_FOUND = 404
_UNSEEN_SECONDS = 180


@attrs.frozen
class Exchange:
    """A directory in the table's store by which a job's submitter and its driver talk.

    :param store: rooted at the table.
    :param path: relative to the table.
    :param uri: as Spark addresses it.
    """

    store: Store
    path: str
    uri: str

    @classmethod
    def of(cls, store: Store, job: SparkJob, kind: str) -> Exchange:
        """Return a job's.

        :param store: rooted at the table.
        :param job: that is submitted.
        :param kind: what it does.
        """
        return cls.at(store, job.table_uri, job.attempt, kind)

    @classmethod
    def at(cls, store: Store, table_uri: str, attempt: str, kind: str) -> Exchange:
        """Return that of an attempt.

        :param store: rooted at the table.
        :param table_uri: of the table, as Spark addresses it.
        :param attempt: its id.
        :param kind: what its job does.
        """
        path = f"{STAGED_DIRECTORY}/jobs/{attempt}/{kind}"
        return cls(store, path, f"{table_uri}/{path}")

    def address(self, name: str) -> str:
        """Return an object's address, for Spark.

        :param name: of the object.
        """
        return f"{self.uri}/{name}"

    def send(self, kind: str, fields: Mapping[str, Any], files: Mapping[str, bytes] | None = None) -> bool:
        """Write what the driver needs, and claim the submission.

        :param kind: what the job does.
        :param fields: of the job.
        :param files: by name, of the job's code. Default: none.
        :returns: whether it is the caller's to submit; another execution of the attempt may have done so.
        """
        for name, content in {**(files or {}), _PLAN: dump_plan(kind, fields)}.items():
            self.store.put(f"{self.path}/{name}", content)
        try:
            self.store.create(f"{self.path}/{_SUBMISSION}", b"{}")
        except ObjectExistsError:
            return False
        return True

    @property
    def submitted(self) -> bool:
        """Whether somebody claimed the submission."""
        return self._get(_SUBMISSION) is not None

    @property
    def driver(self) -> str | None:
        """The driver, as whoever submitted it knew it, or as it says itself; ``None`` while neither does."""
        known: str | None = json.loads(self._get(_SUBMISSION) or b"{}").get("driver")
        return known or (verdict.driver if (verdict := self.verdict) else None)

    def remember(self, driver: str) -> None:
        """Write down which driver it became.

        :param driver: its id.
        """
        self.store.put(f"{self.path}/{_SUBMISSION}", json.dumps({"driver": driver}).encode())

    @property
    def verdict(self) -> Verdict | None:
        """What the driver says, ``None`` before it says anything."""
        content = self._get(_VERDICT)
        return load_verdict(content) if content is not None else None

    @property
    def age(self) -> float:
        """Seconds since the submission."""
        modified = self.store.head(f"{self.path}/{_SUBMISSION}").modified
        return (datetime.now(UTC) - modified).total_seconds()

    @property
    def unseen(self) -> bool:
        """Whether the submission is so old that a driver of which nobody has heard was never started."""
        return self.age > _UNSEEN_SECONDS

    def clear(self) -> None:
        """Remove all of it; best effort, as VACUUM takes what is left."""
        with contextlib.suppress(Exception):
            for info in list(self.store.list(self.path)):
                self.store.delete(info.path)

    def _get(self, name: str) -> bytes | None:
        try:
            return self.store.get(f"{self.path}/{name}")
        except ObjectNotFoundError:
            return None


class Cluster(Protocol):
    """A kind of cluster: what it is told, and what it is asked."""

    def files(self) -> Mapping[str, bytes]:
        """Return the job's code by name, as far as the cluster takes it from the table's store."""

    def options(self, exchange: Exchange, package: Path) -> dict[str, Any]:
        """Return what the hook needs for a submission, and ``application``.

        :param exchange: of the job.
        :param package: the jobs' zip, as a local file.
        """

    def driver(self, hook: SparkSubmitHook) -> str | None:
        """Return the id of a driver, from what the cluster said when it was submitted.

        :param hook: by which it was.
        """

    def check(self) -> None:
        """Ask whether drivers can be found again at all, before one is submitted.

        :raises SparkSetUpError: they cannot.
        """

    def is_over(self, driver: str) -> bool:
        """Say whether a driver has ended, or is not known any more.

        :param driver: its id.
        :raises SparkUnavailableError: the cluster does not answer.
        """

    def kill(self, driver: str) -> None:
        """End a driver.

        :param driver: its id.
        :raises SparkUnavailableError: the cluster does not answer.
        """


@attrs.frozen
class Standalone:
    """Spark's own cluster. It takes drivers in Python only by a detour: their JVM is Spark's runner of Python.

    :param endpoint: of the master's REST server.
    """

    endpoint: str

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {_jar(): job_package().content}

    def options(self, exchange: Exchange, package: Path) -> dict[str, Any]:
        """See :meth:`Cluster.options`."""
        # The worker fetches the "JAR" into the directory in which it starts the driver.
        name = _jar()
        return {
            "application": exchange.address(name),
            "java_class": "org.apache.spark.deploy.PythonRunner",
            "application_args": [name, name, exchange.address(_PLAN), exchange.address(_VERDICT)],
        }

    def driver(self, hook: SparkSubmitHook) -> str | None:
        """See :meth:`Cluster.driver`."""
        return hook._driver_id

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        try:
            self._ask("GET", "status", "none")
        except SparkUnavailableError as error:
            raise SparkSetUpError(
                f"The REST server of Spark's master does not answer at {self.endpoint}, and without it a driver cannot "
                "be found again: start the master with spark.master.rest.enabled=true, or correct 'rest-port' in the "
                f"extra of the connection, or use the client deploy mode. Nothing was staged. ({error})"
            ) from error

    def is_over(self, driver: str) -> bool:
        """See :meth:`Cluster.is_over`."""
        said = self._ask("GET", "status", driver)
        # UNKNOWN: the master is recovering. A driver that it does not know comes without a state.
        return said.get("driverState") not in ("SUBMITTED", "RUNNING", "RELAUNCHING", "UNKNOWN")

    def kill(self, driver: str) -> None:
        """See :meth:`Cluster.kill`."""
        self._ask("POST", "kill", driver)

    def _ask(self, method: str, what: str, driver: str) -> dict[str, Any]:
        import httpx

        try:
            answer = httpx.request(
                method, f"{self.endpoint}/v1/submissions/{what}/{driver}", timeout=_HTTP_SECONDS, trust_env=False
            )
            said: dict[str, Any] = answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise SparkUnavailableError(f"Spark's master at {self.endpoint} does not answer: {error}.") from error
        return said


@attrs.frozen
class Yarn:
    """YARN, asked by the hook through the ResourceManager's REST API.

    :param new_hook: makes a hook of the connection, for questions.
    """

    new_hook: Callable[[], SparkSubmitHook]

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {}

    def options(self, exchange: Exchange, package: Path) -> dict[str, Any]:
        """See :meth:`Cluster.options`."""
        # Local files: spark-submit itself puts them where YARN's containers find them.
        return {
            "application": str(MAIN_FILE),
            "py_files": str(package),
            "application_args": [exchange.address(_PLAN), exchange.address(_VERDICT)],
            "yarn_track_via_rm_api": True,
        }

    def driver(self, hook: SparkSubmitHook) -> str | None:
        """See :meth:`Cluster.driver`."""
        return hook._yarn_application_id

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        try:
            self.new_hook()._get_yarn_rm_base_url()
        except ValueError as error:
            raise SparkSetUpError(
                "Cluster mode on YARN needs the ResourceManager's address to find a driver again: set "
                "'yarn_resourcemanager_webapp_address' in the extra of the Spark connection. Nothing was staged."
            ) from error

    def is_over(self, driver: str) -> bool:
        """See :meth:`Cluster.is_over`."""
        try:
            return self.new_hook().query_yarn_application_status(driver) in ("SUCCEEDED", "FAILED")
        except RuntimeError as error:
            raise SparkUnavailableError(str(error)) from error

    def kill(self, driver: str) -> None:
        """See :meth:`Cluster.kill`."""
        self.new_hook()._kill_yarn_application(driver)


@attrs.frozen
class Kubernetes:
    """Kubernetes: a driver is a pod, whose name is known before it is submitted.

    :param namespace: of the pods.
    """

    namespace: str | None

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {job_package().name: job_package().content, MAIN_FILE.name: MAIN_FILE.read_bytes()}

    def options(self, exchange: Exchange, package: Path) -> dict[str, Any]:
        """See :meth:`Cluster.options`."""
        return {
            "application": exchange.address(MAIN_FILE.name),
            "py_files": exchange.address(job_package().name),
            "application_args": [exchange.address(_PLAN), exchange.address(_VERDICT)],
            "conf": {_POD: "-".join(("onelake", *exchange.path.split("/")[-2:]))},
            "track_driver_via_k8s_api": True,
        }

    def driver(self, hook: SparkSubmitHook) -> str | None:
        """See :meth:`Cluster.driver`."""
        # Not what the hook reads from the output: it looks for names that Spark gives.
        return str(hook._conf[_POD])

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        if not self.namespace:
            raise SparkSetUpError(
                "Cluster mode on Kubernetes needs 'namespace' in the extra of the Spark connection, to find a driver "
                "again. Nothing was staged."
            )

    def is_over(self, driver: str) -> bool:
        """See :meth:`Cluster.is_over`."""
        from airflow.providers.cncf.kubernetes import kube_client

        try:
            pod = kube_client.get_kube_client().read_namespaced_pod(driver, self.namespace)
        except kube_client.ApiException as error:
            if error.status == _HTTP_NOT_FOUND:
                return True
            raise SparkUnavailableError(f"Kubernetes does not answer for the pod {driver}: {error}") from error
        return pod.status.phase in ("Succeeded", "Failed")

    def kill(self, driver: str) -> None:
        """See :meth:`Cluster.kill`."""
        from airflow.providers.cncf.kubernetes import kube_client

        try:
            kube_client.get_kube_client().delete_namespaced_pod(driver, self.namespace)
        except kube_client.ApiException as error:
            if error.status != _HTTP_NOT_FOUND:
                raise SparkUnavailableError(f"Kubernetes does not delete the pod {driver}: {error}") from error


def _jar() -> str:
    # A standalone cluster takes nothing by another name; Python runs a zip by any.
    return str(Path(job_package().name).with_suffix(".jar"))


def cluster_of(new_hook: Callable[[], SparkSubmitHook]) -> Cluster | None:
    """Return the cluster that drivers run on, ``None`` where the driver is a child of the task.

    :param new_hook: makes a hook of the connection.
    :raises InvalidWriteError: the connection's master has no cluster mode.
    """
    said: Mapping[str, Any] = new_hook()._connection
    master: str = said["master"]
    if said["deploy_mode"] != "cluster":
        return None
    if said["rest_endpoint"]:
        return Standalone(said["rest_endpoint"])
    if master.startswith("yarn"):
        return Yarn(new_hook)
    if master.startswith("k8s://"):
        return Kubernetes(said["namespace"])
    raise InvalidWriteError(
        f"The master {master} has no cluster deploy mode that this version can follow (several standalone masters, a "
        "local one): leave 'deploy-mode' out of the connection, or say client. Nothing was staged."
    )
