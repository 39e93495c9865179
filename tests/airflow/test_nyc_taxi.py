"""The example DAG, on real trips and a real Spark Connect server."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pendulum
import pytest
from deltalake import DeltaTable

from tests.support.airflow_dags import load_dag, run_dag, states, xcom
from tests.support.spark import Server

ROOT = Path(__file__).resolve().parents[2]
TRIPS = ROOT / "include" / "data" / "nyc_taxi"
GREEN = {
    "load.write[0]": "success",
    "load.write[1]": "success",
    "load.reconcile": "success",
    "load.committed": "success",
}


@pytest.fixture
def dag(spark_connection: Server) -> Any:
    return load_dag(ROOT / "dags" / "nyc_taxi_two_vendors.py", "nyc_taxi_two_vendors")


def run_month(dag: Any, month: int, **conf: str) -> Any:
    """The run whose data interval is a month of 2019; Airflow infers it from the logical date of a manual run."""
    return run_dag(dag, logical_date=pendulum.datetime(2019, month + 1, 1, tz="UTC"), run_conf=conf)


def expected(month: int) -> Counter[tuple[int, str]]:
    """Rows by vendor and month of the pickup, counted without Spark and without this package."""
    counts: Counter[tuple[int, str]] = Counter()
    with gzip.open(TRIPS / f"yellow_tripdata_2019-{month:02d}.json.gz", "rt") as lines:
        for line in lines:
            trip = json.loads(line)
            if trip["vendor_id"] in (1, 2):
                picked_up = pendulum.from_timestamp(trip["pickup_datetime"] / 1000)
                counts[trip["vendor_id"], picked_up.format("YYYY-MM")] += 1
    return counts


def found(lakehouse: Path) -> Counter[tuple[int, str]]:
    rows = DeltaTable(str(lakehouse / "Tables" / "trips")).to_pyarrow_table(columns=["vendor_id", "month"]).to_pylist()
    return Counter((row["vendor_id"], row["month"]) for row in rows)


@pytest.mark.promise
def test_append_keeps_both_vendors_rows_and_the_strays(dag: Any, lakehouse: Path) -> None:
    january, march = run_month(dag, 1), run_month(dag, 3)

    assert states(january) == GREEN
    assert states(march) == GREEN
    assert found(lakehouse) == expected(1) + expected(3)
    assert tuple(found(lakehouse)[vendor, "2019-01"] for vendor in (1, 2)) == (3_754, 6_150)
    assert found(lakehouse)[2, "2019-04"] == 1


def test_the_steps_add_their_columns(dag: Any, lakehouse: Path) -> None:
    run = run_month(dag, 1)

    table = DeltaTable(str(lakehouse / "Tables" / "trips"))
    assert table.metadata().partition_columns == ["month"]
    rows = table.to_pyarrow_table(columns=["pickup_datetime", "date_col", "version", "ts_ny_taxi"]).to_pylist()
    assert all(int(row["date_col"].timestamp() * 1000) == row["pickup_datetime"] for row in rows[:100])
    assert {row["version"] for row in rows} == {run.run_after.strftime("%Y%m%d%H%M")}
    assert {row["ts_ny_taxi"].replace(microsecond=0) for row in rows} == {run.run_after.replace(microsecond=0)}


def test_an_overwrite_of_a_month_shows_the_last_writer_and_spares_other_months(dag: Any, lakehouse: Path) -> None:
    april = run_month(dag, 4, mode="overwrite_partitions")
    march = run_month(dag, 3, mode="overwrite_partitions")

    assert states(april) == GREEN
    assert states(march) == GREEN
    # One after another or at once: the vendors are rivals, each settles in its own task, and reconcile tells who is seen.
    outcomes = {month: xcom(run, "load.reconcile")["writers"] for month, run in ((4, april), (3, march))}
    assert [sorted(writer["status"] for writer in told) for told in outcomes.values()] == [
        ["already_published", "superseded"]
    ] * 2
    last = {
        month: next(int(writer["writer"][-1]) for writer in told if writer["status"] == "already_published")
        for month, told in outcomes.items()
    }
    want = {(last[month], f"2019-{month:02d}"): expected(month)[last[month], f"2019-{month:02d}"] for month in (3, 4)}
    assert found(lakehouse) == want
    # The March file holds one trip of April, of vendor 2; it is set aside.
    written = [xcom(march, "load.write", map_index=index) for index in (0, 1)]
    assert {each["writer"]: each["rows_unexpected"] for each in written} == {"vendor-1": 0, "vendor-2": 1}


def test_partitioned_by_vendor(dag: Any, lakehouse: Path) -> None:
    run = run_month(dag, 1, partition_by="vendor_id")

    assert states(run) == GREEN
    assert DeltaTable(str(lakehouse / "Tables" / "trips")).metadata().partition_columns == ["vendor_id"]
    assert found(lakehouse) == expected(1)


def test_a_month_can_be_asked_for_by_name(dag: Any, lakehouse: Path) -> None:
    run = run_dag(dag, logical_date=None, run_conf={"month": "2019-02"})

    assert states(run) == GREEN
    assert found(lakehouse) == expected(2)


@pytest.mark.promise
@pytest.mark.usefixtures("dag")
def test_a_run_for_a_partition_of_the_timetable(lakehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.models import dagrun

    made = dagrun.get_or_create_dagrun

    # dag.test() cannot be given the key that Airflow's scheduler gives to a run.
    def with_its_key(*, session: Any, **arguments: Any) -> Any:
        run = made(session=session, **arguments)
        run.partition_key = "2019-01"
        session.commit()
        return run

    monkeypatch.setattr(dagrun, "get_or_create_dagrun", with_its_key)
    by_partition = load_dag(ROOT / "dags" / "nyc_taxi_by_partition.py", "nyc_taxi_by_partition")
    run = run_dag(by_partition, logical_date=pendulum.datetime(2019, 2, 1, tz="UTC"))
    assert states(run) == {"load.scan": "success", **GREEN}
    table = DeltaTable(str(lakehouse / "Tables" / "trips_by_partition")).to_pyarrow_table(columns=["vendor_id"])
    assert Counter(table.column("vendor_id").to_pylist()) == {1: 3_754, 2: 6_150}
