"""Deletes one person's rows from all older partitions and masks them in the newest, while others write the table."""

# [START howto_forget]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.statements import OneLakeDeleteOperator, OneLakeUpdateOperator

with DAG(
    "forget_person",
    schedule=None,
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    params={
        "person": Param(type="integer"),
        "month": Param("2019-02", type="string", pattern="^[0-9]{4}-[0-9]{2}$"),
    },
):
    OneLakeDeleteOperator(
        task_id="delete",
        table="Tables/visits",
        where="person = {{ params.person }}",
        covers="month < '{{ params.month }}'",
        commit_message="right to erasure",
    ) >> OneLakeUpdateOperator(
        task_id="mask",
        table="Tables/visits",
        set={"name": "'***'", "person": "NULL"},
        where="person = {{ params.person }}",
        covers="month >= '{{ params.month }}'",
    )
# [END howto_forget]
