"""The sensor in Airflow: it leaves the worker, and the trigger brings it back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.sensors.delta_log import DeltaLogSensor
from tests.support.airflow_dags import JANUARY, run_dag, states, xcom
from tests.support.tables import foreign_append, local_log, make_table


def wait_for(deferrable: bool, partition: str) -> DAG:
    with DAG("waits", schedule=None, start_date=JANUARY) as dag:
        DeltaLogSensor(
            task_id="committed",
            table="Tables/trips",
            partition=partition,
            deferrable=deferrable,
            poke_interval=0.05,
            timeout=60,
        )
    return dag


@pytest.mark.parametrize("deferrable", [True, False])
def test_it_ends_with_the_commit_it_waits_for(lakehouse: Path, deferrable: bool) -> None:
    path = lakehouse / "Tables" / "trips"
    make_table(path)
    # It waits for what is committed after it has started: so commit until it has seen it.
    done = threading.Event()

    def commit_until_seen() -> None:
        log = local_log(path)
        while not done.wait(0.3):
            foreign_append(log, {"2019-01": [1]})
            foreign_append(log, {"2019-02": [2]})

    committer = threading.Thread(target=commit_until_seen)
    committer.start()
    try:
        run = run_dag(wait_for(deferrable, "month = '2019-02'"), logical_date=JANUARY)
    finally:
        done.set()
        committer.join()

    assert states(run) == {"committed": "success"}
    assert xcom(run, "committed")["partitions_added"] == [{"month": "2019-02"}]


def test_a_predicate_on_no_partition_column_fails_without_a_retry(lakehouse: Path) -> None:
    path = lakehouse / "Tables" / "trips"
    log = make_table(path)
    stop = threading.Event()

    def commit() -> None:
        while not stop.wait(0.3):
            foreign_append(log, {"2019-01": [1]})

    committer = threading.Thread(target=commit)
    committer.start()
    try:
        run = run_dag(wait_for(deferrable=True, partition="id = 1"), logical_date=JANUARY)
    finally:
        stop.set()
        committer.join()
    assert states(run) == {"committed": "failed"}
