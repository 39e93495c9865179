"""The DAGs that a table's commits start: what a load tells Airflow, and whom Airflow starts for it. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset
from sqlalchemy import select

from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.fabric.rest import Folder
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import Store, open_store
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import load_dag, run_dag, states, store_dag, xcom
from tests.support.engines import FakeEngine
from tests.support.onelake import BY_GUIDS, LAKEHOUSE_GUID, WORKSPACE_GUID, OneLake

DAG_FILE = Path(__file__).parents[2] / "dags" / "table_events.py"
TRIPS = Path(__file__).parents[2] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"


@pytest.mark.costs("With the first of these tests Airflow makes its database")
@pytest.mark.promise
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


@pytest.fixture
def in_onelake(airflow_home: Path, onelake: OneLake, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch) -> OneLake:
    """A OneLake with a connection, in which rows are staged without Spark."""
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", onelake.connection())

    def opened(uri: str) -> Store:
        table, staged, buffer = uri.partition("/staged/")
        return open_store(TableAddress.parse(table).child(f"{staged.strip('/')}/{buffer}"), onelake.credentials())

    engine.opens = opened
    return onelake


def consumer(name: str, asset: Asset) -> DAG:
    """A DAG that an asset starts, in Airflow's database and not paused."""
    from airflow.models.dag import DagModel
    from airflow.utils.session import create_session

    with DAG(name, schedule=[asset], start_date=pendulum.datetime(2019, 1, 1, tz="UTC")) as dag:
        EmptyOperator(task_id="look")
    store_dag(dag)
    with create_session() as session:
        model = session.get(DagModel, name)
        assert model is not None
        model.is_paused = False
    return dag


def events_of(uri: str) -> list[Any]:
    from airflow.models.asset import AssetEvent, AssetModel
    from airflow.utils.session import create_session

    with create_session() as session:
        of_asset = select(AssetEvent).join(AssetEvent.asset).where(AssetModel.uri == uri)
        return [event.extra for event in session.scalars(of_asset)]


def queued(dag_id: str) -> int:
    """How many of a DAG's assets have news for it."""
    from airflow.models.asset import AssetDagRunQueue
    from airflow.utils.session import create_session

    with create_session() as session:
        found = select(AssetDagRunQueue).where(AssetDagRunQueue.target_dag_id == dag_id)
        return len(session.scalars(found).all())


def test_a_load_through_a_shortcut_tells_those_who_name_the_table_by_the_shortcuts_target(in_onelake: OneLake) -> None:
    gold = "b1b2c3d4-e5f6-4789-8abc-def012345678"
    in_onelake.served.names.add_item("taxi", "gold.Lakehouse", gold)
    in_onelake.served.tree.make_directory("taxi/gold.Lakehouse/Tables/fares")
    FabricHook().get_conn().create_shortcut(
        Folder(WORKSPACE_GUID, LAKEHOUSE_GUID, "Tables/fares_of_gold"), Folder(WORKSPACE_GUID, gold, "Tables/fares")
    )
    target = f"onelake://{WORKSPACE_GUID}/{gold}/Tables/fares"
    by_target, by_path = table_asset(target, "fares"), table_asset("Tables/fares_of_gold", "fares_of_gold")
    also_told = table_asset(target, "fares")
    consumer("by_target", by_target)
    consumer("by_path", by_path)
    for number, outlets in enumerate(([by_path], [by_path, also_told]), 1):
        with (
            DAG(f"through_{number}", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")) as dag,
            OneLakeWriteTaskGroup(
                group_id="load",
                table="Tables/fares_of_gold",
                partition_by=["month"],
                outlets=outlets,
                shared_scan=False,
            ),
        ):
            OneLakeWriteOperator(
                task_id="write", writer="vendor-1", where="vendor_id = 1", source=FileSource(str(TRIPS), format="json")
            )
        run = run_dag(dag)
        assert set(states(run).values()) == {"success"}, states(run)
        # One event of each asset for each load, also where the load itself names both.
        told, at_path = events_of(by_target.uri), events_of(by_path.uri)
        assert len(told) == len(at_path) == number
        assert told[-1] == at_path[-1]
        assert told[-1]["table"] == target
        assert [commit["version"] for commit in told[-1]["commits"]] == [number - 1]
    assert (queued("by_target"), queued("by_path")) == (1, 1)


def test_a_load_makes_no_asset_for_a_target_that_no_dag_names(in_onelake: OneLake) -> None:
    in_onelake.served.tree.make_directory("taxi/raw.Lakehouse/Tables/own")
    at = Folder(WORKSPACE_GUID, LAKEHOUSE_GUID, "Tables/link")
    FabricHook().get_conn().create_shortcut(at, Folder(WORKSPACE_GUID, LAKEHOUSE_GUID, "Tables/own"))
    by_path = table_asset("Tables/link", "link")
    own = table_asset("Tables/own", "own")
    consumer("by_own_path", own)
    with (
        DAG("through_own", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")) as dag,
        OneLakeWriteTaskGroup(
            group_id="load", table="Tables/link", partition_by=["month"], outlets=[by_path], shared_scan=False
        ),
    ):
        OneLakeWriteOperator(
            task_id="write", writer="vendor-1", where="vendor_id = 1", source=FileSource(str(TRIPS), format="json")
        )
    assert set(states(run_dag(dag)).values()) == {"success"}
    # In the connection's own lakehouse, a DAG may name the target by its path.
    assert [extra["table"] for extra in events_of(own.uri)] == [f"{BY_GUIDS}/Tables/own"]
    assert queued("by_own_path") == 1
    assert events_of(table_asset(f"{BY_GUIDS}/Tables/own").uri) == []
