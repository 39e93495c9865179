"""The engine against the local OneLake's Livy, with a script in the place of Spark: what is Fabric's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.livy.engine import LivyEngine
from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    InvalidWriteError,
    SparkJobError,
    SparkUnavailableError,
)
from airflow_provider_onelake.hooks.livy import OneLakeLivyHook
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.local_onelake.access import WORKSPACE_ROLES
from airflow_provider_onelake.local_onelake.batches import Batches
from airflow_provider_onelake.local_onelake.faults import Fault
from tests.support.cluster_mode import RESULT
from tests.support.livy import LAKE_TABLE, batches_on, connection, script
from tests.support.object_stores import Lake
from tests.support.onelake import IDENTITY, LAKEHOUSE_GUID, WORKSPACE_GUID, OneLake

NewEngine = Callable[..., LivyEngine]


@pytest.fixture
def spark(server: OneLake, tmp_path: Path) -> Iterator[Callable[[str], Batches]]:
    """Lets batches do something."""
    with batches_on(server, tmp_path, script(tmp_path, server, f"say(result={RESULT!r})"), {}) as found:

        def does(body: str) -> Batches:
            script(tmp_path, server, body)
            return found

        yield does


@pytest.fixture
def new_engine(server: OneLake, lake: Lake, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> NewEngine:
    def make(**arguments: Any) -> LivyEngine:
        monkeypatch.setenv("AIRFLOW_CONN_L", connection(server))
        engine = engine_for("l", **{"store": lambda: lake.log(LAKE_TABLE).store, **arguments})
        assert isinstance(engine, LivyEngine)
        return engine

    return make


def fault(server: OneLake, name: str, **fields: Any) -> None:
    server.served.faults.set(name, Fault(only="livyapi", **fields))


def test_a_job_goes_through_the_lakehouse(
    server: OneLake, spark: Callable[[str], Batches], lake: Lake, lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark(f"say(result={RESULT!r})")
    assert new_engine().stage(lake_job).application_id == "app-1"
    (batch,) = batches.of(LAKEHOUSE_GUID)
    assert (batch.owner, batch.submission.name[:19]) == (IDENTITY, "onelake-a1-staging-")
    assert not [path for path in server.blobs if "staged/jobs" in path]


def test_a_batch_whose_answer_was_lost_is_found_by_its_name(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark(f"say(result={RESULT!r})")
    fault(server, "lost_answer", count=1)
    new_engine().stage(lake_job)
    assert len(batches.of(LAKEHOUSE_GUID)) == 1


@pytest.mark.parametrize("name", ["livy_full", "throttled"])
def test_a_full_capacity_is_waited_for_as_long_as_it_says(
    server: OneLake,
    spark: Callable[[str], Batches],
    lake_job: StageJob,
    new_engine: NewEngine,
    pauses: list[float],
    name: str,
) -> None:
    batches = spark(f"say(result={RESULT!r})")
    server.served.faults.set(name, Fault(only="POST /v1/workspaces", count=2, seconds=9))
    new_engine().stage(lake_job)
    assert pauses == [9, 9]
    assert len(batches.of(LAKEHOUSE_GUID)) == 1


def test_a_capacity_that_stays_full_is_told_and_leaves_nothing(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark("")
    fault(server, "livy_full", seconds=600)
    with pytest.raises(SparkUnavailableError, match=r"430 TooManyRequestsForCapacity.*Nothing was submitted"):
        new_engine().stage(lake_job)
    assert not [path for path in server.blobs if "staged/jobs" in path]


def test_a_capacitys_refusal_that_stands_in_one_place_only_ends_the_wait(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark("")
    fault(server, "livy_refused")
    with pytest.raises(SparkJobError, match=r"fabricBatchStateInfo error; \[TooManyRequestsForCapacity\]"):
        new_engine().stage(lake_job)


def test_a_batch_that_is_not_shown_right_after_it_was_made_is_waited_for(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark(f"time.sleep(0.5); say(result={RESULT!r})")
    fault(server, "livy_unseen", count=3)
    assert new_engine().stage(lake_job).application_id == "app-1"


def test_a_batch_that_dies_is_explained_by_its_log(
    spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    spark("sys.exit('no such class')")
    with pytest.raises(SparkJobError, match=r"(?s)state dead.*result failed.*no such class"):
        new_engine().stage(lake_job)


def test_a_stop_kills_the_batch_with_its_children(
    spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark("import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True); time.sleep(600)")
    engine = new_engine()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(engine.stage, lake_job)
        while not (found := batches.of(LAKEHOUSE_GUID)) or not found[0].log():
            assert not waiting.done()
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            waiting.result(30)
    assert found[0].state == "killed"
    child = Path("/proc", found[0].log()[0], "stat")
    assert not child.exists() or child.read_text().split()[2] == "Z"


def test_a_viewer_may_not(
    server: OneLake, spark: Callable[[str], Batches], lake_job: StageJob, new_engine: NewEngine
) -> None:
    batches = spark("")
    server.served.kept.set(WORKSPACE_ROLES, WORKSPACE_GUID, {IDENTITY: "Viewer"})
    with pytest.raises(AccessDeniedError, match="403 InsufficientPrivileges"):
        new_engine().stage(lake_job)
    assert not batches.of(LAKEHOUSE_GUID)


def test_a_table_on_a_disk_is_refused_before_anybody_is_asked(
    server: OneLake, lake_job: StageJob, new_engine: NewEngine
) -> None:
    with pytest.raises(InvalidWriteError, match="reaches no disk"):
        new_engine().stage(attrs.evolve(lake_job, table_uri="file:///lake/t"))
    assert not server.asked


def test_the_forms_button_says_whether_livy_answers(
    server: OneLake, spark: Callable[[str], Batches], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_L", connection(server))
    assert OneLakeLivyHook("l").test_connection()[0]
    server.served.batches = None
    works, said = OneLakeLivyHook("l").test_connection()
    assert not works
    assert "start it with --spark-submit. Correct the host of the connection." in said
