"""A writer whose driver is a batch of Livy waits for it in a real triggerer, and publishes what the batch has staged."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from include.local import jars
from include.local.api import wait_for
from include.local.settings import from_environment
from local_onelake.batches import Batches
from tests.live.harness import LiveStack
from tests.support.livy import connection, spark_batches
from tests.support.onelake import LAKEHOUSE_GUID, OneLake

TABLE = "Tables/deferred"

# Ten seconds of sleep, by two executors at best.
DAG = f"""
    import pendulum
    from airflow.sdk import DAG

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import SqlSource

    SLOW = "coalesce(java_method('java.lang.Thread', 'sleep', 1000L), 'slept') != 'never'"

    with DAG("deferred_to_livy", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
        OneLakeWriteOperator(
            task_id="write",
            table="{TABLE}",
            writer="w",
            source=SqlSource(f"SELECT id, '2019-01' AS month FROM range(0, 10, 1, 2) WHERE {{SLOW}}"),
            onelake_conn_id="onelake_served",
            spark_conn_id="livy_served",
            deferrable=True,
        )
"""


@pytest.fixture
def served() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as server:
        yield server


@pytest.fixture
def batches(served: OneLake, live_stack: LiveStack, tmp_path: Path) -> Iterator[Batches]:
    """The batches of a Livy, which Airflow has connections to: to it, and to its lakehouse."""
    said = {"onelake_served": served.connection(), "livy_served": connection(served)}
    for name, text in said.items():
        fields = json.loads(text)
        body = {**fields, "connection_id": name, "extra": json.dumps(fields["extra"])}
        live_stack.api.request("POST", "connections", json=body)
    try:
        with spark_batches(served, tmp_path, jars.resolve(from_environment().jars)) as running:
            yield running
    finally:
        for name in said:
            live_stack.api.request("DELETE", f"connections/{name}")


@pytest.mark.nightly
def test_a_deferred_writer_is_woken_by_its_batchs_result_and_publishes_it(
    live_stack: LiveStack, served: OneLake, batches: Batches
) -> None:
    lake = served.lake()
    log = lake.make_table(TABLE)
    live_stack.add_dag("deferred_to_livy", DAG)
    run_id = live_stack.api.trigger("deferred_to_livy")

    def state() -> str:
        return str(live_stack.api.task_instances("deferred_to_livy", run_id, "write")[0]["state"])

    wait_for(lambda: state() == "deferred", "the writer to wait in the triggerer", 120)
    # No worker holds it, and the batch is at work.
    (batch,) = batches.of(LAKEHOUSE_GUID)
    assert batch.state == "running"
    assert lake.ids(TABLE) == []

    assert live_stack.api.wait_for_run("deferred_to_livy", run_id)["state"] == "success"
    assert "Back from the triggerer: the driver's result is there" in live_stack.api.log(
        "deferred_to_livy", run_id, "write"
    )
    assert live_stack.api.xcom("deferred_to_livy", run_id, "write")["status"] == "published"
    assert lake.ids(TABLE) == list(range(10))
    assert [each.state for each in batches.of(LAKEHOUSE_GUID)] == ["success"]
    (only,) = live_stack.api.tries("deferred_to_livy", run_id, "write")
    assert only["try_number"] == 1
    assert not list(log.store.list("staged/jobs"))
