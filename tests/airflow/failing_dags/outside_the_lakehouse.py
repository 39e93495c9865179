"""A table that lies beside the connection's lakehouse.

at: write
error: AddressError: The address '/elsewhere/t' is refused: a path outside the lakehouse
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("outside_the_lakehouse", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(task_id="write", table="/elsewhere/t", source=SqlSource("SELECT 1 AS id"))
