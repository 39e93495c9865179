"""Azure's own SDKs, in the flows of their documentation, at OneLake's own addresses: by TLS, with a token credential."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from azure.core import MatchConditions
from azure.core.credentials import AccessToken
from azure.core.exceptions import (
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
    ResourceModifiedError,
    ResourceNotFoundError,
)
from azure.identity import ClientSecretCredential
from azure.storage.blob import BlobServiceClient, ContainerClient
from azure.storage.filedatalake import DataLakeDirectoryClient, DataLakeServiceClient, FileSystemClient

from local_onelake.access import principal_id
from tests.support.onelake import BY_GUIDS, BY_NAMES, IDENTITY, LAKEHOUSE, TOKEN, WORKSPACE, OneLake

ENTRA = "https://login.microsoftonline.com"
TENANT = "5c0f6d2e-6f0d-4b8a-9d5e-2f1a3b4c5d6e"
DFS, BLOB = "https://onelake.dfs.fabric.microsoft.com", "https://onelake.blob.fabric.microsoft.com"
MEBIBYTE = 1 << 20


class Token:
    """A credential that has its token already."""

    def __init__(self, token: str = TOKEN) -> None:
        self._token = token

    def get_token(self, *scopes: str, **_: Any) -> AccessToken:
        assert scopes == ("https://storage.azure.com/.default",)
        return AccessToken(self._token, 2**31)


@attrs.frozen
class Sdks:
    """Both SDKs, in a directory of a test's own."""

    server: OneLake
    directory: str
    terms: dict[str, Any]

    def filesystem(self, **terms: Any) -> FileSystemClient:
        return DataLakeServiceClient(DFS, **self.terms | terms).get_file_system_client(WORKSPACE)

    def below(self) -> DataLakeDirectoryClient:
        return self.filesystem().create_directory(self.directory)

    def container(self, **terms: Any) -> ContainerClient:
        return BlobServiceClient(BLOB, **self.terms | terms).get_container_client(WORKSPACE)


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True, tls=True) as running:
        yield running


@pytest.fixture
def sdks(server: OneLake) -> Sdks:
    assert server.certificates is not None
    terms = {
        "credential": Token(),
        "retry_total": 0,
        "proxies": {"https": server.url},
        "connection_verify": str(server.certificates.authority),
    }
    return Sdks(server, f"{LAKEHOUSE}.Lakehouse/Files/{uuid.uuid4().hex}", terms)


def refusal(ask: Callable[[], Any]) -> tuple[int | None, str]:
    """Status and code by which something is refused."""
    with pytest.raises(HttpResponseError) as refused:
        ask()
    assert refused.value.response is not None
    return refused.value.status_code, str(refused.value.response.headers.get("x-ms-error-code"))


# -- azure-storage-file-datalake ---------------------------------------------------------------------------------------


def test_a_file_is_created_appended_flushed_read_and_deleted(sdks: Sdks) -> None:
    file = sdks.below().create_file("a.txt")
    file.append_data(b"hello ", offset=0, length=6)
    file.append_data(b"world", offset=6, length=5)
    flushed = file.flush_data(11)
    assert file.download_file().readall() == b"hello world"
    assert file.download_file(offset=2, length=3).readall() == b"llo"
    said = file.get_file_properties()
    assert (said.size, said.etag.strip('"'), said.last_modified) == (11, flushed["etag"], flushed["last_modified"])
    assert file.exists()
    file.delete_file()
    assert not file.exists()


def test_files_of_one_and_of_several_chunks_are_uploaded_and_downloaded(sdks: Sdks) -> None:
    below = sdks.below()
    for name, data in (("large", bytes(range(256)) * 20_000), ("small", b"x")):
        below.get_file_client(name).upload_data(data, overwrite=True, chunk_size=MEBIBYTE)
        assert below.get_file_client(name).download_file(max_concurrency=2).readall() == data
    below.get_file_client("small").upload_data(b"other", overwrite=True)
    assert below.get_file_client("small").download_file().readall() == b"other"
    with pytest.raises(HttpResponseError):
        below.get_file_client("small").upload_data(b"without overwrite")
    assert below.get_file_client("small").download_file().readall() == b"other"


def test_directories_are_made_renamed_and_deleted_with_what_is_in_them(sdks: Sdks) -> None:
    below = sdks.below()
    below.create_sub_directory("sub").create_file("a")
    renamed = below.get_sub_directory_client("sub").rename_directory(f"{WORKSPACE}/{sdks.directory}/moved")
    assert renamed.get_directory_properties().metadata["hdi_isfolder"] == "true"
    assert renamed.get_file_client("a").exists()
    assert not below.get_sub_directory_client("sub").exists()
    below.delete_directory()
    assert not renamed.get_file_client("a").exists()


