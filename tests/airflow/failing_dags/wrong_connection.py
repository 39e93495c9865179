"""A connection that is not Spark's.

at: write
error: InvalidWriteError: The connection onelake_default is of the type 'onelake'; Spark is reached through connections
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("wrong_connection", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(
        task_id="write", table="Tables/t", source=SqlSource("SELECT 1 AS id"), spark_conn_id="onelake_default"
    )
