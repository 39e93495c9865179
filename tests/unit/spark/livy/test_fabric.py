"""The engine against the local OneLake's Livy, with a script in the place of Spark: what is Fabric's own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import AccessDeniedError, InvalidWriteError, SparkJobError
from airflow_provider_onelake.hooks.livy import OneLakeLivyHook
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.livy.engine import LivyEngine
from local_onelake.access import WORKSPACE_ROLES
from local_onelake.faults import Fault
from tests.support.cluster_mode import RESULT
from tests.support.livy import LAKE_TABLE, InFabric, connection
from tests.support.object_stores import Lake
from tests.support.onelake import IDENTITY, LAKEHOUSE_GUID, WORKSPACE_GUID, OneLake

NewEngine = Callable[..., LivyEngine]


@pytest.fixture
def new_engine(server: OneLake, lake: Lake, monkeypatch: pytest.MonkeyPatch, pauses: list[float]) -> NewEngine:
    def make(**arguments: Any) -> LivyEngine:
        monkeypatch.setenv("AIRFLOW_CONN_L", connection(server))
        engine = engine_for("l", **{"store": lambda: lake.log(LAKE_TABLE).store, **arguments})
        assert isinstance(engine, LivyEngine)
        return engine

    return make


def fault(fabric: InFabric, name: str, **fields: Any) -> None:
    fabric.server.served.faults.set(name, Fault(only="livyapi", **fields))


def test_a_job_goes_through_the_lakehouse(fabric: InFabric, lake: Lake) -> None:
    batches = fabric.spark(f"say(result={RESULT!r})")
    assert fabric.stage().application_id == "app-1"
    (batch,) = batches.of(LAKEHOUSE_GUID)
    assert (batch.owner, batch.submission.name[:19]) == (IDENTITY, "onelake-a1-staging-")
    assert not [path for path in fabric.server.blobs if "staged/jobs" in path]


def test_a_capacitys_refusal_that_stands_in_one_place_only_ends_the_wait(fabric: InFabric) -> None:
    fabric.spark("")
    fault(fabric, "livy_refused")
    with pytest.raises(SparkJobError, match=r"fabricBatchStateInfo error; \[TooManyRequestsForCapacity\]"):
        fabric.stage()


def test_a_viewer_may_not(fabric: InFabric) -> None:
    batches = fabric.spark("")
    fabric.server.served.kept.set(WORKSPACE_ROLES, WORKSPACE_GUID, {IDENTITY: "Viewer"})
    with pytest.raises(AccessDeniedError, match="403 InsufficientPrivileges"):
        fabric.stage()
    assert not batches.of(LAKEHOUSE_GUID)


def test_a_table_on_a_disk_is_refused_before_anybody_is_asked(fabric: InFabric) -> None:
    with pytest.raises(InvalidWriteError, match="reaches no disk"):
        fabric.new_engine().stage(attrs.evolve(fabric.job, table_uri="file:///lake/t"))
    assert not fabric.server.asked


def test_the_forms_button_says_whether_livy_answers(fabric: InFabric, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_L", connection(fabric.server))
    assert OneLakeLivyHook("l").test_connection()[0]
    fabric.server.served.batches = None
    works, said = OneLakeLivyHook("l").test_connection()
    assert not works
    assert "start it with --spark-submit (request " in said
    assert said.endswith("). Correct the host of the connection.")
