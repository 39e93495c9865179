"""Shows each load of trips to the readers of Fabric: SQL by the lakehouse's endpoint, reports by their model."""

# [START howto_refresh]
import pendulum
from airflow.sdk import DAG, Asset, Param

from airflow_provider_onelake.operators.refresh import (
    OneLakeRefreshSemanticModelOperator,
    OneLakeRefreshSqlEndpointOperator,
)

with DAG(
    "refresh_after_load",
    # The load names it among its outlets.
    schedule=Asset("trips loaded"),
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    params={"semantic_model": Param("Trips", type="string", title="Semantic model")},
    default_args={"retries": 3, "deferrable": True},
):
    endpoint = OneLakeRefreshSqlEndpointOperator(task_id="endpoint", table="Tables/trips")
    reports = OneLakeRefreshSemanticModelOperator(
        task_id="reports",
        table="Tables/trips",
        semantic_model="{{ params.semantic_model }}",
        capacity="F64",
        on_guardrail="warn",
    )
    endpoint >> reports
# [END howto_refresh]
