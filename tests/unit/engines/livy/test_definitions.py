"""The engine against the local OneLake's Spark job definitions, with a script in the place of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.engines.livy.engine import DefinitionEngine
from airflow_provider_onelake.engines.livy.settings import LivyTarget
from airflow_provider_onelake.engines.submit.package import MAIN_FILE, job_package
from airflow_provider_onelake.exceptions import InvalidWriteError, SparkJobError, SparkSetUpError
from airflow_provider_onelake.hooks.livy import OneLakeLivyHook
from airflow_provider_onelake.hooks.spark import engine_for
from local_onelake.faults import Fault
from tests.support.cluster_mode import RESULT
from tests.support.livy import LAKE_TABLE, InFabric, definition_connection
from tests.support.object_stores import Lake
from tests.support.onelake import DEFINITION_GUID, IDENTITY, Asked, OneLake

NewEngine = Callable[..., DefinitionEngine]
DONE = f"say(driver=sys.argv[-2]); say(result={RESULT!r})"


@pytest.fixture
def new_engine(server: OneLake, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> NewEngine:
    def make(extra: dict[str, Any] | None = None, **arguments: Any) -> DefinitionEngine:
        monkeypatch.setenv("AIRFLOW_CONN_L", definition_connection(server, **(extra or {})))
        engine = engine_for("l", **{"store": lambda: lake.log(LAKE_TABLE).store, **arguments})
        assert isinstance(engine, DefinitionEngine)
        return engine

    return make


def fault(fabric: InFabric, name: str, **fields: Any) -> None:
    # The spool's own path has "/jobs/" too.
    fabric.server.served.faults.set(name, Fault(only="/jobs/instances", **fields))


def test_a_job_is_a_run_with_its_own_file_and_its_sessions_settings(fabric: InFabric) -> None:
    batches = fabric.spark(DONE)
    extra = {"conf": {"spark.sql.parquet.vorder.default": "true"}, "jars": ["abfss://w@h/more.zip"]}
    assert fabric.new_engine(extra).stage(fabric.job).application_id == "app-1"
    (run,) = batches.of(DEFINITION_GUID)
    assert run.owner == IDENTITY
    said = run.submission
    spool = f"{fabric.job.table_uri}/staged/jobs/a1/staging"
    assert said.file == f"{spool}/{MAIN_FILE.name}"
    assert said.py_files == [f"{spool}/{job_package().name}", "abfss://w@h/more.zip"]
    assert said.args == [
        f"{spool}/job.json",
        f"{spool}/result.json",
        "onelake-a1-staging",
        "spark.sql.session.timeZone=UTC",
        "spark.sql.parquet.vorder.default=true",
    ]
    assert not [path for path in fabric.server.blobs if "staged/jobs" in path]


def test_a_run_whose_answer_was_lost_is_not_asked_for_again_and_its_driver_is_heard_of(fabric: InFabric) -> None:
    asked = fabric.server.directory / "asked"
    # A driver ends once the engine has asked: whether any run is at work, as it knows no id, or, wrongly, about one run.
    wait = f"while not Path({str(asked)!r}).exists(): time.sleep(0.01)"
    batches = fabric.spark(f"say(driver='onelake-a1-staging')\n{wait}\nsay(result={RESULT!r})")
    fault(fabric, "lost_answer", count=1)

    def watch(seen: Asked) -> None:
        if seen.method == "GET" and "/jobs/instances" in seen.path:
            asked.touch()

    fabric.server.faults = watch
    assert fabric.stage().application_id == "app-1"
    assert len(batches.of(DEFINITION_GUID)) == 1


def test_a_run_whose_answer_was_lost_and_that_died_is_noticed(fabric: InFabric) -> None:
    fabric.spark("say(driver='onelake-a1-staging'); sys.exit(1)")
    fault(fabric, "lost_answer", count=1)
    with pytest.raises(SparkJobError, match="ended without a result"):
        fabric.stage()


@pytest.mark.parametrize("name", ["livy_full", "throttled"])
def test_a_full_capacity_is_waited_for(fabric: InFabric, name: str) -> None:
    batches = fabric.spark(DONE)
    fabric.server.served.faults.set(name, Fault(only="POST /v1/workspaces", count=2, seconds=0))
    fabric.stage()
    assert len(batches.of(DEFINITION_GUID)) == 1


def test_a_run_that_is_not_shown_right_after_it_was_begun_is_waited_for(fabric: InFabric) -> None:
    fabric.spark(f"time.sleep(0.5); say(result={RESULT!r})")
    fault(fabric, "livy_unseen", count=3)
    assert fabric.stage().application_id == "app-1"


def test_a_run_that_dies_is_explained_by_what_fabric_says(fabric: InFabric) -> None:
    fabric.spark("sys.exit('no such class')")
    with pytest.raises(SparkJobError, match=r"Fabric says of its run .*Failed: JobFailed: no such class"):
        fabric.stage()


def test_a_stop_cancels_the_run(fabric: InFabric) -> None:
    batches = fabric.spark("time.sleep(600)")
    engine = fabric.new_engine()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(engine.stage, fabric.job)
        while not batches.of(DEFINITION_GUID):
            assert not waiting.done()
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            waiting.result(30)
    assert [run.state for run in batches.of(DEFINITION_GUID)] == ["killed"]


def test_what_is_no_definition_is_refused_before_anything_is_submitted(fabric: InFabric, monkeypatch: Any) -> None:
    fabric.spark("")
    engine = fabric.new_engine()
    fabric.server.served.delete_item(*fabric.server.served.names.item("taxi", "onelake.SparkJobDefinition"))
    with pytest.raises(SparkSetUpError, match="Correct the host of the connection"):
        engine.stage(fabric.job)


def test_an_argument_with_a_blank_is_refused_because_fabric_would_split_it(fabric: InFabric, lake: Lake) -> None:
    batches = fabric.spark("")
    with pytest.raises(InvalidWriteError, match="has a blank or a quote"):
        fabric.new_engine({"conf": {"spark.sql.x": "two words"}}).stage(fabric.job)
    with pytest.raises(InvalidWriteError, match="reaches no disk"):
        fabric.new_engine().stage(attrs.evolve(fabric.job, table_uri="file:///lake/t"))
    assert not batches.of(DEFINITION_GUID)


@pytest.mark.parametrize("extra", [{"packages": "a:b:1"}, {"environment": DEFINITION_GUID}])
def test_what_it_has_is_refused(server: OneLake, extra: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_L", definition_connection(server, **extra))
    with pytest.raises(InvalidWriteError, match="the definition in Fabric has them"):
        LivyTarget.of(OneLakeLivyHook.get_connection("l"))


def test_the_button_says_whether_the_definition_is_there(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    text = definition_connection(server)
    monkeypatch.setenv("AIRFLOW_CONN_L", text)
    works, said = OneLakeLivyHook("l").test_connection()
    assert works, said
    other = json.loads(text)
    monkeypatch.setenv("AIRFLOW_CONN_L", json.dumps({**other, "host": other["host"].replace("c0b1", "c0b2")}))
    assert not OneLakeLivyHook("l").test_connection()[0]
