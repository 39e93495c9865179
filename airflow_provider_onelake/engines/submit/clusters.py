"""Cluster mode: what a kind of cluster is told of a job, and what it is asked of the driver that it became.

A driver of which nobody knows how the cluster calls it, since its submitter died, is looked for by what was known
before it was submitted: a tag of YARN's, the name of a pod. A standalone master has nothing of the kind; there the
driver itself says which one it is, in the job's :class:`~airflow_provider_onelake.engines.submit.spool.Exchange`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.engines.submit.package import MAIN_FILE, job_package
from airflow_provider_onelake.engines.submit.spool import PLAN, VERDICT
from airflow_provider_onelake.engines.submit.yarn import ResourceManager
from airflow_provider_onelake.exceptions import InvalidWriteError, SparkSetUpError, SparkUnavailableError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.submit.hook import SubmitHook
    from airflow_provider_onelake.engines.submit.settings import SubmitTarget
    from airflow_provider_onelake.engines.submit.spool import Exchange
    from airflow_provider_onelake.storage.spark import SparkAccess

log = logging.getLogger(__name__)

_POD = "spark.kubernetes.driver.pod.name"
_TAGS = "spark.yarn.tags"
_HTTP_SECONDS = 15
_HTTP_ERROR, _HTTP_NOT_FOUND = 400, 404


class Cluster(Protocol):
    """A kind of cluster: what it is told, and what it is asked."""

    def files(self) -> Mapping[str, bytes]:
        """Return the job's code by name, as far as the cluster takes it from the table's store."""

    def options(self, exchange: Exchange, package: Path) -> dict[str, Any]:
        """Return what the hook needs for a submission, and ``application``.

        :param exchange: of the job.
        :param package: the jobs' zip, as a local file.
        """

    def check(self) -> None:
        """Ask whether drivers can be found again at all, before one is submitted.

        :raises SparkSetUpError: they cannot.
        :raises SparkUnavailableError: the cluster does not answer.
        """

    def find(self, exchange: Exchange) -> str | None:
        """Look for a job's driver, however it was submitted.

        :param exchange: of the job.
        :returns: its id; ``None`` where there is none yet, or the cluster cannot be asked that.
        :raises SparkUnavailableError: the cluster does not answer.
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
            "application_args": [name, name, exchange.address(PLAN), exchange.address(VERDICT)],
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        import httpx

        try:
            self._ask("GET", "status", "none")
        except SparkUnavailableError as error:
            if isinstance(error.__cause__, httpx.TimeoutException):
                # Somebody is there, and busy: that passes.
                raise
            raise SparkSetUpError(
                f"The REST server of Spark's master does not answer at {self.endpoint}, and without it a driver cannot "
                "be found again: start the master with spark.master.rest.enabled=true, or correct 'rest-port' in the "
                f"extra of the connection, or use the client deploy mode. Nothing was staged. ({error})"
            ) from error

    def find(self, exchange: Exchange) -> str | None:
        """See :meth:`Cluster.find`: the master answers for ids only, and gives them itself."""
        return None

    def is_over(self, driver: str) -> bool:
        """See :meth:`Cluster.is_over`."""
        said = self._ask("GET", "status", driver)
        if said.get("success"):
            return said.get("driverState") in ("FINISHED", "KILLED", "FAILED", "ERROR")
        if said.get("message"):
            # A master that stands by, or recovers, knows no driver yet: nobody may take that for an end.
            raise SparkUnavailableError(f"Spark's master at {self.endpoint} cannot say: {str(said['message'])[:200]}")
        return True

    def kill(self, driver: str) -> None:
        """See :meth:`Cluster.kill`."""
        said = self._ask("POST", "kill", driver)
        if not said.get("success") and not self.is_over(driver):
            raise SparkUnavailableError(
                f"Spark's master at {self.endpoint} does not kill {driver}: {str(said.get('message'))[:200]}"
            )

    def _ask(self, method: str, what: str, driver: str) -> dict[str, Any]:
        import httpx

        try:
            answer = httpx.request(
                method, f"{self.endpoint}/v1/submissions/{what}/{driver}", timeout=_HTTP_SECONDS, trust_env=False
            )
            said: dict[str, Any] = answer.json()
            if answer.status_code >= _HTTP_ERROR:
                raise SparkUnavailableError(
                    f"Spark's master at {self.endpoint} says {answer.status_code}: {str(said.get('message'))[:200]}"
                )
        except (httpx.HTTPError, ValueError) as error:
            raise SparkUnavailableError(f"Spark's master at {self.endpoint} does not answer: {error}.") from error
        return said


