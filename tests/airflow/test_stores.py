"""The whole flow through Airflow's operators and a real Spark, on every kind of store: the same rows and versions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.maintenance.vacuum import Terms, plan
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import run_dag, states, xcom
from tests.support.object_stores import Lake
from tests.support.store_spark import StoreServer
from tests.support.tables import foreign_append, foreign_commit

# Three servers and a Spark start for the first of them.
pytestmark = [pytest.mark.airflow, pytest.mark.spark, pytest.mark.timeout(1200)]

JANUARY = pendulum.datetime(2019, 1, 1, tz="UTC")
VENDORS = [{"writer": f"vendor-{vendor}", "where": f"vendor_id = {vendor}"} for vendor in (1, 2)]
TRIPS = "Tables/trips"
SCHEMA = "id BIGINT, vendor_id INT, month STRING"


@pytest.fixture
def connections(airflow_home: Path, lake: Lake, store_spark: StoreServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", lake.connection())
    spark = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": store_spark.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(spark))


def write_rows(file: Path, first: int, months: list[str]) -> None:
    """Two rows of each vendor for each month."""
    rows = [
        {"id": first + number, "vendor_id": number % 2 + 1, "month": month}
        for number, month in enumerate(month for month in months for _ in range(4))
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def load(source: Path, **group: Any) -> DAG:
    with (
        DAG("stores", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table=TRIPS, partition_by=["month"], **group),
    ):
        OneLakeWriteOperator.partial(
            task_id="write", source=FileSource(str(source / "{{ ds }}.json"), format="json", schema=SCHEMA)
        ).expand_kwargs(VENDORS)
    return dag


@pytest.mark.usefixtures("connections")
def test_loads_compaction_and_an_overwrite(lake: Lake, store_spark: StoreServer, tmp_path: Path) -> None:
    write_rows(tmp_path / "2019-01-01.json", 0, ["2019-01", "2019-02"])
    write_rows(tmp_path / "2019-02-01.json", 100, ["2019-02"])
    run = run_dag(load(tmp_path, optimize={"min_files": 2}), logical_date=JANUARY)
    assert set(states(run).values()) == {"success"}, states(run)
    assert xcom(run, "load.optimize")["status"] == "published"
    assert lake.ids(TRIPS) == list(range(8))
    # Another run replaces a month, both vendors together.
    again = run_dag(load(tmp_path, mode="overwrite_partitions", publish="together"), logical_date=JANUARY.add(months=1))
    assert set(states(again).values()) == {"success"}, states(again)
    assert lake.ids(TRIPS) == [0, 1, 2, 3, 100, 101, 102, 103]
    commits = lake.log(TRIPS).commits_since(-1)
    assert [commit.operation for commit in commits] == ["CREATE TABLE", "WRITE", "WRITE", "OPTIMIZE", "WRITE"]
    # Rule 22: no Spark job committed to the shared log.
    engines = {json.dumps(commit.info.get("engineInfo")) for commit in commits}
    assert all("airflow-provider-onelake" in engine for engine in engines), engines
    _check_no_secret_shows(lake, store_spark)


def _check_no_secret_shows(lake: Lake, spark: StoreServer) -> None:
    """Neither in Spark's event log, its log, its environment page nor on its command line."""
    hidden = [value for name, value in spark.secrets.items() if "SECRET" in name or name.endswith("ACCOUNT_KEY")]
    assert len(hidden) == 2
    shown = [file.read_text(errors="replace") for file in spark.event_log_dir.rglob("*") if file.is_file()]
    shown += [spark.log_file.read_text(), json.dumps(spark.status("applications/{app}/environment"))]
    shown.append(Path(f"/proc/{spark.pid}/cmdline").read_text())
    assert not any(secret in text for secret in hidden for text in shown)


@pytest.mark.usefixtures("connections")
def test_a_vacuum_deletes_what_no_version_needs(lake: Lake) -> None:
    # Objects of a real store cannot be made older, so the table keeps deleted files for a second only.
    log = lake.make_table(**{"delta.deletedFileRetentionDuration": "interval 1 seconds"})
    gone = foreign_append(log, {"a b": [1]})
    foreign_append(log, {"a b": [2]})
    adds = log.commits_between(gone - 1, gone)[0].adds
    foreign_commit(log, [{"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}} for add in adds])
    log.store.put("month=a b/nobody's", b"abc")
    terms = Terms(allow_retention_below_seven_days=True)
    deadline = datetime.now(UTC) + timedelta(seconds=30)
    while len(plan(log, terms).candidates) < 2 and datetime.now(UTC) < deadline:
        pass
    with DAG("upkeep", schedule=None, start_date=JANUARY) as dag:
        OneLakeVacuumOperator(task_id="vacuum", table="Tables/t", allow_retention_below_seven_days=True)
    run = run_dag(dag)
    assert set(states(run).values()) == {"success"}
    result = xcom(run, "vacuum")
    assert (result["files"], result["left"]) == (2, 0)
    assert [info.path for info in log.store.list("month=a b")] == [
        add["path"].replace("%20", " ") for add in log.commits_between(gone, gone + 1)[0].adds
    ]
    assert lake.ids() == [2]
