"""Workspaces, and who has which role in them."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse, Response

from local_onelake.access import PERMISSIONS, ROLES, WORKSPACE_ROLES, principal_id
from local_onelake.calls import Call, workspaces_of
from local_onelake.fabric.calls import (
    body_of,
    check_names,
    check_query,
    item_of,
    not_found,
    paged,
    text_of,
    workspace_of,
)
from local_onelake.names import Workspace
from local_onelake.refusals import RefusalError, wrong


def list_workspaces(call: Call) -> Response:
    """Answer with the workspaces in which the caller has a role."""
    check_query(call, "continuationtoken")
    return paged(call, [(workspace.name, _said(workspace)) for workspace in workspaces_of(call)])


def get_workspace(call: Call, guid: str) -> Response:
    """Answer with one workspace."""
    check_query(call)
    return JSONResponse(_said(workspace_of(call, guid)))


def list_roles(call: Call, guid: str) -> Response:
    """Answer with the role of each principal, which a Member may know."""
    check_query(call, "continuationtoken")
    workspace = workspace_of(call, guid, "Member")
    roles = call.lake.access.roles(workspace)
    return paged(call, [(identity, _assignment(identity, role)) for identity, role in roles.items()])


async def add_role(call: Call, guid: str) -> Response:
    """Give a principal a role. A Member gives up to its own, an Admin every one."""
    check_query(call)
    given = await body_of(call, ("principal", "role"))
    principal, role = given.get("principal"), given.get("role")
    check_names(principal, ("id", "type"), "principal")
    assert isinstance(principal, dict)
    if role not in ROLES:
        raise wrong(f"role is one of {', '.join(ROLES)}.", "InvalidRequest")
    if principal.get("type") not in ("User", "ServicePrincipal"):
        raise wrong("principal.type is User or ServicePrincipal; groups are not served here.", "InvalidRequest")
    workspace = workspace_of(call, guid, "Admin" if role == "Admin" else "Member")
    access = call.lake.access
    identity = _identity(call, text_of(principal, "id"))
    with access.kept.changing() as document:
        roles = access.roles(workspace)
        if identity in roles:
            raise RefusalError(
                409, "PrincipalAlreadyHasWorkspaceRolePermissions", f"{identity} is {roles[identity]} already."
            )
        document.setdefault(WORKSPACE_ROLES, {})[workspace.guid] = {**roles, identity: role}
    made = _assignment(identity, role)
    return JSONResponse(made, 201, {"Location": f"{call.request.url}/{made['id']}"})


def delete_role(call: Call, guid: str, assignment: str) -> Response:
    """Take a principal's role away, which an Admin may."""
    check_query(call)
    workspace = workspace_of(call, guid, "Admin")
    access = call.lake.access
    with access.kept.changing() as document:
        roles = access.roles(workspace)
        identity = next((name for name in roles if principal_id(name) == assignment.lower()), None)
        if identity is None:
            raise not_found(f"role assignment {assignment!r}")
        left = {name: role for name, role in roles.items() if name != identity}
        if "Admin" not in left.values():
            raise wrong("A workspace keeps one Admin.", "LastAdminCannotBeRemoved")
        document.setdefault(WORKSPACE_ROLES, {})[workspace.guid] = left
    return Response(None, 200)


def list_item_access(call: Call, guid: str, item_guid: str) -> Response:
    """Answer with the permissions of an item that each principal has. An Admin of the workspace may know them.

    https://learn.microsoft.com/rest/api/fabric/admin/items/list-item-access-details
    """
    check_query(call, "type")
    workspace, item = item_of(call, guid, item_guid, "Admin")
    rows = []
    for identity in call.lake.identities.tokens:
        held = call.lake.access.permissions(identity, workspace, item)
        if held:
            own = [name for name in PERMISSIONS if name in held and name in ("Read", "Write")]
            more = [name for name in PERMISSIONS if name in held and name not in ("Read", "Write")]
            details = {"type": item.type, "permissions": own, "additionalPermissions": more}
            rows.append({"principal": _principal(identity), "itemAccessDetails": details})
    return JSONResponse({"accessDetails": rows})


def _said(workspace: Workspace) -> dict[str, Any]:
    return {"id": workspace.guid, "displayName": workspace.name, "description": "", "type": "Workspace"}


def _assignment(identity: str, role: str) -> dict[str, Any]:
    return {"id": principal_id(identity), "principal": _principal(identity), "role": role}


def _principal(identity: str) -> dict[str, str]:
    return {"id": principal_id(identity), "displayName": identity, "type": "ServicePrincipal"}


def _identity(call: Call, guid: str) -> str:
    for name in call.lake.identities.tokens:
        if principal_id(name) == guid.lower():
            return name
    raise wrong(f"This server has no identity with the id {guid!r}.", "PrincipalNotFound")
