"""A range is to be replaced, and nobody says which.

at: parse
error: InvalidWriteError: write: mode='replace_where' needs its replace_where: mode=ReplaceWhere(replace_where=…). Nothing was staged.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("no_predicate", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(task_id="write", table="Tables/t", source=SqlSource("SELECT 1 AS id"), mode="replace_where")
