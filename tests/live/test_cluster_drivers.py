"""A writer whose driver is a cluster's waits for it in a real triggerer, which may be killed meanwhile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.local import jars
from include.local.api import wait_for
from include.local.settings import from_environment
from tests.live.harness import LiveStack
from tests.support.spark_cluster import Cluster
from tests.support.tables import ids, make_table

# Ten seconds of sleep, by two executors at best.
DAG = """
    import pendulum
    from airflow.sdk import DAG

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import SqlSource

    SLOW = "coalesce(java_method('java.lang.Thread', 'sleep', 1000L), 'slept') != 'never'"

    with DAG("deferred", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
        OneLakeWriteOperator(
            task_id="write",
            table="Tables/deferred",
            writer="w",
            source=SqlSource(f"SELECT id, '2019-01' AS month FROM range(0, 10, 1, 2) WHERE {SLOW}"),
            spark_conn_id="spark_cluster",
            deferrable=True,
        )
"""


@pytest.fixture
def cluster(tmp_path: Path, live_stack: LiveStack) -> Iterator[Cluster]:
    """A standalone cluster, which Airflow has a connection to."""
    found = Cluster(tmp_path / "cluster")
    connection = found.connection(jars.resolve(from_environment().jars), **{"deploy-mode": "cluster"})
    live_stack.api.request(
        "POST",
        "connections",
        json={**connection, "connection_id": "spark_cluster", "extra": json.dumps(connection["extra"])},
    )
    try:
        found.start()
        yield found
    finally:
        found.stop()
        live_stack.api.request("DELETE", "connections/spark_cluster")


@pytest.mark.nightly
def test_a_deferred_writer_outlives_its_triggerer_and_submits_once(live_stack: LiveStack, cluster: Cluster) -> None:
    table = live_stack.lakehouse / "Tables" / "deferred"
    make_table(table)
    live_stack.add_dag("deferred", DAG)
    run_id = live_stack.api.trigger("deferred")

    def state() -> str:
        return str(live_stack.api.task_instances("deferred", run_id, "write")[0]["state"])

    wait_for(lambda: state() == "deferred", "the writer to wait in the triggerer", 120)
    # No worker holds it, and the driver is at work.
    assert not list(table.glob(f"staged/w-*/*/_delta_log/{1:020d}.json"))
    former = live_stack.kill("triggerer")
    assert live_stack.wait_until_restarted("triggerer", former) != former

    assert live_stack.api.wait_for_run("deferred", run_id)["state"] == "success"
    assert live_stack.api.xcom("deferred", run_id, "write")["status"] == "published"
    assert ids(table) == list(range(10))
    assert (len(cluster.drivers()), len(cluster.applications())) == (1, 1)
    (only,) = live_stack.api.tries("deferred", run_id, "write")
    assert only["try_number"] == 1
    assert not list((table / "staged" / "jobs").rglob("*.json"))
