"""A template where Airflow renders none.

at: load.write[0]
error: InvalidWriteError: where="day = '{{ ds }}'" still holds a template.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

with (
    DAG("template_in_expand", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/t"),
):
    OneLakeWriteOperator.partial(task_id="write", source=SqlSource("SELECT 1 AS id")).expand_kwargs(
        [{"writer": "w", "where": "day = '{{ ds }}'"}]
    )
