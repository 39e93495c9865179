"""A writer that leaves its rows to a reconciliation, and has none.

at: parse
error: InvalidWriteError: write: publish='together' leaves the rows to a reconciliation, and there is none behind this writer, so nobody would publish them. Put it into a OneLakeWriteTaskGroup, or leave publish='each'. Nothing was staged.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("lone_together", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    OneLakeWriteOperator(task_id="write", table="Tables/t", publish="together", source=SqlSource("SELECT 1 AS x"))
