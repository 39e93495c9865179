"""Fabric's REST: workspaces, items, roles, pages, errors."""

from __future__ import annotations

import httpx
import pytest

from include.local_onelake.tests.fabric.conftest import ITEM, WORKSPACE, Fabric, error, path_of
from local_onelake.access import principal_id
from local_onelake.lake import Lake
from tests.support.onelake import IDENTITY, LAKEHOUSE_GUID, OTHER_IDENTITY, WORKSPACE_GUID

ROLES = f"{WORKSPACE}/roleAssignments"
NOBODY = "11111111-2222-4333-8444-555555555555"


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/workspaces/taxi", (400, "InvalidParameter")),
        ("GET", f"/workspaces/{NOBODY}", (404, "WorkspaceNotFound")),
        ("GET", f"{WORKSPACE}/items/{NOBODY}", (404, "ItemNotFound")),
        ("GET", f"{WORKSPACE}/items?recursive=true", (400, "InvalidParameter")),
        ("GET", f"{WORKSPACE}/capacities", (404, "UnsupportedOperation")),
        ("PATCH", ITEM, (404, "UnsupportedOperation")),
        ("POST", f"{WORKSPACE}/items", (400, "InvalidRequest")),
    ],
)
def test_what_is_not_there_or_not_served_is_refused_in_fabrics_form(
    fabric: Fabric, method: str, path: str, expected: tuple[int, str]
) -> None:
    assert error(fabric.rest.request(method, path)) == expected


def test_a_token_that_is_nobodys_is_refused_in_fabrics_form(fabric: Fabric) -> None:
    assert error(fabric.rest.get("/workspaces", headers={"Authorization": "Bearer no"})) == (
        401,
        "InvalidAuthenticationInfo",
    )


def test_items_are_made_paged_and_deleted_with_their_files(fabric: Fabric) -> None:
    for number in range(60):
        fabric.lakehouse(f"lake{number:02}")
    first = fabric.rest.get(f"{WORKSPACE}/items").json()
    assert len(first["value"]) == 50
    second = httpx.get(first["continuationUri"], headers=fabric.rest.headers).json()
    names = [item["displayName"] for item in (*first["value"], *second["value"])]
    assert names == [*(f"lake{number:02}" for number in range(60)), "raw"]
    assert set(second) == {"value"}
    by_token = fabric.rest.get(f"{WORKSPACE}/items", params={"continuationToken": first["continuationToken"]})
    assert by_token.json() == second

    item = first["value"][0]
    assert fabric.put("Files/a", item=item["id"]).status_code == 201
    assert fabric.rest.delete(f"{WORKSPACE}/items/{item['id']}").status_code == 200
    assert error(fabric.rest.get(f"{WORKSPACE}/items/{item['id']}")) == (404, "ItemNotFound")
    assert fabric.blob.get(path_of("Files/a", item["id"])).status_code == 404
    assert not (fabric.server.directory / "taxi" / "lake00.Lakehouse").exists()
    assert fabric.lakehouse("lake00") != item["id"]


def test_tables_of_a_lakehouse_are_listed_unless_it_has_schemas(fabric: Fabric) -> None:
    fabric.put("Tables/trips/_delta_log/00000000000000000000.json")
    fabric.put("Tables/no_table/a.parquet")
    (table,) = fabric.rest.get(f"{WORKSPACE}/lakehouses/{LAKEHOUSE_GUID}/tables").json()["data"]
    assert (table["name"], table["format"]) == ("trips", "delta")
    assert table["location"].endswith(f"{LAKEHOUSE_GUID}/Tables/trips")
    with_schemas = fabric.lakehouse("modern", enableSchemas=True)
    refused = fabric.rest.get(f"{WORKSPACE}/lakehouses/{with_schemas}/tables")
    assert error(refused) == (400, "UnsupportedOperationForSchemasEnabledLakehouse")
    said = fabric.rest.get(f"{WORKSPACE}/lakehouses/{with_schemas}").json()
    assert said["properties"]["defaultSchema"] == "dbo"


def test_everybody_is_an_admin_until_a_role_is_changed_and_the_last_admin_stays(fabric: Fabric) -> None:
    said = {each["principal"]["displayName"]: each["role"] for each in fabric.rest.get(ROLES).json()["value"]}
    assert said == {IDENTITY: "Admin", OTHER_IDENTITY: "Admin"}
    fabric.give("Member")
    again = {"principal": {"id": principal_id(OTHER_IDENTITY), "type": "User"}, "role": "Viewer"}
    assert error(fabric.rest.post(ROLES, json=again)) == (409, "PrincipalAlreadyHasWorkspaceRolePermissions")
    assert error(fabric.rest.delete(f"{ROLES}/{principal_id(IDENTITY)}")) == (400, "LastAdminCannotBeRemoved")
    assert error(fabric.rest.delete(f"{ROLES}/{NOBODY}")) == (404, "EntityNotFound")
    unknown = {"principal": {"id": NOBODY, "type": "User"}, "role": "Viewer"}
    assert error(fabric.rest.post(ROLES, json=unknown)) == (400, "PrincipalNotFound")
    # It is kept for the next start.
    fabric.server.served.close()
    reopened = Lake.open(fabric.server.directory, fabric.server.served.identities)
    assert reopened.access.roles(reopened.names.workspace(WORKSPACE_GUID))[OTHER_IDENTITY] == "Member"
    fabric.server.served._lock = reopened._lock


