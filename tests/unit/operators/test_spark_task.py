"""What every task with Spark work does: a driver that outlived an earlier try is waited for, or killed."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.alter import OneLakeAlterOperator
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.statements import OneLakeDeleteOperator, OneLakeUpdateOperator
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob, StageResult
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import ids

HOUR = timedelta(hours=1)


@attrs.define
class Cluster(FakeEngine):
    """An engine with drivers that outlive their tasks: the first is lost sight of, and ends when it is waited for."""

    outlives_the_task: bool = True
    awaited: list[tuple[str, str, str]] = attrs.field(factory=list)
    killed: list[tuple[str, str, str]] = attrs.field(factory=list)
    dies: bool = True

    def stage(self, job: StageJob) -> StageResult:
        if self.dies:
            self.staged.append(job)
            raise SparkJobError("the worker was killed")
        return super().stage(job)

    def wait_for(self, table_uri: str, attempt: str, doing: str) -> None:
        self.awaited.append((table_uri, attempt, doing))
        if self.staged:
            super().stage(self.staged.pop())

    def kill(self, table_uri: str, attempt: str, doing: str) -> None:
        self.killed.append((table_uri, attempt, doing))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cluster:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, Cluster({None: {"2019-01": [1, 2]}}))


def write(query: str = "SELECT 1") -> dict[str, Any]:
    task = OneLakeWriteOperator(task_id="write", table="Tables/trips", writer="w", source=SqlSource(query))
    return task.execute(context_of(task))


def test_a_retry_takes_over_the_rows_of_the_driver_that_the_dead_worker_left(cluster: Cluster, log: DeltaLog) -> None:
    with pytest.raises(SparkJobError):
        write()
    lost = cluster.staged[0]
    done = write()
    assert cluster.awaited == [(lost.table_uri, lost.attempt, "staging")]
    assert not cluster.killed
    assert done["reused"]
    assert ids(log.table) == [1, 2]


def test_a_driver_whose_query_is_another_now_is_killed(cluster: Cluster, log: DeltaLog) -> None:
    with pytest.raises(SparkJobError):
        write()
    cluster.dies = False
    done = write("SELECT 2")
    assert len(cluster.killed) == 1
    assert not cluster.awaited
    assert not done["reused"]
    assert ids(log.table) == [1, 2]


def test_an_engine_whose_work_dies_with_the_task_is_not_asked(cluster: Cluster, log: DeltaLog) -> None:
    cluster.outlives_the_task, cluster.dies = ConnectEngine("sc://127.0.0.1").outlives_the_task, False
    write()
    write()
    assert not cluster.awaited
    assert not cluster.killed


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        pytest.param({}, None, id="none"),
        pytest.param({"spark_timeout": 60}, 60, id="Spark's"),
        pytest.param({"execution_timeout": HOUR, "deferrable": True}, 3600, id="the task's"),
        pytest.param({"spark_timeout": 60, "execution_timeout": HOUR, "deferrable": True}, 60, id="the shorter one"),
        # Airflow itself sees to it, and stops the engine.
        pytest.param({"execution_timeout": HOUR, "deferrable": False}, None, id="a task that stays"),
    ],
)
def test_a_driver_does_not_outlive_the_time_out_of_a_task_that_left(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], seconds: float | None
) -> None:
    """Airflow gives a task that comes back from the triggerer all of its time anew."""
    asked: list[float | None] = []
    monkeypatch.setattr(
        "airflow_provider_onelake.operators._spark_task.engine_for",
        lambda conn_id, timeout, *_: asked.append(timeout) or FakeEngine({}),
    )
    OneLakeWriteOperator(task_id="w", table="Tables/trips", source=SqlSource("SELECT 1"), **given).spark.engine()
    assert asked == [seconds]


@pytest.mark.parametrize(
    ("operator", "terms"),
    [
        (OneLakeAlterOperator, {"table_comment": "x"}),
        (OneLakeDeleteOperator, {"where": "id = 1"}),
        (OneLakeOptimizeOperator, {}),
        (OneLakeUpdateOperator, {"where": "id = 1", "set": {"id": "2"}}),
        (OneLakeVacuumOperator, {}),
    ],
)
def test_what_always_waits_in_the_worker_takes_no_deferrable(operator: Any, terms: dict[str, Any]) -> None:
    with DAG("d", default_args={"deferrable": True}):
        operator(task_id="in_a_dag", table="Tables/trips", **terms)
    with pytest.raises(TypeError, match=rf"(?s)Invalid arguments .* {operator.__name__} \(task_id: t\).*deferrable"):
        operator(task_id="t", table="Tables/trips", deferrable=True, **terms)
