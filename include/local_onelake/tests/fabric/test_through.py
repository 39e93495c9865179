"""Shortcuts and roles as the storage endpoints see them: what is read, listed, written and deleted through a shortcut."""

from __future__ import annotations

import httpx
import pytest

from include.local_onelake.tests.conftest import code
from include.local_onelake.tests.fabric.conftest import ITEM, WORKSPACE, Fabric, path_of
from tests.support.onelake import LAKEHOUSE_GUID, WORKSPACE_GUID

BLOB = {"x-ms-blob-type": "BlockBlob"}
DFS = {"Host": "onelake.dfs.fabric.microsoft.com"}


@pytest.fixture
def gold(fabric: Fabric) -> str:
    """A lakehouse whose table ``trips`` is a table of the first lakehouse too, by a shortcut."""
    item = fabric.lakehouse("gold")
    fabric.put("Tables/trips/a", b"old", item=item)
    fabric.put("Tables/trips/_delta_log/0.json", b"{}", item=item)
    assert fabric.link("Tables/trips", "Tables/trips", item=item).status_code == 201
    return item


def names(fabric: Fabric, prefix: str, client: httpx.Client | None = None, **query: str) -> list[str]:
    query = {"restype": "container", "comp": "list", "prefix": f"{LAKEHOUSE_GUID}/{prefix}", **query}
    said = (client or fabric.blob).get(f"/{WORKSPACE_GUID}", params=query)
    assert said.status_code == 200, said.text
    return [each.split("</Name>")[0].removeprefix(f"{LAKEHOUSE_GUID}/") for each in said.text.split("<Name>")[1:]]


def test_it_is_read_listed_and_written_by_both_endpoints(fabric: Fabric, gold: str) -> None:
    assert fabric.blob.get(path_of("Tables/trips/a")).content == b"old"
    assert fabric.blob.get(path_of("Tables/trips/a"), headers=DFS).content == b"old"
    assert names(fabric, "Tables/trips/") == [
        "Tables/trips/_delta_log",
        "Tables/trips/_delta_log/0.json",
        "Tables/trips/a",
    ]
    assert names(fabric, "Tables/trips/", delimiter="/") == ["Tables/trips/_delta_log/", "Tables/trips/a"]
    listed = fabric.blob.get(
        f"/{WORKSPACE_GUID}",
        params={"resource": "filesystem", "directory": f"{LAKEHOUSE_GUID}/Tables/trips", "recursive": "false"},
        headers=DFS,
    )
    assert [each["name"] for each in listed.json()["paths"]] == [
        f"{LAKEHOUSE_GUID}/Tables/trips/_delta_log",
        f"{LAKEHOUSE_GUID}/Tables/trips/a",
    ]
    assert fabric.put("Tables/trips/b", b"new").status_code == 201
    assert fabric.blob.get(path_of("Tables/trips/b", gold)).content == b"new"
    # Both addresses are one file, so a second create-only put loses.
    second = fabric.blob.put(path_of("Tables/trips/b", gold), content=b"x", headers={**BLOB, "If-None-Match": "*"})
    assert code(second) == (409, "BlobAlreadyExists")
    renamed = fabric.blob.put(
        path_of("Tables/trips/c"), headers={**DFS, "x-ms-rename-source": path_of("Tables/trips/b", gold)}
    )
    assert renamed.status_code == 201
    assert fabric.blob.delete(path_of("Tables/trips/c")).status_code == 202
    assert fabric.blob.get(path_of("Tables/trips/c", gold)).status_code == 404


def test_it_is_a_folder_that_a_list_from_above_does_not_enter(fabric: Fabric, gold: str) -> None:
    assert names(fabric, "Tables/") == ["Tables/trips"]
    query = {"resource": "filesystem", "directory": f"{LAKEHOUSE_GUID}/Tables", "recursive": "true"}
    listed = fabric.blob.get(f"/{WORKSPACE_GUID}", params={**query, "getShortcutMetadata": "true"}, headers=DFS)
    (row,) = listed.json()["paths"]
    assert (row["isDirectory"], row["isShortcut"], row["accountType"]) == ("true", "true", "OneLake")
    head = fabric.blob.head(path_of("Tables/trips"), headers=DFS)
    assert head.headers["x-ms-onelake-shortcut-path"] == "true"
    assert "x-ms-onelake-shortcut-path" not in fabric.blob.head(path_of("Tables/trips/a"), headers=DFS).headers


