"""Spark job definitions of the local OneLake: made, changed, run, looked at, cancelled."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from include.local_onelake.tests.fabric.conftest import WORKSPACE, Fabric, error
from local_onelake.batches import Batches
from tests.support.onelake import LAKEHOUSE_GUID, OTHER_TOKEN, TOKEN, WORKSPACE_GUID

FILES = f"abfss://{WORKSPACE_GUID}@onelake.dfs.fabric.microsoft.com/{LAKEHOUSE_GUID}/Files"
SAID: dict[str, Any] = {"executableFile": f"{FILES}/main.py", "commandLineArguments": "one two", "language": "Python"}


def definition(said: dict[str, Any]) -> dict[str, Any]:
    payload = base64.b64encode(json.dumps(said).encode()).decode()
    part = {"path": "SparkJobDefinitionV1.json", "payload": payload, "payloadType": "InlineBase64"}
    return {"format": "SparkJobDefinitionV1", "parts": [part]}


def make(fabric: Fabric, said: dict[str, Any], name: str = "job") -> str:
    body = {"displayName": name, "definition": definition(said)}
    made = fabric.rest.post(f"{WORKSPACE}/sparkJobDefinitions", json=body)
    assert made.status_code == 201, made.text
    return str(made.json()["id"])


def ended(client: httpx.Client, run: str) -> dict[str, Any]:
    while (said := client.get(run).json())["status"] == "InProgress":
        pass
    found: dict[str, Any] = said
    return found


def test_a_definition_runs_with_what_it_says_or_with_what_the_run_says(
    fabric: Fabric, spark: Callable[[str], Batches]
) -> None:
    spark("print(json.dumps(sys.argv[3:])); print(Path(sys.argv[2]).read_text())")
    fabric.give("Contributor")
    item = make(fabric, SAID)
    runs = f"{WORKSPACE}/items/{item}/jobs/instances"
    begun = fabric.ann.post(runs, params={"jobType": "sparkjob"})
    assert begun.status_code == 202, begun.text
    first = begun.headers["location"].rpartition("/v1")[2]
    said = ended(fabric.rest, first)
    assert (said["status"], said["jobType"], said["itemId"]) == ("Completed", "sparkjob", item)
    batches = fabric.server.served.batches
    assert batches is not None
    (batch,) = batches.of(item)
    assert json.loads(batch.log()[0]) == ["--name", "job", f"{FILES}/main.py", "one", "two"]
    # It signs in as the identity that has begun it.
    assert OTHER_TOKEN in "\n".join(batch.log()[1:])
    assert TOKEN not in "\n".join(batch.log())
    execution = {
        "executableFile": f"{FILES}/other.py",
        "commandLineArguments": "three",
        "additionalLibraryUris": [f"{FILES}/more.zip"],
    }
    # The newer form of the address.
    begun = fabric.rest.post(
        f"{WORKSPACE}/sparkJobDefinitions/{item}/jobs/sparkjob/instances", json={"executionData": execution}
    )
    second = begun.headers["location"].rpartition("/v1")[2]
    assert ended(fabric.rest, second)["status"] == "Completed"
    assert json.loads(batches.of(item)[0].log()[0])[2:] == [
        "--py-files",
        f"{FILES}/more.zip",
        f"{FILES}/other.py",
        "three",
    ]
    assert [each["id"] for each in fabric.rest.get(runs).json()["value"]] == [
        each.rpartition("/")[2] for each in (first, second)
    ]


def test_a_run_that_is_cancelled_is_over_and_one_that_died_says_why(
    fabric: Fabric, spark: Callable[[str], Batches]
) -> None:
    spark("time.sleep(600)")
    item = make(fabric, SAID)
    runs = f"{WORKSPACE}/items/{item}/jobs/instances"
    run = fabric.rest.post(runs, params={"jobType": "sparkjob"}).headers["location"].rpartition("/v1")[2]
    assert fabric.rest.get(run).json()["status"] == "InProgress"
    assert fabric.rest.post(f"{run}/cancel").status_code == 202
    assert fabric.rest.get(run).json()["status"] == "Cancelled"
    assert error(fabric.rest.post(f"{run}/cancel")) == (400, "JobAlreadyCompleted")
    spark("sys.exit('no such class')")
    run = fabric.rest.post(runs, params={"jobType": "sparkjob"}).headers["location"].rpartition("/v1")[2]
    assert ended(fabric.rest, run)["failureReason"] == {"errorCode": "JobFailed", "message": "no such class"}


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"executionData": {"executableFile": "/tmp/main.py"}}, (400, "InvalidRequest")),
        ({"executionData": {"mainClass": "a.B"}}, (400, "InvalidRequest")),
        ({"executionData": {"conf": {}}}, (400, "InvalidRequest")),
        ({"executionData": {"commandLineArguments": "'open"}}, (400, "InvalidRequest")),
    ],
)
def test_what_is_not_served_is_refused_and_nothing_runs(
    fabric: Fabric, spark: Callable[[str], Batches], body: dict[str, Any], expected: tuple[int, str]
) -> None:
    batches = spark("")
    item = make(fabric, SAID)
    at = f"{WORKSPACE}/items/{item}/jobs/instances"
    assert error(fabric.rest.post(at, json=body, params={"jobType": "sparkjob"})) == expected
    assert error(fabric.rest.post(at, params={"jobType": "RunNotebook"})) == (400, "InvalidJobType")
    assert not batches.of(item)
