"""Real clients against the running server: obstore and deltalake by Blob, and whoever commits by renames beside them."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import AlreadyExistsError, PreconditionError
from obstore.store import AzureStore

from include.local_onelake.tests.conftest import Clients
from local_onelake.faults import Fault
from tests.support.onelake import TOKEN

THREADS, VERSIONS = 8, 20


@pytest.fixture
def store(onelake: Clients) -> AzureStore:
    """obstore, in the test's directory."""
    workspace, _, prefix = onelake.at("").partition("/")
    return AzureStore(
        workspace,
        prefix=prefix,
        account_name="onelake",
        endpoint=onelake.server.url,
        client_options={"allow_http": True},
        bearer_token=TOKEN,
    )


def test_obstore_puts_gets_heads_lists_and_deletes(onelake: Clients, store: AzureStore) -> None:
    put = obstore.put(store, "d/a b=%ü+", b"0123456789", mode="create")
    with pytest.raises(AlreadyExistsError):
        obstore.put(store, "d/a b=%ü+", b"x", mode="create")
    assert bytes(obstore.get_range(store, "d/a b=%ü+", start=2, length=3)) == b"234"
    assert [bytes(part) for part in obstore.get_ranges(store, "d/a b=%ü+", starts=[0, 9], lengths=[1, 1])] == [
        b"0",
        b"9",
    ]
    said = obstore.head(store, "d/a b=%ü+")
    assert (said["size"], said["e_tag"]) == (10, put["e_tag"])
    with pytest.raises(PreconditionError):
        obstore.put(store, "d/a b=%ü+", b"x", mode={"e_tag": '"0x1"'})
    assert obstore.put(store, "d/a b=%ü+", b"x", mode={"e_tag": put["e_tag"]})
    for number in range(120):
        obstore.put(store, f"log/{number:03}", b"")
    listed = [meta["path"] for batch in obstore.list(store, "log") for meta in batch]
    assert listed == [f"log/{number:03}" for number in range(120)]
    after = [meta["path"] for batch in obstore.list(store, "log", offset="log/110") for meta in batch]
    assert after == [f"log/{number:03}" for number in range(111, 120)]
    top = obstore.list_with_delimiter(store)
    assert (top["common_prefixes"], top["objects"]) == (["d", "log"], [])
    with pytest.raises(FileNotFoundError):
        obstore.get(store, "no")
    with pytest.raises(Exception, match="Either WorkspaceId or ArtifactId are missing"):
        obstore.delete(store, "log/000")
    onelake.server.served.faults.clear("batch_delete_refused")
    obstore.delete(store, ["log/000", "log/001"])
    assert len([meta for batch in obstore.list(store, "log") for meta in batch]) == 118


def test_obstore_puts_a_large_file_by_blocks(store: AzureStore) -> None:
    data = bytes(range(256)) * 4 * 12_000
    obstore.put(store, "large", data, use_multipart=True, chunk_size=1 << 20)
    assert bytes(obstore.get(store, "large").bytes()) == data


def test_deltalake_creates_appends_reads_merges_and_checkpoints(onelake: Clients) -> None:
    for by in ("names", "guids"):
        workspace, _, prefix = onelake.at("table", by).partition("/")
        uri = f"abfss://{workspace}@onelake.dfs.fabric.microsoft.com/{prefix}"
        options = {"azure_endpoint": onelake.server.url, "azure_allow_http": "true", "azure_storage_token": TOKEN}
        for number in range(3):
            write_deltalake(uri, pa.table({"id": [number, 10 + number]}), mode="append", storage_options=options)
        table = DeltaTable(uri, storage_options=options)
        table.create_checkpoint()
        table.delete("id >= 10")
        read = DeltaTable(uri, storage_options=options)
        ids = read.to_pyarrow_table().column("id").to_pylist()
        assert sorted(ids) == sorted([0, 1, 2] * (1 if by == "names" else 2))
        assert json.loads(read.schema().to_json())["fields"][0]["name"] == "id"


def test_appends_of_deltalake_at_once_are_all_there(onelake: Clients) -> None:
    workspace, _, prefix = onelake.at("table").partition("/")
    uri = f"abfss://{workspace}@onelake.dfs.fabric.microsoft.com/{prefix}"
    options = {"azure_endpoint": onelake.server.url, "azure_allow_http": "true", "azure_storage_token": TOKEN}

    def append(number: int) -> None:
        write_deltalake(uri, pa.table({"id": [number]}), mode="append", storage_options=options)

    append(0)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(append, range(1, 21)))
    table = DeltaTable(uri, storage_options=options)
    assert table.version() == 20
    assert sorted(table.to_pyarrow_table().column("id").to_pylist()) == list(range(21))


Claim = Callable[[int, int], bool]
"""A try of a writer to make a version; says whether it was made."""


def by_puts(onelake: Clients, store: AzureStore) -> Claim:
    def claim(writer: int, version: int) -> bool:
        try:
            obstore.put(store, f"log/{version}", str(writer).encode(), mode="create", use_multipart=False)
        except AlreadyExistsError:
            return False
        return True

    return claim


def by_renames(onelake: Clients, store: AzureStore) -> Claim:
    def claim(writer: int, version: int) -> bool:
        obstore.put(store, f"tmp-{writer}-{version}", str(writer).encode(), use_multipart=False)
        answer = onelake.rename(f"tmp-{writer}-{version}", f"log/{version}", If_None_Match="*")
        assert answer.status_code in (201, 409), answer.text
        return answer.status_code == 201

    return claim


def by_either(onelake: Clients, store: AzureStore) -> Claim:
    ways = by_puts(onelake, store), by_renames(onelake, store)
    return lambda writer, version: ways[writer % 2](writer, version)


@pytest.mark.parametrize("how", [by_puts, by_renames, by_either])
def test_of_many_who_make_a_version_exactly_one_does(
    onelake: Clients, store: AzureStore, how: Callable[[Clients, AzureStore], Claim]
) -> None:
    onelake.create("log", "directory")
    claim = how(onelake, store)
    with ThreadPoolExecutor(THREADS) as pool:
        jobs = {
            version: [pool.submit(claim, writer, version) for writer in range(THREADS)] for version in range(VERSIONS)
        }
        for version, claims in jobs.items():
            winners = [writer for writer, job in enumerate(claims) if job.result()]
            assert len(winners) == 1
            assert bytes(obstore.get(store, f"log/{version}").bytes()) == str(winners[0]).encode()


def test_a_table_is_appended_to_through_busy_and_failing_answers(onelake: Clients) -> None:
    for name in ("error_503", "error_500"):
        onelake.server.served.faults.set(name, Fault(rate=0.05))
    workspace, _, prefix = onelake.at("table", "guids").partition("/")
    options = {"azure_endpoint": onelake.server.url, "azure_allow_http": "true", "azure_storage_token": TOKEN}
    uri = f"abfss://{workspace}@onelake.dfs.fabric.microsoft.com/{prefix}"
    for number in range(10):
        write_deltalake(uri, pa.table({"id": [number]}), mode="append", storage_options=options)
    assert sorted(DeltaTable(uri, storage_options=options).to_pyarrow_table().column("id").to_pylist()) == list(
        range(10)
    )
