"""A whole load on the local OneLake while it behaves badly to all, and is away for two minutes in the middle of it."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from local_onelake.faults import Fault
from local_onelake.instructions import spark_settings, write_hosts
from tests.support.airflow_dags import JANUARY, run_dag, states
from tests.support.onelake import BY_GUIDS, TOKEN, Asked, OneLake, RefusalError
from tests.support.spark import Server

pytestmark = pytest.mark.timeout(1500)

TRIPS = "Tables/trips"
ROWS = 40
AWAY = 120.0
# Together, about one answer in ten is bad.
WEATHER = {
    "error_500": Fault(rate=0.03),
    "error_503": Fault(rate=0.03),
    "throttled": Fault(rate=0.02, seconds=1),
    "lost_answer": Fault(rate=0.04),
}


@pytest.mark.costs("The outage lasts two minutes, as long as the docs promise")
def test_a_load_in_bad_weather_with_an_outage_of_two_minutes_has_every_row_once(
    airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hosts, source = tmp_path / "hosts", tmp_path / "rows.json"
    write_hosts(hosts)
    rows = ({"id": number, "vendor_id": number % 2 + 1, "month": f"2019-0{number % 3 + 1}"} for number in range(ROWS))
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    with OneLake(lists_by_names=True) as onelake:
        begun, gone = threading.Event(), threading.Event()

        def watch(asked: Asked) -> RefusalError | None:
            # The first data file of a writer: Spark is in the middle of staging.
            if "/staged/" in asked.path and asked.path.endswith(".parquet"):
                begun.set()
            return None

        def be_away() -> None:
            begun.wait()
            onelake.away(AWAY)
            gone.set()

        onelake.faults = watch
        with Server(
            tmp_path / "spark",
            port=free_port(),
            ui_port=free_port(),
            memory="1g",
            jar_files=jars.resolve(from_environment().jars),
            settings=spark_settings(int(onelake.url.rpartition(":")[2]), TOKEN, hosts),
        ) as spark:
            monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", onelake.connection(patience=str(AWAY + 60)))
            connect = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": spark.port}
            monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(connect))
            for name, fault in WEATHER.items():
                onelake.served.faults.set(name, fault)
            threading.Thread(target=be_away, daemon=True).start()
            with (
                DAG("weather", schedule=None, start_date=JANUARY) as dag,
                OneLakeWriteTaskGroup(group_id="load", table=TRIPS, partition_by=["month"]),
            ):
                OneLakeWriteOperator.partial(
                    task_id="write",
                    source=FileSource(str(source), format="json", schema="id BIGINT, vendor_id INT, month STRING"),
                    retries=5,
                    retry_delay=0,
                ).expand_kwargs([{"writer": f"vendor-{vendor}", "where": f"vendor_id = {vendor}"} for vendor in (1, 2)])
            run = run_dag(dag, logical_date=JANUARY)
            for name in WEATHER:
                onelake.served.faults.clear(name)
        assert set(states(run).values()) == {"success"}, states(run)
        assert gone.is_set(), "the load ended before the outage did"
        lake = onelake.lake(BY_GUIDS)
        assert lake.ids(TRIPS) == list(range(ROWS))
        operations = [commit.operation for commit in lake.log(TRIPS).commits_since(-1)]
        assert operations == ["WRITE", "WRITE"]
