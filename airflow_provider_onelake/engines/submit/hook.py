"""The Spark provider's hook for one application, with the only uses of its private attributes.

We need two of them: ``_connection``, the resolved fields of the connection, and ``_submit_sp``, the process that the
hook started, because the hook itself would stop it without its children. Read them only here, so that a version of the
provider without them fails with a clear message.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import SparkSetUpError

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

PROVIDER = "apache-airflow-providers-apache-spark"
"""The distribution that the hook comes from."""

_RESOLVED = ("master", "deploy_mode", "namespace", "spark_binary", "keytab", "principal")


@attrs.frozen
class SubmitHook:
    """One application.

    :param wrapped: the provider's hook, with the application's settings.
    :raises SparkSetUpError: the installed version of the provider is not one that this package knows.
    """

    wrapped: SparkSubmitHook

    def __attrs_post_init__(self) -> None:
        _ = self.process
        if missing := [name for name in _RESOLVED if name not in self.resolved]:
            raise _unknown(f"_connection[{missing[0]!r}]")

    @property
    def resolved(self) -> Mapping[str, Any]:
        """The connection as the provider understands it: ``master``, ``deploy_mode``, ``spark_binary`` and others."""
        found: Mapping[str, Any] = self._private("_connection")
        return found

    @property
    def process(self) -> Any:
        """The process of the script; ``None`` before it is started."""
        return self._private("_submit_sp")

    @property
    def follows_pods(self) -> bool:
        """Whether the hook can leave a driver on Kubernetes at work."""
        return "track_driver_via_k8s_api" in inspect.signature(type(self.wrapped)).parameters

    def submit(self, application: str, **popen: Any) -> str | None:
        """Run the script to its end.

        :param application: script or JAR.
        :param popen: what ``subprocess.Popen`` takes.
        :returns: id of the driver on a standalone cluster, else ``None``.
        :raises AirflowException: it failed; the message ends with the last of its output.
        """
        driver: str | None = self.wrapped.submit(application, **popen)
        return driver

    def _private(self, name: str) -> Any:
        try:
            return getattr(self.wrapped, name)
        except AttributeError:
            raise _unknown(name) from None


def too_old(where: str, least: str) -> SparkSetUpError:
    """Return the error for a kind of cluster that the installed provider knows too little of.

    :param where: the kind of cluster.
    :param least: the first version of the provider that knows enough.
    """
    return SparkSetUpError(
        f"Cluster mode on {where} needs '{PROVIDER}>={least}', and this worker has "
        f"{importlib.metadata.version(PROVIDER)}: install '{PROVIDER}>={least}', or leave 'deploy-mode' out of the "
        "connection, or use Spark Connect. Nothing was staged."
    )


def _unknown(what: str) -> SparkSetUpError:
    return SparkSetUpError(
        f"{PROVIDER} {importlib.metadata.version(PROVIDER)} is not known to this package: its SparkSubmitHook has no "
        f"{what}. Install a version that requirements.lock names, or a newer airflow-provider-onelake. Nothing was "
        "submitted."
    )
