"""The smallest load: two writers of one table at the same time."""

# [START howto_smallest_dag]
from pathlib import Path

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TRIPS = Path(__file__).parents[1] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"

with (
    DAG("two_writers", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/two_writers", partition_by=["vendor_id"]),
):
    OneLakeWriteOperator.partial(task_id="write", source=FileSource(str(TRIPS), format="json")).expand_kwargs(
        [
            {"writer": "vendor-1", "where": "vendor_id = 1"},
            {"writer": "vendor-2", "where": "vendor_id = 2"},
        ]
    )
# [END howto_smallest_dag]
