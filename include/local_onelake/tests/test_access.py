"""Who may do what: every line of OneLake's documented table of roles, by obstore, deltalake and this package's store.

The table: https://learn.microsoft.com/fabric/onelake/security/data-access-control-model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import httpx
import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from obstore.exceptions import PermissionDeniedError
from obstore.store import AzureStore

from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import Store, open_store
from include.local_onelake.tests.conftest import code
from local_onelake.lake import Lake
from tests.support.onelake import BY_GUIDS, LAKEHOUSE_GUID, OTHER_IDENTITY, OTHER_TOKEN, TOKEN, WORKSPACE_GUID, OneLake
from tests.support.rights import ANN, DEFAULT_READER, Rights, columns_of, data_role, rows_of

GOLD_GUID = "b1b2c3d4-e5f6-4789-8abc-def012345678"
TABLE = "Tables/dbo/t"
READER = data_role("readers", f"/{TABLE}")
WRITER = data_role("writers", f"/{TABLE}", actions=["Read", "ReadWrite"])
BY_ROWS = data_role("byRows", f"/{TABLE}", constraints=rows_of(TABLE))
BY_COLUMNS = data_role("byColumns", "*", constraints=columns_of(TABLE))
OTHERS = data_role("others", "*", members={"microsoftEntraMembers": [{"tenantId": "t", "objectId": GOLD_GUID}]})


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as running:
        running.served.names.add_item("taxi", "gold.Lakehouse", GOLD_GUID)
        write_deltalake(uri(TABLE), pa.table({"id": [1, 2]}), storage_options=options(running, TOKEN))
        yield running


@pytest.fixture
def rights(server: OneLake) -> Rights:
    return Rights(server)


def uri(path: str, item: str = LAKEHOUSE_GUID) -> str:
    return f"abfss://{WORKSPACE_GUID}@onelake.dfs.fabric.microsoft.com/{item}/{path}"


def options(server: OneLake, token: str = OTHER_TOKEN) -> dict[str, str]:
    return {"azure_endpoint": server.url, "azure_allow_http": "true", "azure_storage_token": token}


def by_obstore(server: OneLake, path: str, token: str = OTHER_TOKEN) -> AzureStore:
    return AzureStore(
        WORKSPACE_GUID,
        prefix=f"{LAKEHOUSE_GUID}/{path}".rstrip("/"),
        account_name="onelake",
        endpoint=server.url,
        client_options={"allow_http": True},
        bearer_token=token,
    )


def ours(server: OneLake, path: str, token: str = OTHER_TOKEN) -> Store:
    return open_store(TableAddress.parse(f"{BY_GUIDS}/{path}"), server.credentials(token), 1.0)


def granted(trying: Callable[[], object]) -> bool:
    """Whether something may be done; an error that is no refusal fails the test."""
    try:
        trying()
    except PermissionDeniedError:
        return False
    except Exception as error:
        # Each client has errors of its own for a 403, and all of them quote the answer.
        if "AuthorizationPermissionMismatch" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize(
    ("role", "permissions", "data_roles", "reads", "writes"),
    [
        pytest.param("Admin", [], [], True, True, id="Admin"),
        pytest.param("Member", [], [], True, True, id="Member"),
        pytest.param("Contributor", [], [], True, True, id="Contributor"),
        pytest.param("Contributor", [], [BY_ROWS, BY_COLUMNS], True, True, id="Contributor, whom no rule limits"),
        pytest.param("Viewer", [], [DEFAULT_READER], False, False, id="Viewer"),
        pytest.param("Viewer", [], [READER], True, False, id="Viewer whom a role lets read"),
        pytest.param("Viewer", [], [WRITER], True, True, id="Viewer whom a role lets write"),
        pytest.param("Viewer", [], [OTHERS], False, False, id="Viewer beside a role of others"),
        pytest.param("Viewer", [], [READER, BY_ROWS], False, False, id="Viewer from whom rows are hidden"),
        pytest.param("Viewer", [], [BY_COLUMNS], False, False, id="Viewer from whom columns are hidden"),
        pytest.param(None, ["Read"], [DEFAULT_READER], False, False, id="item Read"),
        pytest.param(None, ["Read"], [READER], True, False, id="item Read and a role that reads"),
        pytest.param(None, ["Read"], [WRITER], True, True, id="item Read and a role that writes"),
        pytest.param(None, ["ReadAll"], [DEFAULT_READER], True, False, id="item ReadAll"),
        pytest.param(None, ["ReadAll"], [READER, DEFAULT_READER], True, False, id="item ReadAll and a role"),
        pytest.param(None, ["ReadAll"], [OTHERS], False, False, id="item ReadAll without DefaultReader"),
        pytest.param(None, ["ReadAll"], [DEFAULT_READER, BY_ROWS], False, False, id="item ReadAll, rows hidden"),
        pytest.param(None, ["Write"], [OTHERS], True, True, id="item Write"),
        pytest.param(None, ["Write"], [BY_ROWS], True, True, id="item Write, whom no rule limits"),
        pytest.param(None, ["ReadData"], [DEFAULT_READER], False, False, id="SQL ReadData"),
        pytest.param("Viewer", ["Write"], [], True, True, id="Viewer with item Write"),
        pytest.param(None, [], [READER, WRITER], False, False, id="nothing but a data access role"),
    ],
)
def test_every_line_of_the_table_of_roles(
    server: OneLake,
    rights: Rights,
    role: str | None,
    permissions: Sequence[str],
    data_roles: Sequence[dict[str, Any]],
    reads: bool,
    writes: bool,
) -> None:
    rights.set(role, permissions, data_roles)
    plain, package = by_obstore(server, TABLE), ours(server, TABLE)
    listing = by_obstore(server, f"{TABLE}/_delta_log")
    ours(server, TABLE, TOKEN).put("old", b"x")
    reading = [
        lambda: plain.get("_delta_log/00000000000000000000.json"),
        lambda: plain.head("old"),
        lambda: list(obstore.list(listing)),
        lambda: package.get("old"),
        lambda: DeltaTable(uri(TABLE), storage_options=options(server)).to_pyarrow_table(),
    ]
    assert [granted(each) for each in reading] == [reads] * len(reading)
    writing = [
        lambda: plain.put("old", b"y", mode="overwrite", use_multipart=False),
        lambda: package.create(f"made by {role} {permissions}"[:20], b"x"),
        lambda: package.delete("old"),
        lambda: package.delete(f"made by {role} {permissions}"[:20]),
        lambda: write_deltalake(
            uri(TABLE), pa.table({"id": [3]}), mode="append", storage_options={**options(server), "max_retries": "0"}
        ),
    ]
    assert [granted(each) for each in writing] == [writes] * len(writing)


def test_a_role_on_a_folder_hides_those_beside_it_and_lets_its_parents_be_passed(
    server: OneLake, rights: Rights
) -> None:
    owner = by_obstore(server, "Files", TOKEN)
    for path in ("in/open/a", "in/open/deep/b", "in/secret/c", "in/beside", "in/opening/e", "other/d"):
        owner.put(path, b"x")
    rights.set("Viewer", data_roles=[data_role("openOnly", "/Files/in/open")])
    ann = by_obstore(server, "Files")
    assert granted(lambda: list(obstore.list(ann)))
    assert sorted(meta["path"] for batch in obstore.list(ann) for meta in batch if meta["size"]) == [
        "in/open/a",
        "in/open/deep/b",
    ]
    assert ann.list_with_delimiter()["common_prefixes"] == ["in"]
    found = ann.list_with_delimiter("in")
    assert (found["common_prefixes"], found["objects"]) == (["in/open"], [])
    assert bytes(ann.get("in/open/deep/b").bytes()) == b"x"
    for path in ("in/secret/c", "in/beside", "other/d", "in/opening/e"):
        with pytest.raises(PermissionDeniedError):
            ann.get(path)
    with pytest.raises(PermissionDeniedError):
        ann.put("in/open/a", b"y", mode="overwrite", use_multipart=False)


# -- how rights are given and shown --------------------------------------------------------------------------------


def rest(server: OneLake, token: str = TOKEN) -> httpx.Client:
    base = f"{server.url}/api.fabric.microsoft.com/v1"
    return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {token}"})


def effective(server: OneLake, token: str = TOKEN, **body: object) -> httpx.Response:
    path = f"/v1.0/workspaces/{WORKSPACE_GUID}/artifacts/{LAKEHOUSE_GUID}/securityPolicy/principalAccess"
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {token}"}) as client:
        return client.request(
            "GET",
            f"/onelake.dfs.fabric.microsoft.com{path}",
            json={"aadObjectId": ANN, "inputPath": "Tables", **body},
        )


def test_principal_access_says_what_roles_let_a_principal_read(server: OneLake, rights: Rights) -> None:
    rights.set("Viewer", data_roles=[data_role("some", "/Tables/dbo/a", "/Tables/dbo/b", "/Files/c"), BY_ROWS])
    said = effective(server).json()
    plain = {"access": ["Read"], "effect": "Permit"}
    assert said["value"] == [
        {"path": "Tables/dbo/a", **plain},
        {"path": "Tables/dbo/b", **plain},
        {"path": TABLE, **plain, "rows": "SELECT * FROM dbo.t WHERE id = 1"},
    ]
    first = effective(server, maxResults=2).json()
    second = effective(server, maxResults=2, continuationToken=first["continuationToken"]).json()
    assert first["value"] + second["value"] == said["value"]
    assert [each["path"] for each in effective(server, inputPath="Files").json()["value"]] == ["Files/c"]
    rights.data_roles(BY_COLUMNS)
    changed = effective(server).json()
    assert changed["metadataETag"] != said["metadataETag"]
    (all_of_them, table) = changed["value"]
    assert (all_of_them["path"], table["path"], table["columns"][0]["name"]) == ("Tables", TABLE, "id")
    assert effective(server, aadObjectId=GOLD_GUID).json()["value"] == []
    assert code(effective(server, inputPath="Else")) == (400, "InvalidRequest")
    assert code(effective(server, OTHER_TOKEN)) == (403, "InsufficientPrivileges")


def test_who_an_item_is_shared_with_sees_it_and_not_its_workspace(server: OneLake, rights: Rights) -> None:
    rights.set(None, ["Read"])
    workspace, item = f"/workspaces/{WORKSPACE_GUID}", f"/workspaces/{WORKSPACE_GUID}/items/{LAKEHOUSE_GUID}"
    with rest(server, OTHER_TOKEN) as ann, rest(server) as admin:
        assert ann.get(item).status_code == 200
        assert [ann.get(path).status_code for path in (workspace, f"{workspace}/items/{GOLD_GUID}")] == [403, 403]
        assert ann.get(f"{item}/dataAccessRoles").status_code == 403
        shared = admin.get(f"/admin{item}/users").json()["accessDetails"]
        held = {each["principal"]["id"]: each["itemAccessDetails"] for each in shared}[ANN]
        assert (held["permissions"], held["additionalPermissions"]) == (["Read"], [])
        assert ann.get(f"/admin{item}/users").status_code == 403
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {OTHER_TOKEN}"}) as ann:
        assert "taxi" not in ann.get("/", params={"comp": "list"}).text
        dfs = {"Host": "onelake.dfs.fabric.microsoft.com"}
        assert ann.get("/", params={"resource": "account"}, headers=dfs).json() == {"filesystems": []}


def test_permissions_of_an_item_are_given_while_the_server_runs_and_kept(server: OneLake, rights: Rights) -> None:
    rights.permissions("ReadAll")
    served = server.served
    workspace, item = served.names.item(WORKSPACE_GUID, LAKEHOUSE_GUID)
    rights.role(None)
    # Nobody has ReadAll without Read.
    assert served.access.permissions(OTHER_IDENTITY, workspace, item) == {"Read", "ReadAll"}
    assert served.kept.read("itemPermissions", LAKEHOUSE_GUID) == {OTHER_IDENTITY: ["Read", "ReadAll"]}
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {TOKEN}"}) as admin:
        path = f"/_admin/permissions/{WORKSPACE_GUID}/{LAKEHOUSE_GUID}"
        assert code(admin.put(f"{path}/{OTHER_IDENTITY}", json=["Fly"])) == (400, "InvalidInput")
        assert code(admin.put(f"{path}/nobody", json=["Read"])) == (400, "InvalidInput")
        assert code(admin.put(f"{path}/{OTHER_IDENTITY}", json=3)) == (400, "InvalidInput")


@pytest.mark.parametrize("role", ["Viewer", "Member"])
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        pytest.param("PUT", f"permissions/{WORKSPACE_GUID}/{LAKEHOUSE_GUID}/{OTHER_IDENTITY}", ["Write"], id="gives"),
        pytest.param("GET", "faults", None, id="looks"),
        pytest.param("PUT", "faults/error_503", {}, id="sets a fault"),
        pytest.param("DELETE", "faults/batch_delete_refused", None, id="ends a fault"),
    ],
)
def test_who_is_no_admin_gives_no_permissions_and_switches_no_faults(
    server: OneLake, rights: Rights, role: str, method: str, path: str, body: object
) -> None:
    rights.set(role)
    before = server.served.faults.on()
    with httpx.Client(base_url=server.url, headers={"Authorization": f"Bearer {OTHER_TOKEN}"}) as ann:
        assert code(ann.request(method, f"/_admin/{path}", json=body)) == (403, "InsufficientPrivileges")
    assert server.served.kept.read("itemPermissions", LAKEHOUSE_GUID)[OTHER_IDENTITY] == []
    assert server.served.faults.on() == before


def test_a_workspace_keeps_an_admin(server: OneLake) -> None:
    lake: Lake = server.served
    workspace = lake.names.workspace(WORKSPACE_GUID)
    with pytest.raises(ValueError, match="keeps one Admin"):
        lake.access.give_roles(workspace, dict.fromkeys(lake.identities.tokens, "Viewer"))
    with pytest.raises(ValueError, match="no role 'King'"):
        lake.access.give_roles(workspace, {OTHER_IDENTITY: "King"})
