"""One application: the Spark provider's hook for it, and the ``spark-submit`` that the hook starts and that we stop.

This module has the only uses of the hook's private attributes, so that a version of the provider without them fails
with a clear message. They are the resolved fields of the connection; the process, whose children the hook would leave
alive; and how the hook reaches YARN's ResourceManager.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import SparkSetUpError
from airflow_provider_onelake.spark.client import check_one_client, submit_line
from airflow_provider_onelake.spark.jobs.main import CONNECT_VARIABLES

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

PROVIDER = "apache-airflow-providers-apache-spark"
"""The distribution that the hook comes from."""

# Airflow's own environment variables hold keys and connections, so they are not passed to Spark.
_AIRFLOWS = ("AIRFLOW__", "AIRFLOW_CONN_", "AIRFLOW_VAR_", "_AIRFLOW_")
_RESOLVED = ("master", "deploy_mode", "namespace", "spark_binary")
# The provider has them since it can follow drivers on all three kinds of clusters; that of Airflow 3.2.1 cannot.
_IN_CLUSTER_MODE = ("rest_scheme", "rest_port")
_TERM_SECONDS = 5
_KILL_SECONDS = 3
_START_SECONDS = 30
_POLL_SECONDS = 0.05
_TAIL = "Last spark-submit output:\n"
_LONGEST = 3000


class SubmitHook:
    """One application, by one ``spark-submit`` in a process group of its own.

    :param wrapped: the provider's hook, with the application's settings.
    :raises SparkSetUpError: the installed version of the provider is not one that this package knows.
    """

    driver: str | None = None
    """The driver's id once :meth:`run` has returned, on a standalone cluster in cluster mode."""

    def __init__(self, wrapped: SparkSubmitHook) -> None:
        self._wrapped = wrapped
        self._ended = threading.Event()
        self._stopping = threading.Event()
        self._private("_submit_sp")
        more = _IN_CLUSTER_MODE if self.resolved.get("deploy_mode") == "cluster" else ()
        if missing := [name for name in (*_RESOLVED, *more) if name not in self.resolved]:
            raise _unknown(f"_connection[{missing[0]!r}]")

    @property
    def resolved(self) -> Mapping[str, Any]:
        """The connection as the provider understands it: ``master``, ``deploy_mode``, ``spark_binary`` and others."""
        found: Mapping[str, Any] = self._private("_connection")
        return found

    @property
    def resource_manager(self) -> tuple[str, Any]:
        """The address of YARN's ResourceManager, and what signs a request of ``requests`` in there, or ``None``.

        :raises SparkSetUpError: the connection or this worker lacks what is needed to ask it.
        """
        try:
            return self._private("_get_yarn_rm_base_url")(), self._private("_resolved_yarn_rm_auth")
        except (ValueError, RuntimeError) as error:
            raise SparkSetUpError(
                "Cluster mode on YARN needs 'yarn_resourcemanager_webapp_address' in the extra of the Spark connection "
                "and, if the connection has a keytab, requests-kerberos on this worker: without them a driver cannot "
                f"be found again. Nothing was staged. ({error})"
            ) from error

    def run(self, application: str, environment: Mapping[str, str]) -> str | None:
        """Run the script to its end. Its output goes to the task's log.

        :param application: script or JAR.
        :param environment: further variables of the process.
        :returns: the end of the output if the process failed, else ``None``.
        :raises SparkSetUpError: the process cannot be started.
        """
        from airflow.providers.common.compat.sdk import AirflowException

        popen: dict[str, Any] = {"start_new_session": True, "stdin": subprocess.DEVNULL}
        try:
            popen["env"] = _environment(self.resolved["spark_binary"], environment)
            self.driver = self._wrapped.submit(application, **popen)
        except (AirflowException, RuntimeError) as error:
            said = str(error)
            return (said.partition(_TAIL)[2] or said)[-_LONGEST:]
        except OSError as error:
            raise SparkSetUpError(f"spark-submit cannot be started: {error}. Nothing was staged.") from error
        finally:
            self._ended.set()
        return None

    def stop(self) -> None:
        """Stop the process, if needed by force. This returns within about eight seconds, also in a signal handler."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        # Use a thread: this may be a signal handler that interrupted the main thread while it started the process.
        stopping = threading.Thread(target=self._stop, name="stop-spark", daemon=True)
        stopping.start()
        stopping.join(_TERM_SECONDS + _KILL_SECONDS)

    def _stop(self) -> None:
        # Do not use the hook's own way to kill the process: it leaves the script's children alive.
        _until(lambda: self._ended.is_set() or self._private("_submit_sp") is not None, _START_SECONDS)
        process = self._private("_submit_sp")
        if process is None or self._ended.is_set():
            return
        # Signal the process group: the JVM and its Python belong to it.
        for how, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
            if not _signal_group(process.pid, how):
                return
            if _until(lambda: process.poll() is not None and not _signal_group(process.pid, 0), seconds):
                return

    def _private(self, name: str) -> Any:
        try:
            return getattr(self._wrapped, name)
        except AttributeError:
            raise _unknown(name) from None


def _unknown(what: str) -> SparkSetUpError:
    return SparkSetUpError(
        f"{PROVIDER} {importlib.metadata.version(PROVIDER)} is not known to this package: its SparkSubmitHook has no "
        f"{what}. Install a version that requirements.lock names, or a newer airflow-provider-onelake. Nothing was "
        "submitted."
    )


def _until(condition: Callable[[], bool], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    return met


def _signal_group(pid: int, what: int) -> bool:
    try:
        os.killpg(pid, what)
    except ProcessLookupError:
        return False
    return True


def _environment(binary: str, further: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a ``spark-submit``: the worker's, without the variables of Airflow and Spark Connect.

    If the worker has no other Spark, the ``pyspark`` that pip installed is used.

    :param binary: name of the script.
    :param further: variables to add.
    :raises SparkSetUpError: there is no such script on this worker.
    """
    env = {k: v for k, v in os.environ.items() if not k.startswith(_AIRFLOWS) and k not in CONNECT_VARIABLES}
    pip = _pip_spark()
    if pip is not None:
        check_one_client()
    if home := env.get("SPARK_HOME"):
        env["PATH"] = f"{home}/bin:{env.get('PATH', '')}"
    elif pip is not None and Path(shutil.which(binary) or sys.executable).parent == Path(sys.executable).parent:
        # pip's own script looks for Spark with the first python3 on PATH, which may be another one. So name its home.
        env["SPARK_HOME"], env["PATH"] = str(pip), f"{pip}/bin:{env.get('PATH', '')}"
    if shutil.which(binary, path=env.get("PATH")) is None:
        raise SparkSetUpError(
            f"There is no {binary} on this worker: install Spark and put its bin directory on PATH, or set SPARK_HOME, "
            f"or install pyspark beside Airflow: {submit_line()}. Nothing was staged; clear this task then."
        )
    env.setdefault("PYSPARK_DRIVER_PYTHON", env.get("PYSPARK_PYTHON") or sys.executable)
    return {**env, **further}


def _pip_spark() -> Path | None:
    spec = importlib.util.find_spec("pyspark")
    home = Path(spec.origin).parent if spec is not None and spec.origin else None
    return home if home is not None and (home / "jars").is_dir() else None
