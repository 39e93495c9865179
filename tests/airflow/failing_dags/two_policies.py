"""A writer and the reconciliation behind it would settle one conflict in two ways.

at: parse
error: InvalidWriteError: write: on_conflict is 'last_writer_wins', and reconcile behind it has 'fail'. A writer settles its conflicts in its own task, so give both the same. Nothing was staged.
"""

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource

with DAG("two_policies", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")):
    write = OneLakeWriteOperator(task_id="write", table="Tables/t", source=SqlSource("SELECT 1 AS x"))
    write >> OneLakeReconcileOperator(task_id="reconcile", table="Tables/t", on_conflict="fail")
