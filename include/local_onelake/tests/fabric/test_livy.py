"""Livy of the local OneLake: batches made, got, listed, deleted; their processes, rights and faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from include.local_onelake.tests.fabric.conftest import WORKSPACE, Fabric, error
from local_onelake.batches import Batches, joined
from tests.support.onelake import LAKEHOUSE_GUID, OTHER_IDENTITY, OTHER_TOKEN, TOKEN, WORKSPACE_GUID

BATCHES = f"{WORKSPACE}/lakehouses/{LAKEHOUSE_GUID}/livyApi/versions/2023-12-01/batches"
FILE = f"abfss://{WORKSPACE_GUID}@onelake.dfs.fabric.microsoft.com/{LAKEHOUSE_GUID}/Files/main.py"
BODY: dict[str, Any] = {
    "name": "b",
    "file": FILE,
    "args": ["one", "two words"],
    "pyFiles": [f"{FILE}.zip"],
    "conf": {"spark.x": "a=b: c", "spark.driver.extraJavaOptions": "-Dmine=1"},
}


def make(client: httpx.Client, **body: Any) -> dict[str, Any]:
    answer = client.post(BATCHES, json={**BODY, **body})
    assert answer.status_code == 202, answer.text
    said: dict[str, Any] = answer.json()
    return said


def ended(client: httpx.Client, batch: str) -> dict[str, Any]:
    while (said := client.get(f"{BATCHES}/{batch}").json())["state"] == "running":
        pass
    found: dict[str, Any] = said
    return found


def test_a_batch_runs_what_it_was_told_as_the_identity_that_made_it(
    fabric: Fabric, spark: Callable[[str], Batches]
) -> None:
    batches = spark("print(json.dumps(sys.argv[1:])); print(Path(sys.argv[2]).read_text())")
    fabric.give("Contributor")
    made = make(fabric.ann)
    assert (made["name"], made["submitterName"], made["artifactId"]) == ("b", OTHER_IDENTITY, LAKEHOUSE_GUID)
    said = ended(fabric.rest, made["id"])
    assert (said["state"], said["livyInfo"], said["result"]) == ("success", {"currentState": "success"}, "Succeeded")
    log = fabric.rest.get(f"{BATCHES}/{made['id']}/log").json()["log"]
    options = json.loads(log[0])
    assert options[:1] + options[2:] == [
        "--properties-file",
        "--name",
        "b",
        "--py-files",
        f"{FILE}.zip",
        FILE,
        "one",
        "two words",
    ]
    properties = "\n".join(log[1:])
    assert OTHER_TOKEN in properties
    assert TOKEN not in properties
    assert "spark.x=a\\=b\\:\\ c\n" in properties
    assert "spark.y=z\n" in properties
    assert "-Dmine\\=1\\ -Djdk.net.hosts.file" in properties
    (batch,) = batches.of(LAKEHOUSE_GUID)
    assert (batch.home / "spark.properties").stat().st_mode & 0o077 == 0


def test_a_batch_that_is_deleted_is_over_when_the_answer_comes_and_one_that_has_ended_stays_so(
    fabric: Fabric, spark: Callable[[str], Batches]
) -> None:
    spark("time.sleep(600)")
    made = make(fabric.rest)["id"]
    assert fabric.rest.get(f"{BATCHES}/{made}").json()["state"] == "running"
    assert fabric.rest.delete(f"{BATCHES}/{made}").status_code == 200
    said = fabric.rest.get(f"{BATCHES}/{made}").json()
    assert (said["state"], said["result"]) == ("killed", "Cancelled")
    spark("sys.exit(3)")
    failed = make(fabric.rest)["id"]
    assert ended(fabric.rest, failed)["result"] == "Failed"
    fabric.rest.delete(f"{BATCHES}/{failed}")
    assert fabric.rest.get(f"{BATCHES}/{failed}").json()["state"] == "dead"


def test_a_server_that_ends_ends_its_batches(fabric: Fabric, spark: Callable[[str], Batches]) -> None:
    batches = spark("time.sleep(600)")
    make(fabric.rest)
    (batch,) = batches.of(LAKEHOUSE_GUID)
    batches.close()
    assert batch.process is not None
    assert batch.process.returncode is not None
    make(fabric.rest)
    assert batches.of(LAKEHOUSE_GUID)[0].process is None


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"file": "/etc/passwd"}, (400, "InvalidRequest")),
        ({"file": "file:///etc/passwd"}, (400, "InvalidRequest")),
        ({"pyFiles": ["/tmp/x.zip"]}, (400, "InvalidRequest")),
        ({"jars": [f"{FILE},/tmp/x.jar"]}, (400, "InvalidRequest")),
        ({"args": "one"}, (400, "InvalidRequest")),
        ({"conf": {"spark.x": 1}}, (400, "InvalidRequest")),
        ({"name": ""}, (400, "InvalidRequest")),
        ({"kind": "pyspark"}, (400, "InvalidRequest")),
    ],
)
def test_what_is_wrong_is_refused(
    fabric: Fabric, spark: Callable[[str], Batches], body: dict[str, Any], expected: tuple[int, str]
) -> None:
    batches = spark("")
    assert error(fabric.rest.post(BATCHES, json={**BODY, **body})) == expected
    assert not batches.of(LAKEHOUSE_GUID)


def test_settings_without_which_nothing_is_reached_count_first_and_options_of_java_are_put_together() -> None:
    options = "spark.driver.extraJavaOptions"
    found = joined({"a": "1", options: "-Dproxy"}, {"a": "2", "b": "3", options: "-Xmx1g"})
    assert found == {"a": "1", "b": "3", options: "-Xmx1g -Dproxy"}
