"""Jobs of lakehouses: table maintenance, which deltalake does here. It writes no V-Order.

Jobs are kept in the part :data:`JOBS` of ``fabric.json``, the oldest first, by the GUID of the lakehouse. A job is done
in a thread, by requests of the caller's identity to this very server, so that its commits are judged as everybody's.
"""

from __future__ import annotations

import re
import threading
import uuid
from datetime import timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_names, check_query, item_of, not_found, paged, text_of
from local_onelake.fabric.items import LAKEHOUSE
from local_onelake.names import Item, Workspace
from local_onelake.refreshes import now
from local_onelake.refusals import RefusalError, wrong
from local_onelake.rules import delete_at
from local_onelake.tables import tables_of
from local_onelake.tree import MissingError

JOBS = "jobs"
MAINTENANCE = "TableMaintenance"
_RUNNING, _COMPLETED, _FAILED, _CANCELLED, _DEDUPED = "InProgress", "Completed", "Failed", "Cancelled", "Deduped"
_PERIOD = re.compile(r"(?:(\d+)\.)?(\d{1,2}):(\d{2}):(\d{2})")
_SHORTEST = timedelta(days=7)
_MOST_KEPT = 200
_AGAIN = {"Retry-After": "1"}

Job = dict[str, Any]


async def begin(call: Call, workspace_guid: str, guid: str) -> Response:
    """Begin a table maintenance, which a Contributor may. Beside another one of the lakehouse it is skipped."""
    check_query(call, "jobtype")
    if call.query.get("jobtype", MAINTENANCE) != MAINTENANCE:
        raise wrong(f"Only {MAINTENANCE} is served here.", "InvalidJobType")
    given = await body_of(call, ("executionData",))
    workspace, item = item_of(call, workspace_guid, guid, "Contributor")
    if item.type != LAKEHOUSE:
        raise not_found(f"lakehouse {guid}")
    wanted = _wanted(given.get("executionData"))
    made = await run_in_threadpool(_begin, call, workspace, item, wanted)
    base = str(call.request.url).partition("/v1/")[0]
    where = f"{base}/v1/workspaces/{workspace.guid}/items/{item.guid}/jobs/instances/{made['id']}"
    return Response(None, 202, {"Location": where, **_AGAIN})


def get_job(call: Call, workspace_guid: str, guid: str, job: str) -> Response:
    """Answer with a job."""
    check_query(call)
    found = _found(call, _item(call, workspace_guid, guid), job)
    return JSONResponse(_said(found), headers=_AGAIN if found["status"] == _RUNNING else None)


def list_jobs(call: Call, workspace_guid: str, guid: str) -> Response:
    """Answer with the jobs of a lakehouse."""
    check_query(call, "continuationtoken")
    item = _item(call, workspace_guid, guid)
    known: list[Job] = call.lake.kept.read(JOBS, item.guid) or []
    return paged(call, [(each["startTimeUtc"] + each["id"], _said(_look(call, item, each))) for each in known])


def cancel_job(call: Call, workspace_guid: str, guid: str, job: str) -> Response:
    """Cancel a job. What it does already it may end, but it counts as cancelled."""
    check_query(call)
    item = item_of(call, workspace_guid, guid, "Contributor")[1]
    found = _found(call, item, job)
    if found["status"] != _RUNNING or not _end(call, item, found["id"], _CANCELLED):
        raise wrong(f"The job {job} has ended: {found['status']}.", "JobAlreadyCompleted")
    where = str(call.request.url).removesuffix("/cancel")
    return Response(None, 202, {"Location": where, **_AGAIN})


def _item(call: Call, workspace_guid: str, guid: str) -> Item:
    return item_of(call, workspace_guid, guid)[1]


def _begin(call: Call, workspace: Workspace, item: Item, wanted: dict[str, Any]) -> Job:
    made: Job = {
        "id": str(uuid.uuid4()),
        "status": _RUNNING,
        "startTimeUtc": now(),
        "table": wanted["table"],
        "server": call.lake.started,
    }
    with call.lake.kept.changing() as document:
        known: list[Job] = document.setdefault(JOBS, {}).setdefault(item.guid, [])
        if any(_is_at_work(call, each) for each in known):
            made |= {"status": _DEDUPED, "endTimeUtc": made["startTimeUtc"]}
        known.append(made)
        del known[:-_MOST_KEPT]
    if made["status"] == _RUNNING:
        threading.Thread(target=_do, args=(call, workspace, item, made["id"], wanted), daemon=True).start()
    return made