def test_paths_are_listed_whole_by_level_and_by_page(sdks: Sdks) -> None:
    below, filesystem = sdks.below(), sdks.filesystem()
    for number in range(25):
        below.create_file(f"n/{number:02}")
    below.create_file("top")
    paths = list(filesystem.get_paths(sdks.directory, recursive=False))
    assert [(path.name.rpartition("/")[2], path.is_directory, path.owner) for path in paths] == [
        ("n", True, "$superuser"),
        ("top", False, "$superuser"),
    ]
    pages = filesystem.get_paths(sdks.directory, recursive=True, max_results=10).by_page()
    names = [[path.name for path in page] for page in pages]
    assert [len(page) for page in names] == [10, 10, 7]
    assert names == [sorted(page) for page in names]


def test_creates_renames_and_deletes_take_conditions(sdks: Sdks) -> None:
    below = sdks.below()
    file, other = below.create_file("a"), below.create_file("b")
    with pytest.raises(ResourceExistsError):
        below.get_file_client("a").create_file(match_condition=MatchConditions.IfMissing)
    with pytest.raises(ResourceExistsError):
        file.rename_file(f"{WORKSPACE}/{sdks.directory}/b", match_condition=MatchConditions.IfMissing)
    etag = file.get_file_properties().etag
    file.create_file(etag=etag, match_condition=MatchConditions.IfNotModified)
    for stale in (file.create_file, file.delete_file):
        with pytest.raises(ResourceModifiedError):
            stale(etag=etag, match_condition=MatchConditions.IfNotModified)
    other.delete_file(etag=other.get_file_properties().etag, match_condition=MatchConditions.IfNotModified)
    moved = file.rename_file(f"{WORKSPACE}/{sdks.directory}/b", match_condition=MatchConditions.IfMissing)
    assert (moved.exists(), file.exists()) == (True, False)
    with pytest.raises(ResourceNotFoundError):
        file.rename_file(f"{WORKSPACE}/{sdks.directory}/c")


def test_a_workspace_is_seen_and_its_items_too(sdks: Sdks) -> None:
    service = DataLakeServiceClient(DFS, **sdks.terms)
    assert [found.name for found in service.list_file_systems()] == [WORKSPACE]
    assert sdks.filesystem().exists()
    assert sdks.filesystem().get_file_system_properties().last_modified is not None
    assert not service.get_file_system_client("bus").exists()
    assert f"{LAKEHOUSE}.Lakehouse" in [path.name for path in sdks.filesystem().get_paths(recursive=False)]
    for root in (BY_NAMES, BY_GUIDS):
        workspace, _, item = root.removeprefix("onelake://").partition("/")
        listed = service.get_file_system_client(workspace).get_paths(item, recursive=False)
        assert f"{item}/Files" in [path.name for path in listed]


@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        pytest.param(lambda s: s.create_file_system("new"), (403, "AuthorizationPermissionMismatch"), id="workspace"),
        pytest.param(
            lambda s: list(s.get_file_system_client(WORKSPACE).list_deleted_paths()),
            (400, "UnsupportedQueryParameter"),
            id="deleted",
        ),
        pytest.param(
            lambda s: s.get_file_system_client(WORKSPACE).create_directory(f"{LAKEHOUSE}.Lakehouse/Tables2"),
            (403, "AuthorizationPermissionMismatch"),
            id="first-level",
        ),
    ],
)
def test_what_is_fabrics_or_not_kept_is_refused_by_name(
    sdks: Sdks, ask: Callable[[Any], Any], expected: tuple[int, str]
) -> None:
    assert refusal(lambda: ask(DataLakeServiceClient(DFS, **sdks.terms))) == expected


# -- azure-storage-blob ------------------------------------------------------------------------------------------------


