"""Who may do what: roles of workspaces, and OneLake's data access roles of items.

Admin, Member and Contributor may read and write everything in a workspace. A Viewer reads and writes by the storage
API what a data access role grants, and nothing else. Item permissions are not served, so a principal without a role in
the workspace may do nothing.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import attrs

from airflow_provider_onelake.local_onelake.identities import Identities
from airflow_provider_onelake.local_onelake.kept import Kept
from airflow_provider_onelake.local_onelake.names import Item, Workspace
from airflow_provider_onelake.local_onelake.refusals import RefusalError

ROLES = ("Viewer", "Contributor", "Member", "Admin")
"""The roles of a workspace; each may do what those before it may."""

WORKSPACE_ROLES, DATA_ACCESS_ROLES = "workspaceRoles", "dataAccessRoles"
_OF_IDENTITIES = uuid.UUID("7f7d5d0c-6d42-4a63-9a0e-2f3a3c9ab5b1")


def principal_id(identity: str) -> str:
    """Return the object id that stands for an identity of this server: always the same one for a name."""
    return str(uuid.uuid5(_OF_IDENTITIES, identity))


@attrs.frozen
class _Grant:
    path: str
    writes: bool

    def covers(self, inside: str) -> bool:
        return not self.path or inside == self.path or inside.startswith(f"{self.path}/")

    def leads_from(self, inside: str) -> bool:
        """Say whether the granted path lies below a path, which then may be looked through."""
        return not inside or self.path.startswith(f"{inside}/")


@attrs.frozen
class Access:
    """The rights of every identity.

    :param kept: that has the roles.
    :param identities: that the server knows.
    """

    kept: Kept
    identities: Identities

    def roles(self, workspace: Workspace) -> dict[str, str]:
        """Return the role of each identity in a workspace; every identity is an Admin until somebody changes a role."""
        said: dict[str, str] | None = self.kept.read(WORKSPACE_ROLES, workspace.guid)
        return dict.fromkeys(self.identities.tokens, "Admin") if said is None else said

    def has(self, identity: str, workspace: Workspace, least: str) -> bool:
        """Say whether an identity has a role in a workspace, or one that may do more."""
        role = self.roles(workspace).get(identity)
        return role is not None and ROLES.index(role) >= ROLES.index(least)

    def need(self, identity: str, workspace: Workspace, least: str) -> None:
        """Refuse an identity that lacks a role.

        :param identity: its name.
        :param workspace: in which it needs the role.
        :param least: the least of the roles that suffice.
        :raises RefusalError: it has none of them.
        """
        if not self.has(identity, workspace, least):
            raise RefusalError(
                403,
                "InsufficientPrivileges",
                f"{identity} needs the role {least}, or a higher one, in the workspace {workspace.name!r}.",
            )

    def may(self, identity: str, workspace: Workspace, item: Item, inside: str, *, write: bool) -> bool:
        """Say whether an identity may read, or write, at a path of an item by the storage API."""
        if self.has(identity, workspace, "Contributor"):
            return True
        if self._is_filtered(identity, workspace, item, inside):
            return False
        grants = self._grants(identity, workspace, item)
        return any(grant.covers(inside) and (grant.writes or not write) for grant in grants)

    def may_pass(self, identity: str, workspace: Workspace, item: Item, inside: str) -> bool:
        """Say whether an identity may look at a directory: it may read it, or something below it."""
        if self.may(identity, workspace, item, inside, write=False):
            return True
        return any(grant.leads_from(inside) for grant in self._grants(identity, workspace, item))

    def _grants(self, identity: str, workspace: Workspace, item: Item) -> Iterator[_Grant]:
        for rule in self._rules(identity, workspace, item):
            said = {each["attributeName"]: each["attributeValueIncludedIn"] for each in rule["permission"]}
            for path in said["Path"]:
                yield _Grant("" if path == "*" else path.strip("/"), "ReadWrite" in said["Action"])

    def _is_filtered(self, identity: str, workspace: Workspace, item: Item, inside: str) -> bool:
        """Say whether some rows or columns of a table are hidden from the identity."""
        for rule in self._rules(identity, workspace, item):
            for limits in rule.get("constraints", {}).values():
                if any(_Grant(limit["tablePath"].strip("/"), writes=False).covers(inside) for limit in limits):
                    return True
        return False

    def _rules(self, identity: str, workspace: Workspace, item: Item) -> Iterator[dict[str, Any]]:
        if not self.has(identity, workspace, "Viewer"):
            return
        for role in self.kept.read(DATA_ACCESS_ROLES, item.guid) or []:
            members = role.get("members", {}).get("microsoftEntraMembers", [])
            if any(member["objectId"].lower() == principal_id(identity) for member in members):
                yield from role["decisionRules"]