def _do(call: Call, workspace: Workspace, item: Item, job: str, wanted: dict[str, Any]) -> None:
    """Do a job, and keep how it has ended."""
    try:
        if call.strikes("job_fails"):
            raise RuntimeError("The fault job_fails asks for it.")
        _maintain(call, workspace, item, wanted)
    # Whatever goes wrong, somebody waits for the end of the job; deltalake's panics are no Exception.
    except BaseException as error:
        _end(call, item, job, _FAILED, f"{type(error).__name__}: {error}"[:500])
        return
    if not call.strikes("job_hangs"):
        _end(call, item, job, _COMPLETED)


def _maintain(call: Call, workspace: Workspace, item: Item, wanted: dict[str, Any]) -> None:
    # Here, so that the command line starts without it.
    from deltalake import DeltaTable

    if wanted["table"] not in dict(tables_of(call.lake, workspace, item)):
        raise RuntimeError(f"{item.name} has no table {wanted['table']}.")
    inside = f"{workspace.guid}/{item.guid}/Tables/{wanted['table']}"
    # The address by which the caller has come: the server may listen there only.
    host, port = call.request.scope["server"]
    options = {
        "azure_storage_account_name": "onelake",
        "azure_endpoint": f"http://{host}:{port}",
        "azure_allow_http": "true",
        "azure_storage_token": call.lake.identities.tokens[call.identity],
    }
    at, _, below = inside.partition("/")
    table = DeltaTable(f"abfss://{at}@onelake.dfs.fabric.microsoft.com/{below}", storage_options=options)
    if wanted["z_order_by"]:
        table.optimize.z_order(wanted["z_order_by"])
    elif wanted["optimize"]:
        table.optimize.compact()
    if wanted["retention"] is not None:
        hours = int(wanted["retention"].total_seconds() // 3600)
        # deltalake deletes by batches, which this server refuses as OneLake does.
        for path in table.vacuum(retention_hours=hours, dry_run=True, full=True):
            try:
                delete_at(call.lake, f"{inside}/{path}", call.identity)
            except MissingError:
                continue


def _wanted(given: object) -> dict[str, Any]:
    check_names(given, ("tableName", "schemaName", "optimizeSettings", "vacuumSettings"), "executionData")
    assert isinstance(given, dict)
    schema = f"{text_of(given, 'schemaName')}/" if given.get("schemaName") else ""
    wanted: dict[str, Any] = {"table": f"{schema}{text_of(given, 'tableName')}", "retention": None, "z_order_by": []}
    optimize, vacuum = given.get("optimizeSettings"), given.get("vacuumSettings")
    wanted["optimize"] = optimize is not None
    if optimize is not None:
        check_names(optimize, ("vOrder", "zOrderBy"), "optimizeSettings")
        wanted["z_order_by"] = [str(column) for column in optimize.get("zOrderBy") or []]
    if vacuum is not None:
        check_names(vacuum, ("retentionPeriod",), "vacuumSettings")
        found = _PERIOD.fullmatch(text_of(vacuum, "retentionPeriod"))
        if found is None:
            raise wrong("retentionPeriod is d.hh:mm:ss.", "InvalidRequest")
        days, hours, minutes, seconds = (int(part or 0) for part in found.groups())
        wanted["retention"] = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
        if wanted["retention"] < _SHORTEST:
            raise wrong("retentionPeriod is less than 7 days.", "InvalidRequest")
    return wanted


def _found(call: Call, item: Item, job: str) -> Job:
    for each in call.lake.kept.read(JOBS, item.guid) or []:
        if each["id"] == job.lower():
            return _look(call, item, each)
    raise RefusalError(404, "ItemJobInstanceNotFound", f"There is no job {job!r} of {item.name}.")


def _look(call: Call, item: Item, job: Job) -> Job:
    """Return a job as it is now: one that is done, or whose server was stopped, ends when somebody looks."""
    if job["status"] != _RUNNING:
        return job
    if job["server"] != call.lake.started:
        _end(call, item, job["id"], _FAILED, "The server was stopped before the job had ended.")
    return next(each for each in call.lake.kept.read(JOBS, item.guid) if each["id"] == job["id"])


def _is_at_work(call: Call, job: Job) -> bool:
    return bool(job["status"] == _RUNNING and job["server"] == call.lake.started)


def _end(call: Call, item: Item, job: str, status: str, why: str | None = None) -> bool:
    """End a job.

    :returns: whether it was at work.
    """
    with call.lake.kept.changing() as document:
        for each in document.get(JOBS, {}).get(item.guid, []):
            if each["id"] == job and each["status"] == _RUNNING:
                each |= {"status": status, "endTimeUtc": now()}
                if why is not None:
                    each["failureReason"] = {"errorCode": "JobFailed", "message": why}
                return True
    return False


def _said(job: Job) -> dict[str, Any]:
    known = ("id", "status", "startTimeUtc", "endTimeUtc", "failureReason")
    return {**{name: job.get(name) for name in known}, "jobType": MAINTENANCE, "invokeType": "Manual"}
