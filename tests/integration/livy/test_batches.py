"""Batches of the local OneLake on a real Spark: spark-submit's job, as Fabric takes it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.exceptions import SparkJobError, SparkQueryError
from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.livy.engine import LivyEngine
from include.local import jars
from include.local.api import wait_for
from include.local.settings import from_environment
from local_onelake.batches import Batches
from tests.support.contexts import context_of
from tests.support.livy import connection, spark_batches
from tests.support.object_stores import Lake
from tests.support.onelake import LAKEHOUSE_GUID, TOKEN, OneLake
from tests.support.spark_homes import needs_spark
from tests.support.tables import begun, writer_spec

pytestmark = [pytest.mark.timeout(600), needs_spark(4, 0, "a token of the settings, by its Hadoop 3.4")]

ENDLESS = (
    "SELECT count(*) AS id, '2019-01' AS month FROM range(10000000) a CROSS JOIN range(10000000) b "
    "WHERE a.id * b.id % 7 = 3"
)


@pytest.fixture(scope="module")
def served() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as server:
        yield server


@pytest.fixture(scope="module")
def batches(served: OneLake, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Batches]:
    try:
        jar_files = jars.resolve(from_environment().jars)
    except jars.SetUpError as error:
        pytest.skip(str(error))
    with spark_batches(served, tmp_path_factory.mktemp("livy"), jar_files) as running:
        yield running


@pytest.fixture
def lake(served: OneLake) -> Lake:
    return served.lake()


@pytest.fixture
def new_engine(
    served: OneLake, batches: Batches, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., LivyEngine]:
    monkeypatch.setenv("AIRFLOW_CONN_LIVY", connection(served))

    def make(table: str) -> LivyEngine:
        engine = engine_for("livy", store=lambda: lake.log(table).store)
        assert isinstance(engine, LivyEngine)
        return engine

    return make


def job(lake: Lake, table: str, spec: WriteSpec, query: str) -> StageJob:
    log, address = lake.log(table), lake.address(table)
    task = begun(log, spec)
    return StageJob(
        source={"kind": "sql", "query": query},
        table_uri=address.spark_uri,
        buffer_uri=address.child(task.path).spark_uri,
        metadata=task.metadata,
        attempt=spec.attempt,
    )


def test_a_writer_loads_a_table_by_fabrics_spark_and_nothing_but_its_connections_says_so(
    served: OneLake, batches: Batches, lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", served.connection())
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", connection(served))
    table = "Tables/batch"
    log = lake.make_table(table)
    source = SqlSource("SELECT id, '2019-01' AS month FROM range(5)")
    task = OneLakeWriteOperator(task_id="write", table=table, writer="w", source=source, tuning=Tuning(v_order=True))
    result = task.execute(context_of(task))
    assert result["status"] == "published"
    assert lake.ids(table) == [0, 1, 2, 3, 4]
    (batch,) = batches.of(LAKEHOUSE_GUID)
    # The writer has the driver's result before the driver's process has ended.
    wait_for(lambda: batch.state == "success", "the batch to end well", 60)
    assert any(f"This is Spark {jars.spark_version()}" in line for line in batch.log())
    # The token is in a file that is its owner's alone; nobody reads it on a command line, nor in the log.
    assert batch.process is not None
    assert TOKEN not in f"{batch.process.args} {batch.log()}"
    assert (batch.home / "spark.properties").stat().st_mode & 0o077 == 0
    assert not list(log.store.list("staged/jobs"))


@pytest.mark.nightly
def test_an_error_of_the_query_is_the_typed_one_and_a_stop_kills_the_batch(
    batches: Batches, lake: Lake, new_engine: Callable[..., LivyEngine]
) -> None:
    table = "Tables/faults"
    lake.make_table(table)
    staging = job(lake, table, writer_spec("wrong"), "SELECT no_such_column AS id, '2019-01' AS month FROM range(5)")
    with pytest.raises(SparkQueryError, match="no_such_column"):
        new_engine(table).stage(staging)
    engine = new_engine(table)
    staging = job(lake, table, writer_spec("endless"), ENDLESS)
    at_work = threading.Event()
    with ThreadPoolExecutor() as pool:
        waiting = pool.submit(engine.stage, staging)
        while not at_work.is_set():
            newest = batches.of(lake.root.rpartition("/")[2])[0]
            if any("Spark, " in line for line in newest.log()):
                at_work.set()
            at_work.wait(0.2)
        engine.stop()
        with pytest.raises(SparkJobError, match=r"as asked. Its Spark work was ended"):
            waiting.result(60)
    assert newest.state == "killed"
