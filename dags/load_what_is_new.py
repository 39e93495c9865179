"""Files arrive in a directory at any time: every hour, a run loads those that no run has loaded, each once."""

# [START howto_load_what_is_new]
from pathlib import Path

import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.plan import OneLakePlanOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

INBOX = FileSource(
    "{{ params.inbox }}/*.json.gz",
    format="json",
    schema="vendor_id INT, pickup_datetime BIGINT, trip_distance DOUBLE, total_amount DOUBLE",
)

with (
    DAG(
        "load_what_is_new",
        schedule="@hourly",
        start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
        catchup=False,
        params={
            "inbox": Param(f"{Path(__file__).parents[1]}/include/data/nyc_taxi", type="string", title="Directory"),
            "on_changed": Param("refuse", enum=["refuse", "load_again", "ignore"], title="Files that have changed"),
            "take_over": Param("", type="string", title="Runs whose files this run is to load"),
        },
    ),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/load_what_is_new", partition_by=["vendor_id"]),
):
    plan = OneLakePlanOperator(
        task_id="plan",
        source=INBOX,
        only_new=True,
        on_changed="{{ params.on_changed }}",
        take_over="{{ params.take_over }}",
        max_files=1000,
        writers=2,
    )
    OneLakeWriteOperator.partial(task_id="write", source=INBOX).expand_kwargs(plan.output)
# [END howto_load_what_is_new]
