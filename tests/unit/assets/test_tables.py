"""Assets of tables: with a watcher, or for the outlets of a load, never both."""

from __future__ import annotations

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, AssetWatcher

from airflow_provider_onelake.assets.tables import is_watched, table_asset, watched_table_asset
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from tests.support.versions import needs_airflow


def test_a_tables_asset_is_called_like_its_uri_unless_it_has_a_name() -> None:
    asset = table_asset("Tables/trips")
    assert (asset.name, asset.uri, asset.extra) == (asset.uri, "delta://onelake_default/Tables/trips", {})
    assert table_asset("Tables/trips", "trips", group="taxi", extra={"a": 1}).extra == {"a": 1}


@needs_airflow("3.3", "events for partitions")
def test_a_partitioned_asset_says_by_what() -> None:
    by_month = table_asset("Tables/trips", "trips_by_month", partitioned_by="month")
    assert by_month.extra == {"partitioned_by": ["month"]}
    assert by_month.uri != table_asset("Tables/trips").uri


@needs_airflow("3.3", "watermarks of watchers")
def test_a_watched_asset_has_a_trigger_of_its_own_name() -> None:
    first, second = (watched_table_asset("Tables/trips", name, operation="WRITE") for name in ("a", "b"))
    triggers = [asset.watchers[0].trigger for asset in (first, second)]
    assert all(isinstance(trigger, DeltaLogTrigger) for trigger in triggers)
    # Equal ones would be one to Airflow, with one watermark for two assets.
    assert triggers[0].serialize() != triggers[1].serialize()
    assert triggers[0].serialize()[1]["operation"] == ["WRITE"]
    # Of two with one URI, Airflow activates one only.
    assert first.uri == "delta://onelake_default/Tables/trips?log=a"
    assert len({first.uri, second.uri, table_asset("Tables/trips").uri}) == 3


@needs_airflow("3.3", "watermarks of watchers")
def test_watched_is_what_has_our_trigger() -> None:
    assert is_watched(watched_table_asset("Tables/trips", "trips"))
    assert is_watched(Asset("t", watchers=[AssetWatcher(name="w", trigger=DeltaLogTrigger(table="/t"))]))
    assert not is_watched(table_asset("Tables/trips"))


@needs_airflow("3.3", "watermarks of watchers")
def test_an_asset_that_is_watched_is_refused_as_an_outlet_when_the_dag_is_parsed() -> None:
    watched = watched_table_asset("Tables/trips", "trips")
    with pytest.raises(InvalidWriteError, match="start its DAGs twice"):
        OneLakeReconcileOperator(task_id="reconcile", table="Tables/trips", outlets=[watched])
    with (
        pytest.raises(InvalidWriteError, match="start its DAGs twice"),
        DAG("taxi", schedule=None),
        OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", outlets=[watched]),
    ):
        OneLakeWriteOperator(task_id="write", source=FileSource("/x"))


def test_the_outlets_of_a_group_are_reconciles() -> None:
    asset = table_asset("Tables/trips", "trips")
    with (
        DAG("taxi", schedule=None) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/trips", outlets=[asset]),
    ):
        OneLakeWriteOperator(task_id="write", source=FileSource("/x"))
    # What a path of a lakehouse is a shortcut to is known when the task runs.
    assert dag.get_task("load.reconcile").outlets == [asset, AssetAlias("trips behind a shortcut")]
    assert dag.get_task("load.write").outlets == []
