"""Adds the trips of a file that are not in their month yet, while others load other months."""

# [START howto_reads]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource

with DAG(
    "add_unseen_trips",
    schedule=None,
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    params={
        "trips": Param("/data/trips/late.json", type="string"),
        "month": Param("2019-01", type="string", pattern="^[0-9]{4}-[0-9]{2}$"),
    },
):
    OneLakeWriteOperator(
        task_id="add",
        table="Tables/trips",
        source=FileSource("{{ params.trips }}", format="json", schema="id BIGINT, month STRING"),
        where="month = '{{ params.month }}'",
        steps={"unseen": "SELECT source.* FROM source LEFT ANTI JOIN target ON source.id = target.id"},
        reads="month = '{{ params.month }}'",
    )
# [END howto_reads]
