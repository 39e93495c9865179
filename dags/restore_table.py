"""Takes a table back to an older version, from the trigger form of the web UI."""

# [START howto_restore]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.restore import OneLakeRestoreOperator

with DAG(
    "restore_table",
    schedule=None,
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    params={
        "table": Param("Tables/trips", type="string", title="Table"),
        "version": Param(None, type=["null", "integer"], title="Version", description="Or give a time."),
        "timestamp": Param(None, type=["null", "string"], format="date-time", title="As it was at"),
    },
):
    OneLakeRestoreOperator(
        task_id="restore",
        table="{{ params.table }}",
        version="{{ params.version }}",
        timestamp="{{ params.timestamp }}",
    )
# [END howto_restore]
