"""Data access roles of an item: OneLake's security, which says what may be read and written by who may see the item."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

from starlette.responses import JSONResponse, Response

from local_onelake.access import DATA_ACCESS_ROLES
from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_names, check_query, item_of, text_of
from local_onelake.refusals import RefusalError, wrong

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]{0,127}")
_MOST_ROLES, _MOST_MEMBERS = 250, 500
_ACTIONS = ("Read", "ReadWrite")
_FIELDS = ("id", "name", "kind", "decisionRules", "members")
_POLICIES = ("Abort", "Overwrite")


def list_roles(call: Call, workspace_guid: str, item_guid: str) -> Response:
    """Answer with all roles of an item and their ETag, which a Member may know."""
    check_query(call, "preview")
    roles = call.lake.access.data_access_roles(*item_of(call, workspace_guid, item_guid, "Member"))
    return JSONResponse({"value": roles}, headers={"ETag": _etag(roles)})


async def put_roles(call: Call, workspace_guid: str, item_guid: str) -> Response:
    """Replace all roles of an item, which a Member may; with ``dryRun=true``, check them only."""
    check_query(call, "dryrun", "preview")
    given = await body_of(call, ("value",))
    workspace, item = item_of(call, workspace_guid, item_guid, "Member")
    roles = _list(given, "value", "The body", _MOST_ROLES)
    for role in roles:
        _check_role(role)
    names = [role["name"].lower() for role in roles]
    if len(set(names)) < len(names):
        raise wrong("Two roles have one name.", "InvalidRequest")
    expected = call.header("if-match")
    with call.lake.kept.changing() as document:
        of_items = document.setdefault(DATA_ACCESS_ROLES, {})
        if expected not in (None, "*", _etag(call.lake.access.data_access_roles(workspace, item))):
            raise RefusalError(412, "PreconditionFailed", "The roles were changed since: read them again.")
        if not call.flag("dryrun"):
            of_items[item.guid] = roles
    return Response(None, 200, {"ETag": _etag(roles)})


async def put_role(call: Call, workspace_guid: str, item_guid: str) -> Response:
    """Make one role of an item, or with ``dataAccessRoleConflictPolicy=Overwrite`` replace it; a Member may.

    https://learn.microsoft.com/rest/api/fabric/core/onelake-data-access-security/create-or-update-single-data-access-role
    """
    check_query(call, "dataaccessroleconflictpolicy", "preview")
    policy = call.query.get("dataaccessroleconflictpolicy", "Abort")
    if policy not in _POLICIES:
        raise wrong(f"dataAccessRoleConflictPolicy is {' or '.join(_POLICIES)}.", "InvalidParameter")
    role = await body_of(call, _FIELDS)
    _check_role(role)
    workspace, item = item_of(call, workspace_guid, item_guid, "Member")
    with call.lake.kept.changing() as document:
        roles = list(call.lake.access.data_access_roles(workspace, item))
        place = _place(roles, role["name"])
        if place is not None and policy == "Abort":
            raise RefusalError(409, "Conflict", f"There is a role {role['name']}: nothing was changed.")
        if place is None and len(roles) >= _MOST_ROLES:
            raise wrong(f"An item has {_MOST_ROLES} roles at most.", "InvalidRequest")
        if place is None:
            roles.append(role)
        else:
            roles[place] = role
        document.setdefault(DATA_ACCESS_ROLES, {})[item.guid] = roles
    where = f"{str(call.request.url).partition('?')[0]}/{role['name']}"
    headers = {"ETag": _etag(roles), "Location": where}
    return JSONResponse(role, 201 if place is None else 200, headers)


def get_role(call: Call, workspace_guid: str, item_guid: str, name: str) -> Response:
    """Answer with one role of an item, which a Member may know."""
    check_query(call, "preview")
    roles = call.lake.access.data_access_roles(*item_of(call, workspace_guid, item_guid, "Member"))
    return JSONResponse(roles[_found(roles, name)], headers={"ETag": _etag(roles)})


def delete_role(call: Call, workspace_guid: str, item_guid: str, name: str) -> Response:
    """Delete one role of an item, which a Member may."""
    check_query(call, "preview")
    workspace, item = item_of(call, workspace_guid, item_guid, "Member")
    with call.lake.kept.changing() as document:
        roles = list(call.lake.access.data_access_roles(workspace, item))
        del roles[_found(roles, name)]
        document.setdefault(DATA_ACCESS_ROLES, {})[item.guid] = roles
    return Response(None, 200)


def _found(roles: list[dict[str, Any]], name: str) -> int:
    place = _place(roles, name)
    if place is None:
        raise RefusalError(404, "RoleNotFound", f"There is no role {name!r}.")
    return place


def _place(roles: list[dict[str, Any]], name: str) -> int | None:
    return next((place for place, role in enumerate(roles) if role["name"].lower() == name.lower()), None)


def _etag(roles: list[Any]) -> str:
    return f'"{hashlib.sha256(json.dumps(roles, sort_keys=True).encode()).hexdigest()[:32]}"'


def _check_role(role: object) -> None:
    check_names(role, _FIELDS, "A role")
    assert isinstance(role, dict)
    name = text_of(role, "name")
    if not _NAME.fullmatch(name):
        raise wrong(f"A role cannot be called {name!r}: letters and digits, a letter first.", "InvalidRequest")
    if role.get("kind", "Policy") != "Policy":
        raise wrong("The kind of a role is Policy.", "InvalidRequest")
    for rule in _list(role, "decisionRules", name, _MOST_MEMBERS, least=1):
        _check_rule(rule, name)
    members = role.get("members", {})
    check_names(members, ("fabricItemMembers", "microsoftEntraMembers"), f"members of {name}")
    for member in _list(members, "microsoftEntraMembers", name, _MOST_MEMBERS):
        check_names(member, ("tenantId", "objectId", "objectType"), f"A member of {name}")
        text_of(member, "objectId")
    for member in _list(members, "fabricItemMembers", name, _MOST_MEMBERS):
        check_names(member, ("itemAccess", "sourcePath"), f"A member of {name}")


def _check_rule(rule: object, name: str) -> None:
    check_names(rule, ("effect", "permission", "constraints"), f"A rule of {name}")
    assert isinstance(rule, dict)
    if rule.get("effect", "Permit") != "Permit":
        raise wrong("The effect of a rule is Permit: what is not permitted is denied.", "InvalidRequest")
    said: dict[str, list[Any]] = {}
    for each in _list(rule, "permission", name, 2, least=2):
        check_names(each, ("attributeName", "attributeValueIncludedIn"), f"A permission of {name}")
        said[text_of(each, "attributeName")] = _list(each, "attributeValueIncludedIn", name, _MOST_MEMBERS, least=1)
    if set(said) != {"Path", "Action"}:
        raise wrong(f"A rule of {name} permits Path and Action.", "InvalidRequest")
    for path in said["Path"]:
        _check_path(path, name)
    if any(action not in _ACTIONS for action in said["Action"]):
        raise wrong(f"The actions of {name} are {' and '.join(_ACTIONS)}.", "InvalidRequest")
    constraints = rule.get("constraints", {})
    check_names(constraints, ("columns", "rows"), f"constraints of {name}")
    for kind in constraints:
        for limit in _list(constraints, kind, name, _MOST_MEMBERS):
            if not isinstance(limit, dict):
                raise wrong(f"{kind} of {name} are JSON objects.", "InvalidRequest")
            _check_path(limit.get("tablePath"), name)


def _check_path(path: object, name: str) -> None:
    if path != "*" and not (isinstance(path, str) and path.startswith("/")):
        raise wrong(f"A path of {name} begins with a slash, or is *: not {path!r}.", "InvalidRequest")


def _list(given: dict[str, Any], key: str, of: str, most: int, least: int = 0) -> list[Any]:
    found = given.get(key, [])
    if not isinstance(found, list) or not least <= len(found) <= most:
        raise wrong(f"{key} of {of} is a list of {least} to {most}.", "InvalidRequest")
    return found
