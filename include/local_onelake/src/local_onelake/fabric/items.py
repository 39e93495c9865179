"""Items of a workspace, and the tables of a lakehouse."""

from __future__ import annotations

import re
import uuid
from typing import Any
from urllib.parse import quote

from starlette.responses import JSONResponse, Response

from local_onelake.calls import Call
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
from local_onelake.names import Item, Workspace
from local_onelake.refusals import RefusalError, wrong
from local_onelake.shortcuts import Spot
from local_onelake.tables import tables_of

_ITEMS = "items"
LAKEHOUSE = "Lakehouse"
_LAKEHOUSE_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,122}")
_DFS = "https://onelake.dfs.fabric.microsoft.com"


def list_items(call: Call, workspace_guid: str) -> Response:
    """Answer with the items of a workspace, or with those of the type ``type``."""
    check_query(call, "continuationtoken", "type")
    workspace, kind = workspace_of(call, workspace_guid), call.query.get("type")
    found = [item for item in list(workspace.items.values()) if kind is None or item.type == kind]
    return paged(call, [(item.directory, _said(call, workspace, item)) for item in found])


async def create_item(call: Call, workspace_guid: str, kind: str | None = None) -> Response:
    """Make a lakehouse, which a Contributor may.

    :param call: the request.
    :param workspace_guid: where.
    :param kind: its type, where the address says it. Default: the body does.
    """
    check_query(call)
    given = await body_of(call, ("displayName", "description", "creationPayload", "folderId", "type"))
    if given.get("folderId") is not None:
        raise wrong("Folders of a workspace are not served here.", "FolderNotSupported")
    workspace = workspace_of(call, workspace_guid, "Contributor")
    kind = kind or text_of(given, "type")
    if kind != LAKEHOUSE or given.get("type", kind) != kind:
        raise wrong(f"Only a {LAKEHOUSE} is made here.", "UnsupportedItemType")
    name = text_of(given, "displayName")
    if not _LAKEHOUSE_NAME.fullmatch(name):
        raise wrong(f"A lakehouse cannot be called {name!r}: letters, digits and _, a letter first.", "InvalidInput")
    payload = given.get("creationPayload") or {}
    check_names(payload, ("enableSchemas",), "creationPayload")
    description = given.get("description") or ""
    kept = {"description": str(description), "schemas": payload.get("enableSchemas") is True}
    try:
        item = call.lake.names.new_item(workspace.name, f"{name}.{LAKEHOUSE}")
    except FileExistsError as error:
        raise RefusalError(409, "ItemDisplayNameAlreadyInUse", f"There is an item {name}.{LAKEHOUSE}.") from error
    call.lake.kept.set(_ITEMS, item.guid, kept)
    if kept["schemas"]:
        call.lake.tree.make_directory(Spot(workspace, item, "Tables/dbo").key)
    return JSONResponse(_said(call, workspace, item), 201, {"Location": f"{call.request.url}/{item.guid}"})


def get_item(call: Call, workspace_guid: str, guid: str) -> Response:
    """Answer with one item."""
    check_query(call)
    return JSONResponse(_said(call, *item_of(call, workspace_guid, guid)))


def delete_item(call: Call, workspace_guid: str, guid: str) -> Response:
    """Delete an item with all that is in it, which a Contributor may. Shortcuts to it stay, and lead nowhere."""
    check_query(call)
    call.lake.delete_item(*item_of(call, workspace_guid, guid, "Contributor"))
    return Response(None, 200)


def get_lakehouse(call: Call, workspace_guid: str, guid: str) -> Response:
    """Answer with a lakehouse and its properties."""
    check_query(call)
    return JSONResponse(_lakehouse_said(call, *_lakehouse(call, workspace_guid, guid)))


def list_lakehouses(call: Call, workspace_guid: str) -> Response:
    """Answer with the lakehouses of a workspace and their properties."""
    check_query(call, "continuationtoken")
    workspace = workspace_of(call, workspace_guid)
    found = [item for item in list(workspace.items.values()) if item.type == LAKEHOUSE]
    return paged(call, [(item.directory, _lakehouse_said(call, workspace, item)) for item in found])


def _lakehouse_said(call: Call, workspace: Workspace, item: Item) -> dict[str, Any]:
    base = f"{_DFS}/{workspace.guid}/{item.guid}"
    properties: dict[str, Any] = {"oneLakeTablesPath": f"{base}/Tables", "oneLakeFilesPath": f"{base}/Files"}
    properties["sqlEndpointProperties"] = {"id": endpoint_id(item), "provisioningStatus": "Success"}
    if has_schemas(call, item):
        properties["defaultSchema"] = "dbo"
    return {**_said(call, workspace, item), "properties": properties}


def list_tables(call: Call, workspace_guid: str, guid: str) -> Response:
    """Answer with the Delta tables of a lakehouse without schemas; those with schemas have no such list."""
    check_query(call, "continuationtoken", "maxresults")
    workspace, item = _lakehouse(call, workspace_guid, guid)
    if has_schemas(call, item):
        raise wrong(f"{item.name} has schemas.", "UnsupportedOperationForSchemasEnabledLakehouse")
    rows = []
    for name, _ in tables_of(call.lake, workspace, item):
        if "/" not in name:
            location = f"abfss://{workspace.guid}@onelake.dfs.fabric.microsoft.com/{item.guid}/Tables/{quote(name)}"
            rows.append((name, {"type": "Managed", "name": name, "location": location, "format": "delta"}))
    return paged(call, rows, "data")


def endpoint_id(item: Item) -> str:
    """Return the GUID of a lakehouse's SQL endpoint: always the same one for a lakehouse."""
    return str(uuid.uuid5(uuid.UUID(item.guid), "SQLEndpoint"))


def has_schemas(call: Call, item: Item) -> bool:
    """Say whether a lakehouse was made with schemas."""
    return bool((call.lake.kept.read(_ITEMS, item.guid) or {}).get("schemas"))


def _lakehouse(call: Call, workspace_guid: str, guid: str) -> tuple[Workspace, Item]:
    workspace, item = item_of(call, workspace_guid, guid)
    if item.type != LAKEHOUSE:
        raise not_found(f"lakehouse {guid}")
    return workspace, item


def _said(call: Call, workspace: Workspace, item: Item) -> dict[str, Any]:
    description = (call.lake.kept.read(_ITEMS, item.guid) or {}).get("description", "")
    return {
        "id": item.guid,
        "type": item.type,
        "displayName": item.name,
        "description": description,
        "workspaceId": workspace.guid,
    }
