"""SQL endpoints of lakehouses: their refresh, which lets them see the newest versions of the tables."""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_names, check_query, workspace_of
from local_onelake.fabric.items import LAKEHOUSE, endpoint_id
from local_onelake.names import Item, Workspace
from local_onelake.refreshes import COMPLETED, FAILED, REFRESHES, RUNNING, Refresh, begin, is_running, look
from local_onelake.refusals import RefusalError, wrong
from local_onelake.tables import newest_version, tables_of

_UNITS = ("Seconds", "Minutes", "Hours", "Days")
_STATUSES = {COMPLETED: "Succeeded", FAILED: "Failed", RUNNING: "Running"}


async def refresh(call: Call, workspace_guid: str, guid: str) -> Response:
    """Let an endpoint see the newest versions of its tables, which a Contributor may; here one request at a time."""
    check_query(call)
    given = await body_of(call, ("recreateTables", "timeout"))
    if not isinstance(given.get("recreateTables", False), bool):
        raise wrong("recreateTables is true or false.", "InvalidRequest")
    _check_timeout(given.get("timeout"))
    workspace, item = _lakehouse(call, workspace_guid, guid)
    return await run_in_threadpool(_refresh, call, workspace, item, given.get("recreateTables", False))


def get_operation(call: Call, guid: str) -> Response:
    """Answer with the state of a refresh."""
    check_query(call)
    item, _ = _operation(call, guid)
    found = _found(look(call, item), guid)
    said: dict[str, Any] = {
        "status": _STATUSES.get(found["status"], "NotStarted"),
        "createdTimeUtc": found["started"],
        "lastUpdatedTimeUtc": found.get("ended", found["started"]),
        "percentComplete": 0 if is_running(found) else 100,
    }
    if found["status"] == FAILED:
        said["error"] = {"errorCode": "RefreshFailed", "message": "The refresh failed, as the fault asks for."}
    headers = {"Retry-After": "5"} if is_running(found) else None
    return JSONResponse(said, headers=headers)


def get_result(call: Call, guid: str) -> Response:
    """Answer with what a refresh did to each table, if it has succeeded."""
    check_query(call)
    item, found = _operation(call, guid)
    if found["status"] != COMPLETED:
        raise wrong(f"The operation {guid} has not succeeded.", "OperationHasNoResult")
    return JSONResponse({"value": _said(look(call, item), guid)})


def _refresh(call: Call, workspace: Workspace, item: Item, anew: bool) -> Response:
    # What comes in between is seen as well, or by the next refresh: what is recorded here is only ever too old.
    versions = {name: newest_version(call.lake, spot) for name, spot in tables_of(call.lake, workspace, item)}
    made = begin(call, item, versions=versions, anew=anew)
    if made is None:
        raise RefusalError(409, "OperationInProgress", "A refresh of this SQL endpoint is at work: ask again later.")
    known = look(call, item)
    if not is_running(_found(known, made["id"])):
        return JSONResponse({"value": _said(known, made["id"])})
    location = f"{str(call.request.url).partition('/v1/')[0]}/v1/operations/{made['id']}"
    return Response(None, 202, {"Location": location, "x-ms-operation-id": made["id"], "Retry-After": "5"})


def _said(known: list[Refresh], guid: str) -> list[dict[str, Any]]:
    """Return what a refresh did to each table: those without a new version are left as they are."""
    found = _found(known, guid)
    earlier = (each for each in known[known.index(found) + 1 :] if each["status"] == COMPLETED)
    before: dict[str, int] = {} if found["anew"] else next(earlier, {"versions": {}})["versions"]
    rows = []
    for name, version in found["versions"].items():
        row = {"tableName": name.replace("/", "."), "startDateTime": found["started"], "endDateTime": found["ended"]}
        if found["status"] == FAILED:
            row |= {"status": "Failure", "error": {"errorCode": "RefreshFailed", "message": "As the fault asks for."}}
        else:
            row |= {
                "status": "NotRun" if before.get(name) == version else "Success",
                "lastSuccessfulSyncDateTime": found["ended"],
            }
        rows.append(row)
    return rows


def _lakehouse(call: Call, workspace_guid: str, guid: str) -> tuple[Workspace, Item]:
    workspace = workspace_of(call, workspace_guid, "Contributor")
    for item in list(workspace.items.values()):
        if item.type == LAKEHOUSE and endpoint_id(item) == guid.lower():
            return workspace, item
    raise RefusalError(404, "ItemNotFound", f"There is no SQL endpoint {guid!r} in {workspace.name!r}.")


def _operation(call: Call, guid: str) -> tuple[Item, Refresh]:
    for workspace in call.lake.names.all():
        if call.lake.access.has(call.identity, workspace, "Contributor"):
            for item in list(workspace.items.values()):
                for each in call.lake.kept.read(REFRESHES, item.guid) or []:
                    if item.type == LAKEHOUSE and each["id"] == guid.lower():
                        return item, each
    raise RefusalError(404, "OperationNotFound", f"There is no operation {guid!r} that {call.identity} may see.")


def _found(known: list[Refresh], guid: str) -> Refresh:
    return next(each for each in known if each["id"] == guid.lower())


def _check_timeout(given: object) -> None:
    if given is None:
        return
    check_names(given, ("timeUnit", "value"), "timeout")
    assert isinstance(given, dict)
    if given.get("timeUnit") not in _UNITS or not isinstance(given.get("value"), int | float) or given["value"] <= 0:
        raise wrong(f"timeout has a value above 0, and the timeUnit {', '.join(_UNITS)}.", "InvalidRequest")
