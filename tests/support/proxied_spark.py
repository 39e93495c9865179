"""Spark Connect servers whose requests to the stores pass proxies of their own, each a driver of its own.

So what Spark asked of a store can be looked up, apart from what this package asks, and be made to go wrong.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.spark import spark_access
from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.object_stores import BUCKET, WORKSPACE, azure_credentials, s3_credentials
from tests.support.proxy import Proxy
from tests.support.store_servers import BlobServer, S3Server
from tests.support.store_spark import StoreServer


class ProxiedSpark(StoreServer):
    """The server, with the proxy to each kind of store."""

    proxies: dict[str, Proxy]


@pytest.fixture(scope="session")
def proxied_spark(
    s3_server: S3Server, blob_server: BlobServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxiedSpark]:
    """A driver that reaches S3 and OneLake's addresses."""
    with _running(tmp_path_factory.mktemp("proxied-spark"), s3_server, blob_server) as server:
        yield server


@pytest.fixture(scope="module")
def other_spark(
    s3_server: S3Server, blob_server: BlobServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ProxiedSpark]:
    """A second driver, with a JVM and proxies of its own."""
    with _running(tmp_path_factory.mktemp("other-spark"), s3_server, blob_server) as server:
        yield server


@contextlib.contextmanager
def _running(state: Path, s3_server: S3Server, blob_server: BlobServer) -> Iterator[ProxiedSpark]:
    onelake = TableAddress.parse(f"onelake://{WORKSPACE}/raw.Lakehouse/Tables/t")
    with Proxy(s3_server.endpoint) as s3, Proxy(blob_server.endpoint) as azure:
        access = [
            spark_access(TableAddress.parse(f"s3://{BUCKET}/t"), s3_credentials(s3_server, s3.url)),
            spark_access(onelake, azure_credentials(blob_server)),
        ]
        server = ProxiedSpark(
            state,
            port=free_port(),
            ui_port=free_port(),
            memory="1g",
            jar_files=jars.resolve(from_environment().jars),
            settings={
                **access[0].settings,
                **access[1].settings,
                **blob_server.spark_settings(state / "hosts", urlsplit(azure.url).port),
            },
        )
        server.secrets = {**access[0].environment, **access[1].environment}
        server.proxies = {"s3": s3, "azure": azure}
        with server:
            yield server
