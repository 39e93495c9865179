"""A load that tells those who wait when its rows are late, or when some of them are left out (Airflow 3.3)."""

# [START howto_deadline]
from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.providers.smtp.notifications.smtp import SmtpNotifier
from airflow.sdk import DAG, AsyncCallback, DeadlineAlert, DeadlineReference

from airflow_provider_onelake.notifications.onelake import OneLakeLoadNotifier
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

TO = {"to": "data-team@example.com", "from_email": "airflow@example.com"}
TRIPS = Path(__file__).parents[1] / "include/data/nyc_taxi/yellow_tripdata_2019-01.json.gz"

LATE = DeadlineAlert(
    name="trips are late",
    reference=DeadlineReference.DAGRUN_QUEUED_AT,
    interval=timedelta(hours=2),
    # Runs in the triggerer, while the load itself goes on.
    callback=AsyncCallback(
        SmtpNotifier,
        kwargs={
            **TO,
            "subject": "{{ dag_run.dag_id }} is late",
            "html_content": "{{ dag_run.run_id }} has not committed all its rows. Those of finished writers are there.",
        },
    ),
)

# Called when `reconcile` has ended. Any provider's notifier can send it; its templates know `load`.
LEFT_OUT = OneLakeLoadNotifier(
    SmtpNotifier(**TO, subject="{{ load.summary }}", html_content="<pre>{{ load.text | e }}</pre>"),
)

with (
    DAG("guarded_load", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC"), deadline=LATE),
    OneLakeWriteTaskGroup(
        group_id="load", table="Tables/guarded_load", partition_by=["vendor_id"], notifiers=[LEFT_OUT]
    ),
):
    OneLakeWriteOperator.partial(task_id="write", source=FileSource(str(TRIPS), format="json")).expand_kwargs(
        [
            {"writer": "vendor-1", "where": "vendor_id = 1"},
            {"writer": "vendor-2", "where": "vendor_id = 2"},
        ]
    )
# [END howto_deadline]
