"""A writer whose driver runs elsewhere waits for it in a real triggerer, and publishes what it has staged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from include.local import jars
from include.local.api import wait_for
from include.local.settings import from_environment
from local_onelake.batches import Batches
from tests.live.harness import LiveStack
from tests.support.livy import connection, spark_batches
from tests.support.onelake import LAKEHOUSE_GUID, OneLake
from tests.support.spark_cluster import Cluster
from tests.support.tables import ids, make_table

pytestmark = pytest.mark.nightly

# Ten seconds of sleep, by two executors at best.
DAG = """
    import pendulum
    from airflow.sdk import DAG

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import SqlSource

    SLOW = "coalesce(java_method('java.lang.Thread', 'sleep', 1000L), 'slept') != 'never'"

    with DAG({name!r}, schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
        OneLakeWriteOperator(
            task_id="write",
            table="Tables/deferred",
            writer="w",
            source=SqlSource(f"SELECT id, '2019-01' AS month FROM range(0, 10, 1, 2) WHERE {{SLOW}}"),
            onelake_conn_id={lake!r},
            spark_conn_id={spark!r},
            deferrable=True,
        )
"""


@pytest.fixture
def connections(live_stack: LiveStack) -> Iterator[dict[str, dict[str, Any]]]:
    """What is put into it before a run starts, Airflow knows; afterwards it forgets them."""
    made: dict[str, dict[str, Any]] = {}
    yield made
    for name in made:
        live_stack.api.request("DELETE", f"connections/{name}")


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    found = Cluster(tmp_path / "cluster")
    try:
        found.start()
        yield found
    finally:
        found.stop()


@pytest.fixture
def served() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as server:
        yield server


@pytest.fixture
def batches(served: OneLake, tmp_path: Path) -> Iterator[Batches]:
    with spark_batches(served, tmp_path, jars.resolve(from_environment().jars)) as running:
        yield running


def deferred(stack: LiveStack, name: str, lake: str, spark: str, connections: dict[str, dict[str, Any]]) -> str:
    """Start a run, and return its id when the writer waits in the triggerer: no worker holds it."""
    for conn_id, fields in connections.items():
        body = {**fields, "connection_id": conn_id, "extra": json.dumps(fields["extra"])}
        stack.api.request("POST", "connections", json=body)
    stack.add_dag(name, DAG.format(name=name, lake=lake, spark=spark))
    run_id = stack.api.trigger(name)

    def state() -> str:
        return str(stack.api.task_instances(name, run_id, "write")[0]["state"])

    wait_for(lambda: state() == "deferred", "the writer to wait in the triggerer", 120)
    return run_id


def published(stack: LiveStack, name: str, run_id: str) -> None:
    """See that the writer's only try has published."""
    assert stack.api.wait_for_run(name, run_id)["state"] == "success"
    assert stack.api.xcom(name, run_id, "write")["status"] == "published"
    (only,) = stack.api.tries(name, run_id, "write")
    assert only["try_number"] == 1


def test_a_writer_deferred_to_a_cluster_outlives_its_triggerer_and_submits_once(
    live_stack: LiveStack, cluster: Cluster, connections: dict[str, dict[str, Any]]
) -> None:
    table = live_stack.lakehouse / "Tables" / "deferred"
    make_table(table)
    connections["spark_cluster"] = cluster.connection(
        jars.resolve(from_environment().jars), **{"deploy-mode": "cluster"}
    )
    run_id = deferred(live_stack, "deferred", "onelake_default", "spark_cluster", connections)
    assert not list(table.glob(f"staged/w-*/*/_delta_log/{1:020d}.json"))
    former = live_stack.kill("triggerer")
    assert live_stack.wait_until_restarted("triggerer", former) != former

    published(live_stack, "deferred", run_id)
    assert ids(table) == list(range(10))
    assert (len(cluster.drivers()), len(cluster.applications())) == (1, 1)
    assert not list((table / "staged" / "jobs").rglob("*.json"))


def test_a_writer_deferred_to_livy_is_woken_by_its_batchs_result(
    live_stack: LiveStack, served: OneLake, batches: Batches, connections: dict[str, dict[str, Any]]
) -> None:
    lake = served.lake()
    log = lake.make_table("Tables/deferred")
    connections |= {
        "onelake_served": json.loads(served.connection()),
        "livy_served": json.loads(connection(served)),
    }
    run_id = deferred(live_stack, "deferred_to_livy", "onelake_served", "livy_served", connections)
    (batch,) = batches.of(LAKEHOUSE_GUID)
    assert batch.state == "running"
    assert lake.ids("Tables/deferred") == []

    published(live_stack, "deferred_to_livy", run_id)
    said = live_stack.api.log("deferred_to_livy", run_id, "write")
    assert "Back from the triggerer: the driver's result is there" in said
    assert lake.ids("Tables/deferred") == list(range(10))
    assert [each.state for each in batches.of(LAKEHOUSE_GUID)] == ["success"]
    assert not list(log.store.list("staged/jobs"))
