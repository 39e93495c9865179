"""The DFS endpoint: files that grow by append and flush, directories, renames. Spark's ABFS driver speaks it."""

from __future__ import annotations

import json
from urllib.parse import unquote, urlsplit

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake import principal_access, tree
from local_onelake.calls import (
    OCTETS,
    Call,
    check_reading,
    content,
    http_date,
    page_of,
    shortcut_mark,
    state,
    workspace_state,
    workspaces_of,
)
from local_onelake.parts import GapError
from local_onelake.refusals import RefusalError, wrong
from local_onelake.rules import Place, check_no_shortcut, rows_below
from local_onelake.tree import Entry

CODES: dict[type[tree.TreeError], tuple[int, str]] = {
    tree.SourceMissingError: (404, "SourcePathNotFound"),
    tree.MissingError: (404, "PathNotFound"),
    tree.NoParentError: (404, "RenameDestinationParentPathNotFound"),
    tree.ExistsError: (409, "PathAlreadyExists"),
    tree.ChangedError: (412, "ConditionNotMet"),
    tree.NotEmptyError: (409, "DirectoryNotEmpty"),
    tree.MismatchError: (409, "ResourceTypeMismatch"),
}
"""How this endpoint says why nothing was done."""

_ACCOUNTS = {"AdlsGen2": "ADLS"}
_SUPERUSER = {"x-ms-owner": "$superuser", "x-ms-group": "$superuser", "x-ms-permissions": "---------"}


async def answer(call: Call) -> Response:
    """Do what is asked.

    :raises RefusalError: it is wrong, or OneLake does not do it.
    :raises TreeError: it cannot be done as things are.
    """
    if "comp" in call.query or "restype" in call.query or call.header("x-ms-blob-type"):
        raise wrong("This is a request for the Blob endpoint, and this is DFS.", "UnsupportedQueryParameter")
    if call.path.startswith(principal_access.PREFIX):
        return await principal_access.answer(call)
    call.check_headers()
    match call.method, call.query.get("action"), call.query.get("resource"):
        case "GET", _, "account":
            return _workspaces(call)
        case "HEAD", _, "filesystem":
            return Response(None, 200, {"x-ms-namespace-enabled": "true", **workspace_state(call)})
        case "GET", _, "filesystem":
            return await run_in_threadpool(_list, call)
        case "HEAD", "getAccessControl" | "getStatus" | None, None:
            return _properties(call)
        case "GET", None, None:
            return await content(
                call, lambda entry: {**state(entry), "x-ms-resource-type": "file", "Accept-Ranges": "bytes"}
            )
        case "PUT", None, "file" | "directory" as kind:
            return await _create(call, kind)
        case "PUT", None, None if call.header("x-ms-rename-source"):
            return await run_in_threadpool(_rename, call)
        case "PATCH", "append", None:
            return await _append(call)
        case "PATCH", "flush", None:
            call.check_no_body()
            return await run_in_threadpool(_flush, call, call.number("position"))
        case "DELETE", None, None:
            await run_in_threadpool(call.delete, recursive=call.flag("recursive"))
            return Response(None, 200)
        case "PATCH", "setAccessControl" | "setAccessControlRecursive" as action, _:
            raise wrong(f"OneLake rejects action={action}: access is given by roles.", "UnsupportedQueryParameter")
        case "PUT" | "DELETE", _, "filesystem":
            raise RefusalError(403, "AuthorizationPermissionMismatch", "Workspaces are Fabric's to make and delete.")
    asked = "&".join(f"{name}={value}" for name, value in call.query.items())
    raise wrong(f"{call.method} ?{asked} is not served here.", "UnsupportedQueryParameter")


def _workspaces(call: Call) -> Response:
    return JSONResponse({"filesystems": [{"name": workspace.name} for workspace in workspaces_of(call)]})


def _list(call: Call) -> Response:
    directory = call.query.get("directory", "").strip("/")
    place = call.place_at(f"{call.path.rstrip('/')}/{directory}")
    rows = rows_below(call.lake, place, call.identity, recursive=call.flag("recursive"))
    if not rows and place.item is not None:
        itself = call.lake.tree.stat(place.key)
        if itself is None:
            raise tree.MissingError(place.key)
        if not itself.is_directory:
            rows = [(place.spell(itself), itself)]
    page, mark = page_of(rows, call.query.get("continuation"), call.page_size())
    said = {"x-ms-continuation": mark} if mark else {}
    body = json.dumps({"paths": [{**_row(name, entry), **_link(call, entry)} for name, entry in page]})
    return Response(body, 200, said, media_type="application/json")


