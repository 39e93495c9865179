"""Looks at the staged rows of a load, and asks a person, before anybody else can read them."""

# [START howto_audit]
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, task

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TRIPS = Path(__file__).parents[1] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"
REPORT = """
{% for key, found in ti.xcom_pull(task_ids="load.look").items() -%}
- **{{ key }}**: {{ found.trips }} trips of {{ found.fares }} dollars
{% endfor %}
"""

with (
    DAG("audited_load", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")),
    OneLakeWriteTaskGroup(
        group_id="load", table="Tables/audited_load", partition_by=["vendor_id"], publish="together"
    ) as load,
):
    OneLakeWriteOperator.partial(task_id="write", source=FileSource(str(TRIPS), format="json")).expand_kwargs(
        [
            {"writer": "vendor-1", "where": "vendor_id = 1"},
            {"writer": "vendor-2", "where": "vendor_id = 2"},
        ]
    )

    @task
    def look(staged: list[dict[str, Any]]) -> dict[str, Any]:
        table, found = OneLakeHook().table("Tables/audited_load"), {}
        for rows_of in staged:
            with table.staged(rows_of["buffer"]).read(["fare_amount"]) as rows:
                fares = [fare for batch in rows for fare in batch.column("fare_amount").to_pylist()]
            if not sum(fares) > 0:
                raise ValueError(f"{rows_of['writer']} staged {len(fares)} trips that nobody has paid for")
            found[rows_of["writer"]] = {"trips": len(fares), "fares": round(sum(fares))}
        return found

    look(load.staged()) >> ApprovalOperator(
        task_id="approve",
        subject="Publish these trips?",
        body=REPORT,
        # Nobody answers: nothing is published.
        defaults=ApprovalOperator.REJECT,
        response_timeout=timedelta(days=1),
    )
# [END howto_audit]
