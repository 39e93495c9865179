"""A standalone cluster of two workers, by spark-submit and by Spark Connect; executors and workers are killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import pytest
from deltalake import DeltaTable
from obstore.store import LocalStore

from airflow_provider_onelake.exceptions import SparkJobError, SparkQueryError
from airflow_provider_onelake.spark.base import StageJob, StageResult
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.schemas import field
from tests.support.spark import Target, sql_job
from tests.support.spark_cluster import Cluster, ClusterConnectServer, until

pytestmark = pytest.mark.timeout(600)

# Forty rows in twenty tasks, each of which takes its two seconds on an executor.
ROWS = 40
SLOW = (
    f"SELECT id FROM range(0, {ROWS}, 1, 20) "
    "WHERE coalesce(java_method('java.lang.Thread', 'sleep', 1000L), 'slept') != 'never'"
)


class Stages(Protocol):
    """An engine."""

    def stage(self, job: StageJob) -> StageResult: ...


@pytest.fixture
def target(new_target: Callable[..., Target]) -> Target:
    return new_target([field("id", "long")])


@pytest.fixture
def client(cluster: Cluster, connect: Callable[..., SubmitEngine], jar_files: list[Path]) -> SubmitEngine:
    return connect(cluster.connection(jar_files))


@pytest.fixture
def new_cluster_mode(
    cluster: Cluster, connect: Callable[..., SubmitEngine], jar_files: list[Path]
) -> Callable[..., SubmitEngine]:
    connection = cluster.connection(jar_files, **{"deploy-mode": "cluster"})
    return lambda **arguments: connect(connection, **arguments)


@pytest.fixture(scope="session")
def whole_server(whole_cluster: Cluster, jar_files: list[Path]) -> Iterator[ClusterConnectServer]:
    server = ClusterConnectServer(whole_cluster, jar_files)
    with server:
        yield server


def ids(target: Target) -> list[int]:
    found: list[int] = DeltaTable(str(target.buffer)).to_pyarrow_table()["id"].to_pylist()
    return sorted(found)


def assert_rows_exact_when(kill: Callable[[], None], engine: Stages, target: Target, cluster: Cluster) -> None:
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, sql_job(target, SLOW))
        # Some tasks have written their files, most have not; the second executor may still be on its way.
        until(lambda: cluster.executors() and list(target.buffer.glob("*.parquet")))
        kill()
        assert not staging.done()
        staging.result(400)
    assert ids(target) == list(range(ROWS))
    assert target.rows == ROWS


def kill_executor(cluster: Cluster) -> None:
    os.kill(cluster.executors()[0][1], signal.SIGKILL)


def kill_worker(cluster: Cluster) -> None:
    cluster.executors()[0][0].kill()


@pytest.mark.parametrize("kill", [pytest.param(kill_executor, marks=pytest.mark.nightly), kill_worker])
def test_rows_are_exact_where_a_machine_is_lost_under_spark_submit(
    client: SubmitEngine, target: Target, cluster: Cluster, kill: Callable[[Cluster], None]
) -> None:
    assert_rows_exact_when(lambda: kill(cluster), client, target, cluster)


@pytest.mark.nightly
def test_an_error_on_an_executor_comes_back_typed(client: SubmitEngine, target: Target) -> None:
    with pytest.raises(SparkQueryError, match="DIVIDE_BY_ZERO"):
        client.stage(sql_job(target, "SELECT 1L DIV id AS id FROM range(10)"))
    assert target.versions == [0]


def test_a_driver_on_the_cluster_stages_the_same(
    new_cluster_mode: Callable[..., SubmitEngine], target: Target, lake: Path
) -> None:
    """Although spark-submit refuses applications in Python there."""
    new_cluster_mode().stage(sql_job(target, f"SELECT id FROM range({ROWS})"))
    assert ids(target) == list(range(ROWS))
    assert not list((lake / "trips" / "staged" / "jobs").rglob("*.json"))


@pytest.mark.nightly
def test_an_error_of_a_driver_on_the_cluster_comes_back_typed(
    new_cluster_mode: Callable[..., SubmitEngine], target: Target
) -> None:
    with pytest.raises(SparkQueryError, match="PARSE_SYNTAX_ERROR"):
        new_cluster_mode().stage(sql_job(target, "SELEC 1"))


WRITER = """
import json, sys
from obstore.store import LocalStore
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.storage.stores import ObjectStore
job = StageJob(**json.loads(sys.argv[1]))
engine_for("submit", store=lambda: ObjectStore(LocalStore(prefix=job.table_uri), "t")).stage(job)
"""


def test_a_driver_outlives_a_worker_of_airflow_that_was_killed_and_is_submitted_once(
    new_cluster_mode: Callable[..., SubmitEngine], target: Target, cluster: Cluster
) -> None:
    engine = new_cluster_mode()
    job = sql_job(target, SLOW)
    drivers, applications = cluster.drivers(), cluster.applications()
    with subprocess.Popen([sys.executable, "-c", WRITER, json.dumps(job.as_dict())], stdout=subprocess.DEVNULL) as task:
        until(lambda: list(target.buffer.glob("*.parquet")))
        os.kill(task.pid, signal.SIGKILL)
    assert target.versions == [0]
    # The next try.
    engine.wait_for(job.table_uri, job.attempt, "staging")
    assert ids(target) == list(range(ROWS))
    assert (len(cluster.drivers() - drivers), len(cluster.applications() - applications)) == (1, 1)


@pytest.mark.nightly
def test_a_driver_whose_plan_was_taken_back_before_it_started_does_nothing(
    new_cluster_mode: Callable[..., SubmitEngine], target: Target, lake: Path
) -> None:
    class TakenBack(ObjectStore):
        def put(self, path: str, data: bytes) -> None:
            if not path.endswith("job.json"):
                super().put(path, data)

    engine = new_cluster_mode(store=lambda: TakenBack(LocalStore(prefix=lake / "trips"), "trips"))
    with pytest.raises(SparkJobError, match="without a result"):
        engine.stage(sql_job(target, "SELECT 1L AS id"))
    assert target.versions == [0]


def test_stop_kills_a_driver_on_the_cluster(
    new_cluster_mode: Callable[..., SubmitEngine], target: Target, cluster: Cluster
) -> None:
    engine = new_cluster_mode()
    job = sql_job(target, "SELECT id FROM range(0, 1000000000000000, 1, 2) WHERE xxhash64(id) = 42")
    with ThreadPoolExecutor(1) as pool:
        staging = pool.submit(engine.stage, job)
        until(cluster.executors)
        engine.stop()
        with pytest.raises(SparkJobError, match="as asked"):
            staging.result(60)
    until(lambda: not cluster.status()["activedrivers"])
    until(lambda: not cluster.executors())
    assert target.versions == [0]


@pytest.mark.nightly
# Last, as the server keeps the cluster's executors for itself.
@pytest.mark.parametrize("kill", [kill_executor, kill_worker])
def test_rows_are_exact_where_a_machine_is_lost_under_spark_connect(
    cluster: Cluster, whole_server: ClusterConnectServer, target: Target, kill: Callable[[Cluster], None]
) -> None:
    engine = ConnectEngine(whole_server.remote)
    assert_rows_exact_when(lambda: kill(cluster), engine, target, cluster)
