"""Makes two reports of the same version of a table, while others write it and a vacuum may run."""

# [START howto_keep]
from typing import Any

import pendulum
from airflow.sdk import DAG, task

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.versions import OneLakeKeepVersionOperator, OneLakeReleaseVersionOperator

with DAG("two_reports", schedule=None, start_date=pendulum.datetime(2021, 1, 1, tz="UTC")):
    keep = OneLakeKeepVersionOperator(task_id="keep", table="Tables/trips")
    release = OneLakeReleaseVersionOperator(task_id="release", kept=keep.output)

    @task
    def count(month: str, kept: dict[str, Any]) -> int:
        trips = OneLakeHook().table(kept["table"])
        with trips.read(["id"], f"month = '{month}'", version=kept["version"]) as rows:
            return sum(batch.num_rows for batch in rows)

    count.partial(kept=keep.output).expand(month=["2019-01", "2019-02"]) >> release.as_teardown(setups=keep)
# [END howto_keep]