def _row(name: str, entry: Entry) -> dict[str, str]:
    kind = {"isDirectory": "true"} if entry.is_directory else {}
    return {
        "name": name,
        **kind,
        "contentLength": str(entry.size),
        "lastModified": http_date(entry.last_modified),
        "etag": entry.etag,
        "owner": "$superuser",
        "group": "$superuser",
        "permissions": "---------",
    }


def _link(call: Call, entry: Entry) -> dict[str, str]:
    """Return what a list says of a shortcut, if the client asks for it."""
    if not call.flag("getshortcutmetadata") or not entry.is_directory:
        return {}
    for item, inside in call.lake.shortcuts.below(entry.path):
        target = call.lake.shortcuts.at(item, inside)
        if target is not None and entry.path.endswith(f"{item.directory}/{inside}"):
            return {"isShortcut": "true", "accountType": _ACCOUNTS.get(target["type"], target["type"])}
    return {}


def _entry(call: Call, place: Place) -> Entry:
    entry = call.lake.tree.stat(place.key)
    if entry is None:
        raise tree.MissingError(place.key)
    return entry


def _properties(call: Call) -> Response:
    place = call.place
    if place.item is None:
        # ABFS asks for the access control of the root to learn whether the store is hierarchical.
        return Response(None, 200, {**_SUPERUSER, **_acl(call, place), "x-ms-resource-type": "directory"})
    entry = _entry(call, place)
    check_reading(call.condition(), entry)
    kind = "directory" if entry.is_directory else "file"
    said = {**state(entry), **_SUPERUSER, **_acl(call, place), "x-ms-resource-type": kind, **shortcut_mark(call, place)}
    said |= {"Content-Length": str(entry.size), "Content-Type": OCTETS, "Accept-Ranges": "bytes"}
    return Response(None, 200, said)


def _acl(call: Call, place: Place) -> dict[str, str]:
    if call.query.get("action") != "getAccessControl":
        return {}
    access = call.lake.access
    writes = all(access.may(call.identity, spot.workspace, spot.item, spot.inside, write=True) for spot in place.way)
    if place.item is None:
        writes = access.has(call.identity, place.workspace, "Contributor")
    return {"x-ms-acl": f"user::{'rwx' if writes else 'r-x'},group::---,other::---"}


async def _create(call: Call, kind: str) -> Response:
    call.check_no_body()
    key, condition = call.changeable(), call.condition()
    if kind == "directory":
        entry = await run_in_threadpool(call.lake.make_directory, key, condition)
    else:
        empty = await call.receive()
        there = call.lake.tree.stat(key)
        if there is not None and there.is_directory:
            call.lake.parts.discard([empty.file])
            raise tree.ExistsError(key)
        entry = await run_in_threadpool(call.lake.put, key, empty, condition)
    return Response(None, 201, {**state(entry), **call.rejected()})


def _rename(call: Call) -> Response:
    spelled = unquote(urlsplit(call.header("x-ms-rename-source") or "").path)
    # A slash at the beginning is documented; Microsoft's fab leaves it out.
    if not spelled:
        raise wrong("x-ms-rename-source must be /workspace/item/path.", "InvalidSourceUri")
    source, target = call.place_at(spelled.removeprefix("/")), call.place
    old, new = call.changeable(source), call.changeable(target)
    check_no_shortcut(call.lake, source)
    # Behind the shortcuts: a rename within the target of one is a rename in one item.
    if source.way[-1].item != target.way[-1].item:
        raise wrong("Nothing is renamed from one item into another here.", "InvalidRenameSourcePath")
    entry = call.lake.rename(old, new, call.condition(), call.condition("x-ms-source-"))
    return Response(None, 201, {**state(entry), **call.rejected()})


async def _append(call: Call) -> Response:
    key, position = call.changeable(), call.number("position")
    there = call.lake.tree.stat(key)
    if there is None:
        raise tree.MissingError(key)
    if position < there.size:
        raise wrong(f"The file has {there.size} bytes already: append behind them.", "InvalidQueryParameterValue")
    part = await call.receive()
    try:
        await run_in_threadpool(call.lake.append, key, position, part)
    except tree.TreeError:
        call.lake.parts.discard([part.file])
        raise
    if call.flag("flush"):
        flushed = await run_in_threadpool(_flush, call, position + part.size)
        flushed.status_code = 202
        return flushed
    return Response(None, 202)


def _flush(call: Call, position: int) -> Response:
    retain = call.flag("retainuncommitteddata")
    try:
        entry = call.lake.flush(call.changeable(), position, call.condition(), retain=retain)
    except GapError as error:
        raise wrong(f"The position is not the size of the file: {error}.", "InvalidFlushPosition") from error
    return Response(None, 200, {**state(entry), **call.rejected()})
