"""Two writers that replace the same partitions of a table: a mistake, to see what comes of it."""

from pathlib import Path

import pendulum
from airflow.sdk import DAG, Param

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

ORDERS = Path(__file__).parents[1] / "include/data/orders"
POLICIES = ["last_writer_wins", "first_writer_wins", "fail"]

# [START howto_conflict]
with (
    DAG(
        "first_conflict",
        schedule=None,
        start_date=pendulum.datetime(2026, 1, 1, tz="UTC"),
        params={
            "on_conflict": Param("last_writer_wins", enum=POLICIES, title="Whose rows stand"),
            "on_set_aside": Param("warn", enum=["warn", "skip", "fail"], title="What becomes of the other's task"),
        },
    ),
    OneLakeWriteTaskGroup(
        group_id="load",
        table="Tables/first_conflict",
        mode="overwrite_partitions",
        partition_by=["month"],
        on_conflict="{{ params.on_conflict }}",
        on_set_aside="{{ params.on_set_aside }}",
    ),
):
    for shop in ("north", "south"):
        OneLakeWriteOperator(
            task_id=shop,
            source=FileSource(
                str(ORDERS / f"{shop}.csv"),
                format="csv",
                schema="order_id BIGINT, customer STRING, ordered_on DATE, paid_at TIMESTAMP, amount DECIMAL(10, 2)",
                options={"header": "true", "dateFormat": "dd.MM.yyyy", "timestampFormat": "dd.MM.yyyy HH:mm"},
            ),
            steps={"dated": "SELECT *, date_format(ordered_on, 'yyyy-MM') AS month FROM source"},
        )
# [END howto_conflict]
