"""Shows a table in another lakehouse of OneLake by a shortcut, from the trigger form; checks all of them each night."""

# [START howto_shortcut]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.shortcuts import (
    OneLakeCheckShortcutOperator,
    OneLakeCreateShortcutOperator,
    OneLakeListShortcutsOperator,
)

START = pendulum.datetime(2019, 1, 1, tz="UTC")

with DAG(
    "share_table",
    schedule=None,
    start_date=START,
    params={
        "shortcut": Param("Tables/trips", type="string", title="Shortcut", description="In this lakehouse."),
        "target": Param("", type="string", title="Table", description="onelake://workspace/item.Lakehouse/Tables/…"),
    },
    default_args={"retries": 3},
):
    terms = {"shortcut": "{{ params.shortcut }}", "target": "{{ params.target }}"}
    share = OneLakeCreateShortcutOperator(task_id="share", **terms)
    check = OneLakeCheckShortcutOperator(task_id="check", **terms)
    share >> check

with DAG("check_shortcuts", schedule="@daily", start_date=START, catchup=False, default_args={"retries": 3}):
    found = OneLakeListShortcutsOperator(task_id="list", folder="Tables")
    # Each shortcut has a task of its own, which is red if it leads nowhere.
    paths = found.output.map(lambda shortcut: shortcut["path"])
    OneLakeCheckShortcutOperator.partial(task_id="check").expand(shortcut=paths)
# [END howto_shortcut]
