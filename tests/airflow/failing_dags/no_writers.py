"""A write group without a writer.

at: parse
error: InvalidWriteError: The task group load has no OneLakeWriteOperator in it: put one there, or leave the group out.
"""

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

with (
    DAG("no_writers", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(group_id="load", table="Tables/t"),
):

    @task
    def write() -> None:
        """Write by other means."""

    write()
