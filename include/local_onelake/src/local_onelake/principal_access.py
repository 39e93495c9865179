"""What data access roles let a principal read: ``…/securityPolicy/principalAccess`` of the DFS endpoint.

https://learn.microsoft.com/fabric/onelake/security/authorized-access-for-principal-reference
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from starlette.responses import JSONResponse, Response

from local_onelake.access import granted_by, hidden_by, principal_id
from local_onelake.calls import Call, page_of
from local_onelake.fabric.calls import body_of, item_of, text_of
from local_onelake.names import FOLDERS, Item, Workspace
from local_onelake.refusals import wrong

PREFIX = "v1.0/workspaces/"
"""How the path of such a request begins."""

_PAGE = 500


async def answer(call: Call) -> Response:
    """Answer with what a principal may read in Tables or in Files of an item. A Member may ask.

    :raises RefusalError: the request is wrong or is not served, or the caller may not ask.
    """
    match call.method, call.path.split("/"):
        case "GET", ["v1.0", "workspaces", workspace_guid, "artifacts", item_guid, "securityPolicy", "principalAccess"]:
            pass
        case _:
            raise wrong(f"{call.method} /{call.path} is not served here.", "UnsupportedOperation")
    given = await body_of(call, ("aadObjectId", "inputPath", "continuationToken", "maxResults"))
    workspace, item = item_of(call, workspace_guid, item_guid, "Member")
    principal, folder = text_of(given, "aadObjectId").lower(), text_of(given, "inputPath")
    if folder not in FOLDERS:
        raise wrong(f"inputPath is {' or '.join(FOLDERS)}.", "InvalidRequest")
    size = given.get("maxResults", _PAGE)
    if not isinstance(size, int) or size < 1:
        raise wrong("maxResults is a number, at least 1.", "InvalidRequest")
    names = [name for name in call.lake.identities.tokens if principal_id(name) == principal]
    # Whom this server does not know is in no role.
    entries = _entries(call, names[0], workspace, item, folder) if names else {}
    page, mark = page_of(sorted(entries.items()), given.get("continuationToken"), min(size, call.lake.page))
    roles = call.lake.access.data_access_roles(workspace, item)
    said: dict[str, Any] = {
        "identityETag": _tag(principal),
        "metadataETag": _tag(json.dumps(roles, sort_keys=True)),
        "value": [entry for _, entry in page],
    }
    return JSONResponse({**said, "continuationToken": mark} if mark else said)


def _entries(call: Call, identity: str, workspace: Workspace, item: Item, folder: str) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    rules = list(call.lake.access.rules_of(identity, workspace, item))
    for rule in rules:
        for grant in granted_by(rule):
            path = grant.path or folder
            if path.partition("/")[0] == folder:
                found.setdefault(path, {"path": path, "access": ["Read"], "effect": "Permit"})
    for rule in rules:
        for table, kind, limit in hidden_by(rule):
            if table.path.partition("/")[0] != folder:
                continue
            entry = found.setdefault(table.path, {"path": table.path, "access": ["Read"], "effect": "Permit"})
            if kind == "rows":
                entry["rows"] = " UNION ".join(filter(None, (entry.get("rows"), str(limit.get("value", "")))))
            else:
                shown = {"columnEffect": "Permit", "columnAction": ["Read"]}
                named = [{"name": str(name), **shown} for name in limit.get("columnNames", [])]
                entry["columns"] = [*entry.get("columns", []), *named]
    return found


def _tag(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
