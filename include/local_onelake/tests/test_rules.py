"""OneLake's rules: who asks, how workspaces and items are named, what nobody may do by the storage API."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from include.local_onelake.tests.conftest import Clients, code
from local_onelake.faults import Fault
from local_onelake.identities import Identities
from local_onelake.lake import InUseError, Lake
from local_onelake.names import NameTakenError
from local_onelake.tree import CREATE_ONLY
from tests.support.onelake import IDENTITY, LAKEHOUSE_GUID, TOKEN, WORKSPACE_GUID

DFS = "/onelake.dfs.fabric.microsoft.com"
BLOCK_BLOB = {"x-ms-blob-type": "BlockBlob"}


@pytest.mark.parametrize(
    ("workspace", "item", "expected"),
    [
        (WORKSPACE_GUID, "raw.Lakehouse", (400, "FriendlyNameSupportDisabled")),
        (WORKSPACE_GUID, f"{LAKEHOUSE_GUID}.Lakehouse", (400, "FriendlyNameSupportDisabled")),
        ("taxi", f"{LAKEHOUSE_GUID}.Lakehouse", (400, "FriendlyNameSupportDisabled")),
        ("taxi", LAKEHOUSE_GUID, (400, "BadRequest")),
        (WORKSPACE_GUID, "raw", (400, "BadRequest")),
        ("bus", "raw.Lakehouse", (404, "WorkspaceNotFound")),
        ("taxi", "cooked.Lakehouse", (404, "ItemNotFound")),
        ("taxi", "raw.Warehouse", (404, "ItemNotFound")),
        ("taxi", "raw", (404, "ItemNotFound")),
        (WORKSPACE_GUID, WORKSPACE_GUID, (404, "ItemNotFound")),
        (LAKEHOUSE_GUID, LAKEHOUSE_GUID, (404, "WorkspaceNotFound")),
    ],
)
@pytest.mark.parametrize("host", ["", DFS])
def test_workspace_and_item_are_named_alike(
    onelake: Clients, host: str, workspace: str, item: str, expected: tuple[int, str]
) -> None:
    for method in ("GET", "HEAD", "DELETE"):
        assert code(onelake.plain.request(method, f"{host}/{workspace}/{item}/Files/x")) == expected


def test_guids_are_taken_in_capitals_too(onelake: Clients) -> None:
    onelake.put("a", b"x")
    assert (
        onelake.plain.get(f"/{WORKSPACE_GUID.upper()}/{LAKEHOUSE_GUID.upper()}/{onelake.directory}/a").content == b"x"
    )


def test_names_that_are_switched_off_leave_guids(onelake: Clients) -> None:
    onelake.put("a", b"x")
    onelake.server.served.faults.set("names_off", Fault())
    assert code(onelake.blob("GET", "a")) == (400, "FriendlyNameSupportDisabled")
    assert code(onelake.list("")) == (400, "FriendlyNameSupportDisabled")
    assert onelake.blob("GET", "a", by="guids").content == b"x"


@pytest.mark.parametrize(
    "path",
    ["", "taxi", "taxi/raw.Lakehouse", "taxi/raw.Lakehouse/Files", "taxi/raw.Lakehouse/x", "taxi/raw.Lakehouse/x/y"],
)
def test_items_and_their_first_level_are_neither_made_nor_deleted_nor_renamed(onelake: Clients, path: str) -> None:
    onelake.put("a", b"x")
    source = {"x-ms-rename-source": f"/{onelake.at('a')}"}
    asked = [
        onelake.plain.put(f"/{path}", content=b"", headers=BLOCK_BLOB),
        onelake.plain.delete(f"/{path}"),
        *(onelake.plain.put(f"{DFS}/{path}", params={"resource": kind}) for kind in ("file", "directory")),
        onelake.plain.delete(f"{DFS}/{path}", params={"recursive": "true"}),
        onelake.plain.put(f"{DFS}/{path}", headers=source),
        onelake.plain.put(f"{DFS}/{onelake.at('b')}", headers={"x-ms-rename-source": f"/{path}"}),
    ]
    refused = {code(answer) for answer in asked}
    if path:
        assert refused == {(403, "AuthorizationPermissionMismatch")}
    assert all(answer.status_code in (403, 404) for answer in asked)
    assert onelake.blob("GET", "a").content == b"x"


@pytest.mark.parametrize("query", [{"restype": "container"}, {"resource": "filesystem"}])
def test_workspaces_are_not_made_by_the_storage_api(onelake: Clients, query: dict[str, str]) -> None:
    for method in ("PUT", "DELETE"):
        host = DFS if "resource" in query else ""
        assert onelake.plain.request(method, f"{host}/new", params=query).status_code == 403


@pytest.mark.parametrize("path", ["a/%2E%2E/b", "a//b", "a/%0Ab", "a/%5Cb", "a/" + "x" * 256])
def test_what_is_no_path_is_refused(onelake: Clients, path: str) -> None:
    url = f"{onelake.server.url}/taxi/raw.Lakehouse/Files/{path}"
    assert code(onelake.plain.put(url, content=b"", headers=BLOCK_BLOB)) == (400, "InvalidUri")


@pytest.mark.parametrize(
    ("authorization", "expected"),
    [
        ("", "NoAuthenticationInformation"),
        ("Bearer", "InvalidAuthenticationInfo"),
        ("Bearer stale", "InvalidAuthenticationInfo"),
        (f"SharedKey onelake:{TOKEN}", "InvalidAuthenticationInfo"),
    ],
)
def test_who_is_not_known_is_refused(onelake: Clients, authorization: str, expected: str) -> None:
    headers = {"Authorization": authorization} if authorization else {}
    for path in ("/taxi", "/_admin/faults", f"{DFS}/taxi/raw.Lakehouse"):
        answer = httpx.get(f"{onelake.server.url}{path}", headers=headers)
        assert code(answer) == (401, expected)
        assert TOKEN not in answer.text


def test_a_token_may_be_a_signature_where_there_is_no_header(onelake: Clients) -> None:
    onelake.put("a", b"x")
    url = f"{onelake.server.url}/{onelake.at('a')}"
    assert httpx.get(url, params={"sv": "local", "sig": TOKEN}).content == b"x"
    assert code(httpx.get(url, params={"sig": "stale"})) == (401, "InvalidAuthenticationInfo")


def test_an_identity_gets_its_token_for_its_secret(onelake: Clients) -> None:
    url = f"{onelake.server.url}/login.microsoftonline.com/tenant/oauth2/v2.0/token"
    form = {"grant_type": "client_credentials", "client_id": IDENTITY, "client_secret": TOKEN}
    given = httpx.post(url, data=form).json()
    assert (given["access_token"], given["token_type"]) == (TOKEN, "Bearer")
    assert httpx.post(url, data={**form, "client_id": "another"}).status_code == 401
    assert httpx.post(url, data={**form, "grant_type": "password"}).status_code == 400
    assert httpx.get(url).status_code == 400


def opened(directory: Path) -> Lake:
    return Lake.open(directory, Identities({"me": "secret"}))


def test_a_restart_finds_everything_as_it_was_but_for_uploads_that_were_not_finished(tmp_path: Path) -> None:
    lake = opened(tmp_path)
    workspace = lake.names.add_workspace("taxi")
    item = lake.names.add_item("taxi", "raw.Lakehouse")
    part = lake.parts.new_file()
    part.write_bytes(b"abc")
    put = lake.tree.put("taxi/raw.Lakehouse/Files/a", part, CREATE_ONLY)
    lake.parts.new_file().write_bytes(b"half of a file")
    with pytest.raises(InUseError, match=r"has .* open"):
        opened(tmp_path)
    lake.close()

    (tmp_path / "taxi" / "by_hand.Lakehouse").mkdir()
    lake = opened(tmp_path)
    assert lake.names.add_workspace("taxi").guid == workspace.guid
    assert lake.names.item(workspace.guid, item.guid)[1] == item
    assert lake.names.item("taxi", "by_hand.Lakehouse")[1].guid != item.guid
    assert lake.tree.stat("taxi/raw.Lakehouse/Files/a") == put
    assert list((tmp_path / ".onelake" / "parts").iterdir()) == []
    lake.close()


def test_a_killed_server_leaves_no_half_of_a_file(tmp_path: Path) -> None:
    """A process dies with the bytes of a put written and the file not in its place."""
    code = (
        "import os, sys; from pathlib import Path\n"
        "from include.local_onelake.tests.test_rules import opened\n"
        "from local_onelake.tree import CREATE_ONLY\n"
        "lake = opened(Path(sys.argv[1])); lake.names.add_workspace('w'); lake.names.add_item('w', 'i.Lakehouse')\n"
        "os.utime = lambda *_, **__: os._exit(9)\n"
        "part = lake.parts.new_file(); part.write_bytes(b'x'); lake.tree.put('w/i.Lakehouse/Files/a', part, CREATE_ONLY)"
    )
    root = Path(__file__).parents[3]
    assert subprocess.run([sys.executable, "-c", code, str(tmp_path)], cwd=root, check=False).returncode == 9
    lake = opened(tmp_path)
    assert lake.tree.stat("w/i.Lakehouse/Files/a") is None
    assert list((tmp_path / ".onelake" / "parts").iterdir()) == []
    lake.close()


@pytest.mark.parametrize(
    "name", ["", ".x", "a/b", "onelake", "_admin", "onelake.dfs.fabric.microsoft.com", WORKSPACE_GUID]
)
def test_a_workspace_is_not_called_what_addresses_mean_otherwise(tmp_path: Path, name: str) -> None:
    lake = opened(tmp_path)
    with pytest.raises(NameTakenError):
        lake.names.add_workspace(name)
    lake.names.add_workspace("taxi")
    for directory in ("raw", ".Lakehouse", f"{LAKEHOUSE_GUID}.Lakehouse"):
        with pytest.raises(NameTakenError, match=r"name\.Lakehouse"):
            lake.names.add_item("taxi", directory)
    with pytest.raises(NameTakenError, match="no GUID"):
        lake.names.add_item("taxi", "x.Lakehouse", "1")
    lake.close()
