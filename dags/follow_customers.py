"""Follows a table by its change data feed: what was changed since the last run is merged into another table, once."""

# [START howto_follow]
import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.versions import OneLakeKeepVersionOperator, OneLakeReleaseVersionOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import SqlSource

NAMES = "Tables/customer_names"


def seen() -> int:
    """Say how far the names have come: the commit that merged them says it, in their own table's log."""
    found = OneLakeHook().table(NAMES).last_told(r"customers up to version (\d+)")
    return int(found[1]) if found else -1


with DAG(
    "follow_customers",
    schedule="@hourly",
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    catchup=False,
    max_active_runs=1,
    user_defined_macros={"seen": seen},
):
    keep = OneLakeKeepVersionOperator(task_id="keep", table="Tables/customers")
    release = OneLakeReleaseVersionOperator(task_id="release", kept=keep.output)

    merge = OneLakeWriteOperator(
        task_id="merge",
        table=NAMES,
        new_table=NewTable(schema="id BIGINT, name STRING"),
        source=SqlSource(
            "{% set kept = ti.xcom_pull('keep') %}"
            "SELECT * FROM table_changes_by_path("
            "'{{ kept.table }}', {{ [seen() + 1, kept.version] | min }}, {{ kept.version }})"
        ),
        # Nothing is left where a run is cleared and later ones have merged its changes.
        where="_commit_version > {{ seen() }} AND _change_type <> 'update_preimage'",
        steps={
            "newest": "SELECT id, max_by(name, n) AS name, max_by(_change_type, n) AS op "
            "FROM (SELECT *, struct(_commit_version, _change_type <> 'delete') AS n FROM source) GROUP BY id"
        },
        mode=Merge(
            keys=["id"],
            when=[
                "MATCHED AND source.op = 'delete' THEN DELETE",
                "MATCHED THEN UPDATE SET target.name = source.name",
                "NOT MATCHED AND source.op <> 'delete' THEN INSERT (id, name) VALUES (source.id, source.name)",
            ],
        ),
        commit_message="customers up to version {{ ti.xcom_pull('keep').version }}",
    )
    keep >> merge >> release.as_teardown(setups=keep)
# [END howto_follow]
