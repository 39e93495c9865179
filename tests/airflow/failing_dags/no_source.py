"""A path where a source is asked for.

at: parse
error: InvalidWriteError: write: source='/data/x.json' is neither a FileSource nor a SqlSource. Write FileSource('/data/x.json', format='json') or SqlSource('SELECT …').
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator

with DAG("no_source", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(task_id="write", table="Tables/t", source="/data/x.json")
