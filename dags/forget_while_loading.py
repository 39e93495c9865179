"""Writes one table by three tasks at once: loads today, deletes one person from earlier days, compacts old days."""

# [START howto_forget_while_loading]
import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.statements import OneLakeDeleteOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource

VISITS = "Tables/daily_visits"

with DAG(
    "forget_while_loading",
    schedule=None,
    start_date=pendulum.datetime(2021, 1, 1, tz="UTC"),
    params={
        "today": Param("2019-02-28", type="string", format="date", pattern="^[0-9]{4}-[0-9]{2}-[0-9]{2}$"),
        "visits": Param("/data/visits/2019-02-28.json", type="string"),
        "person": Param(type="integer"),
    },
):
    OneLakeWriteOperator(
        task_id="load_today",
        table=VISITS,
        source=FileSource("{{ params.visits }}", format="json", schema="id BIGINT, person BIGINT, day STRING"),
        expected_partitions="day = '{{ params.today }}'",
    )
    OneLakeDeleteOperator(
        task_id="forget",
        table=VISITS,
        where="person = {{ params.person }}",
        covers="day < '{{ params.today }}'",
        commit_message="right to erasure",
    )
    OneLakeOptimizeOperator(
        task_id="compact_old_days",
        table=VISITS,
        where="day < '{{ macros.ds_add(params.today, -7) }}'",
    )
# [END howto_forget_while_loading]
