"""Rows are checked while they are staged: what fails a check is not published, and nobody reads it."""

# [START howto_checks]
from pathlib import Path

import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TRIPS = Path(__file__).parents[1] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"

with (
    DAG(
        "checked_load",
        schedule=None,
        start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
        params={"on_failed_check": Param("refuse", enum=["refuse", "warn"], title="Rows that fail a check")},
    ),
    OneLakeWriteTaskGroup(
        group_id="load",
        table="Tables/checked_load",
        partition_by=["vendor_id"],
        checks={
            "no negative fares": "fare_amount >= 0",
            "enough trips": "count(*) > 1000",
            "each trip once": "count(DISTINCT struct(*)) = count(*)",
        },
        on_failed_check="{{ params.on_failed_check }}",
    ),
):
    OneLakeWriteOperator.partial(task_id="write", source=FileSource(str(TRIPS), format="json")).expand_kwargs(
        [
            {"writer": "vendor-1", "where": "vendor_id = 1"},
            {"writer": "vendor-2", "where": "vendor_id = 2"},
        ]
    )
# [END howto_checks]
