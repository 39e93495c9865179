"""The Spark provider's hook for one application, with the only uses of its private attributes.

We need two of them: ``_connection``, the resolved fields of the connection, and ``_submit_sp``, the process that the
hook started, because the hook itself would stop it without its children. Read them only here, so that a version of the
provider without them fails with a clear message.
"""

from __future__ import annotations

import importlib.metadata
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import SparkSetUpError

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

PROVIDER = "apache-airflow-providers-apache-spark"
"""The distribution that the hook comes from."""

_RESOLVED = ("master", "deploy_mode", "namespace", "rest_endpoint", "spark_binary", "keytab", "principal")


@attrs.frozen
class SubmitHook:
    """One application.

    :param wrapped: the provider's hook, with the application's settings.
    :raises SparkSetUpError: the installed version of the provider is not one that this package knows.
    """

    wrapped: SparkSubmitHook

    def __attrs_post_init__(self) -> None:
        _ = self.process
        resolved = self._private("_connection")
        if missing := [name for name in _RESOLVED if name not in resolved]:
            raise _unknown(f"_connection[{missing[0]!r}]")

    @property
    def master(self) -> str:
        """The master that ``spark-submit`` is given."""
        return str(self._resolved("master"))

    @property
    def in_cluster_mode(self) -> bool:
        """Whether the driver runs on the cluster."""
        return bool(self._resolved("deploy_mode") == "cluster")

    @property
    def namespace(self) -> str | None:
        """The namespace of pods on Kubernetes."""
        return self._resolved("namespace") or None

    @property
    def rest_endpoint(self) -> str | None:
        """The address of a standalone master's REST server, in cluster mode."""
        return self._resolved("rest_endpoint") or None

    @property
    def binary(self) -> str:
        """The script that submits."""
        return str(self._resolved("spark_binary"))

    @property
    def has_keytab(self) -> bool:
        """Whether the connection signs in by Kerberos."""
        return bool(self._resolved("keytab") and self._resolved("principal"))

    @property
    def process(self) -> Any:
        """The process of the script; ``None`` before it is started."""
        return self._private("_submit_sp")

    def submit(self, application: str, **popen: Any) -> str | None:
        """Run the script to its end.

        :param application: script or JAR.
        :param popen: what ``subprocess.Popen`` takes.
        :returns: id of the driver on a standalone cluster, else ``None``.
        :raises AirflowException: it failed; the message ends with the last of its output.
        """
        driver: str | None = self.wrapped.submit(application, **popen)
        return driver

    def _resolved(self, name: str) -> Any:
        return self._private("_connection")[name]

    def _private(self, name: str) -> Any:
        try:
            return getattr(self.wrapped, name)
        except AttributeError:
            raise _unknown(name) from None


def _unknown(what: str) -> SparkSetUpError:
    return SparkSetUpError(
        f"{PROVIDER} {importlib.metadata.version(PROVIDER)} is not known to this package: its SparkSubmitHook has no "
        f"{what}. Install a version that requirements.lock names, or a newer airflow-provider-onelake. Nothing was "
        "submitted."
    )
