"""Keeps the version that a table has every night, so that for thirty days the table can go back to it."""

# [START howto_restore_points]
from datetime import timedelta

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.versions import OneLakeKeepVersionOperator

with DAG(
    "restore_points",
    schedule="0 3 * * *",
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    catchup=False,
):
    OneLakeKeepVersionOperator(task_id="keep", table="Tables/trips", keep_for=timedelta(days=30))
# [END howto_restore_points]
