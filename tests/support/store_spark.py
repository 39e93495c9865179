"""A Spark Connect server that reaches the real stores of the tests, with what ``spark_access`` says and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.spark import spark_access
from include.local import jars
from include.local.connect_server import free_port
from include.local.object_stores import BlobServer, S3Server
from include.local.settings import from_environment
from tests.support.object_stores import BUCKET, WORKSPACE, azure_credentials, s3_credentials
from tests.support.spark import Server


class StoreServer(Server):
    """The server, with the variables that its access needs."""

    secrets: dict[str, str]

    def environment(self) -> dict[str, str]:
        return {**super().environment(), **self.secrets}


@pytest.fixture(scope="session")
def store_spark(
    s3_server: S3Server, blob_server: BlobServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StoreServer]:
    """A Spark Connect server with Delta that reads and writes S3, OneLake's addresses and local disk."""
    state = tmp_path_factory.mktemp("store-spark")
    access = [
        spark_access(TableAddress.parse(f"s3://{BUCKET}/t"), s3_credentials(s3_server)),
        spark_access(
            TableAddress.parse(f"onelake://{WORKSPACE}/raw.Lakehouse/Tables/t"), azure_credentials(blob_server)
        ),
    ]
    settings: dict[str, Any] = {**access[0].settings, **access[1].settings}
    settings |= blob_server.spark_settings(Path(state, "hosts"))
    server = StoreServer(
        state,
        port=free_port(),
        ui_port=free_port(),
        jar_files=jars.resolve(from_environment().jars),
        settings=settings,
    )
    server.secrets = {**access[0].environment, **access[1].environment}
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()
