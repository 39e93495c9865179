"""From a Parquet and a JSON file to one table: two writers that differ in more than a filter."""

from pathlib import Path

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

ORDERS = Path(__file__).parents[1] / "include/data/orders"

# [START howto_parquet_and_json]
with (
    DAG("orders_from_parquet_and_json", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/orders_of_shops"),
):
    # A Parquet file names its columns and their types.
    OneLakeWriteOperator(task_id="east", source=FileSource(str(ORDERS / "east.parquet")))
    # Without a schema, Spark takes the 42.50 of a JSON file for a DOUBLE, and its dates for text.
    OneLakeWriteOperator(
        task_id="west",
        source=FileSource(
            str(ORDERS / "west.json"),
            format="json",
            schema="order_id BIGINT, customer STRING, ordered_on DATE, amount DECIMAL(10, 2)",
        ),
    )
# [END howto_parquet_and_json]
