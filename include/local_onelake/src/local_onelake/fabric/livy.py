"""Livy of a lakehouse, as far as it runs batches.

https://learn.microsoft.com/fabric/data-engineering/get-started-api-livy-batch

A batch's Spark is this machine's, so it is whatever version the server was given. Sessions and statements are not
served.
"""

from __future__ import annotations

from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.batches import DEAD, KILLED, SUCCESS, Batch, Batches, Submission
from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_query, item_of, text_of
from local_onelake.fabric.items import LAKEHOUSE
from local_onelake.fabric.submitting import batches_of, check_addresses, start
from local_onelake.refusals import RefusalError, wrong

_VERSIONS = ("2023-12-01",)
_LISTS = ("args", "pyFiles", "jars")
_KNOWN = ("name", "file", "conf", *_LISTS)
_RESULTS = {SUCCESS: "Succeeded", DEAD: "Failed", KILLED: "Cancelled"}


async def answer(call: Call, workspace_guid: str, guid: str, version: str, rest: list[str]) -> Response:
    """Do what is asked of a lakehouse's Livy, which a Contributor may.

    :raises RefusalError: it is wrong, may not be done, or is not served here.
    """
    if version not in _VERSIONS or rest[:1] != ["batches"]:
        raise RefusalError(404, "UnsupportedOperation", "Of Livy, only batches of 2023-12-01 are served here.")
    _, item = item_of(call, workspace_guid, guid, "Contributor")
    if item.type != LAKEHOUSE:
        raise RefusalError(404, "ItemNotFound", f"There is no lakehouse {guid!r}.")
    batches = batches_of(call)
    match call.method, rest[1:]:
        case "POST", []:
            return await _create(call, item.guid)
        case "GET", []:
            check_query(call)
            return JSONResponse({"items": [_said(batch) for batch in batches.of(item.guid)]})
        case "GET", [batch]:
            check_query(call)
            return JSONResponse(_said(_found(call, batches, item.guid, batch)))
        case "DELETE", [batch]:
            await run_in_threadpool(batches.kill, _found(call, batches, item.guid, batch))
            return Response(None, 200)
        case "GET", [batch, "log"]:
            return _log(call, _found(call, batches, item.guid, batch))
    raise RefusalError(404, "UnsupportedOperation", f"{call.method} /{call.path} is not served here.")


async def _create(call: Call, item: str) -> Response:
    check_query(call)
    given = await body_of(call, _KNOWN)
    submission = _submission(given)
    batch = await run_in_threadpool(start, call, item, submission)
    return JSONResponse(_said(batch), 202)


def _submission(given: dict[str, Any]) -> Submission:
    lists: dict[str, list[str]] = {name: given.get(name) or [] for name in _LISTS}
    for name, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise wrong(f"{name} is a list of texts.", "InvalidRequest")
    conf = given.get("conf") or {}
    if not isinstance(conf, dict) or not all(isinstance(value, str) for value in conf.values()):
        raise wrong("conf is an object of texts.", "InvalidRequest")
    said = Submission(
        text_of(given, "name"), text_of(given, "file"), lists["args"], lists["pyFiles"], lists["jars"], conf
    )
    check_addresses([said.file, *said.py_files, *said.jars])
    return said


def _log(call: Call, batch: Batch) -> Response:
    check_query(call, "from", "size")
    lines = batch.log()
    size = call.number("size") if "size" in call.query else 100
    first = call.number("from") if "from" in call.query else max(0, len(lines) - size)
    return JSONResponse({"id": batch.id, "from": first, "total": len(lines), "log": lines[first : first + size]})


def _found(call: Call, batches: Batches, item: str, guid: str) -> Batch:
    for batch in batches.of(item):
        if batch.id == guid.lower() and not call.strikes("livy_unseen"):
            return batch
    raise RefusalError(404, "EntityNotFound", f"There is no batch {guid!r}.")


def _said(batch: Batch) -> dict[str, Any]:
    said: dict[str, Any] = {
        "id": batch.id,
        "name": batch.submission.name,
        "artifactId": batch.item,
        "jobType": "SparkBatch",
        "submitterName": batch.owner,
    }
    if batch.refused is not None and not batch.killed:
        # As was seen: neither `state` nor `livyInfo` says anything of it.
        return {**said, "fabricBatchStateInfo": {"state": "error", "errorMessage": batch.refused}}
    state = batch.state
    return {
        **said,
        "state": state,
        "livyInfo": {"currentState": state},
        "fabricBatchStateInfo": {"state": state},
        "result": _RESULTS.get(state, "Uncertain"),
    }