@pytest.mark.parametrize(
    ("role", "may"),
    [
        (None, set()),
        ("Viewer", {"look"}),
        ("Contributor", {"look", "make"}),
        ("Member", {"look", "make", "roles", "give"}),
        ("Admin", {"look", "make", "roles", "give", "take"}),
    ],
)
def test_a_role_decides_who_may_do_what(fabric: Fabric, role: str | None, may: set[str]) -> None:
    fabric.put("Files/folder/a")
    fabric.give(role)
    target = {"oneLake": {"workspaceId": WORKSPACE_GUID, "itemId": LAKEHOUSE_GUID, "path": "Files/folder"}}
    asked = {
        "look": [fabric.ann.get(ITEM), fabric.ann.get(f"{ITEM}/shortcuts")],
        "make": [
            fabric.ann.post(f"{WORKSPACE}/items", json={"displayName": "more", "type": "Lakehouse"}),
            fabric.ann.post(f"{ITEM}/shortcuts", json={"path": "Files", "name": "link", "target": target}),
        ],
        "roles": [fabric.ann.get(ROLES), fabric.ann.get(f"{ITEM}/dataAccessRoles")],
        "give": [
            fabric.ann.post(f"{ITEM}/dataAccessRoles", json={"name": "a", "decisionRules": [RULE]}),
            fabric.ann.delete(f"{ITEM}/dataAccessRoles/a"),
            fabric.ann.put(f"{ITEM}/dataAccessRoles", json={"value": []}),
        ],
        "take": [fabric.ann.delete(f"{ROLES}/{principal_id(OTHER_IDENTITY)}")],
    }
    for what, answers in asked.items():
        for answer in answers:
            if what in may:
                assert answer.is_success, answer.text
            else:
                assert error(answer) == (403, "InsufficientPrivileges")
    if role is None:
        assert fabric.ann.get("/workspaces").json() == {"value": []}


def test_data_access_roles_are_replaced_as_a_whole_by_who_has_seen_them(fabric: Fabric) -> None:
    roles = f"{ITEM}/dataAccessRoles"
    before = fabric.rest.get(roles)
    (default,) = before.json()["value"]
    assert default["name"] == "DefaultReader"
    assert default["members"]["fabricItemMembers"][0]["itemAccess"] == ["ReadAll"]
    fabric.permit("/Files/open", "Read")
    after = fabric.rest.get(roles)
    assert after.json()["value"][0]["name"] == "readers"
    assert after.headers["etag"] != before.headers["etag"]
    late = fabric.rest.put(roles, json={"value": []}, headers={"If-Match": before.headers["etag"]})
    assert error(late) == (412, "PreconditionFailed")
    dry = fabric.rest.put(roles, json={"value": []}, params={"dryRun": "true"})
    assert dry.status_code == 200
    assert fabric.rest.get(roles).json() == after.json()
    right = fabric.rest.put(roles, json=before.json(), headers={"If-Match": after.headers["etag"]})
    assert right.headers["etag"] == before.headers["etag"]


RULE: dict[str, list[dict[str, object]]] = {
    "permission": [
        {"attributeName": "Path", "attributeValueIncludedIn": ["*"]},
        {"attributeName": "Action", "attributeValueIncludedIn": ["Read"]},
    ]
}


@pytest.mark.parametrize(
    "roles",
    [
        "x",
        [{"name": "1a", "decisionRules": [RULE]}],
        [{"name": "a", "decisionRules": []}],
        [{"name": "a", "decisionRules": [{**RULE, "effect": "Deny"}]}],
        [{"name": "a", "decisionRules": [{"permission": RULE["permission"][:1]}]}],
        [{"name": "a", "decisionRules": [{"permission": [RULE["permission"][0]] * 2}]}],
        [{"name": "a", "decisionRules": [RULE], "members": {"groups": []}}],
        [{"name": "a", "decisionRules": [{**RULE, "constraints": {"rows": [{"tablePath": "x"}]}}]}],
        [{"name": "a", "decisionRules": [RULE]}, {"name": "A", "decisionRules": [RULE]}],
    ],
)
def test_data_access_roles_of_another_shape_are_refused(fabric: Fabric, roles: object) -> None:
    assert error(fabric.rest.put(f"{ITEM}/dataAccessRoles", json={"value": roles})) == (400, "InvalidRequest")
