"""A vacuum that a person approves, who sees what would go."""

# [START howto_approval]
from datetime import timedelta

import pendulum
from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator

REPORT = """
{%- set found = ti.xcom_pull(task_ids="what_would_go") -%}
**{{ found.files }} files of {{ found.bytes }} bytes** are to go from {{ found.table }}, at version {{ found.version }}.
Nothing goes that was part of the table since {{ found.before }}.

{% for file in found.examples %}- `{{ file }}`
{% endfor %}
{% for note in found.notes %}> {{ note }}
{% endfor %}
"""

with DAG(
    "approved_vacuum",
    schedule=None,
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    params={"table": Param("Tables/trips", type="string", title="Table")},
):
    what_would_go = OneLakeVacuumOperator(task_id="what_would_go", table="{{ params.table }}", dry_run=True)
    approve = ApprovalOperator(
        task_id="approve",
        subject="Vacuum {{ params.table }}?",
        body=REPORT,
        # Nobody answers: nothing is deleted.
        defaults=ApprovalOperator.REJECT,
        response_timeout=timedelta(days=1),
    )
    vacuum = OneLakeVacuumOperator(task_id="vacuum", table="{{ params.table }}")
    what_would_go >> approve >> vacuum
# [END howto_approval]
