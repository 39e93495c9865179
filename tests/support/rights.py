"""Rights of the other identity on the local OneLake, given as an administrator gives them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import attrs
import httpx
import pytest

from local_onelake.access import PERMISSIONS, principal_id
from tests.support.onelake import LAKEHOUSE_GUID, OTHER_IDENTITY, TOKEN, WORKSPACE_GUID, OneLake

ANN = principal_id(OTHER_IDENTITY)
WORKSPACE = f"/workspaces/{WORKSPACE_GUID}"
_BY_READ_ALL = {"fabricItemMembers": [{"itemAccess": ["ReadAll"], "sourcePath": f"{WORKSPACE_GUID}/{LAKEHOUSE_GUID}"}]}
_BY_ID = {"microsoftEntraMembers": [{"tenantId": "t", "objectId": ANN, "objectType": "User"}]}


def rows_of(table: str) -> dict[str, Any]:
    """A rule that hides rows of a table."""
    return {"rows": [{"tablePath": f"/{table}", "value": "SELECT * FROM dbo.t WHERE id = 1"}]}


def columns_of(table: str) -> dict[str, Any]:
    """A rule that hides columns of a table."""
    shown = {"columnNames": ["id"], "columnEffect": "Permit", "columnAction": ["Read"]}
    return {"columns": [{"tablePath": f"/{table}", **shown}]}


def data_role(
    name: str,
    *paths: str,
    actions: Sequence[str] = ("Read",),
    constraints: dict[str, Any] | None = None,
    members: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """A data access role, as REST has it; the other identity is its member unless others are named."""
    permission = [
        {"attributeName": "Path", "attributeValueIncludedIn": list(paths)},
        {"attributeName": "Action", "attributeValueIncludedIn": list(actions)},
    ]
    rule: dict[str, Any] = {"effect": "Permit", "permission": permission}
    if constraints:
        rule["constraints"] = constraints
    return {"name": name, "kind": "Policy", "decisionRules": [rule], "members": members or _BY_ID}


DEFAULT_READER = data_role("DefaultReader", "*", members=_BY_READ_ALL)


@attrs.frozen
class Rights:
    """What the other identity may do."""

    server: OneLake

    def role(self, role: str | None) -> None:
        """Let it have this role in the workspace only."""
        workspace = self.server.served.names.workspace(WORKSPACE_GUID)
        self.server.served.access.give_roles(workspace, {OTHER_IDENTITY: role or "none"})

    def permissions(self, *names: str, item: str = LAKEHOUSE_GUID) -> None:
        """Let it have these permissions of an item only."""
        with self._admin() as rest:
            path = f"{self.server.url}/_admin/permissions/{WORKSPACE_GUID}/{item}/{OTHER_IDENTITY}"
            rest.put(path, json=list(names)).raise_for_status()

    def data_roles(self, *roles: dict[str, Any], item: str = LAKEHOUSE_GUID) -> None:
        """Replace the data access roles of an item."""
        with self._admin() as rest:
            rest.put(f"{WORKSPACE}/items/{item}/dataAccessRoles", json={"value": list(roles)}).raise_for_status()

    def link(self, where: str, to: str, item: str) -> None:
        """Make a shortcut in the lakehouse to a folder of another item."""
        path, _, name = where.rpartition("/")
        target = {"oneLake": {"workspaceId": WORKSPACE_GUID, "itemId": item, "path": to}}
        with self._admin() as rest:
            body = {"path": path, "name": name, "target": target}
            rest.post(f"{WORKSPACE}/items/{LAKEHOUSE_GUID}/shortcuts", json=body).raise_for_status()

    def set(self, role: str | None, permissions: Sequence[str] = (), data_roles: Sequence[dict[str, Any]] = ()) -> None:
        """Let it have these rights only."""
        assert set(permissions) <= set(PERMISSIONS)
        self.role(role)
        self.permissions(*permissions)
        self.data_roles(*data_roles)

    def _admin(self) -> httpx.Client:
        base = f"{self.server.url}/api.fabric.microsoft.com/v1"
        return httpx.Client(base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}, verify=False, timeout=30)


GOLD_GUID = "b1b2c3d4-e5f6-4789-8abc-def012345678"
TABLE = "Tables/dbo/t"


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    """A workspace with two lakehouses, each with a table, and a shortcut from the one to the schema of the other."""
    with OneLake(lists_by_names=True) as running:
        running.served.names.add_item("taxi", "gold.Lakehouse", GOLD_GUID)
        for lakehouse in ("raw", "gold"):
            running.served.tree.make_directory(f"taxi/{lakehouse}.Lakehouse/{TABLE}")
        Rights(running).link("Tables/link", "Tables/dbo", GOLD_GUID)
        yield running


@pytest.fixture
def rights(server: OneLake) -> Iterator[Rights]:
    """What the other identity may do there; a test may let the server fail."""
    server.asked.clear()
    yield Rights(server)
    server.faults = lambda _: None
