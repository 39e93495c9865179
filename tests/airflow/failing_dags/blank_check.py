"""A check has a name, and no condition.

at: parse
error: InvalidWriteError: write: checks: 'no negative fares' is '', which is no condition in Spark SQL, such as 'fare >= 0' or 'count(*) > 0'.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("blank_check", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(
        task_id="write", table="Tables/t", source=SqlSource("SELECT 1 AS id"), checks={"no negative fares": ""}
    )
