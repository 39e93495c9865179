"""DAGs that a table's commits start: each commit, or each partition that a load touched (Airflow 3.3)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, PartitionedAssetTimetable, task

from airflow_provider_onelake.assets.commits import commits
from airflow_provider_onelake.assets.tables import table_asset, watched_table_asset
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TRIPS = Path(__file__).parents[1] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"
START = pendulum.datetime(2019, 1, 1, tz="UTC")

# [START howto_watcher]
# The table is new. A watcher first looks some seconds after its DAG was parsed; after=-1 counts what came before, too.
CHANGES = watched_table_asset("Tables/trips_by_month", "trips_by_month_log", data_change_only=True, after=-1)

with DAG("trips_changed", schedule=[CHANGES], start_date=START, max_active_runs=1):

    @task(inlets=[CHANGES])
    def changed(triggering_asset_events: Any = None) -> list[str]:
        """Say what was committed, by whomever, since the last run."""
        return [
            f"version {commit.version}: {commit.operation} of {commit.rows_added} rows to {commit.partitions}"
            for commit in commits(triggering_asset_events[CHANGES])
        ]

    changed()
# [END howto_watcher]

# [START howto_outlets]
BY_MONTH = table_asset("Tables/trips_by_month", "trips_by_month", partitioned_by="month")

with (
    DAG("trips_by_month", schedule=None, start_date=START),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/trips_by_month", partition_by=["month"], outlets=[BY_MONTH]),
):
    OneLakeWriteOperator.partial(
        task_id="write",
        source=FileSource(str(TRIPS), format="json"),
        steps={"dated": "SELECT *, date_format(timestamp_millis(pickup_datetime), 'yyyy-MM') AS month FROM source"},
    ).expand_kwargs(
        [
            {"writer": "vendor-1", "where": "vendor_id = 1"},
            {"writer": "vendor-2", "where": "vendor_id = 2"},
        ]
    )
# [END howto_outlets]

# [START howto_partition]
with DAG("month_changed", schedule=PartitionedAssetTimetable(assets=BY_MONTH), start_date=START):

    @task(inlets=[BY_MONTH])
    def month(partition_key: str | None = None, triggering_asset_events: Any = None) -> dict[str, Any]:
        """Work on one month; the run's events say what came to the table with it."""
        versions = [commit.version for commit in commits(triggering_asset_events[BY_MONTH])]
        return {"month": partition_key, "versions": versions}

    month()
# [END howto_partition]
