"""Deletes the months that are older than two years, while others write the table."""

# [START howto_delete]
import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.statements import OneLakeDeleteOperator

with DAG(
    "keep_two_years",
    schedule="@monthly",
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    catchup=False,
):
    OneLakeDeleteOperator(
        task_id="delete_old_months",
        table="Tables/trips",
        where="month < '{{ macros.ds_format(macros.ds_add(ds, -730), '%Y-%m-%d', '%Y-%m') }}'",
        commit_message="retention of two years",
    )
# [END howto_delete]
