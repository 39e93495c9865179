"""What Spark needs to reach a table: settings without secrets, environment variables with the secrets, and packages."""

from __future__ import annotations

import importlib.metadata
import os
import re
import shutil
import sys
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import SparkSetUpError
from airflow_provider_onelake.storage.stores import PATIENCE

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials

TRIED = {
    "3.5": ("io.delta:delta-spark_2.12:3.3.2", "3.3.4"),
    "4.0": ("io.delta:delta-spark_2.13:4.0.1", "3.4.1"),
    "4.1": ("io.delta:delta-spark_4.1_2.13:4.4.0", "3.4.2"),
    "4.2": ("io.delta:delta-spark_4.2_2.13:4.4.0", "3.5.0"),
}
"""For each Spark that was tried, the Maven coordinates of the Delta Lake that it was tried with, and its own Hadoop."""

_CORE = re.compile(r"spark-core_(\d+\.\d+)-(.+)\.jar")


def delta_package(home: Path | None = None) -> str:
    """Return the Maven coordinates of the Delta Lake that was tried with a Spark.

    :param home: of the Spark. Default: the worker's own.
    :raises SparkSetUpError: no Delta Lake was tried with it.
    """
    spark, scala = _version(home)
    if spark not in TRIED:
        raise SparkSetUpError(
            f"This worker's Spark is {spark}, and no Delta Lake was tried with it, only with {', '.join(TRIED)}. "
            "Nothing was staged. Name the one that fits in `packages` of the Spark connection's extra, or set "
            "SPARK_HOME to another Spark."
        )
    return re.sub(r"_[\d.]+(?=:)", f"_{scala}", TRIED[spark][0]) if scala else TRIED[spark][0]


def hadoop(home: Path | None = None) -> str:
    """Return the version of Hadoop inside a Spark. Its file systems must be of the same version.

    :param home: of the Spark. Default: the worker's own.
    """
    return TRIED.get(_version(home)[0], TRIED[max(TRIED)])[1]


def _version(home: Path | None) -> tuple[str, str | None]:
    """Return the minor version of a Spark, and its Scala.

    By default it is the Spark that ``spark-submit`` of this worker starts. pip's is of the version of the client.
    """
    if home is None:
        script = Path(shutil.which("spark-submit") or sys.executable).resolve()
        home = Path(os.environ.get("SPARK_HOME") or script.parent.parent)
    for jar in home.glob("jars/spark-core_*.jar"):
        if core := _CORE.fullmatch(jar.name):
            return ".".join(core[2].split(".")[:2]), core[1]
    return ".".join(importlib.metadata.version("pyspark-client").split(".")[:2]), None


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
