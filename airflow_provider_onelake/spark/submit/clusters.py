"""Cluster mode: how each kind of cluster takes a job, and how a job's driver is looked for and killed there.

If a submitter dies, it may never have learnt its driver's id. So a driver is found by a name that was chosen before the
submission: a tag on YARN, a pod's name on Kubernetes. A standalone master knows no such name. There the driver itself
writes its id into the job's :class:`~airflow_provider_onelake.spark.submit.spool.JobSpool`.

The Spark provider submits, and says where the cluster is. It follows drivers too, but only by an id that its own
process has read, and nobody learns whether its ``on_kill`` was obeyed. So what a cluster is asked stands here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError, SparkSetUpError, SparkUnavailableError
from airflow_provider_onelake.spark.submit.package import MAIN_FILE, job_files, job_package
from airflow_provider_onelake.spark.submit.spool import JOB, RESULT

if TYPE_CHECKING:
    from airflow_provider_onelake.spark.submit.hook import SubmitHook
    from airflow_provider_onelake.spark.submit.spool import JobSpool
    from airflow_provider_onelake.storage.spark import SparkAccess

logger = logging.getLogger(__name__)

_POD = "spark.kubernetes.driver.pod.name"
_TAGS = "spark.yarn.tags"
# Seconds to connect, and seconds to read.
_HTTP_SECONDS = (5, 30)
_OVER = ("FINISHED", "FAILED", "KILLED", "ERROR")
_NOT_FOUND = 404


class Cluster(Protocol):
    """A kind of cluster: how the drivers of jobs are looked for and ended."""

    appears_seconds: float = 0
    """Seconds after a submission in which a driver with an id may not be shown yet. Default: it is shown at once."""

    def files(self) -> Mapping[str, bytes]:
        """Return the files of the job's code, by name, that the cluster reads from the table's store. Default: none."""
        return {}

    def check(self) -> None:
        """Check before a submission that drivers of this cluster can be looked for.

        :raises SparkSetUpError: they cannot.
        :raises SparkUnavailableError: the cluster does not answer.
        """

    def look(self, spool: JobSpool) -> bool | None:
        """Return whether a job's driver has ended; ``None`` if the cluster knows no such driver.

        :raises SparkUnavailableError: the cluster does not answer.
        """

    def kill(self, spool: JobSpool) -> None:
        """End a job's driver, which is at work.

        :raises SparkUnavailableError: the cluster does not answer, or does not obey.
        """

    def last_words(self, spool: JobSpool) -> str | None:
        """Return what the cluster says of a driver that has ended without a result. Default: ``None``, nothing."""
        return None


class SubmitCluster(Cluster, Protocol):
    """A kind of cluster that ``spark-submit`` submits jobs to."""

    def options(self, spool: JobSpool, package: Path) -> dict[str, Any]:
        """Return the hook's arguments for a submission, and ``application``.

        :param package: the jobs' zip, as a local file.
        """


@attrs.frozen
class Standalone(SubmitCluster):
    """Spark's standalone cluster. It takes only JARs as drivers, so the driver is the JVM class that runs Python.

    :param endpoint: the address of the master's REST server.
    """

    endpoint: str

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {_jar(): job_package().content}

    def options(self, spool: JobSpool, package: Path) -> dict[str, Any]:
        """See :meth:`SubmitCluster.options`."""
        # The worker fetches the "JAR" into the directory in which it starts the driver.
        name = _jar()
        return {
            "application": spool.address(name),
            "java_class": "org.apache.spark.deploy.PythonRunner",
            "application_args": [name, name, spool.address(JOB), spool.address(RESULT)],
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        import requests

        try:
            self._ask("GET", "status", "none")
        except SparkUnavailableError as error:
            if isinstance(error.__cause__, requests.Timeout):
                # The server accepts connections but is busy, which is transient.
                raise
            raise SparkSetUpError(
                f"The REST server of Spark's master does not answer at {self.endpoint}, and without it a driver cannot "
                "be found again: start the master with spark.master.rest.enabled=true, or correct 'rest-port' in the "
                f"extra of the connection, or use the client deploy mode. Nothing was staged. ({error})"
            ) from error

    def look(self, spool: JobSpool) -> bool | None:
        """See :meth:`Cluster.look`. The master assigns the ids itself, and answers only questions about an id."""
        driver = spool.driver
        said = self._ask("GET", "status", driver) if driver is not None else {"success": False}
        if said.get("success"):
            return said.get("driverState") in _OVER
        if said.get("message") or "success" not in said:
            # A standby or recovering master knows no driver yet, so do not take this answer for the driver's end.
            raise SparkUnavailableError(f"Spark's master at {self.endpoint} cannot say: {said.get('message')}")
        return None

    def kill(self, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        said = self._ask("POST", "kill", str(spool.driver))
        if not said.get("success") and self.look(spool) is False:
            raise SparkUnavailableError(
                f"Spark's master at {self.endpoint} does not kill {spool.driver}: {said.get('message')}"
            )

    def _ask(self, method: str, what: str, driver: str) -> dict[str, Any]:
        # A proxy that the environment names leads away from the cluster.
        there, proxies = f"{self.endpoint}/v1/submissions/{what}/{driver}", {"no_proxy": "*"}
        return _ask("Spark's master", method, there, proxies=proxies)


@attrs.frozen
class Yarn(SubmitCluster):
    """YARN, where an application is found by a tag that is submitted with it. Its ResourceManager is asked by REST.

    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html

    :param hook: knows where the ResourceManager is, and how to sign in there.
    :param tags: further tags, with commas between.
    """

    hook: SubmitHook
    tags: str = ""

    def options(self, spool: JobSpool, package: Path) -> dict[str, Any]:
        """See :meth:`SubmitCluster.options`."""
        # Name local files, because spark-submit itself uploads them for YARN's containers.
        return {
            "application": str(MAIN_FILE),
            "py_files": str(package),
            "application_args": [spool.address(JOB), spool.address(RESULT)],
            "conf": {
                _TAGS: ",".join(filter(None, (self.tags, spool.own_name))),
                "spark.yarn.submit.waitAppCompletion": "false",
            },
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        # Ask for any tag, to prove that the ResourceManager answers and accepts the sign-in.
        self._ask("GET", "?applicationTags=onelake")

    def look(self, spool: JobSpool) -> bool | None:
        """See :meth:`Cluster.look`."""
        found = self._apps(spool)
        return all(app["state"] in _OVER for app in found) if found else None

    def kill(self, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        for app in self._apps(spool):
            if app["state"] not in _OVER:
                self._ask("PUT", f"/{app['id']}/state", json={"state": "KILLED"})

    def _apps(self, spool: JobSpool) -> list[dict[str, Any]]:
        if (driver := spool.driver) is not None:
            said = self._ask("GET", f"/{driver}")
            return [said["app"]] if "app" in said else []
        # YARN keeps tags in lower case, and answers null if there is no application.
        said = self._ask("GET", f"?applicationTags={spool.own_name.lower()}")
        return (said.get("apps") or {}).get("app") or []

    def _ask(self, method: str, what: str, **body: Any) -> dict[str, Any]:
        address, auth = self.hook.resource_manager
        return _ask("YARN's ResourceManager", method, f"{address}/ws/v1/cluster/apps{what}", auth=auth, **body)


@attrs.frozen
class Kubernetes(SubmitCluster):
    """Kubernetes, where a driver is a pod with a name that is chosen before the submission.

    A pod stays there when its driver has ended, and there is no second one of its name.

    :param namespace: the namespace of the pods.
    """

    namespace: str | None

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return job_files()

    def options(self, spool: JobSpool, package: Path) -> dict[str, Any]:
        """See :meth:`SubmitCluster.options`."""
        return {
            "application": spool.address(MAIN_FILE.name),
            "py_files": spool.address(job_package().name),
            "application_args": [spool.address(JOB), spool.address(RESULT)],
            "conf": {_POD: spool.own_name},
            "track_driver_via_k8s_api": True,
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        if not self.namespace:
            raise SparkSetUpError(
                "Cluster mode on Kubernetes needs 'namespace' in the extra of the Spark connection, to find a driver "
                "again. Nothing was staged."
            )

    def look(self, spool: JobSpool) -> bool | None:
        """See :meth:`Cluster.look`."""
        pod = self._ask("read", spool.own_name)
        return None if pod is None else pod.status.phase in ("Succeeded", "Failed")

    def kill(self, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        self._ask("delete", spool.own_name)

    def _ask(self, what: str, name: str) -> Any:
        """Return what Kubernetes says of a pod, ``None`` where there is no such pod."""
        from airflow.providers.cncf.kubernetes import kube_client

        try:
            return getattr(kube_client.get_kube_client(), f"{what}_namespaced_pod")(name, self.namespace)
        except kube_client.ApiException as error:
            if error.status == _NOT_FOUND:
                return None
            raise SparkUnavailableError(f"Kubernetes does not {what} the pod {name}: {error}") from error


def _ask(whom: str, method: str, url: str, **more: Any) -> dict[str, Any]:
    """Return what a REST server says, and nothing where it finds nothing.

    :raises SparkUnavailableError: it does not answer, or answers with an error.
    """
    import requests

    try:
        answer = requests.request(method, url, timeout=_HTTP_SECONDS, **more)
        if answer.status_code == _NOT_FOUND:
            return {}
        answer.raise_for_status()
        said: dict[str, Any] = answer.json() if answer.content else {}
    except (requests.RequestException, ValueError) as error:
        raise SparkUnavailableError(f"{whom} cannot be asked: {error}") from error
    return said


def _jar() -> str:
    # A standalone cluster takes only files that end with .jar. Python runs a zip with any name.
    return str(Path(job_package().name).with_suffix(".jar"))


def cluster_of(hook: SubmitHook, conf: Mapping[str, str]) -> SubmitCluster | None:
    """Return the cluster that drivers run on, or ``None`` if the driver is a child of the task.

    :param conf: the settings of the Spark connection.
    :raises InvalidWriteError: the connection's master has no cluster mode.
    """
    where = hook.resolved
    kind, _, there = where["master"].partition("://")
    if where["deploy_mode"] != "cluster":
        return None
    if kind == "spark" and "," not in there:
        return Standalone(f"{where['rest_scheme']}://{there.rpartition(':')[0] or there}:{where['rest_port']}")
    if kind.startswith("yarn"):
        return Yarn(hook, conf.get(_TAGS, ""))
    if kind == "k8s":
        return Kubernetes(where["namespace"] or None)
    raise InvalidWriteError(
        f"The master {where['master']} has no cluster deploy mode that this version can follow (several standalone "
        "masters, a local one): leave 'deploy-mode' out of the connection, or say client. Nothing was staged."
    )


def access_in_cluster(access: SparkAccess, conf: Mapping[str, str]) -> SparkAccess:
    """Return the access for a cluster's driver, without environment variables: they would be on a command line.

    :param access: what the connection of the lakehouse gives.
    :param conf: settings of the Spark connection. Its settings for signing in count first.
    """
    if access.environment:
        logger.warning(
            "Not sent to the cluster, as a command line is for everybody to read: %s. Give driver and executors these "
            "variables there, or an identity of their own by `conf` in the extra of the Spark connection.",
            ", ".join(sorted(access.environment)),
        )
    return access.without_environment(conf)
