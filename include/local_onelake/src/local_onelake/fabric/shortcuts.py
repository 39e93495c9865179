"""Shortcuts of an item: made, looked at, listed and deleted."""

from __future__ import annotations

import re
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_names, check_query, item_of, paged, text_of
from local_onelake.fabric.items import has_schemas
from local_onelake.names import FOLDERS, is_by_guid
from local_onelake.refusals import RefusalError, forbidden, wrong
from local_onelake.shortcuts import Spot
from local_onelake.tree import ExistsError

_POLICIES = ("Abort", "GenerateUniqueName", "CreateOrOverwrite", "OverwriteOnly")
_EXTERNAL = {
    "adlsGen2": ("AdlsGen2", ("location", "subpath", "connectionId")),
    "amazonS3": ("AmazonS3", ("location", "subpath", "connectionId")),
}
_SEGMENT = re.compile(r"[A-Za-z0-9_\-.=@()~ ]{1,255}")
_MOST_TRIES = 1000


async def create_shortcut(call: Call, workspace_guid: str, item_guid: str) -> Response:
    """Make a shortcut, which a Contributor may who may read its target."""
    check_query(call, "shortcutconflictpolicy")
    policy = call.query.get("shortcutconflictpolicy", "Abort")
    if policy not in _POLICIES:
        raise wrong(f"shortcutConflictPolicy is one of {', '.join(_POLICIES)}.", "InvalidParameter")
    given = await body_of(call, ("path", "name", "target"))
    workspace, item = item_of(call, workspace_guid, item_guid, "Contributor")
    path, name = _path(text_of(given, "path"), "path"), text_of(given, "name")
    _check_segment(name, "name")
    _check_place(path, schemas=has_schemas(call, item))
    target = _target(given.get("target"))
    return await run_in_threadpool(_create, call, Spot(workspace, item, f"{path}/{name}"), target, policy)


def _create(call: Call, link: Spot, target: dict[str, Any], policy: str) -> Response:
    shortcuts = call.lake.shortcuts
    if target["type"] == "OneLake" and not _sees(call, link, target):
        raise RefusalError(403, "InsufficientPrivileges", f"{call.identity} may not read the target of {link}.")
    there = shortcuts.at(link.item, link.inside) is not None
    if policy == "OverwriteOnly" and not there:
        raise RefusalError(404, "ShortcutNotFound", f"There is no shortcut {link} to be overwritten.")
    replaced = False
    for number in range(_MOST_TRIES if policy == "GenerateUniqueName" else 1):
        made = link if number == 0 else Spot(link.workspace, link.item, f"{link.inside}_{number}")
        try:
            replaced = shortcuts.create(made, target, overwrite=policy in ("CreateOrOverwrite", "OverwriteOnly"))
        except ExistsError:
            continue
        where = f"{str(call.request.url).partition('?')[0]}/{made.inside}"
        return JSONResponse(_said(call, made, target), 200 if replaced else 201, {"Location": where})
    raise RefusalError(409, "EntityConflict", f"There is something at {link}: nothing was made.")


def get_shortcut(call: Call, workspace_guid: str, item_guid: str, inside: str) -> Response:
    """Answer with one shortcut."""
    check_query(call)
    link = Spot(*item_of(call, workspace_guid, item_guid), inside)
    return JSONResponse(_said(call, link, _there(call, link)))


def list_shortcuts(call: Call, workspace_guid: str, item_guid: str) -> Response:
    """Answer with the shortcuts of an item, or with those at and below ``parentPath``."""
    check_query(call, "continuationtoken", "parentpath")
    workspace, item = item_of(call, workspace_guid, item_guid)
    parent = call.query.get("parentpath", "").strip("/")
    found = {
        inside: target
        for inside, target in call.lake.shortcuts.of(item).items()
        if not parent or f"{inside}/".startswith(f"{parent}/")
    }
    return paged(
        call, [(inside, _said(call, Spot(workspace, item, inside), target)) for inside, target in found.items()]
    )


def delete_shortcut(call: Call, workspace_guid: str, item_guid: str, inside: str) -> Response:
    """Delete a shortcut, and nothing of its target, which a Contributor may."""
    check_query(call)
    link = Spot(*item_of(call, workspace_guid, item_guid, "Contributor"), inside)
    _there(call, link)
    call.lake.shortcuts.delete(link)
    return Response(None, 200)


def _there(call: Call, link: Spot) -> dict[str, Any]:
    target = call.lake.shortcuts.at(link.item, link.inside)
    if target is None:
        raise RefusalError(404, "ShortcutNotFound", f"There is no shortcut {link}.")
    return target


def _said(call: Call, link: Spot, target: dict[str, Any]) -> dict[str, Any]:
    path, _, name = link.inside.rpartition("/")
    shown = target if target["type"] != "OneLake" or _sees(call, link, target) else {"type": target["type"]}
    return {"path": path, "name": name, "target": shown}


def _sees(call: Call, link: Spot, target: dict[str, Any]) -> bool:
    """Say whether the caller may read a target in OneLake, and knows so where it is."""
    try:
        workspace, item = call.lake.names.item(target["oneLake"]["workspaceId"], target["oneLake"]["itemId"])
    except RefusalError:
        # Nobody can say who may read what is gone. Who may write the shortcut sees where it led.
        return call.lake.access.has(call.identity, link.workspace, "Contributor")
    return call.lake.access.may(call.identity, workspace, item, target["oneLake"]["path"], write=False)


def _path(text: str, what: str) -> str:
    path = text.strip("/")
    for name in path.split("/"):
        _check_segment(name, what)
    if path.partition("/")[0] not in FOLDERS:
        raise wrong(f"{what} must begin with {' or '.join(FOLDERS)}.", "InvalidRequest")
    return path


def _check_segment(name: str, what: str) -> None:
    if not _SEGMENT.fullmatch(name) or name in (".", "..") or name != name.strip():
        raise wrong(f"{what} has {name!r}, which is no name of a folder here.", "InvalidRequest")


def _check_place(path: str, *, schemas: bool) -> None:
    folder, *below = path.split("/")
    if folder == "Tables" and len(below) > (1 if schemas else 0):
        raise wrong("In Tables, a shortcut is a table or a schema, and lies no deeper.", "InvalidRequest")
    if path not in FOLDERS and folder not in FOLDERS:
        raise forbidden("A shortcut lies in Tables or in Files.")


def _target(given: object) -> dict[str, Any]:
    check_names(given, ("oneLake", *_EXTERNAL, "type"), "target")
    assert isinstance(given, dict)
    named = [name for name in given if name != "type"]
    if len(named) != 1:
        raise wrong("target has exactly one of its kinds.", "InvalidRequest")
    (name,) = named
    said = given[name]
    if name != "oneLake":
        kind, known = _EXTERNAL[name]
        check_names(said, known, name)
        return {"type": kind, name: {each: text_of(said, each) for each in known}}
    check_names(said, ("workspaceId", "itemId", "path"), name)
    for guid in ("workspaceId", "itemId"):
        if not is_by_guid(text_of(said, guid)):
            raise wrong(f"oneLake.{guid} must be a GUID.", "InvalidRequest")
    return {
        "type": "OneLake",
        "oneLake": {
            "workspaceId": said["workspaceId"].lower(),
            "itemId": said["itemId"].lower(),
            "path": _path(text_of(said, "path"), "oneLake.path"),
        },
    }
