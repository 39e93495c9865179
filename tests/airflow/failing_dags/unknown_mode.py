"""A mode that there is not.

at: parse
error: InvalidWriteError: write: mode='upsert' is unknown; it is one of append, overwrite, overwrite_partitions, replace_where, merge.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("unknown_mode", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(task_id="write", table="Tables/t", source=SqlSource("SELECT 1 AS id"), mode="upsert")
