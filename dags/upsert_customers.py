"""Merges files of changed customers into a table: the newest change of each is updated, inserted or deleted."""

# [START howto_merge]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource

with DAG(
    "upsert_customers",
    schedule=None,
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    params={"changes": Param("/data/customers/*.json", type="string")},
):
    OneLakeWriteOperator(
        task_id="merge",
        table="Tables/customers",
        source=FileSource("{{ params.changes }}", format="json", schema="id BIGINT, name STRING, op STRING, at STRING"),
        steps={"newest": "SELECT id, max_by(name, at) AS name, max_by(op, at) AS op FROM source GROUP BY id"},
        mode=Merge(
            keys=["id"],
            when=[
                "MATCHED AND source.op = 'delete' THEN DELETE",
                "MATCHED THEN UPDATE SET target.name = source.name",
                "NOT MATCHED AND source.op <> 'delete' THEN INSERT (id, name) VALUES (source.id, source.name)",
            ],
        ),
    )
# [END howto_merge]
