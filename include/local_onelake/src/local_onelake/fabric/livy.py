"""Livy of a lakehouse, as far as it runs batches.

https://learn.microsoft.com/fabric/data-engineering/get-started-api-livy-batch

A batch's Spark is this machine's, so it is whatever version the server was given. Sessions and statements are not
served.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.batches import DEAD, KILLED, SUCCESS, Batch, Batches, Submission
from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_query, item_of, text_of
from local_onelake.fabric.items import LAKEHOUSE
from local_onelake.refusals import RefusalError, wrong

_VERSIONS = ("2023-12-01",)
_LISTS = ("args", "pyFiles", "jars")
_KNOWN = ("name", "file", "conf", *_LISTS)
_SCHEMES = ("abfss://", "abfs://")
_FULL = (
    "[TooManyRequestsForCapacity] This spark job can't be run because you have hit a spark compute or API rate limit, "
    "as the fault asks for."
)
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
    batches = _batches_of(call)
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
    batch = await run_in_threadpool(_start, call, item, submission)
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
    _check_addresses([said.file, *said.py_files, *said.jars])
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


def _batches_of(call: Call) -> Batches:
    """Return what runs Spark.

    :raises RefusalError: the server was started without it.
    """
    if call.lake.batches is None:
        raise RefusalError(404, "UnsupportedOperation", "This server has no Spark: start it with --spark-submit.")
    return call.lake.batches


def _start(call: Call, item: str, submission: Submission) -> Batch:
    """Start a ``spark-submit`` as the caller, unless a fault says that the capacity is full.

    :param call: the request.
    :param item: the GUID of the item that it is asked of.
    :param submission: what is to run.
    :raises RefusalError: the capacity is full.
    """
    if fault := call.strikes("livy_full"):
        after = {"Retry-After": f"{fault.seconds:.0f}"}
        raise RefusalError(430, "TooManyRequestsForCapacity", _FULL, headers=after)
    refused = _FULL if call.strikes("livy_refused") else None
    token = call.lake.identities.tokens[call.identity]
    return _batches_of(call).start(item, call.identity, token, submission, refused)


def _check_addresses(addresses: Sequence[object]) -> None:
    """Refuse files that Fabric's Spark does not see, such as those on a disk of this machine.

    :raises RefusalError: an address is none of OneLake.
    """
    for address in addresses:
        if not isinstance(address, str) or not address.startswith(_SCHEMES) or "," in address:
            raise wrong(f"{address!r} is no address of a file in OneLake, as abfss://….", "InvalidRequest")