@attrs.frozen
class Yarn:
    """YARN: an application is found by a tag that it is submitted with.

    :param manager: the ResourceManager; ``None`` where the connection names none.
    :param tags: further ones, with commas between.
    """

    manager: ResourceManager | None
    tags: str = ""

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {}

    def options(self, exchange: Exchange, package: Path) -> dict[str, Any]:
        """See :meth:`Cluster.options`."""
        # Local files: spark-submit itself puts them where YARN's containers find them.
        return {
            "application": str(MAIN_FILE),
            "py_files": str(package),
            "application_args": [exchange.address(PLAN), exchange.address(VERDICT)],
            "conf": {
                _TAGS: ",".join(filter(None, (self.tags, _name_of(exchange)))),
                "spark.yarn.submit.waitAppCompletion": "false",
            },
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        # Also that it answers, and how it wants to be signed in to.
        self._manager().find("onelake")

    def find(self, exchange: Exchange) -> str | None:
        """See :meth:`Cluster.find`."""
        return self._manager().find(_name_of(exchange))

    def is_over(self, driver: str) -> bool:
        """See :meth:`Cluster.is_over`."""
        return self._manager().is_over(driver)

    def kill(self, driver: str) -> None:
        """See :meth:`Cluster.kill`."""
        self._manager().kill(driver)

    def _manager(self) -> ResourceManager:
        if self.manager is None:
            raise SparkSetUpError(
                "Cluster mode on YARN needs the ResourceManager's address to find a driver again: set "
                "'yarn_resourcemanager_webapp_address' in the extra of the Spark connection. Nothing was staged."
            )
        return self.manager


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
            "application_args": [exchange.address(PLAN), exchange.address(VERDICT)],
            "conf": {_POD: _name_of(exchange)},
            "track_driver_via_k8s_api": True,
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        if not self.namespace:
            raise SparkSetUpError(
                "Cluster mode on Kubernetes needs 'namespace' in the extra of the Spark connection, to find a driver "
                "again. Nothing was staged."
            )

    def find(self, exchange: Exchange) -> str | None:
        """See :meth:`Cluster.find`."""
        name = _name_of(exchange)
        return name if self._phase(name) is not None else None

    def is_over(self, driver: str) -> bool:
        """See :meth:`Cluster.is_over`."""
        return self._phase(driver) in (None, "Succeeded", "Failed")

    def kill(self, driver: str) -> None:
        """See :meth:`Cluster.kill`."""
        from airflow.providers.cncf.kubernetes import kube_client

        try:
            kube_client.get_kube_client().delete_namespaced_pod(driver, self.namespace)
        except kube_client.ApiException as error:
            if error.status != _HTTP_NOT_FOUND:
                raise SparkUnavailableError(f"Kubernetes does not delete the pod {driver}: {error}") from error

    def _phase(self, name: str) -> str | None:
        """Return a pod's phase, ``None`` where there is no such pod."""
        from airflow.providers.cncf.kubernetes import kube_client

        try:
            pod = kube_client.get_kube_client().read_namespaced_pod(name, self.namespace)
        except kube_client.ApiException as error:
            if error.status == _HTTP_NOT_FOUND:
                return None
            raise SparkUnavailableError(f"Kubernetes does not answer for the pod {name}: {error}") from error
        return str(pod.status.phase)


def _jar() -> str:
    # A standalone cluster takes nothing by another name; Python runs a zip by any.
    return str(Path(job_package().name).with_suffix(".jar"))


def _name_of(exchange: Exchange) -> str:
    return "-".join(("onelake", *exchange.path.split("/")[-2:]))


def cluster_of(hook: SubmitHook, target: SubmitTarget) -> Cluster | None:
    """Return the cluster that drivers run on, ``None`` where the driver is a child of the task.

    :param hook: of the connection.
    :param target: what the connection says.
    :raises InvalidWriteError: the connection's master has no cluster mode.
    """
    if not hook.in_cluster_mode:
        return None
    if hook.rest_endpoint:
        return Standalone(hook.rest_endpoint)
    if hook.master.startswith("yarn"):
        address = target.resource_manager
        manager = ResourceManager(address, kerberos=hook.has_keytab) if address else None
        return Yarn(manager, target.conf.get(_TAGS, ""))
    if hook.master.startswith("k8s://"):
        return Kubernetes(hook.namespace)
    raise InvalidWriteError(
        f"The master {hook.master} has no cluster deploy mode that this version can follow (several standalone "
        "masters, a local one): leave 'deploy-mode' out of the connection, or say client. Nothing was staged."
    )


def access_in_cluster(access: SparkAccess, conf: Mapping[str, str]) -> SparkAccess:
    """Return what a cluster's driver is given: no environment, as all ways to it lead over a command line.

    :param access: that the connection of the lakehouse gives.
    :param conf: of the Spark connection, whose word on signing in counts first.
    """
    if access.environment:
        log.warning(
            "Not sent to the cluster, as a command line is for everybody to read: %s. Give driver and executors these "
            "variables there, or an identity of their own by `conf` in the extra of the Spark connection.",
            ", ".join(sorted(access.environment)),
        )
    return access.without_environment(conf)
