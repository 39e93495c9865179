"""Writers that share a source on a real Airflow and a real Spark Connect server: one task reads, all publish."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task
from deltalake import DeltaTable

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import FEBRUARY, JANUARY, run_dag, states, xcom
from tests.support.spark import Server

pytestmark = pytest.mark.usefixtures("spark_connection")

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
