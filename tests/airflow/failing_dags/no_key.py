"""Mapped writers without keys.

at: parse
error: InvalidWriteError: load.write is mapped and has no `writer`: each of its tasks needs a key of its own, by which a clear knows what it wrote. A map index is no such key, as it shifts when the list changes. Expand over `writer`, or give a `map_index_template` that says what each task is. Nothing was staged.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

with (
    DAG("no_key", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/t"),
):
    OneLakeWriteOperator.partial(task_id="write", source=SqlSource("SELECT 1 AS x")).expand(where=["x = 1", "x = 2"])
