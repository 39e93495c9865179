"""Looks at the rows of a month without Spark, and fails if some of them cannot be right."""

# [START howto_read]
import pendulum
from airflow.sdk import DAG, Param, task

from airflow_provider_onelake.hooks.onelake import OneLakeHook

with DAG(
    "check_trips",
    schedule=None,
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    params={"month": Param("2019-01", type="string", pattern="^[0-9]{4}-[0-9]{2}$", title="Month")},
):

    @task
    def no_negative_fares(params: dict[str, str] | None = None) -> dict[str, int | str]:
        month = params["month"]
        with (
            OneLakeHook()
            .table("Tables/trips")
            .read(columns=["id", "fare"], where=f"month = '{month}' AND fare < 0") as rows
        ):
            wrong = [trip for batch in rows for trip in batch.column("id").to_pylist()]
        if wrong:
            raise ValueError(f"{len(wrong)} trips of {month} cost less than nothing, such as {wrong[:3]}")
        return rows.report.to_json()

    no_negative_fares()
# [END howto_read]
