"""Writers on a real Spark Connect server: what is refused changes nothing, what is stopped stops, and one task reads for all."""

from __future__ import annotations

import json
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task
from deltalake import DeltaTable

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from include.local.connect_server import free_port
from tests.support.airflow_dags import FEBRUARY, JANUARY, run_dag, states, xcom
from tests.support.spark import Server


def spark_at(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    connection = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(connection))


@pytest.fixture(autouse=True)
def spark_connection(lakehouse: Path, connect_server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    spark_at(monkeypatch, connect_server.port)


def load(query: str, writer: dict[str, Any] | None = None, **group: Any) -> DAG:
    settings = {
        "table": "Tables/t",
        "partition_by": ["p"],
        "new_table": NewTable(properties={"delta.constraints.small": "id < 100"}),
    }
    with (
        DAG("spark", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", **{**settings, **group}),
    ):
        OneLakeWriteOperator(task_id="write", writer="w", source=SqlSource(query), **(writer or {}))
    return dag


def rows(lakehouse: Path) -> list[dict[str, Any]]:
    return sorted(DeltaTable(str(lakehouse / "Tables" / "t")).to_pyarrow_table().to_pylist(), key=str)


GOOD = "SELECT id, 'a' AS p FROM range(3)"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param("SELECT 'x' AS id, 'a' AS p", "id", id="wrong-column-type"),
        pytest.param("SELECT id + 200 AS id, 'a' AS p FROM range(3)", "small", id="violated-check"),
        pytest.param("SELECT id, 'a' AS p FROM nowhere", "nowhere", id="no-such-table"),
    ],
)
def test_what_does_not_fit_is_refused_without_a_retry_and_changes_nothing(
    lakehouse: Path, query: str, message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert set(states(run_dag(load(GOOD), logical_date=JANUARY)).values()) == {"success"}
    before = DeltaTable(str(lakehouse / "Tables" / "t")).version()
    run = run_dag(load(query, {"retries": 3, "retry_delay": timedelta(0)}), logical_date=FEBRUARY)
    assert states(run) == {"load.write": "failed", "load.reconcile": "failed", "load.committed": "upstream_failed"}
    assert run.get_task_instance("load.write").try_number == 1
    assert DeltaTable(str(lakehouse / "Tables" / "t")).version() == before
    assert len(rows(lakehouse)) == 3
    assert message in capfd.readouterr().out


def test_an_unreachable_spark_is_tried_again_and_makes_no_table(
    lakehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark_at(monkeypatch, free_port())
    run = run_dag(load(GOOD, {"retries": 1, "retry_delay": timedelta(0)}), logical_date=JANUARY)
    assert states(run)["load.write"] == "failed"
    assert run.get_task_instance("load.write").try_number == 2
    assert not (lakehouse / "Tables" / "t" / "_delta_log").exists()


SLOW = (
    "SELECT CAST(count(*) AS BIGINT) AS id, 'a' AS p FROM range(100000000000) WHERE sha2(CAST(id AS STRING), 512) < '0'"
)


@pytest.mark.parametrize(
    "limit", [{"spark_timeout": 6}, {"execution_timeout": timedelta(seconds=6)}], ids=["spark", "execution"]
)
def test_a_time_out_stops_the_work_in_spark(lakehouse: Path, connect_server: Server, limit: dict[str, Any]) -> None:
    run_dag(load(GOOD), logical_date=JANUARY)
    run = run_dag(load(SLOW, limit), logical_date=FEBRUARY)
    assert states(run)["load.write"] == "failed"
    # It was at work, and by Spark's own status it no longer is.
    attempt = run.get_task_instance("load.write").id
    assert connect_server.jobs(tag=f"onelake attempt {attempt}")[0]["status"] == "FAILED"
    deadline = time.monotonic() + 20
    while connect_server.active_tasks() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert connect_server.active_tasks() == 0
    assert len(rows(lakehouse)) == 3


# The filters know nothing of the run; the step does.
SOURCE = SqlSource("SELECT id, concat('p', id % 3) AS p FROM range(30)")
STEPS = {"dated": "SELECT *, '{{ ds }}' AS day FROM source"}
WRITERS = [{"writer": f"w{n}", "where": f"p = 'p{n}'"} for n in range(3)]


def static() -> None:
    for writer in WRITERS:
        OneLakeWriteOperator(task_id=writer["writer"], source=SOURCE, steps=STEPS, where=writer["where"])


def mapped() -> None:
    OneLakeWriteOperator.partial(task_id="write", source=SOURCE, steps=STEPS).expand_kwargs(WRITERS)


def listed() -> None:
    @task
    def plan() -> list[dict[str, str]]:
        return WRITERS

    OneLakeWriteOperator.partial(task_id="write", source=SOURCE, steps=STEPS).expand_kwargs(plan())


@pytest.mark.parametrize("inside", [pytest.param(make, id=make.__name__) for make in (static, mapped, listed)])
def test_one_task_reads_and_every_writer_publishes_its_own_rows(
    lakehouse: Path, inside: Any, connect_server: Server
) -> None:
    with (
        DAG("shared", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/t", partition_by="p"),
    ):
        inside()
    # The scan of the first run makes the table.
    for date in (JANUARY, FEBRUARY):
        jobs = len(connect_server.jobs())
        run = run_dag(dag, logical_date=date)
        assert set(states(run).values()) == {"success"}
        done = xcom(run, "load.scan")
        assert (done["status"], done["rows"], done["writers"]) == ("shared", 30, 3)
        assert len(connect_server.jobs()) - jobs <= 3
    rows = DeltaTable(str(lakehouse / "Tables" / "t")).to_pyarrow_table().to_pylist()
    days = {"2019-01-01", "2019-02-01"}
    assert sorted((row["id"], row["p"], row["day"]) for row in rows) == sorted(
        (n, f"p{n % 3}", day) for n in range(30) for day in days
    )
    written = [entry["commitInfo"] for entry in _entries(lakehouse) if "commitInfo" in entry]
    assert sum("onelake_writer=" in json.dumps(entry.get("staged", {}).get("writers", "")) for entry in written) == 6


def _entries(lakehouse: Path) -> list[dict[str, Any]]:
    logs = sorted((lakehouse / "Tables" / "t" / "_delta_log").glob("*.json"))
    return [json.loads(line) for log in logs for line in log.read_text().splitlines()]
