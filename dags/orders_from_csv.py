"""From CSV files to a table: a writer for each file, and a task that looks at the whole load."""

# [START howto_csv]
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

ORDERS = Path(__file__).parents[1] / "include/data/orders"


def orders(file: str) -> FileSource:
    return FileSource(
        str(ORDERS / file),
        format="csv",
        schema="order_id BIGINT, customer STRING, ordered_on DATE, paid_at TIMESTAMP, amount DECIMAL(10, 2)",
        options={"header": "true", "dateFormat": "dd.MM.yyyy", "timestampFormat": "dd.MM.yyyy HH:mm"},
    )


with DAG("orders_from_csv", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC")):
    with OneLakeWriteTaskGroup(group_id="load", table="Tables/orders", partition_by=["month"]) as load:
        write = OneLakeWriteOperator.partial(
            task_id="write",
            steps={"dated": "SELECT *, date_format(ordered_on, 'yyyy-MM') AS month FROM source"},
        ).expand_kwargs(
            [
                {"writer": "north", "source": orders("north.csv")},
                {"writer": "south", "source": orders("south.csv")},
            ]
        )

    @task
    def report(written: list[dict[str, Any]]) -> str:
        # As one slice, all results come with one request.
        for each in written[:]:
            print(each["writer"], each["status"], each["version"], each.get("rows"))
        with OneLakeHook().table("Tables/orders").read(["amount"], "month = '2026-01'") as rows:
            january = rows.read_all()
        return f"{january.num_rows} orders of {sum(january.column('amount').to_pylist())} in January"

    load >> report(write.output)
# [END howto_csv]
