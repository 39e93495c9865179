"""A planned load in Airflow: the example on real trips, and what a clear does when more files have come."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, load_dag, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.spark import Server

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.promise
def test_the_example_loads_every_month_once(lakehouse: Path, spark_connection: Server) -> None:
    run = run_dag(load_dag(ROOT / "dags" / "planned_months.py", "planned_months"), logical_date=JANUARY)

    assert set(states(run).values()) == {"success"}
    assert len([task for task in states(run) if task.startswith("load.write[")]) == 3
    planned = [path for entry in xcom(run, "load.plan") for path in entry["files"]]
    trips = sorted(str(file) for file in (ROOT / "include" / "data" / "nyc_taxi").glob("*.json.gz"))
    assert sorted(planned) == trips
    # Counted without Spark and without this package.
    expected = Counter(
        (trip.get("vendor_id"), trip["pickup_datetime"])
        for file in trips
        for trip in map(json.loads, gzip.decompress(Path(file).read_bytes()).splitlines())
    )
    table = DeltaTable(str(lakehouse / "Tables" / "planned_months"))
    rows = table.to_pyarrow_table(columns=["vendor_id", "pickup_datetime"]).to_pylist()
    assert Counter((row["vendor_id"], row["pickup_datetime"]) for row in rows) == expected


@pytest.mark.promise
def test_every_run_of_the_example_loads_what_has_come_since(
    lakehouse: Path, spark_connection: Server, tmp_path: Path
) -> None:
    inbox = tmp_path / "inbox"
    inbox.mkdir()

    def arrive(name: str, trip: int) -> None:
        row = {"vendor_id": 1, "pickup_datetime": trip, "trip_distance": 1.0, "total_amount": 2.0}
        (inbox / f"{name}.json.gz").write_bytes(gzip.compress(json.dumps(row).encode()))

    def load(day: int, **conf: str) -> dict[str, str]:
        dag = load_dag(ROOT / "dags" / "load_what_is_new.py", "load_what_is_new")
        run = run_dag(dag, logical_date=JANUARY.add(days=day), run_conf={"inbox": str(inbox), **conf})
        counts.append(xcom(run, "load.plan", "new_files"))
        return states(run)

    def trips() -> list[int]:
        table = DeltaTable(str(lakehouse / "Tables" / "load_what_is_new"))
        return sorted(table.to_pyarrow_table(columns=["pickup_datetime"])["pickup_datetime"].to_pylist())

    counts: list[Any] = []
    for trip, name in enumerate(("a", "b", "c"), 1):
        arrive(name, trip)
    assert set(load(0).values()) == {"success"}
    arrive("d", 4)
    assert set(load(1).values()) == {"success"}
    assert trips() == [1, 2, 3, 4]
    # Nothing has come.
    assert load(2) == {
        "load.plan": "success",
        "load.write": "skipped",
        "load.reconcile": "success",
        "load.committed": "success",
    }
    arrive("a", 55)
    assert load(3)["load.plan"] == "failed"
    assert set(load(4, on_changed="load_again").values()) == {"success"}
    assert trips() == [1, 2, 3, 4, 55]
    assert [(found["new"], found["loaded"]) for found in counts if found is not None] == [
        (3, 0),
        (1, 3),
        (0, 4),
        (1, 3),
    ]


def planned(source: Path, **arguments: Any) -> DAG:
    files = FileSource(f"{source}/*.json", format="json")
    with (
        DAG("planned", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", partition_by=["month"]),
    ):
        plan = OneLakePlanOperator(task_id="plan", source=files, writers=2, **arguments)
        OneLakeWriteOperator.partial(task_id="write", source=files).expand_kwargs(plan.output)
    return dag


def test_a_rerun_repeats_nothing_though_the_plan_would_be_another_by_now(
    lakehouse: Path, engine: FakeEngine, tmp_path: Path
) -> None:
    source = tmp_path / "in"
    source.mkdir()
    engine.rows = {None: {"2019-01": [1]}}
    for name, size in (("a", 5), ("b", 3), ("c", 3)):
        (source / f"{name}.json").write_text("x" * size)
    run_dag(planned(source), logical_date=JANUARY)
    # Balanced anew, this file would change every share.
    (source / "0.json").write_text("x" * 50)
    run = run_dag(planned(source), logical_date=JANUARY)

    assert set(states(run).values()) == {"success"}
    assert [xcom(run, "load.write", map_index=n)["status"] for n in range(3)] == ["skipped", "skipped", "published"]
    read = [Path(path).name for job in engine.staged for path in job.source["path"]]
    assert sorted(read) == ["0.json", "a.json", "b.json", "c.json"]
    assert len(engine.staged) == 3
