"""A Spark Connect server is replaced in the middle of a load, by one of another version in a cell of the matrix."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from threading import Thread

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.airflow_dags import JANUARY, run_again, run_dag, states, xcom
from tests.support.spark import Server
from tests.support.spark_server import SETTINGS

# Spark's settings are properties of its JVM, so only the first server sleeps here.
ON_THE_NEW_ONE = """
SELECT id, 'b' AS p, CASE WHEN java_method('java.lang.System', 'getProperty', 'spark.onelake.first') = 'yes'
    THEN java_method('java.lang.Thread', 'sleep', 600000L) END AS note
FROM range(3, 6)
"""


def server(state: Path, port: int, **settings: str) -> Server:
    files = jars.resolve(from_environment().jars)
    return Server(state, port=port, ui_port=free_port(), jar_files=files, settings={**SETTINGS, **settings})


def test_what_one_server_began_another_ends(lakehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_port()
    connection = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(connection))
    servers = [server(tmp_path / "first", port, **{"spark.onelake.first": "yes"})]

    def replace_the_first_when_it_is_at_work() -> None:
        first = servers[0]
        log = lakehouse / "Tables" / "t" / "_delta_log"
        while not (list(log.glob("*.json")) and first.active_tasks()):
            time.sleep(0.1)
        first.kill()
        monkeypatch.delenv(jars.OTHER_SPARK, raising=False)
        servers.append(server(tmp_path / "second", port))
        servers[1].start()

    watch = Thread(target=replace_the_first_when_it_is_at_work)
    with (
        DAG("servers", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/t", partition_by=["p"]),
    ):
        before = SqlSource("SELECT id, 'a' AS p, CAST(NULL AS STRING) AS note FROM range(3)")
        retries = {"retries": 1, "retry_delay": timedelta(0), "on_retry_callback": lambda _: watch.join()}
        begun = OneLakeWriteOperator(task_id="begun", writer="begun", source=before, **retries)
        ended = OneLakeWriteOperator(task_id="ended", writer="ended", source=SqlSource(ON_THE_NEW_ONE), **retries)
        begun >> ended

    servers[0].start()
    try:
        watch.start()
        run = run_dag(dag, logical_date=JANUARY)
        assert set(states(run).values()) == {"success"}
        assert [run.get_task_instance(f"load.{name}").try_number for name in ("begun", "ended")] == [1, 2]
        assert run_again(dag, run, "load.begun") == "success"
        assert xcom(run, "load.begun")["status"] == "skipped"
    finally:
        for each in servers:
            each.kill()
    rows = DeltaTable(str(lakehouse / "Tables" / "t")).to_pyarrow_table().to_pylist()
    assert sorted((row["id"], row["p"]) for row in rows) == [(n, "a" if n < 3 else "b") for n in range(6)]
