"""Cluster mode: how each kind of cluster takes a job, and how a job's driver is found, asked, given up and killed.

If a submitter dies, it may never have learnt its driver's id. The driver is then found by a name that was chosen before
the submission: a tag on YARN, a pod's name on Kubernetes. A standalone master knows no such name. There the driver
itself writes its id into the job's :class:`~airflow_provider_onelake.engines.submit.spool.JobSpool`.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import attrs

from airflow_provider_onelake.engines.submit.hook import too_old
from airflow_provider_onelake.engines.submit.package import MAIN_FILE, job_package
from airflow_provider_onelake.engines.submit.spool import JOB, RESULT
from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError, SparkSetUpError, SparkUnavailableError

if TYPE_CHECKING:
    from airflow_provider_onelake.engines.submit.hook import SubmitHook
    from airflow_provider_onelake.engines.submit.settings import SubmitTarget
    from airflow_provider_onelake.engines.submit.spool import JobSpool
    from airflow_provider_onelake.storage.spark import SparkAccess

logger = logging.getLogger(__name__)

_POD = "spark.kubernetes.driver.pod.name"
_TAGS = "spark.yarn.tags"
_HTTP_SECONDS = 15
# Seconds to connect, and seconds to read.
_YARN_SECONDS = (5, 30)
# A submission that is older, and whose driver has no id yet, is given up.
_UNSEEN_SECONDS = 180
_OVER = ("FINISHED", "FAILED", "KILLED")
_HTTP_ERROR, _HTTP_NOT_FOUND = 400, 404


class Cluster(Protocol):
    """A kind of cluster: how its drivers are found and ended."""

    def files(self) -> Mapping[str, bytes]:
        """Return the files of the job's code, by name, that the cluster reads from the table's store."""

    def check(self) -> None:
        """Check before a submission that drivers of this cluster can be found again.

        :raises SparkSetUpError: drivers cannot be found again.
        :raises SparkUnavailableError: the cluster does not answer.
        """

    def find(self, spool: JobSpool) -> str | None:
        """Look for a job's driver on the cluster.

        :returns: the driver's id; ``None`` if there is no driver yet, or if the cluster cannot look for drivers.
        :raises SparkUnavailableError: the cluster does not answer.
        """

    def is_over(self, driver: str, spool: JobSpool) -> bool:
        """Return whether a driver has ended, or is no longer known to the cluster.

        :param driver: its id.
        :param spool: its job's.
        :raises SparkUnavailableError: the cluster does not answer.
        """

    def kill(self, driver: str, spool: JobSpool) -> None:
        """End a driver.

        :param driver: its id.
        :param spool: its job's.
        :raises SparkUnavailableError: the cluster does not answer.
        """


class SubmitCluster(Cluster, Protocol):
    """A kind of cluster that ``spark-submit`` submits jobs to."""

    def options(self, spool: JobSpool, package: Path) -> dict[str, Any]:
        """Return the hook's arguments for a submission, and ``application``.

        :param package: the jobs' zip, as a local file.
        """


@attrs.frozen
class Standalone:
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
        import httpx

        try:
            self._ask("GET", "status", "none")
        except SparkUnavailableError as error:
            if isinstance(error.__cause__, httpx.TimeoutException):
                # The server accepts connections but is busy, which is transient.
                raise
            raise SparkSetUpError(
                f"The REST server of Spark's master does not answer at {self.endpoint}, and without it a driver cannot "
                "be found again: start the master with spark.master.rest.enabled=true, or correct 'rest-port' in the "
                f"extra of the connection, or use the client deploy mode. Nothing was staged. ({error})"
            ) from error

    def find(self, spool: JobSpool) -> str | None:
        """See :meth:`Cluster.find`. The master assigns the ids itself, and answers only questions about an id."""
        return None

    def is_over(self, driver: str, spool: JobSpool) -> bool:
        """See :meth:`Cluster.is_over`."""
        return self._has_ended(driver)

    def _has_ended(self, driver: str) -> bool:
        said = self._ask("GET", "status", driver)
        if said.get("success"):
            return said.get("driverState") in ("FINISHED", "KILLED", "FAILED", "ERROR")
        if said.get("message"):
            # A standby or recovering master knows no driver yet, so do not take this answer for the driver's end.
            raise SparkUnavailableError(f"Spark's master at {self.endpoint} cannot say: {str(said['message'])[:200]}")
        return True

    def kill(self, driver: str, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        said = self._ask("POST", "kill", driver)
        if not said.get("success") and not self._has_ended(driver):
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


@attrs.frozen(slots=False)
class Yarn:
    """YARN, where an application is found by a tag that is submitted with it. Its ResourceManager is asked by REST.

    https://hadoop.apache.org/docs/stable/hadoop-yarn/hadoop-yarn-site/ResourceManagerRest.html

    :param address: the address of the ResourceManager's web application; ``None`` if the connection names none. Without
        a scheme, ``http`` is used.
    :param kerberos: whether requests need a Kerberos ticket.
    :param tags: further tags, with commas between.
    """

    address: str | None
    kerberos: bool = False
    tags: str = ""

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {}

    def options(self, spool: JobSpool, package: Path) -> dict[str, Any]:
        """See :meth:`SubmitCluster.options`."""
        # Name local files, because spark-submit itself uploads them for YARN's containers.
        return {
            "application": str(MAIN_FILE),
            "py_files": str(package),
            "application_args": [spool.address(JOB), spool.address(RESULT)],
            "conf": {
                _TAGS: ",".join(filter(None, (self.tags, spool.name))),
                "spark.yarn.submit.waitAppCompletion": "false",
            },
        }

    def check(self) -> None:
        """See :meth:`Cluster.check`."""
        # Ask for any tag, to prove that the ResourceManager answers and accepts the sign-in.
        self._tagged("onelake")

    def find(self, spool: JobSpool) -> str | None:
        """See :meth:`Cluster.find`. An application that still runs comes before one that has ended."""
        # YARN keeps tags in lower case.
        found = sorted(self._tagged(spool.name.lower()), key=lambda app: app["state"] in _OVER)
        return str(found[0]["id"]) if found else None

    def is_over(self, driver: str, spool: JobSpool) -> bool:
        """See :meth:`Cluster.is_over`."""
        said = self._ask("GET", f"/{driver}")
        return said is None or said["app"]["state"] in _OVER

    def kill(self, driver: str, spool: JobSpool) -> None:
        """See :meth:`Cluster.kill`."""
        self._ask("PUT", f"/{driver}/state", json={"state": "KILLED"})

    def _tagged(self, tag: str) -> list[dict[str, Any]]:
        # If there is no application, YARN answers null.
        return ((self._ask("GET", f"?applicationTags={tag}") or {}).get("apps") or {}).get("app") or []

    def _ask(self, method: str, what: str, **body: Any) -> dict[str, Any] | None:
        """Return the answer, or ``None`` if there is no such application."""
        import requests

        try:
            answer = requests.request(
                method, f"{self._base}/ws/v1/cluster/apps{what}", auth=self._auth, timeout=_YARN_SECONDS, **body
            )
            if answer.status_code == _HTTP_NOT_FOUND:
                return None
            if answer.status_code >= _HTTP_ERROR:
                raise SparkUnavailableError(
                    f"YARN's ResourceManager at {self._base} says {answer.status_code}: {answer.text[:200]}"
                )
            said: dict[str, Any] = answer.json() if answer.content else {}
        except (requests.RequestException, ValueError) as error:
            raise SparkUnavailableError(f"YARN's ResourceManager at {self._base} does not answer: {error}") from error
        return said

    @property
    def _base(self) -> str:
        if self.address is None:
            raise SparkSetUpError(
                "Cluster mode on YARN needs the ResourceManager's address to find a driver again: set "
                "'yarn_resourcemanager_webapp_address' in the extra of the Spark connection. Nothing was staged."
            )
        return (self.address if "://" in self.address else f"http://{self.address}").rstrip("/")

    @cached_property
    def _auth(self) -> Any:
        if not self.kerberos:
            return None
        try:
            from requests_kerberos import HTTPKerberosAuth
        except ImportError as error:
            raise SparkSetUpError(
                "The Spark connection signs in by a keytab, and to ask YARN's ResourceManager this worker lacks "
                "requests-kerberos. Install it; nothing was submitted."
            ) from error
        return HTTPKerberosAuth()


@attrs.frozen
class Kubernetes:
    """Kubernetes, where a driver is a pod with a name that is chosen before the submission.

    A pod stays there when its driver has ended, and there is no second one of its name.

    :param namespace: the namespace of the pods.
    """

    namespace: str | None

    def files(self) -> Mapping[str, bytes]:
        """See :meth:`Cluster.files`."""
        return {job_package().name: job_package().content, MAIN_FILE.name: MAIN_FILE.read_bytes()}

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

    def find(self, spool: JobSpool) -> str | None:
        """See :meth:`Cluster.find`."""
        name = spool.own_name
        return name if self._phase(name) is not None else None

    def is_over(self, driver: str, spool: JobSpool) -> bool:
        """See :meth:`Cluster.is_over`."""
        return self._phase(driver) in (None, "Succeeded", "Failed")

    def kill(self, driver: str, spool: JobSpool) -> None:
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
    # A standalone cluster takes only files that end with .jar. Python runs a zip with any name.
    return str(Path(job_package().name).with_suffix(".jar"))


def cluster_of(hook: SubmitHook, target: SubmitTarget) -> SubmitCluster | None:
    """Return the cluster that drivers run on, or ``None`` if the driver is a child of the task.

    :raises InvalidWriteError: the connection's master has no cluster mode.
    :raises SparkSetUpError: the installed Spark provider is too old for it.
    """
    resolved = hook.resolved
    if resolved["deploy_mode"] != "cluster":
        return None
    if resolved["master"].startswith("spark://") and "," not in resolved["master"]:
        if "rest_endpoint" not in resolved:
            raise too_old("a standalone master", "6.3.4")
        return Standalone(resolved["rest_endpoint"])
    if resolved["master"].startswith("yarn"):
        return Yarn(
            target.resource_manager, bool(resolved["keytab"] and resolved["principal"]), target.conf.get(_TAGS, "")
        )
    if resolved["master"].startswith("k8s://"):
        if not hook.follows_pods:
            raise too_old("Kubernetes", "6.1")
        return Kubernetes(resolved["namespace"] or None)
    raise InvalidWriteError(
        f"The master {resolved['master']} has no cluster deploy mode that this version can follow (several standalone "
        "masters, a local one): leave 'deploy-mode' out of the connection, or say client. Nothing was staged."
    )


@attrs.frozen
class Driver:
    """A job's driver, whether or not its id is known yet.

    :param where: the master, for the log.
    """

    cluster: Cluster
    spool: JobSpool
    where: str

    def learn(self, known: str | None = None) -> str | None:
        """Return the driver's id: from the submission, from the spool, or from the cluster.

        :param known: the id that the submission returned. Default: none.
        :returns: the id; ``None`` while it is unknown.
        :raises SparkUnavailableError: the cluster does not answer.
        """
        told = None if known else self.spool.driver
        found = known or told or self.cluster.find(self.spool)
        if found is not None and told is None:
            self.spool.remember(driver=found)
            logger.info("Spark at %s: driver %s", self.where, found)
        return found

    def at_work(self) -> bool:
        """Return whether a driver that is not over has a known id and has written no result and no error yet.

        :raises StoreUnavailableError: the store did not answer.
        """
        result = self.spool.result
        return (result is None or not result.is_final) and self.spool.driver is not None

    def is_over(self) -> bool:
        """Return whether the driver has ended, or is given up and will do nothing.

        :raises TransientError: the store or the cluster does not answer.
        """
        result = self.spool.result
        # A result ends the wait. An error does not, because the cluster may start a failed driver again.
        if result is not None and result.returned is not None:
            return True
        driver = self.learn()
        if driver is not None:
            return self.cluster.is_over(driver, self.spool)
        return (self.spool.withdrawn or self.spool.age > _UNSEEN_SECONDS) and self.give_up()

    def give_up(self) -> bool:
        """Take the driver's job file back, so that the driver does nothing if it still starts.

        :returns: whether the driver had not started.
        :raises StoreUnavailableError: the store did not answer.
        """
        given_up = self.spool.withdraw()
        if given_up:
            logger.warning(
                "Spark at %s: nobody has heard of the driver of attempt %s. Should it still start, it finds no job "
                "file and does nothing",
                self.where,
                self.spool.attempt,
            )
        return given_up

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
        driver = self.learn()
        if driver is not None:
            logger.info("Killing driver %s at %s", driver, self.where)
            self.cluster.kill(driver, self.spool)


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
