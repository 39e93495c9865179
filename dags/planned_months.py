"""Many files, a few writers: a plan gives each writer whole months, of about the same size together."""

# [START howto_plan]
from pathlib import Path

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TRIPS = FileSource(
    f"{Path(__file__).parents[1]}/include/data/nyc_taxi/*.json.gz",
    format="json",
    schema="vendor_id INT, pickup_datetime BIGINT, trip_distance DOUBLE, total_amount DOUBLE",
)

with (
    DAG("planned_months", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/planned_months", partition_by=["vendor_id"]),
):
    plan = OneLakePlanOperator(
        task_id="plan",
        source=TRIPS,
        by=r"tripdata_(\d{4}-\d{2})",
        writers=3,
        max_bytes=100 * 1024 * 1024,
    )
    OneLakeWriteOperator.partial(task_id="write", source=TRIPS).expand_kwargs(plan.output)
# [END howto_plan]
