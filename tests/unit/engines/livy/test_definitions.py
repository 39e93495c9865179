"""The engine against the local OneLake's Spark job definitions, with a script in the place of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.livy.engine import DefinitionEngine
from airflow_provider_onelake.engines.livy.settings import LivyTarget
from airflow_provider_onelake.engines.submit.package import MAIN_FILE, job_package
from airflow_provider_onelake.exceptions import InvalidWriteError, SparkJobError, SparkSetUpError, SparkUnavailableError
from airflow_provider_onelake.hooks.livy import OneLakeLivyHook
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.local_onelake.batches import Batches
from airflow_provider_onelake.local_onelake.faults import Fault
from tests.support.cluster_mode import RESULT
from tests.support.livy import LAKE_TABLE, definition_connection
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


def fault(server: OneLake, name: str, **fields: Any) -> None:
    # The spool's own path has "/jobs/" too.
    server.served.faults.set(name, Fault(only="/jobs/instances", **fields))


def test_a_job_is_a_run_with_its_own_file_and_its_sessions_settings(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark(DONE)
    extra = {"conf": {"spark.sql.parquet.vorder.default": "true"}, "jars": ["abfss://w@h/more.zip"]}
    assert new_engine(extra).stage(lake_job).application_id == "app-1"
    (run,) = batches.of(DEFINITION_GUID)
    assert run.owner == IDENTITY
    said = run.submission
    spool = f"{lake_job.table_uri}/staged/jobs/a1/staging"
    assert said.file == f"{spool}/{MAIN_FILE.name}"
    assert said.py_files == [f"{spool}/{job_package().name}", "abfss://w@h/more.zip"]
    assert said.args == [
        f"{spool}/job.json",
        f"{spool}/result.json",
        "onelake-a1-staging",
        "spark.sql.session.timeZone=UTC",
        "spark.sql.parquet.vorder.default=true",
    ]
    assert not [path for path in server.blobs if "staged/jobs" in path]


def test_a_run_whose_answer_was_lost_is_not_asked_for_again_and_its_driver_is_heard_of(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    asked = server.directory / "asked"
    # A driver ends once the engine has asked: whether any run is at work, as it knows no id, or, wrongly, about one run.
    wait = f"while not Path({str(asked)!r}).exists(): time.sleep(0.01)"
    batches = spark(f"say(driver='onelake-a1-staging')\n{wait}\nsay(result={RESULT!r})")
    fault(server, "lost_answer", count=1)

    def watch(seen: Asked) -> None:
        if seen.method == "GET" and "/jobs/instances" in seen.path:
            asked.touch()

    server.faults = watch
    assert new_engine().stage(lake_job).application_id == "app-1"
    assert len(batches.of(DEFINITION_GUID)) == 1


def test_a_run_whose_answer_was_lost_and_that_died_is_noticed(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark("say(driver='onelake-a1-staging'); sys.exit(1)")
    fault(server, "lost_answer", count=1)
    with pytest.raises(SparkJobError, match="ended without a result"):
        new_engine().stage(lake_job)


@pytest.mark.parametrize("name", ["livy_full", "throttled"])
def test_a_full_capacity_is_waited_for(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine, name: str
) -> None:
    batches = spark(DONE)
    server.served.faults.set(name, Fault(only="POST /v1/workspaces", count=2, seconds=0))
    new_engine().stage(lake_job)
    assert len(batches.of(DEFINITION_GUID)) == 1


def test_a_capacity_that_stays_full_is_told_and_leaves_nothing(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark("")
    fault(server, "livy_full", seconds=0)
    with pytest.raises(SparkUnavailableError, match=r"430 TooManyRequestsForCapacity.*Nothing was submitted"):
        new_engine({"patience": 0.2}).stage(lake_job)
    assert not [path for path in server.blobs if "staged/jobs" in path]


def test_a_stop_ends_the_wait_for_room_at_once(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark("")
    fault(server, "livy_full", seconds=600)
    engine = new_engine({"patience": 3600})
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(engine.stage, lake_job)
        while not any(asked.method == "POST" and "/jobs/instances" in asked.path for asked in server.asked):
            assert not waiting.done()
        engine.stop()
        with pytest.raises((SparkJobError, SparkUnavailableError)):
            waiting.result(30)
    assert not batches.of(DEFINITION_GUID)


def test_a_run_that_is_not_shown_right_after_it_was_begun_is_waited_for(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark(f"time.sleep(0.5); say(result={RESULT!r})")
    fault(server, "livy_unseen", count=3)
    assert new_engine().stage(lake_job).application_id == "app-1"


def test_a_run_that_dies_is_explained_by_what_fabric_says(
    spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark("sys.exit('no such class')")
    with pytest.raises(SparkJobError, match=r"Fabric says of its run .*Failed: JobFailed: no such class"):
        new_engine().stage(lake_job)


def test_a_stop_cancels_the_run(spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine) -> None:
    batches = spark("time.sleep(600)")
    engine = new_engine()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(engine.stage, lake_job)
        while not batches.of(DEFINITION_GUID):
            assert not waiting.done()
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            waiting.result(30)
    assert [run.state for run in batches.of(DEFINITION_GUID)] == ["killed"]


def test_what_is_no_definition_is_refused_before_anything_is_submitted(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine, monkeypatch: Any
) -> None:
    spark("")
    engine = new_engine()
    server.served.delete_item(*server.served.names.item("taxi", "onelake.SparkJobDefinition"))
    with pytest.raises(SparkSetUpError, match="Correct the host of the connection"):
        engine.stage(lake_job)


def test_an_argument_with_a_blank_is_refused_because_fabric_would_split_it(
    spark: Callable[[str], Batches], lake: Lake, lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark("")
    with pytest.raises(InvalidWriteError, match="has a blank or a quote"):
        new_engine({"conf": {"spark.sql.x": "two words"}}).stage(lake_job)
    with pytest.raises(InvalidWriteError, match="reaches no disk"):
        new_engine().stage(attrs.evolve(lake_job, table_uri="file:///lake/t"))
    assert not batches.of(DEFINITION_GUID)


@pytest.mark.parametrize("extra", [{"packages": "a:b:1"}, {"environment": DEFINITION_GUID}])
def test_what_the_definition_has_is_refused_in_the_connection(
    server: OneLake, extra: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_L", definition_connection(server, **extra))
    with pytest.raises(InvalidWriteError, match="the definition in Fabric has them"):
        LivyTarget.of(OneLakeLivyHook.get_connection("l"))


def test_the_forms_button_says_whether_the_definition_is_there(
    server: OneLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = definition_connection(server)
    monkeypatch.setenv("AIRFLOW_CONN_L", text)
    works, said = OneLakeLivyHook("l").test_connection()
    assert works, said
    other = json.loads(text)
    monkeypatch.setenv("AIRFLOW_CONN_L", json.dumps({**other, "host": other["host"].replace("c0b1", "c0b2")}))
    assert not OneLakeLivyHook("l").test_connection()[0]
