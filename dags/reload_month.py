"""Load a month again, when its file was corrected: one partition of a table is replaced, the others stay."""

from __future__ import annotations

from pathlib import Path

import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource

FILES = Path(__file__).resolve().parents[1] / "include" / "data" / "nyc_taxi"

# [START howto_reload]
with DAG(
    "reload_month",
    schedule=None,
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    params={
        "input": Param(str(FILES), type="string", title="Directory of the files"),
        "month": Param("2019-01", type="string", pattern="^[0-9]{4}-[0-9]{2}$", title="Month, YYYY-MM"),
    },
    tags=["onelake", "example"],
):
    OneLakeWriteOperator(
        task_id="reload",
        table="Tables/trips_by_month",
        mode="overwrite_partitions",
        partition_by=["month"],
        # Trips outside of the file's month are set aside: they would replace another month.
        expected_partitions="month = '{{ params.month }}'",
        source=FileSource("{{ params.input }}/yellow_tripdata_{{ params.month }}.json.gz", format="json"),
        steps={"dated": "SELECT *, date_format(timestamp_millis(pickup_datetime), 'yyyy-MM') AS month FROM source"},
    )
# [END howto_reload]