def test_blobs_are_uploaded_downloaded_and_deleted(sdks: Sdks) -> None:
    container = sdks.container(max_single_put_size=MEBIBYTE, max_block_size=MEBIBYTE, max_single_get_size=MEBIBYTE)
    large = bytes(range(256)) * 20_000
    for name, data in (("large", large), ("small", b"x"), ("empty", b"")):
        blob = container.upload_blob(f"{sdks.directory}/{name}", data, overwrite=True, max_concurrency=3)
        assert blob.download_blob(max_concurrency=2).readall() == data
    blob = container.upload_blob(f"{sdks.directory}/stream", iter([b"ab", b"c"]), overwrite=True)
    assert b"".join(blob.download_blob().chunks()) == b"abc"
    large_blob = container.get_blob_client(f"{sdks.directory}/large")
    assert large_blob.download_blob(offset=3, length=4).readall() == large[3:7]
    into = io.BytesIO()
    large_blob.download_blob().readinto(into)
    assert into.getvalue() == large
    said = large_blob.get_blob_properties()
    assert (said.size, said.blob_type, said.name) == (len(large), "BlockBlob", f"{sdks.directory}/large")
    blob.delete_blob()
    assert not blob.exists()
    with pytest.raises(ResourceNotFoundError):
        container.download_blob(blob.blob_name)


def test_blocks_are_staged_and_committed(sdks: Sdks) -> None:
    blob = sdks.container().get_blob_client(f"{sdks.directory}/blocks")
    for name in ("b", "a"):
        blob.stage_block(name, name.encode())
    assert not blob.exists()
    blob.commit_block_list(["a", "b"])
    assert blob.download_blob().readall() == b"ab"


def test_blobs_are_listed_walked_and_paged(sdks: Sdks) -> None:
    container = sdks.container()
    for name in ("a", "d/b", "d/e/c"):
        container.upload_blob(f"{sdks.directory}/{name}", name.encode())
    below = f"{sdks.directory}/"
    listed = {blob.name.removeprefix(below): blob for blob in container.list_blobs(name_starts_with=below)}
    assert list(listed) == ["a", "d", "d/b", "d/e", "d/e/c"]
    assert (listed["d/b"].size, listed["d/b"].etag) == (
        3,
        container.get_blob_client(f"{below}d/b").get_blob_properties().etag.strip('"'),
    )
    assert list(container.list_blob_names(name_starts_with=f"{below}d/")) == [
        f"{below}{name}" for name in list(listed)[2:]
    ]
    pages = container.list_blobs(name_starts_with=below, results_per_page=2).by_page()
    assert [len(list(page)) for page in pages] == [2, 2, 1]

    def walk(prefix: str) -> list[str]:
        found = []
        for each in container.walk_blobs(name_starts_with=prefix, delimiter="/"):
            found += walk(each.name) if each.name.endswith("/") else [each.name.removeprefix(below)]
        return found

    assert sorted(walk(below)) == ["a", "d/b", "d/e/c"]


def test_uploads_and_downloads_take_conditions(sdks: Sdks) -> None:
    blob = sdks.container().upload_blob(f"{sdks.directory}/a", b"one")
    with pytest.raises(ResourceExistsError):
        blob.upload_blob(b"two")
    etag = blob.get_blob_properties().etag
    blob.upload_blob(b"two", overwrite=True, etag=etag, match_condition=MatchConditions.IfNotModified)
    for stale in (
        lambda **terms: blob.upload_blob(b"x", overwrite=True, **terms),
        blob.download_blob,
        blob.delete_blob,
    ):
        with pytest.raises(ResourceModifiedError):
            stale(etag=etag, match_condition=MatchConditions.IfNotModified)
    unchanged = blob.get_blob_properties().etag
    assert refusal(lambda: blob.download_blob(etag=unchanged, match_condition=MatchConditions.IfModified))[0] == 304
    assert blob.download_blob().readall() == b"two"


# -- signing in --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("client", [IDENTITY, principal_id(IDENTITY)])
def test_a_service_principal_signs_in_by_entras_own_library(sdks: Sdks, client: str) -> None:
    def credential(secret: str) -> ClientSecretCredential:
        terms = {name: sdks.terms[name] for name in ("proxies", "connection_verify", "retry_total")}
        return ClientSecretCredential(TENANT, client, secret, authority=ENTRA, **terms)

    assert sdks.filesystem(credential=credential(TOKEN)).exists()
    with pytest.raises(ClientAuthenticationError, match=r"invalid_client|not that of the identity"):
        sdks.filesystem(credential=credential("wrong")).exists()


def test_a_token_of_nobody_and_an_account_key_are_refused(sdks: Sdks) -> None:
    assert refusal(lambda: list(sdks.filesystem(credential=Token("stolen")).get_paths())) == (
        401,
        "InvalidAuthenticationInfo",
    )
    key = {"account_name": "onelake", "account_key": "a2V5"}
    assert refusal(lambda: list(sdks.container(credential=key).list_blobs())) == (401, "InvalidAuthenticationInfo")
