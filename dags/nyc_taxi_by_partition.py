"""NYC taxi trips on a partition timetable: a run is a month, which replaces itself if it is run again (Airflow 3.3)."""

from __future__ import annotations

from pathlib import Path

import pendulum
from airflow.sdk import DAG, CronPartitionTimetable, Param

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

DOC = """
### NYC taxi, a run for each partition

Each run loads the month that its **partition key** names, such as `2019-01`. A month that is run again, by a backfill
that reprocesses it or by hand, is the same month: `on_rerun` says whether it is left as it is (`skip`), whether what it
appended is taken back first (`replace`), or whether its trips are added once more (`append`).

**Backfill.** *Trigger* → *Backfill*, from 2019-01-01 to 2019-08-01. **By hand**, give the partition key; a run without
one is refused.
"""

TRIPS = Path(__file__).resolve().parents[1] / "include" / "data" / "nyc_taxi"

# [START howto_partition_timetable]
with (
    DAG(
        "nyc_taxi_by_partition",
        # On the first of a month, the month before it.
        schedule=CronPartitionTimetable("@monthly", timezone="UTC", run_offset=-1, key_format="%Y-%m"),
        start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
        end_date=pendulum.datetime(2019, 12, 31, tz="UTC"),
        catchup=False,
        doc_md=DOC,
        tags=["onelake", "example"],
        params={
            "input": Param(str(TRIPS), type="string", title="Directory of the files"),
            "table": Param("Tables/trips_by_partition", type="string", title="Table"),
            "on_rerun": Param("replace", enum=["skip", "replace", "append"], title="A month that is run again"),
        },
    ),
    OneLakeWriteTaskGroup(group_id="load", table="{{ params.table }}", on_rerun="{{ params.on_rerun }}", pool="trips"),
):
    OneLakeWriteOperator.partial(
        task_id="write",
        source=FileSource(
            "{{ params.input }}/yellow_tripdata_{{ partition_key }}.json.gz",
            format="json",
            schema="vendor_id INT, pickup_datetime BIGINT, trip_distance DOUBLE, total_amount DOUBLE",
        ),
        steps={"trips": "SELECT *, to_timestamp(pickup_datetime / 1000) AS picked_up FROM source"},
    ).expand_kwargs(
        [
            {"writer": "vendor-1", "where": "vendor_id = 1"},
            {"writer": "vendor-2", "where": "vendor_id = 2"},
        ]
    )
# [END howto_partition_timetable]
