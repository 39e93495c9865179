"""Rows without a column that the table has: Spark is asked, and refuses.

at: second
error: SchemaMismatchError:
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("missing_column", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    first = OneLakeWriteOperator(
        task_id="first", writer="first", table="Tables/t", source=SqlSource("SELECT 1 AS id, 'a' AS vendor")
    )
    second = OneLakeWriteOperator(
        task_id="second", writer="second", table="Tables/t", source=SqlSource("SELECT 2 AS id"), retries=2
    )
    first >> second
