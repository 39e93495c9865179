"""What roles and permissions in Fabric grant a principal on a folder of OneLake, as Fabric's REST shows them.

The order of the steps is that of https://learn.microsoft.com/fabric/onelake/security/data-access-control-model: the
role in the workspace, permissions of the item, data access roles, and their rules on rows and columns. To look at them
takes the role Member in the workspace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property, partial
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import AccessDeniedError, OneLakeError
from airflow_provider_onelake.fabric.access_report import Decision, Right, Step
from airflow_provider_onelake.fabric.rest import Fabric, Folder

WRITING_ROLES = ("Admin", "Member", "Contributor")
"""The roles of a workspace that may read and write everything in it."""

_OK = 200
_BY_ROLES = "Fabric's REST, which shows roles"
_HIDES = "It hides rows or columns of this table, so OneLake lets nothing of it be read by the storage API."
_HIDDEN_SHARES = "With whom the item is shared is shown to administrators of Fabric only."
_HIDDEN_GROUPS = "Some roles have groups, whose members Fabric's REST does not show."


def to_ask_for(right: Right, workspace: str, path: str) -> str:
    """Say what to ask an administrator for.

    :param right: that is missing.
    :param workspace: its name or its GUID.
    :param path: in the item.
    """
    contributor = f"the role Contributor in the workspace {workspace}"
    if right is Right.READ:
        return f"a data access role that grants Read on /{path} without rules on rows and columns, or {contributor}"
    return f"{contributor}, or the permission Write of the item, or a data access role that grants ReadWrite on /{path}"


@attrs.define(slots=False)
class Granted:
    """What is granted to a principal on one folder.

    :param fabric: Fabric's REST, as an identity that is a Member of the workspace.
    :param security: OneLake's own endpoint, which says what a principal may read.
    :param folder: that is asked about.
    :param principal: an object id.
    """

    fabric: Fabric
    security: Fabric
    folder: Folder
    principal: str

    def decide(self, right: Right) -> Decision:
        """Say whether the principal has a right.

        :raises StoreUnavailableError: Fabric does not answer.
        """
        try:
            groups = self._groups
        except AccessDeniedError:
            why = f"The roles in the workspace {self.folder.workspace} are shown to its Members and Admins only, and "
            return self._said(right, None, Step.WORKSPACE_ROLE, None, f"{why}this connection's identity is none.")
        found = next(self._rows(right))
        if found.allowed is False and any(each["role"] in WRITING_ROLES for each in groups):
            why = "Groups have a role in the workspace that allows it, and Fabric's REST does not show their members."
            return self._said(right, None, Step.WORKSPACE_ROLE, None, f"{why} If it is in none: {found.why}")
        return found

    def _rows(self, right: Right) -> Iterator[Decision]:
        """Yield what decides about a right, in the order of the steps. The first one counts."""
        role, held, path, reads = self._role, self._held, self.folder.path, right is Right.READ
        said = partial(self._said, right)
        if role in WRITING_ROLES:
            yield said(True, Step.WORKSPACE_ROLE, role, "Who has it may read and write all of the workspace.")
        if "Write" in (held or ()):
            yield said(True, Step.ITEM_PERMISSION, "Write", "Who has it may read and write all of the item.")
        if reads and (hiding := next((name for name, rule in self._rules if _hides(rule, path)), None)):
            yield said(False, Step.ROW_OR_COLUMN_RULE, hiding, _HIDES)
        action = "Read" if reads else "ReadWrite"
        granting = next((name for name, rule in self._rules if _grants(rule, action, path)), None)
        # A role grants nothing to who may not see the item, and OneLake knows who may.
        if granting and (self._sees or (reads and self._effective.allowed)):
            yield said(True, Step.DATA_ACCESS_ROLE, granting, f"It grants {action} on /{path}.")
        if reads:
            yield self._effective if self._hidden else said(False, Step.DATA_ACCESS_ROLE, None, self._no_role)
        if self._hidden:
            shown = f"{granting} grants it to who may see the item." if granting else "No role that is shown allows it."
            yield said(None, Step.ITEM_PERMISSION, None, f"{shown} {self._hidden}")
        if role is not None:
            why = "A Viewer writes only what a data access role with ReadWrite grants, and none does."
            yield said(False, Step.WORKSPACE_ROLE, role, why)
        if held:
            why = "The item is shared with this principal, and without Write."
            yield said(False, Step.ITEM_PERMISSION, ", ".join(sorted(held)), why)
        yield said(False, Step.WORKSPACE_ROLE, None, "It has no role there, and the item is not shared with it.")

    def _said(
        self, right: Right, allowed: bool | None, step: Step, name: str | None, why: str, found: str = _BY_ROLES
    ) -> Decision:
        ask_for = {
            True: None,
            False: to_ask_for(right, self.folder.workspace, self.folder.path),
            None: "somebody who may see it, or check with the connection of this identity itself",
        }[allowed]
        return Decision(right=right, allowed=allowed, step=step, name=name, why=why, found=found, ask_for=ask_for)

    @cached_property
    def _effective(self) -> Decision:
        """What OneLake says that the principal may read: it knows groups and permissions."""
        place = f"/v1.0/workspaces/{self.folder.workspace}/artifacts/{self.folder.item}/securityPolicy/principalAccess"
        body = {"aadObjectId": self.principal, "inputPath": self.folder.path.partition("/")[0]}
        said = partial(self._said, Right.READ, found="OneLake's answer to what this principal may read")
        try:
            entries = list(self.security.all(place, body, self.folder, within="json"))
        except OneLakeError as error:
            why = f"No role that is shown does, and OneLake did not say what this principal may read: {error}"
            return self._said(Right.READ, None, Step.DATA_ACCESS_ROLE, None, why)
        covering = [each for each in entries if _covers(each["path"], self.folder.path)]
        if not covering:
            return said(False, Step.DATA_ACCESS_ROLE, None, self._no_role)
        closest = max(covering, key=lambda each: len(each["path"]))
        if closest.get("rows") or closest.get("columns"):
            return said(False, Step.ROW_OR_COLUMN_RULE, None, _HIDES)
        why = f"One grants Read on /{closest['path']}, by a group or by a permission of the item."
        return said(True, Step.DATA_ACCESS_ROLE, None, why)

    @property
    def _no_role(self) -> str:
        return f"None grants Read on /{self.folder.path}, and what is not granted is denied."

    @cached_property
    def _assigned(self) -> list[dict[str, Any]]:
        return list(self.fabric.all(f"/workspaces/{self.folder.workspace}/roleAssignments", {}, self.folder))

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [each for each in self._assigned if each["principal"].get("type") == "Group"]

    @property
    def _role(self) -> str | None:
        return next((str(each["role"]) for each in self._assigned if self._is(each["principal"]["id"])), None)

    @cached_property
    def _held(self) -> set[str] | None:
        """The permissions of the item that the principal has; ``None`` if they are not shown."""
        path = f"/admin/workspaces/{self.folder.workspace}/items/{self.folder.item}/users"
        answer = self.fabric.look(path, self.folder)
        if answer.status_code != _OK:
            return None
        said = [
            each["itemAccessDetails"] for each in answer.json()["accessDetails"] if self._is(each["principal"]["id"])
        ]
        return {
            name for each in said for kind in ("permissions", "additionalPermissions") for name in each.get(kind, ())
        }

    @property
    def _sees(self) -> bool | None:
        """Whether the principal may see the item; ``None`` if that is not shown."""
        if self._role is not None:
            return True
        return None if self._held is None else "Read" in self._held

    @cached_property
    def _data_access_roles(self) -> list[dict[str, Any]]:
        path = f"/workspaces/{self.folder.workspace}/items/{self.folder.item}/dataAccessRoles"
        return list(self.fabric.all(path, {}, self.folder))

    @property
    def _rules(self) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """The rules of data access roles that hold for the principal, with their roles' names."""
        held = set(self._held or ()) | ({"Read"} if self._role is not None else set())
        for role in self._data_access_roles if self._sees is not False else ():
            by_id = any(self._is(member["objectId"]) for member in _members(role, "microsoftEntraMembers"))
            needed = [set(member.get("itemAccess") or ()) for member in _members(role, "fabricItemMembers")]
            if by_id or any(each and each <= held for each in needed):
                yield from ((role["name"], rule) for rule in role["decisionRules"])

    @property
    def _hidden(self) -> str:
        """What is not shown of who has which right; empty if all is shown."""
        members = (member for role in self._data_access_roles for member in _members(role, "microsoftEntraMembers"))
        in_groups = self._groups or any(member.get("objectType") == "Group" for member in members)
        return " ".join([_HIDDEN_SHARES] * (self._held is None) + [_HIDDEN_GROUPS] * bool(in_groups))

    def _is(self, guid: object) -> bool:
        return str(guid).lower() == self.principal.lower()


def _members(role: Mapping[str, Any], kind: str) -> Iterable[Mapping[str, Any]]:
    return (role.get("members") or {}).get(kind) or ()


def _grants(rule: Mapping[str, Any], action: str, path: str) -> bool:
    """Say whether a rule grants ``Read`` or ``ReadWrite`` at a path."""
    named = {each["attributeName"]: each["attributeValueIncludedIn"] for each in rule["permission"]}
    actions = set(named.get("Action", ())) & {action, "ReadWrite"}
    return bool(actions) and any(_covers(granted, path) for granted in named.get("Path", ()))


def _hides(rule: Mapping[str, Any], path: str) -> bool:
    """Say whether a rule hides rows or columns of the table at a path."""
    limits = (rule.get("constraints") or {}).values()
    return any(_covers(limit["tablePath"], path) for kind in limits for limit in kind or ())


def _covers(granted: str, path: str) -> bool:
    granted = granted.strip("/")
    return granted in ("*", "") or path == granted or path.startswith(f"{granted}/")