@pytest.mark.parametrize("headers", [{}, DFS], ids=["blob", "dfs"])
@pytest.mark.parametrize("path", ["Files/in/link", "Files/in"])
def test_deleting_a_shortcut_or_what_is_above_it_deletes_nothing_of_the_target(
    fabric: Fabric, gold: str, path: str, headers: dict[str, str]
) -> None:
    fabric.link("Files/in/link", "Tables/trips", item=gold)
    if headers == {} and path == "Files/in":
        assert code(fabric.blob.delete(path_of(path))) == (409, "DirectoryIsNotEmpty")
        return
    params = {"recursive": "true"} if headers else {}
    assert fabric.blob.delete(path_of(path), params=params, headers=headers).is_success
    assert fabric.blob.get(path_of("Tables/trips/a", gold)).content == b"old"
    assert fabric.rest.get(f"{ITEM}/shortcuts/Files/in/link").status_code == 404
    assert fabric.put("Files/in/link/mine").status_code == 201
    assert fabric.blob.get(path_of("Tables/trips/mine", gold)).status_code == 404


def test_a_shortcut_and_what_is_above_it_are_not_renamed(fabric: Fabric, gold: str) -> None:
    fabric.link("Files/in/link", "Tables/trips", item=gold)
    for source in ("Files/in/link", "Files/in"):
        headers = {**DFS, "x-ms-rename-source": path_of(source)}
        assert code(fabric.blob.put(path_of("Files/out"), headers=headers)) == (400, "InvalidRenameSourcePath")


def test_a_shortcut_to_a_shortcut_is_followed(fabric: Fabric, gold: str) -> None:
    fabric.link("Files/again", "Tables/trips")
    assert fabric.blob.get(path_of("Files/again/a")).content == b"old"
    fabric.put("Files/again/b", b"new")
    assert fabric.blob.get(path_of("Tables/trips/b", gold)).content == b"new"


def test_a_broken_target_is_said_and_not_taken_for_a_table_that_is_not_there_yet(fabric: Fabric, gold: str) -> None:
    fabric.blob.delete(path_of("Tables/trips", gold), params={"recursive": "true"}, headers=DFS)
    refused = (400, "ShortcutTargetNotFound")
    assert code(fabric.blob.get(path_of("Tables/trips/a"))) == refused
    assert code(fabric.put("Tables/trips/a")) == refused
    fabric.rest.delete(f"{WORKSPACE}/items/{gold}")
    assert code(fabric.blob.head(path_of("Tables/trips"), headers=DFS)) == refused
    assert fabric.blob.delete(path_of("Tables/trips")).status_code == 202
    assert fabric.put("Tables/trips/a").status_code == 201


def test_a_target_out_of_onelake_is_refused_by_name(fabric: Fabric) -> None:
    said = {"location": "https://b.s3.eu-west-1.amazonaws.com", "subpath": "/x", "connectionId": WORKSPACE_GUID}
    body = {"path": "Files", "name": "s3", "target": {"amazonS3": said}}
    assert fabric.rest.post(f"{ITEM}/shortcuts", json=body).status_code == 201
    refused = fabric.blob.get(path_of("Files/s3/a"))
    assert code(refused) == (400, "ExternalShortcutNotServed")
    assert "AmazonS3" in refused.text
    assert fabric.blob.head(path_of("Files/s3"), headers=DFS).headers["x-ms-onelake-shortcut-path"] == "true"
    assert names(fabric, "Files/", delimiter="/") == ["Files/s3/"]


def test_a_viewer_reads_what_a_role_grants_and_both_sides_of_a_shortcut_decide(fabric: Fabric) -> None:
    for path in ("Files/open/a", "Files/secret/a", "Tables/t/a"):
        fabric.put(path)
    fabric.link("Files/link", "Files/open")
    fabric.link("Files/open_link", "Files/secret")
    fabric.give("Viewer")
    fabric.permit("/Files/open", "Read")
    status = {
        path: fabric.ann_blob.get(path_of(path)).status_code
        for path in ("Files/open/a", "Files/secret/a", "Tables/t/a", "Files/link/a", "Files/open_link/a")
    }
    assert status == {
        "Files/open/a": 200,
        "Files/secret/a": 403,
        "Tables/t/a": 403,
        "Files/link/a": 403,
        "Files/open_link/a": 403,
    }
    # A list shows links to OneLake, whoever may open them.
    assert names(fabric, "Files/", fabric.ann_blob) == ["Files/link", "Files/open", "Files/open/a", "Files/open_link"]
    assert fabric.ann_blob.put(path_of("Files/open/b"), headers=BLOB).status_code == 403
    said = fabric.ann_blob.head(path_of("Files/open"), headers=DFS, params={"action": "getAccessControl"})
    assert said.headers["x-ms-acl"].startswith("user::r-x")
    fabric.permit("/Files/open", "Read", "ReadWrite")
    assert fabric.ann_blob.put(path_of("Files/open/b"), headers=BLOB).status_code == 201
    hidden = {"rows": [{"tablePath": "/Files/open", "value": "SELECT * FROM t WHERE a = 1"}]}
    fabric.permit("*", "Read", constraints=hidden)
    assert fabric.ann_blob.get(path_of("Files/open/a")).status_code == 403
    assert fabric.ann_blob.get(path_of("Files/secret/a")).status_code == 200
