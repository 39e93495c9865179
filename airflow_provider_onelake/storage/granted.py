"""What roles and permissions in Fabric grant a principal on a folder of OneLake, as Fabric's REST shows them.

The order of the steps is that of https://learn.microsoft.com/fabric/onelake/security/data-access-control-model: the
role in the workspace, permissions of the item, data access roles, and their rules on rows and columns. To look at them
takes the role Member in the workspace.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import AccessDeniedError, OneLakeError
from airflow_provider_onelake.storage.access_report import Decision, Right, Step
from airflow_provider_onelake.storage.fabric import Fabric, Folder

WRITING_ROLES = ("Admin", "Member", "Contributor")
"""The roles of a workspace that may read and write everything in it."""

_OK = 200
_BY_ROLES = "Fabric's REST, which shows roles"


def to_ask_for(right: Right, workspace: str, path: str) -> str:
    """Say what to ask an administrator for.

    :param right: that is missing.
    :param workspace: its name or its GUID.
    :param path: in the item.
    """
    if right is Right.READ:
        return (
            f"a data access role that grants Read on /{path} without rules on rows and columns, or the role "
            f"Contributor in the workspace {workspace}"
        )
    return (
        f"the role Contributor in the workspace {workspace}, or the permission Write of the item, or a data access "
        f"role that grants ReadWrite on /{path}"
    )


@attrs.frozen
class _Rule:
    """A rule of a data access role.

    :param role: its name.
    :param said: as REST has it.
    """

    role: str
    said: Mapping[str, Any]

    def grants(self, path: str, *, write: bool) -> bool:
        """Say whether it grants reading, or writing, at a path."""
        named = {each["attributeName"]: each["attributeValueIncludedIn"] for each in self.said["permission"]}
        actions = named.get("Action", [])
        return any(_covers(granted, path) for granted in named.get("Path", [])) and (
            "ReadWrite" in actions or (not write and "Read" in actions)
        )

    def hides_some(self, path: str) -> bool:
        """Say whether it hides rows or columns of the table at a path."""
        limits = self.said.get("constraints") or {}
        return any(_covers(limit["tablePath"], path) for kind in limits.values() for limit in kind or ())


@attrs.define(slots=False)
class Granted:
    """What is granted to a principal on one folder.

    :param fabric: Fabric's REST, as an identity that is a Member of the workspace.
    :param security: OneLake's own endpoint, which says what a principal may read; ``None`` if it is not to be asked.
    :param folder: that is asked about.
    :param principal: an object id.
    """

    fabric: Fabric
    security: Fabric | None
    folder: Folder
    principal: str

    def decide(self, right: Right) -> Decision:
        """Say whether the principal has a right.

        :raises StoreUnavailableError: Fabric does not answer.
        """
        try:
            role = self._role
        except AccessDeniedError:
            return self._unknown(
                right,
                Step.WORKSPACE_ROLE,
                f"The roles in the workspace {self.folder.workspace} are shown to its Members and Admins only, and "
                "this connection's identity is none.",
            )
        if role in WRITING_ROLES:
            return self._yes(right, Step.WORKSPACE_ROLE, role, "Who has it may read and write all of the workspace.")
        if self._held is not None and "Write" in self._held:
            return self._yes(right, Step.ITEM_PERMISSION, "Write", "Who has it may read and write all of the item.")
        rules = list(self._rules)
        found = self._read(rules) if right is Right.READ else self._write(right, rules)
        if found.allowed is False and any(each["role"] in WRITING_ROLES for each in self._groups):
            why = "Groups have a role in the workspace that allows it, and Fabric's REST does not show their members."
            return self._unknown(right, Step.WORKSPACE_ROLE, f"{why} If it is in none: {found.why}")
        return found

    def _read(self, rules: list[_Rule]) -> Decision:
        path = self.folder.path
        hiding = next((rule.role for rule in rules if rule.hides_some(path)), None)
        if hiding is not None:
            return self._hidden(hiding)
        granting = next((rule.role for rule in rules if rule.grants(path, write=False)), None)
        if granting is not None:
            found = self._yes(Right.READ, Step.DATA_ACCESS_ROLE, granting, f"It grants Read on /{path}.")
            # A role grants nothing to who may not see the item, and OneLake knows who may.
            return found if self._sees or (effective := self._effective()).allowed else effective
        return self._effective() if self._is_partly_hidden else self._no_role_grants()

    def _write(self, right: Right, rules: list[_Rule]) -> Decision:
        path = self.folder.path
        granting = next((rule.role for rule in rules if rule.grants(path, write=True)), None)
        if granting is not None and self._sees:
            return self._yes(right, Step.DATA_ACCESS_ROLE, granting, f"It grants ReadWrite on /{path}.")
        if granting is not None:
            why = f"{granting} grants ReadWrite on /{path} to who may see the item. {self._what_is_hidden}"
            return self._unknown(right, Step.ITEM_PERMISSION, why)
        if self._is_partly_hidden:
            why = f"No role that is shown allows it. {self._what_is_hidden}"
            return self._unknown(right, Step.ITEM_PERMISSION, why)
        if self._role is not None:
            why = "A Viewer writes only what a data access role with ReadWrite grants, and none does."
            return self._no(right, Step.WORKSPACE_ROLE, self._role, why)
        if self._held:
            why = "The item is shared with this principal, and without Write."
            return self._no(right, Step.ITEM_PERMISSION, ", ".join(sorted(self._held)), why)
        return self._no(right, Step.WORKSPACE_ROLE, None, "It has no role there, and the item is not shared with it.")

    def _effective(self) -> Decision:
        """Decide by what OneLake says of the principal, which knows its groups and permissions."""
        if self.security is None:
            why = f"No role that is shown does. {self._what_is_hidden}"
            return self._unknown(Right.READ, Step.DATA_ACCESS_ROLE, why)
        try:
            entries = list(self._entries(self.security))
        except OneLakeError as error:
            why = f"No role that is shown does, and OneLake did not say what this principal may read: {error}"
            return self._unknown(Right.READ, Step.DATA_ACCESS_ROLE, why)
        found = "OneLake's answer to what this principal may read"
        covering = [each for each in entries if _covers(each["path"], self.folder.path)]
        if not covering:
            return attrs.evolve(self._no_role_grants(), found=found)
        closest = max(covering, key=lambda each: len(each["path"]))
        if closest.get("rows") or closest.get("columns"):
            return attrs.evolve(self._hidden(None), found=found)
        why = f"One grants Read on /{closest['path']}, by a group or by a permission of the item."
        return attrs.evolve(self._yes(Right.READ, Step.DATA_ACCESS_ROLE, None, why), found=found)

    def _entries(self, security: Fabric) -> Iterator[dict[str, Any]]:
        place = f"/v1.0/workspaces/{self.folder.workspace}/artifacts/{self.folder.item}/securityPolicy/principalAccess"
        body = {"aadObjectId": self.principal, "inputPath": self.folder.path.partition("/")[0]}
        while True:
            said = security.ask("GET", place, self.folder, json=body).json()
            yield from said["value"]
            if not said.get("continuationToken"):
                return
            body = {**body, "continuationToken": said["continuationToken"]}

    @cached_property
    def _assigned(self) -> list[dict[str, Any]]:
        return list(self.fabric.all(f"/workspaces/{self.folder.workspace}/roleAssignments", {}, self.folder))

    @cached_property
    def _role(self) -> str | None:
        own = [str(each["role"]) for each in self._assigned if _is(each["principal"], self.principal)]
        return own[0] if own else None

    @cached_property
    def _held(self) -> set[str] | None:
        """The permissions of the item that the principal has; ``None`` if they are not shown."""
        answer = self.fabric.look(
            f"/admin/workspaces/{self.folder.workspace}/items/{self.folder.item}/users", self.folder
        )
        if answer.status_code != _OK:
            return None
        for each in answer.json()["accessDetails"]:
            if _is(each["principal"], self.principal):
                said = each["itemAccessDetails"]
                return {*said.get("permissions", ()), *said.get("additionalPermissions", ())}
        return set()

    @cached_property
    def _data_access_roles(self) -> list[dict[str, Any]]:
        path = f"/workspaces/{self.folder.workspace}/items/{self.folder.item}/dataAccessRoles"
        return list(self.fabric.all(path, {}, self.folder))

    @property
    def _sees(self) -> bool | None:
        """Whether the principal may see the item; ``None`` if that is not shown."""
        if self._role is not None:
            return True
        return None if self._held is None else "Read" in self._held

    @property
    def _rules(self) -> Iterator[_Rule]:
        held = set(self._held or ()) | ({"Read"} if self._role is not None else set())
        if self._sees is False:
            return
        for role in self._data_access_roles:
            members = role.get("members") or {}
            by_id = any(
                str(member["objectId"]).lower() == self.principal.lower()
                for member in members.get("microsoftEntraMembers") or ()
            )
            by_permission = any(
                member.get("itemAccess") and set(member["itemAccess"]) <= held
                for member in members.get("fabricItemMembers") or ()
            )
            if by_id or by_permission:
                yield from (_Rule(role["name"], rule) for rule in role["decisionRules"])

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return [each for each in self._assigned if each["principal"].get("type") == "Group"]

    @property
    def _is_partly_hidden(self) -> bool:
        return self._held is None or self._may_be_in_a_group

    @property
    def _may_be_in_a_group(self) -> bool:
        return bool(self._groups) or any(
            member.get("objectType") == "Group"
            for role in self._data_access_roles
            for member in (role.get("members") or {}).get("microsoftEntraMembers") or ()
        )

    @property
    def _what_is_hidden(self) -> str:
        hidden = []
        if self._held is None:
            hidden.append("with whom the item is shared is shown to administrators of Fabric only")
        if self._may_be_in_a_group:
            hidden.append("some roles have groups, whose members Fabric's REST does not show")
        said = ", and ".join(hidden)
        return f"{said[:1].upper()}{said[1:]}."

    def _hidden(self, role: str | None) -> Decision:
        why = "It hides rows or columns of this table, so OneLake lets nothing of it be read by the storage API."
        return self._no(Right.READ, Step.ROW_OR_COLUMN_RULE, role, why)

    def _no_role_grants(self) -> Decision:
        why = f"None grants Read on /{self.folder.path}, and what is not granted is denied."
        return self._no(Right.READ, Step.DATA_ACCESS_ROLE, None, why)

    def _yes(self, right: Right, step: Step, name: str | None, why: str) -> Decision:
        return Decision(right=right, allowed=True, step=step, name=name, why=why, found=_BY_ROLES)

    def _no(self, right: Right, step: Step, name: str | None, why: str) -> Decision:
        ask_for = to_ask_for(right, self.folder.workspace, self.folder.path)
        return Decision(right=right, allowed=False, step=step, name=name, why=why, found=_BY_ROLES, ask_for=ask_for)

    def _unknown(self, right: Right, step: Step, why: str) -> Decision:
        ask_for = "somebody who may see it, or check with the connection of this identity itself"
        return Decision(right=right, allowed=None, step=step, why=why, found=_BY_ROLES, ask_for=ask_for)


def _covers(granted: str, path: str) -> bool:
    granted = granted.strip("/")
    return granted in ("*", "") or path == granted or path.startswith(f"{granted}/")


def _is(principal: Mapping[str, Any], known: str) -> bool:
    return str(principal["id"]).lower() == known.lower()
