"""Shows a table in another lakehouse of OneLake by a shortcut, from the trigger form of the web UI."""

# [START howto_shortcut]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.shortcuts import OneLakeCreateShortcutOperator

with DAG(
    "share_table",
    schedule=None,
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    params={
        "shortcut": Param("Tables/trips", type="string", title="Shortcut", description="In this lakehouse."),
        "target": Param("", type="string", title="Table", description="onelake://workspace/item.Lakehouse/Tables/…"),
    },
):
    OneLakeCreateShortcutOperator(
        task_id="share",
        shortcut="{{ params.shortcut }}",
        target="{{ params.target }}",
    )
# [END howto_shortcut]
