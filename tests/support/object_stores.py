"""A lakehouse on each kind of store: a local directory, a bucket of a real S3 server, a workspace of a Blob server.

Where a test asks for it, on the package's own local OneLake, too (tests/support/onelake.py).
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress, resolve_table
from airflow_provider_onelake.storage.azure import AzureCredentials
from airflow_provider_onelake.storage.credentials import Credentials
from airflow_provider_onelake.storage.s3 import S3Credentials
from airflow_provider_onelake.storage.stores import deltalake_options, open_store
from include.local.jars import SetUpError
from include.local.settings import from_environment
from tests.support.proxy import Proxy
from tests.support.store_servers import REGION, BlobServer, S3Server
from tests.support.tables import SCHEMA

KINDS = ("local", "s3", "azure")
WITH_ONELAKE = (*KINDS, "onelake")
"""The Sparks of these tests do not lead to the local OneLake, so only tests without Spark ask for this one."""

BUCKET = "lakes"
WORKSPACE = "taxi"


@attrs.frozen
class Lake:
    """A lakehouse of one test."""

    kind: str
    root: str
    credentials: Credentials | None = None

    def address(self, table: str = "Tables/t") -> TableAddress:
        return resolve_table(table, self.root)

    def log(self, table: str = "Tables/t") -> DeltaLog:
        """A table's log as another process sees it."""
        address = self.address(table)
        return DeltaLog(open_store(address, self.credentials), str(address))

    def make_table(self, table: str = "Tables/t", **properties: str) -> DeltaLog:
        """An empty table of ids, partitioned by month."""
        log = self.log(table)
        create_table(log, SCHEMA, ("month",), properties)
        return log

    def ids(self, table: str = "Tables/t", version: int | None = None) -> list[int]:
        """The table's ids as deltalake reads them, sorted."""
        from deltalake import DeltaTable

        address = self.address(table)
        options = deltalake_options(address, self.credentials)
        rows = DeltaTable(address.deltalake_uri, version=version, storage_options=options).to_pyarrow_table()
        return sorted(rows.column("id").to_pylist())

    def behind(self, proxy: Proxy) -> Lake:
        """The same lakehouse, seen through a proxy in front of its store."""
        assert self.credentials is not None
        return attrs.evolve(self, credentials=attrs.evolve(self.credentials, endpoint=proxy.url))

    def connection(self, **more: Any) -> str:
        """The connection of this lakehouse, as Airflow's environment variables hold one; takes more for its extra."""
        extra: dict[str, Any] = {"lakehouse": self.root, "namespace": "test", **more}
        login = password = None
        if isinstance(self.credentials, S3Credentials):
            login, password = self.credentials.access_key, self.credentials.secret_key
            extra |= {"endpoint": self.credentials.endpoint, "region": REGION, "allow_http": True}
        elif isinstance(self.credentials, AzureCredentials):
            password = self.credentials.account_key or self.credentials.token
            extra |= {"endpoint": self.credentials.endpoint, "allow_http": "true"}
            extra |= {"sign_in": self.credentials.sign_in}
        return json.dumps({"conn_type": "onelake", "login": login, "password": password, "extra": extra})


def s3_credentials(server: S3Server, endpoint: str | None = None) -> S3Credentials:
    """Keys of a server, which may be reached through a proxy."""
    return S3Credentials(
        access_key=server.access_key,
        secret_key=server.secret_key,
        region=REGION,
        endpoint=endpoint or server.endpoint,
        allow_http=True,
    )


def azure_credentials(server: BlobServer, endpoint: str | None = None) -> AzureCredentials:
    """The key of a server, which may be reached through a proxy."""
    return AzureCredentials(
        sign_in="account_key",
        account_key=server.account_key,
        endpoint=endpoint or server.account_endpoint,
        allow_http=True,
    )


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server with one bucket."""
    try:
        with S3Server(tmp_path_factory.mktemp("s3"), install_into=from_environment().jars) as server:
            server.make_bucket(BUCKET)
            yield server
    except SetUpError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def blob_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlobServer]:
    """A real Blob server with one workspace."""
    try:
        with BlobServer(tmp_path_factory.mktemp("azure"), install_into=from_environment().jars) as server:
            server.make_container(WORKSPACE)
            yield server
    except SetUpError as error:
        pytest.skip(str(error))


@pytest.fixture
def proxy(lake: Lake) -> Iterator[Proxy]:
    """A proxy in front of the store that the lake is on."""
    assert lake.credentials is not None
    assert lake.credentials.endpoint is not None
    with Proxy(lake.credentials.endpoint) as running:
        yield running


@pytest.fixture(params=KINDS)
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    """An empty lakehouse of the test's own, on each kind of store in turn."""
    name = f"lake-{uuid.uuid4().hex[:12]}"
    match request.param:
        case "s3":
            server = request.getfixturevalue("s3_server")
            return Lake("s3", f"s3://{BUCKET}/{name}", s3_credentials(server))
        case "azure":
            server = request.getfixturevalue("blob_server")
            return Lake("azure", f"onelake://{WORKSPACE}/{name}.Lakehouse", azure_credentials(server))
        case "onelake":
            return request.getfixturevalue("onelake").lake()
        case _:
            root = tmp_path / name
            root.mkdir()
            return Lake("local", str(root))
