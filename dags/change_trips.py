"""Changes the columns of a table in one commit, and adds rules that its rows must keep, while others write it."""

# [START howto_alter]
import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.alter import OneLakeAlterOperator

with DAG("change_trips", schedule=None, start_date=pendulum.datetime(2021, 1, 1, tz="UTC")):
    OneLakeAlterOperator(
        task_id="columns",
        table="Tables/trips",
        set_properties={"delta.columnMapping.mode": "name", "delta.enableTypeWidening": "true"},
        rename_columns={"month": "pickup_month"},
        column_types={"passengers": "BIGINT"},
        column_comments={"id": "unique in a month"},
        drop_columns=["legacy_code"],
        commit_message="ticket 17",
    ) >> OneLakeAlterOperator(
        task_id="rules",
        table="Tables/trips",
        add_checks={"passengers_are_counted": "passengers >= 0"},
    )
# [END howto_alter]
