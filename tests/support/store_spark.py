"""Sparks that reach the real stores of the tests: a Connect server, and a cluster that spark-submit submits to.

Each has what ``spark_access`` says and nothing else, but for the address of the local Blob server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs
import pytest

from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.spark import SparkAccess, spark_access
from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.object_stores import BUCKET, WORKSPACE, azure_credentials, s3_credentials
from tests.support.spark import Server
from tests.support.spark_cluster import Cluster
from tests.support.spark_jvms import INTERPRETED
from tests.support.store_servers import BlobServer, S3Server


class StoreServer(Server):
    """The server, with the variables that its access needs."""

    secrets: dict[str, str]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.secrets}


@attrs.frozen
class ToStores:
    """What a Spark of this machine needs to reach both stores.

    :param detour: settings by which OneLake's addresses lead to the local Blob server.
    """

    access: SparkAccess
    detour: Mapping[str, str]
    jar_files: list[Path]

    @property
    def settings(self) -> dict[str, str]:
        """For a Spark that is set up beforehand."""
        return {**self.access.settings, **self.detour}

    @property
    def secrets(self) -> list[str]:
        """What nobody may read."""
        hidden = [v for n, v in self.access.environment.items() if "SECRET" in n or n.endswith("ACCOUNT_KEY")]
        assert len(hidden) == 2
        return hidden


class StoreCluster(Cluster):
    """A cluster whose workers may have access of their own to the stores, as machines with an identity have."""

    def __init__(self, state: Path, to_stores: ToStores) -> None:
        super().__init__(state)
        self._plain = self.workers[0].environment
        for worker in self.workers:
            worker.environment = self._plain
        settings = state / "conf"
        settings.mkdir(parents=True)
        lines = [f"{name} {value}\n" for name, value in to_stores.settings.items()]
        (settings / "spark-defaults.conf").write_text("".join(lines))
        self._trusted = {
            **self._plain,
            **to_stores.access.environment,
            # For the worker itself, which fetches what a driver is to run; drivers and executors bring their own.
            "SPARK_CONF_DIR": str(settings),
            "SPARK_DAEMON_CLASSPATH": ":".join(map(str, to_stores.jar_files)),
            "SPARK_WORKER_OPTS": to_stores.detour["spark.driver.extraJavaOptions"],
        }

    def plain(self) -> StoreCluster:
        """Let the workers have no access of their own."""
        return self._with(self._plain)

    def trusted(self) -> StoreCluster:
        """Let the workers have access of their own."""
        return self._with(self._trusted)

    def _with(self, environment: dict[str, str]) -> StoreCluster:
        for worker in self.workers:
            if worker.environment is not environment:
                worker.kill()
                worker.environment = environment
        # The master takes a while to see that a worker is gone, and would give it work.
        self.wait_workers(sum(worker.process is not None for worker in self.workers))
        for worker in self.workers:
            if worker.process is None:
                worker.start()
        self.wait_workers(len(self.workers))
        return self


def store_server(
    state: Path, to_stores: ToStores, settings: Mapping[str, str] | None = None, **environment: str
) -> StoreServer:
    """A server, not started yet, whose Spark reaches the stores and local disk.

    :param settings: further ones of Spark. Default: none.
    """
    server = StoreServer(
        state,
        port=free_port(),
        ui_port=free_port(),
        jar_files=to_stores.jar_files,
        settings={**INTERPRETED, **to_stores.settings, **(settings or {})},
    )
    server.secrets = {**to_stores.access.environment, **environment}
    return server


@pytest.fixture(scope="session")
def to_stores(s3_server: S3Server, blob_server: BlobServer, tmp_path_factory: pytest.TempPathFactory) -> ToStores:
    """Access to the S3 server and to the Blob server."""
    s3 = spark_access(TableAddress.parse(f"s3://{BUCKET}/t"), s3_credentials(s3_server))
    onelake = TableAddress.parse(f"onelake://{WORKSPACE}/raw.Lakehouse/Tables/t")
    azure = spark_access(onelake, azure_credentials(blob_server))
    return ToStores(
        SparkAccess({**s3.settings, **azure.settings}, {**s3.environment, **azure.environment}),
        blob_server.spark_settings(tmp_path_factory.mktemp("hosts") / "hosts"),
        jars.resolve(from_environment().jars),
    )


@pytest.fixture(scope="session")
def store_spark(to_stores: ToStores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreServer]:
    """A Spark Connect server with Delta that reads and writes S3, OneLake's addresses and local disk."""
    server = store_server(tmp_path_factory.mktemp("store-spark"), to_stores)
    with server:
        yield server


@pytest.fixture(scope="session")
def store_cluster(to_stores: ToStores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreCluster]:
    """A master and two workers."""
    cluster = StoreCluster(tmp_path_factory.mktemp("store-cluster"), to_stores)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
