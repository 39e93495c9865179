"""After each load of a table, lists its files for Athena, Presto and Redshift Spectrum."""

# [START howto_manifests]
import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.operators.manifests import OneLakeManifestOperator

with DAG(
    "trips_for_athena",
    schedule=[table_asset("Tables/trips", "trips")],
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    max_active_runs=1,
):
    OneLakeManifestOperator(task_id="manifests", table="Tables/trips")
# [END howto_manifests]
