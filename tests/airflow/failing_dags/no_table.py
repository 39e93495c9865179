"""A writer outside of a group that is not told its table.

at: parse
error: InvalidWriteError: write: `table` is missing: give it here, or to the task group.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("no_table", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(task_id="write", source=SqlSource("SELECT 1 AS id"))
