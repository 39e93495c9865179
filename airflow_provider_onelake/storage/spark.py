"""What Spark needs to reach a table: settings without secrets, environment variables with the secrets, and packages."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials

HADOOP = "3.5.0"
"""The Hadoop inside pip's pyspark 4.2; its file systems must be of the same version."""

_DELTA = {"4.0": "delta-spark_2.13:4.0.1", "4.1": "delta-spark_4.1_2.13:4.2.0", "4.2": "delta-spark_4.2_2.13:4.4.0"}
"""The Delta Lake of each Spark that was tried with it. The newest ``delta-spark`` may have no JAR on Maven Central."""


def delta_package() -> str:
    """Return the Maven coordinates of the Delta Lake that fits the installed client of Spark; else of the newest."""
    spark = ".".join(importlib.metadata.version("pyspark-client").split(".")[:2])
    return f"io.delta:{_DELTA.get(spark, _DELTA[max(_DELTA)])}"


@attrs.frozen
class SparkAccess:
    """How a Spark application reaches a table.

    :param settings: Spark's settings, without any secret, because Spark shows them in its UI and its event log. Where a
        secret is needed, the setting names an environment variable, which Hadoop looks up when it needs the secret.
    :param environment: environment variables for the driver and the executors. They hold the secrets.
    :param packages: Maven coordinates for ``spark.jars.packages``; the settings exclude dependencies that are not
        needed.
    :param sign_in: the names of the settings that say how to sign in, each with the name of the general setting that
        says the same for all stores.
    :param by_default: the names in ``sign_in`` that may be left out, because Hadoop by itself looks at the environment,
        and elsewhere too.
    """

    settings: Mapping[str, str] = attrs.field(factory=dict)
    environment: Mapping[str, str] = attrs.field(factory=dict, repr=False)
    packages: tuple[str, ...] = ()
    sign_in: Mapping[str, str] = attrs.field(factory=dict)
    by_default: Collection[str] = ()

    def without_environment(self, conf: Mapping[str, str]) -> SparkAccess:
        """Return the access for machines whose environment we cannot set.

        A setting that names an environment variable must not hide an identity that such a machine has of its own.

        :param conf: the user's own settings of Spark. If they say how to sign in, all sign-in settings are left out.
        """
        if not self.environment:
            return self
        said = any(name in conf for names in self.sign_in.items() for name in names)
        left_out = self.sign_in if said else self.by_default
        settings = {name: value for name, value in self.settings.items() if name not in left_out}
        return attrs.evolve(self, settings=settings, environment={}, sign_in={}, by_default=())


def spark_access(
    address: TableAddress, credentials: Credentials | None = None, patience: float | None = None
) -> SparkAccess:
    """Return what Spark needs to reach a table with the same credentials as the committer.

    :param credentials: for the same kind of store. Default: what the machines that Spark runs on offer.
    :param patience: seconds for which Spark repeats a request to S3 that gets no answer. Default:
        :data:`~airflow_provider_onelake.storage.stores.PATIENCE`.
    :raises CredentialsError: the credentials are for another kind of store, or of a kind that Spark cannot use.
    """
    return address.kind.for_spark(address, credentials, PATIENCE if patience is None else patience)
