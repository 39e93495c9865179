"""A kind of store that nothing in the package knows: one class, and a table is written and read there."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest
from airflow.sdk import Asset, Connection
from obstore.store import MemoryStore

from airflow_provider_onelake.assets import uris
from airflow_provider_onelake.assets.uris import asset_uri
from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import AddressError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage import addresses
from airflow_provider_onelake.storage.addresses import Spelling, TableAddress, resolve_table
from airflow_provider_onelake.storage.kinds import StoreKind, kinds
from airflow_provider_onelake.storage.preflight import problems_of
from airflow_provider_onelake.storage.spark import SparkAccess
from airflow_provider_onelake.storage.stores import ObjectStore, Store, open_store
from airflow_provider_onelake.writes.publish import Committer
from tests.support.contexts import signed_in_by
from tests.support.tables import SCHEMA, newest, stage, writer_spec

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.credentials import Credentials


class Memory(StoreKind):
    """The memory of this process: ``mem://<name of the store>/<path>``."""

    name = "memory"
    schemes = ("mem",)
    forms = ("mem://name/path",)

    def __init__(self) -> None:
        self.stores: dict[TableAddress, MemoryStore] = {}

    def parse(self, spelled: Spelling) -> TableAddress:
        return TableAddress(self, spelled.directory(), spelled.authority)

    def open(self, address: TableAddress, credentials: Credentials | None, patience: float) -> Store:
        return ObjectStore(self.stores.setdefault(address, MemoryStore()), str(address))

    def for_deltalake(self, address: TableAddress, credentials: Credentials | None, patience: float) -> dict[str, str]:
        return {}

    def for_spark(self, address: TableAddress, credentials: Credentials | None, patience: float) -> SparkAccess:
        return SparkAccess()


@pytest.fixture
def memory(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = Memory()
    for module in (addresses, uris):
        monkeypatch.setattr(module, "kinds", lambda: (kind, *kinds()))


def opened(table: str, lakehouse: str | None = "mem://lake") -> DeltaLog:
    address = resolve_table(table, lakehouse)
    return DeltaLog(open_store(address), str(address))


@pytest.mark.usefixtures("memory")
def test_two_writers_publish_to_a_table_and_another_process_reads_it() -> None:
    log = opened("Tables/trips")
    create_table(log, SCHEMA, ("month",))
    for version, writer in enumerate(("eu", "us"), 1):
        buffer = stage(log, writer_spec(writer), {"2019-01": [version]})
        assert Committer(log).publish([buffer]).version == version
    reader = opened("mem://lake/Tables/trips", None)
    assert newest(reader).version == 2
    files = [add["path"] for commit in reader.commits_since(0) for add in commit.adds]
    rows = [pq.read_table(io.BytesIO(reader.store.get(path))).column("id").to_pylist() for path in files]
    assert sorted(rows) == [[1], [2]]


@pytest.mark.usefixtures("memory")
def test_it_is_asked_about_like_any_other() -> None:
    address = TableAddress.parse("mem://lake/Tables/my trips/")
    assert (str(address), address.spark_uri) == ("mem://lake/Tables/my%20trips", "mem://lake/Tables/my trips")
    assert problems_of(open_store(address), "_preflight/x", str(address)) == []
    assert signed_in_by(Connection(conn_id="lake", conn_type="onelake", login="A", password="B"), address) is None
    uri = asset_uri(str(address))
    assert uri == "delta://memory/lake/Tables/my%20trips"
    assert Asset("trips", uri=uri).uri == uri


@pytest.mark.usefixtures("memory")
def test_a_table_of_another_lakehouse_is_refused() -> None:
    with pytest.raises(AddressError, match="outside the lakehouse"):
        opened("mem://other/Tables/trips")


def test_without_it_its_addresses_are_refused() -> None:
    with pytest.raises(AddressError, match="mem:// is not supported"):
        TableAddress.parse("mem://lake/Tables/trips")
