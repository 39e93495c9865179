"""Who may do what: roles of workspaces, permissions of items, and OneLake's data access roles of items.

Admin, Member and Contributor may read and write everything in a workspace, and who has the permission Write everything
in its item. Everybody else who may see the item, as a Viewer or by the permission Read, reads and writes by the storage
API what a data access role grants, and nothing else. The permission ReadAll makes its holder a member of the role
DefaultReader, as long as that is not taken away. ReadData is for SQL, and grants nothing here.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

from local_onelake.identities import Identities
from local_onelake.kept import Kept
from local_onelake.names import Item, Workspace
from local_onelake.refusals import RefusalError

ROLES = ("Viewer", "Contributor", "Member", "Admin")
"""The roles of a workspace; each may do what those before it may."""

PERMISSIONS = ("Read", "ReadAll", "Write", "ReadData")
"""The permissions of an item; who has any of them has Read too."""

WORKSPACE_ROLES, ITEM_PERMISSIONS, DATA_ACCESS_ROLES = "workspaceRoles", "itemPermissions", "dataAccessRoles"
_OF_IDENTITIES = uuid.UUID("7f7d5d0c-6d42-4a63-9a0e-2f3a3c9ab5b1")


def principal_id(identity: str) -> str:
    """Return the object id that stands for an identity of this server: always the same one for a name."""
    return str(uuid.uuid5(_OF_IDENTITIES, identity))


@attrs.frozen
class Grant:
    """What one rule of a data access role grants on one path, or hides of one table.

    :param path: in the item, without a slash at its beginning; empty for all of it.
    :param actions: ``Read``, ``ReadWrite``.
    """

    path: str
    actions: tuple[str, ...] = ()

    def covers(self, inside: str) -> bool:
        """Say whether a path is the granted one, or lies below it."""
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

    def give_roles(self, workspace: Workspace, given: Mapping[str, str]) -> None:
        """Give identities other roles in a workspace; the others keep theirs.

        :param given: the role of each identity by its name, or ``none``.
        :raises ValueError: there is no such identity or role, or nobody would be an Admin.
        """
        self._check_names(given, [*given.values()], (*ROLES, "none"), "role")
        with self.kept.changing() as document:
            roles = {**self.roles(workspace), **given}
            if "Admin" not in roles.values():
                raise ValueError(f"The workspace {workspace.name!r} keeps one Admin: add a --token for one.")
            left = {identity: role for identity, role in roles.items() if role != "none"}
            document.setdefault(WORKSPACE_ROLES, {})[workspace.guid] = left

    def give_permissions(self, item: Item, identity: str, given: Collection[str]) -> None:
        """Give an identity these permissions of an item, and no others.

        :param given: names of permissions; none takes all of them away.
        :raises ValueError: there is no such identity or permission.
        """
        self._check_names([identity], given, PERMISSIONS, "permission")
        known = [name for name in PERMISSIONS if name in given or (given and name == "Read")]
        with self.kept.changing() as document:
            document.setdefault(ITEM_PERMISSIONS, {}).setdefault(item.guid, {})[identity] = known

    def permissions(self, identity: str, workspace: Workspace, item: Item) -> set[str]:
        """Return the permissions of an item that an identity has, also by its role in the workspace."""
        if self.has(identity, workspace, "Contributor"):
            return set(PERMISSIONS)
        given: set[str] = set((self.kept.read(ITEM_PERMISSIONS, item.guid) or {}).get(identity, ()))
        return given | {"Read"} if self.has(identity, workspace, "Viewer") else given

    def is_unlimited(self, identity: str, workspace: Workspace, item: Item) -> bool:
        """Say whether an identity may read and write all of an item, whatever data access roles say."""
        return "Write" in self.permissions(identity, workspace, item)

    def data_access_roles(self, workspace: Workspace, item: Item) -> list[dict[str, Any]]:
        """Return the data access roles of an item, as REST has them; at first DefaultReader alone."""
        said: list[dict[str, Any]] | None = self.kept.read(DATA_ACCESS_ROLES, item.guid)
        return [_default_reader(workspace, item)] if said is None else said

    def may(self, identity: str, workspace: Workspace, item: Item, inside: str, *, write: bool) -> bool:
        """Say whether an identity may read, or write, at a path of an item by the storage API."""
        if self.is_unlimited(identity, workspace, item):
            return True
        rules = list(self.rules_of(identity, workspace, item))
        if any(hidden.covers(inside) for rule in rules for hidden, _, _ in hidden_by(rule)):
            return False
        grants = (grant for rule in rules for grant in granted_by(rule))
        return any(grant.covers(inside) and (not write or "ReadWrite" in grant.actions) for grant in grants)

    def may_pass(self, identity: str, workspace: Workspace, item: Item, inside: str) -> bool:
        """Say whether an identity may look at a directory: it may read it, or something below it."""
        if self.may(identity, workspace, item, inside, write=False):
            return True
        rules = self.rules_of(identity, workspace, item)
        return any(grant.leads_from(inside) for rule in rules for grant in granted_by(rule))

    def rules_of(self, identity: str, workspace: Workspace, item: Item) -> Iterator[dict[str, Any]]:
        """Yield the rules of the data access roles that an identity is a member of, if it may see the item at all."""
        held = self.permissions(identity, workspace, item)
        if "Read" not in held:
            return
        for role in self.data_access_roles(workspace, item):
            if _is_member(role.get("members", {}), identity, held, item):
                yield from role["decisionRules"]

    def _check_names(
        self, identities: Collection[str], given: Collection[str], known: Collection[str], what: str
    ) -> None:
        for identity in identities:
            if identity not in self.identities.tokens:
                raise ValueError(f"There is no identity {identity!r}: give it a --token.")
        for name in given:
            if name not in known:
                raise ValueError(f"There is no {what} {name!r}, but {', '.join(known)}.")


def granted_by(rule: Mapping[str, Any]) -> Iterator[Grant]:
    """Yield what a rule of a data access role grants."""
    said = {each["attributeName"]: each["attributeValueIncludedIn"] for each in rule["permission"]}
    for path in said["Path"]:
        yield Grant("" if path == "*" else path.strip("/"), tuple(said["Action"]))


def hidden_by(rule: Mapping[str, Any]) -> Iterator[tuple[Grant, str, dict[str, Any]]]:
    """Yield each table of which a rule hides rows or columns, with ``rows`` or ``columns``, and how."""
    for kind, limits in rule.get("constraints", {}).items():
        for limit in limits:
            yield Grant(limit["tablePath"].strip("/")), kind, limit


def _is_member(members: Mapping[str, Any], identity: str, held: set[str], item: Item) -> bool:
    own = principal_id(identity)
    if any(member["objectId"].lower() == own for member in members.get("microsoftEntraMembers", [])):
        return True
    # Who has these permissions of the item. Of another item, nobody is a member here.
    return any(
        member.get("itemAccess")
        and set(member["itemAccess"]) <= held
        and str(member.get("sourcePath", "")).lower().rpartition("/")[2] == item.guid
        for member in members.get("fabricItemMembers", [])
    )


def _default_reader(workspace: Workspace, item: Item) -> dict[str, Any]:
    permission = [
        {"attributeName": "Path", "attributeValueIncludedIn": ["*"]},
        {"attributeName": "Action", "attributeValueIncludedIn": ["Read"]},
    ]
    member = {"itemAccess": ["ReadAll"], "sourcePath": f"{workspace.guid}/{item.guid}"}
    return {
        "name": "DefaultReader",
        "kind": "Policy",
        "decisionRules": [{"effect": "Permit", "permission": permission}],
        "members": {"fabricItemMembers": [member], "microsoftEntraMembers": []},
    }
