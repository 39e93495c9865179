"""Upkeep of a table that there is not.

at: optimize
error: TableNotFoundError: There is no Delta table at
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator

with DAG("no_such_table", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeOptimizeOperator(task_id="optimize", table="Tables/nowhere")
