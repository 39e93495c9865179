"""Power BI's REST, as far as it refreshes semantic models.

https://learn.microsoft.com/power-bi/connect-data/asynchronous-refresh

A semantic model is an item of the type ``SemanticModel``. Its tables are those of all lakehouses in its workspace, by
the names of their directories, so it needs no definition here.
"""

from __future__ import annotations

import json
import re
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.calls import Call
from local_onelake.names import Item, Workspace, is_by_guid
from local_onelake.refreshes import CANCELLED, FAILED, REFRESHES, Refresh, begin, end, is_running, look
from local_onelake.refusals import RefusalError, wrong
from local_onelake.tables import newest_version, tables_of

_MODEL = "SemanticModel"
_TYPES = ("full", "automatic", "calculate", "clearvalues", "dataonly", "defragment")
_MODES = ("transactional", "partialbatch")
_KNOWN = ("type", "commitMode", "objects", "maxParallelism", "retryCount", "timeout", "applyRefreshPolicy")
_TIME = re.compile(r"\d\d:[0-5]\d:[0-5]\d")


async def answer(call: Call) -> Response:
    """Do what is asked.

    :raises RefusalError: it is wrong, may not be done, or is not served here.
    """
    match call.method, call.path.rstrip("/").split("/"):
        case method, ["v1.0", "myorg", "groups", workspace, "datasets", model, "refreshes", *rest] if len(rest) <= 1:
            match method, rest:
                case "POST", []:
                    return await _refresh(call, workspace, model)
                case "GET", []:
                    return await run_in_threadpool(_list, call, workspace, model)
                case "GET", [refresh]:
                    return await run_in_threadpool(_get, call, workspace, model, refresh)
                case "DELETE", [refresh]:
                    return await run_in_threadpool(_cancel, call, workspace, model, refresh)
    raise RefusalError(404, "UnsupportedOperation", f"{call.method} /{call.path} is not served here.")


async def _refresh(call: Call, workspace_guid: str, guid: str) -> Response:
    try:
        given = json.loads(await call.request.body() or b"{}")
    except ValueError as error:
        raise _invalid("The body is no JSON.") from error
    _check(given)
    return await run_in_threadpool(_begin, call, *_model_of(call, workspace_guid, guid), given)


def _begin(call: Call, workspace: Workspace, item: Item, given: dict[str, Any]) -> Response:
    enhanced = bool(set(given) & set(_KNOWN))
    versions = {}
    for lakehouse in list(workspace.items.values()):
        if lakehouse.type == "Lakehouse":
            for name, spot in tables_of(call.lake, workspace, lakehouse):
                versions[name.rpartition("/")[2]] = newest_version(call.lake, spot)
    asked = [each["table"] for each in given.get("objects", [])] or list(versions)
    strange = sorted(set(asked) - set(versions))
    made = begin(
        call,
        item,
        enhanced=enhanced,
        type=str(given.get("type", "automatic")).lower(),
        versions={name: versions[name] for name in asked if name in versions},
        error=f"The model has no table {strange[0]!r}." if strange else None,
    )
    if made is None:
        raise _invalid("Invalid dataset refresh request. Another refresh request is already executing")
    location = f"{str(call.request.url).partition('?')[0]}/{made['id']}"
    return Response(None, 202, {"Location": location, "RequestId": made["id"]})


def _list(call: Call, workspace_guid: str, guid: str) -> Response:
    found = look(call, _model_of(call, workspace_guid, guid)[1])
    most = call.number("$top") if "$top" in call.query else len(found)
    return JSONResponse({"value": [_in_short(each) for each in found[:most]]})


def _get(call: Call, workspace_guid: str, guid: str, refresh: str) -> Response:
    found = _found(look(call, _model_of(call, workspace_guid, guid)[1]), refresh)
    said = {
        "startTime": found["started"],
        "type": found["type"],
        "commitMode": "transactional",
        "status": "Unknown" if is_running(found) else found["status"],
        "extendedStatus": found["status"],
        "objects": [{"table": name, "partition": name, "status": found["status"]} for name in found["versions"]],
    }
    if not is_running(found):
        said["endTime"] = found["ended"]
    if found["status"] == FAILED:
        words = found["error"] or "The refresh failed, as the fault asks for."
        said["messages"] = [{"message": words, "type": "Error"}]
    return JSONResponse(said, 202 if is_running(found) else 200)


def _cancel(call: Call, workspace_guid: str, guid: str, refresh: str) -> Response:
    _, item = _model_of(call, workspace_guid, guid)
    _found(call.lake.kept.read(REFRESHES, item.guid) or [], refresh)
    if not end(call, item, refresh, CANCELLED):
        raise _invalid("This refresh has ended.")
    return Response(None, 200)


def _in_short(found: Refresh) -> dict[str, Any]:
    said = {
        "requestId": found["id"],
        "refreshType": "ViaEnhancedApi" if found["enhanced"] else "ViaApi",
        "startTime": found["started"],
        "status": "Unknown" if is_running(found) else found["status"],
        "extendedStatus": found["status"],
    }
    return said if is_running(found) else {**said, "endTime": found["ended"]}


def _found(known: list[Refresh], refresh: str) -> Refresh:
    """Return a refresh that can be looked at, and cancelled, by its id: an enhanced one."""
    for each in known:
        if each["id"] == refresh and each["enhanced"]:
            return each
    raise RefusalError(404, "PowerBIEntityNotFound", f"There is no enhanced refresh {refresh!r}.")


def _model_of(call: Call, workspace_guid: str, guid: str) -> tuple[Workspace, Item]:
    if not is_by_guid(workspace_guid) or not is_by_guid(guid):
        raise _invalid("Groups and datasets are named by GUIDs.")
    workspace = call.lake.names.workspace(workspace_guid)
    call.lake.access.need(call.identity, workspace, "Contributor")
    workspace, item = call.lake.names.item(workspace.guid, guid)
    if item.type != _MODEL:
        raise RefusalError(404, "PowerBIEntityNotFound", f"There is no semantic model {guid!r}.")
    return workspace, item


def _check(given: object) -> None:
    if not isinstance(given, dict):
        raise _invalid("The body must be a JSON object.")
    unknown = sorted(set(given) - {*_KNOWN, "notifyOption"})
    if unknown:
        raise _invalid(f"The body has {', '.join(_KNOWN)}, and no {unknown[0]!r} here.")
    if given.get("notifyOption", "NoNotification") != "NoNotification":
        raise _invalid("Nobody is notified here.")
    for name, known in {"type": _TYPES, "commitMode": _MODES}.items():
        if name in given and str(given[name]).lower() not in known:
            raise _invalid(f"{name} is one of {', '.join(known)}.")
    if "timeout" in given and not _TIME.fullmatch(str(given["timeout"])):
        raise _invalid("timeout is hh:mm:ss.")
    objects = given.get("objects", [])
    if not isinstance(objects, list) or not all(isinstance(each, dict) and each.get("table") for each in objects):
        raise _invalid("objects is a list of objects with a table.")


def _invalid(message: str) -> RefusalError:
    return wrong(message, "InvalidRequest")
