"""Runs of Spark job definitions: each is a real ``spark-submit`` on this machine, as a batch of Livy is.

https://learn.microsoft.com/rest/api/fabric/sparkjobdefinition/background-jobs/run-on-demand-spark-job-definition

What a definition says is kept in the part :data:`DEFINITIONS` of ``fabric.json`` by the GUID of the item. A run lives
as long as the server does.
"""

from __future__ import annotations

import base64
import json
import shlex
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import JSONResponse, Response

from local_onelake.batches import DEAD, KILLED, NOT_STARTED, RUNNING, SUCCESS, Batch, Submission
from local_onelake.calls import Call
from local_onelake.fabric.calls import body_of, check_names, check_query, item_of, paged
from local_onelake.fabric.submitting import batches_of, check_addresses, start
from local_onelake.names import Item
from local_onelake.refusals import RefusalError, wrong

DEFINITIONS = "spark_job_definitions"
TYPE, JOB_TYPE = "SparkJobDefinition", "sparkjob"
_PART = "SparkJobDefinitionV1.json"
_FIELDS = (
    "executableFile",
    "defaultLakehouseArtifactId",
    "mainClass",
    "additionalLakehouseIds",
    "retryPolicy",
    "commandLineArguments",
    "additionalLibraryUris",
    "language",
    "environmentArtifactId",
)
_EXECUTION = ("executableFile", "mainClass", "commandLineArguments", "additionalLibraryUris")
_STATUSES = {NOT_STARTED: "Failed", RUNNING: "InProgress", SUCCESS: "Completed", DEAD: "Failed", KILLED: "Cancelled"}
_AGAIN = {"Retry-After": "1"}


def definition_of(given: object) -> dict[str, Any]:
    """Return what the definition of an item says, as ``POST …/items`` has it.

    :raises RefusalError: it is of another shape.
    """
    check_names(given, ("format", "parts"), "definition")
    assert isinstance(given, dict)
    if given.get("format", "SparkJobDefinitionV1") != "SparkJobDefinitionV1":
        raise wrong(
            "Of Spark job definitions, only the format SparkJobDefinitionV1 is served here.", "CorruptedPayload"
        )
    parts = given.get("parts")
    if not isinstance(parts, list) or [part.get("path") for part in parts if isinstance(part, dict)] != [_PART]:
        raise wrong(f"A Spark job definition has one part, {_PART}.", "CorruptedPayload")
    try:
        said = json.loads(base64.b64decode(parts[0]["payload"], validate=True))
    except (KeyError, TypeError, ValueError) as error:
        raise wrong(f"The payload of {_PART} is no JSON in base64.", "CorruptedPayload") from error
    check_names(said, _FIELDS, _PART)
    found: dict[str, Any] = said
    return found


async def begin(call: Call, workspace_guid: str, guid: str) -> Response:
    """Run a definition, which a Contributor may. What the request says counts before what the definition says."""
    check_query(call, "jobtype")
    given = {} if call.header("content-length") in (None, "0") else await body_of(call, ("executionData",))
    workspace, item = item_of(call, workspace_guid, guid, "Contributor")
    execution = given.get("executionData") or {}
    check_names(execution, _EXECUTION, "executionData")
    submission = _submission(item, {**(call.lake.kept.read(DEFINITIONS, item.guid) or {}), **execution})
    made = await run_in_threadpool(start, call, item.guid, submission)
    base = str(call.request.url).partition("/v1/")[0]
    where = f"{base}/v1/workspaces/{workspace.guid}/items/{item.guid}/jobs/instances/{made.id}"
    return Response(None, 202, {"Location": where, **_AGAIN})


def get_run(call: Call, item: Item, run: str) -> Response:
    """Answer with a run."""
    check_query(call)
    return JSONResponse(_said(_found(call, item, run)), headers=_AGAIN)


def list_runs(call: Call, item: Item) -> Response:
    """Answer with the runs of a definition."""
    check_query(call, "continuationtoken")
    runs = reversed(batches_of(call).of(item.guid))
    return paged(call, [(f"{number:09}", _said(batch)) for number, batch in enumerate(runs)])


def cancel_run(call: Call, item: Item, run: str) -> Response:
    """Cancel a run: it is killed with its children when the answer comes."""
    check_query(call)
    found = _found(call, item, run)
    if found.state not in (RUNNING, NOT_STARTED) or found.refused is not None:
        raise wrong(f"The job {run} has ended: {_STATUSES[found.state]}.", "JobAlreadyCompleted")
    batches_of(call).kill(found)
    return Response(None, 202, {"Location": str(call.request.url).removesuffix("/cancel"), **_AGAIN})


def _submission(item: Item, said: dict[str, Any]) -> Submission:
    file, libraries = said.get("executableFile"), said.get("additionalLibraryUris") or []
    if not isinstance(file, str) or not file:
        raise wrong(f"{item.name} has no main file.", "InvalidRequest")
    if said.get("mainClass"):
        raise wrong("Only Python runs here: mainClass must be empty.", "InvalidRequest")
    arguments = said.get("commandLineArguments") or ""
    if not isinstance(arguments, str) or not isinstance(libraries, list):
        raise wrong("commandLineArguments is a text, and additionalLibraryUris a list.", "InvalidRequest")
    check_addresses([file, *libraries])
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise wrong(f"commandLineArguments cannot be split: {error}.", "InvalidRequest") from error
    return Submission(item.name, file, words, libraries)


def _found(call: Call, item: Item, run: str) -> Batch:
    for batch in batches_of(call).of(item.guid):
        if batch.id == run.lower() and not call.strikes("livy_unseen"):
            return batch
    raise RefusalError(404, "ItemJobInstanceNotFound", f"There is no job {run!r} of {item.name}.")


def _said(batch: Batch) -> dict[str, Any]:
    status, why = _STATUSES[batch.state], None
    if status == "Failed":
        last = batch.log()[-1:] or ["It ended without a word."]
        why = {"errorCode": "JobFailed", "message": batch.refused or last[0][:500]}
    return {"id": batch.id, "itemId": batch.item, "jobType": JOB_TYPE, "status": status, "failureReason": why}
