"""The DAGs that a table's commits start: what a load tells Airflow, and whom Airflow starts for it. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from tests.support.airflow_dags import load_dag, run_dag, states, xcom
from tests.support.engines import FakeEngine

pytestmark = pytest.mark.airflow

DAG_FILE = Path(__file__).parents[2] / "dags" / "table_events.py"


def test_a_load_starts_a_run_for_each_partition_that_it_touched(lakehouse: Path, engine: FakeEngine) -> None:
    from airflow.models.asset import AssetEvent, AssetModel, AssetPartitionDagRun
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    consumer = run_dag(load_dag(DAG_FILE, "month_changed"))
    assert states(consumer) == {"month": "success"}
    with create_session() as session:
        model = session.get(DagModel, "month_changed")
        assert model is not None
        model.is_paused = False

    run = run_dag(load_dag(DAG_FILE, "trips_by_month"))

    assert set(states(run).values()) == {"success"}
    with create_session() as session:
        of_asset = select(AssetEvent).join(AssetEvent.asset).where(AssetModel.name == "trips_by_month")
        events: dict[Any, Any] = {event.partition_key: event.extra for event in session.scalars(of_asset)}
        waiting = select(AssetPartitionDagRun.partition_key).where(
            AssetPartitionDagRun.target_dag_id == "month_changed"
        )
        assert set(session.scalars(waiting)) == {"2019-01", "2019-02"}
    assert set(events) == {"2019-01", "2019-02"}
    (extra,) = {str(extra): extra for extra in events.values()}.values()
    assert (extra["version"], extra["rows"]) == (xcom(run, "load.reconcile")["version"], 6)
    assert sum(commit["rows_added"] for commit in extra["commits"]) == 6


def test_a_watching_dag_that_is_started_by_hand_has_no_commits(lakehouse: Path) -> None:
    run = run_dag(load_dag(DAG_FILE, "trips_changed"))
    assert states(run) == {"changed": "success"}
    assert xcom(run, "changed") == []
