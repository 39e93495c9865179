"""Keeps every name that a customer ever had, with the time from which and until which it was valid (SCD type 2)."""

# [START howto_history]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import FileSource

EVENTS = """
SELECT id, at, name, op = 'delete' AS gone, true AS is_new, CAST(NULL AS TIMESTAMP) AS until FROM source
UNION ALL
SELECT id, valid_from, name, false, false, valid_to
FROM delta.`{{ conn.onelake_default.extra_dejson.lakehouse }}/Tables/customer_history`
WHERE id IN (SELECT id FROM source)
"""
# What a file says again replaces what is known of the same moment, so a file may be loaded twice, or late.
MOMENTS = """
SELECT id, at, max_by(name, is_new) AS name, max_by(gone, is_new) AS gone, max(until) AS until
FROM events GROUP BY id, at
"""
HISTORY = """
SELECT id, name, at AS valid_from, valid_to FROM (
  SELECT *, least(lead(at) OVER w, if(max(until) OVER w > at, max(until) OVER w, NULL)) AS valid_to
  FROM moments WINDOW w AS (PARTITION BY id ORDER BY at)
) WHERE NOT gone
"""

with DAG(
    "customer_history",
    schedule=None,
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    params={"changes": Param("/data/customers/*.json", type="string")},
):
    OneLakeWriteOperator(
        task_id="merge",
        table="Tables/customer_history",
        new_table=NewTable(schema="id BIGINT, name STRING, valid_from TIMESTAMP, valid_to TIMESTAMP"),
        source=FileSource(
            "{{ params.changes }}", format="json", schema="id BIGINT, name STRING, op STRING, at TIMESTAMP"
        ),
        steps={"events": EVENTS, "moments": MOMENTS, "history": HISTORY},
        mode=Merge(keys=["id", "valid_from"]),
    )
# [END howto_history]
