"""NYC taxi trips: two vendors' writers load one Delta table at the same time, month by month (Airflow 3.2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

DOC = """
### NYC taxi, two vendors

Each run loads one month of trips, `yellow_tripdata_YYYY-MM.json.gz` of the directory `input`, into the Delta table
`table`. Two writers, one for each vendor, do so **at the same time**; `reconcile` settles what they leave, and
`committed` is green when the table shows it.

**Parameters**

| parameter | meaning |
|---|---|
| `input` | the directory with the files, as Spark sees it |
| `table` | the table, in the lakehouse of the connection `onelake_default` |
| `mode` | `append`: both vendors' rows are there; `overwrite_partitions`: the last writer's of each partition |
| `partition_by` | `month` (of the pickup, a generated column) or `vendor_id`; the table keeps what it was made with |
| `month` | `YYYY-MM`; empty for the month of the run's data interval |

**Backfill.** In the web UI: *Trigger* → *Backfill*, from 2019-01-01 to 2019-08-31, and as many active runs as you like:
months and vendors may all write at once, as many writers as the pool `trips` has slots. Unpause the DAG, or its runs
stay queued. To change parameters, tick *Override parameters on existing runs*, or the form ignores them. By the command
line:

    airflow backfill create --dag-id nyc_taxi_two_vendors --from-date 2019-01-01 --to-date 2019-08-31 \\
        --max-active-runs 4 --dag-run-conf '{"mode": "append"}'

**Again.** A task that is cleared or retried repeats nothing: an append that is in the table is skipped, an overwrite
replaces what it wrote. A *new* run of a month that was loaded before is another load, and appends its rows once more;
to repeat a month, clear its run.

**Strays.** A few trips lie outside their file's month. An append keeps them. In an overwrite of months they would
replace another month, so a writer sets aside what is not of its month (`expected_partitions`); its log and XCom say
how many.
"""

# As the files are. Without it Spark reads each file twice, and types would depend on the month.
TRIP = """
    vendor_id INT, pickup_datetime BIGINT, dropoff_datetime BIGINT, passenger_count INT, trip_distance DOUBLE,
    rate_code_id INT, store_and_fwd_flag STRING, pickup_location_id INT, dropoff_location_id INT, payment_type INT,
    fare_amount DOUBLE, extra DOUBLE, mta_tax DOUBLE, tip_amount DOUBLE, tolls_amount DOUBLE,
    improvement_surcharge DOUBLE, total_amount DOUBLE, congestion_surcharge DOUBLE
"""

# ts_ny_taxi is the moment of the run: one for both vendors and for every retry and clear of it, so that equal work has
# an equal fingerprint and a retry finds the rows that were staged before. A clock would say something else every time.
STEPS = {
    "dated": "SELECT *, to_timestamp(pickup_datetime / 1000) AS date_col FROM ny_taxi",
    "stamped": "SELECT *, TIMESTAMP '{{ moment_of(dag_run) }}' AS ts_ny_taxi FROM dated",
    "versioned": "SELECT *, date_format(ts_ny_taxi, 'yyyyMMddHHmm') AS version FROM stamped",
}

# Only an overwrite of months has to be held to its month.
EXPECTED = (
    "{% if params.mode == 'overwrite_partitions' and params.partition_by == 'month' %}month = '{{ month_of(params, "
    "dag_run) }}'{% endif %}"
)


def month_of(params: Any, dag_run: Any) -> str:
    """Say which month a run loads.

    :param params: of the run.
    :param dag_run: the run.
    :returns: ``YYYY-MM``.
    :raises ValueError: the run has no data interval, and the parameter is empty.
    """
    if params["month"]:
        return str(params["month"])
    if dag_run.data_interval_start is None:
        raise ValueError("This run has no data interval: give the parameter `month`, such as 2019-01.")
    return str(dag_run.data_interval_start.strftime("%Y-%m"))


def moment_of(dag_run: Any) -> str:
    """Say when a run was due, in UTC.

    :param dag_run: the run.
    :returns: ``YYYY-MM-DD HH:MM:SS``.
    """
    return str(dag_run.run_after.astimezone(pendulum.UTC).strftime("%Y-%m-%d %H:%M:%S"))


with DAG(  # noqa: SIM117 - a DAG with a group in it reads better
    "nyc_taxi_two_vendors",
    schedule=CronDataIntervalTimetable("@monthly", timezone="UTC"),
    start_date=pendulum.datetime(2019, 1, 1, tz="UTC"),
    # The sample ends in 2019: no month of the present is scheduled for which there would be no file.
    end_date=pendulum.datetime(2024, 12, 31, tz="UTC"),
    catchup=False,
    doc_md=DOC,
    tags=["onelake", "example"],
    user_defined_macros={"month_of": month_of, "moment_of": moment_of},
    params={
        "input": Param(
            str(Path(__file__).resolve().parents[1] / "include" / "data" / "nyc_taxi"),
            type="string",
            title="Directory of the files",
        ),
        "table": Param("Tables/trips", type="string", title="Table"),
        "mode": Param("append", enum=["append", "overwrite_partitions"], title="Mode"),
        "partition_by": Param("month", enum=["month", "vendor_id"], title="Partitioned by"),
        # Without "null" the UI's forms would ask for one.
        "month": Param(None, type=["null", "string"], pattern="^[0-9]{4}-[0-9]{2}$", title="Month, YYYY-MM"),
    },
):
    # [START howto_write_group]
    with OneLakeWriteTaskGroup(
        group_id="load",
        table="{{ params.table }}",
        mode="{{ params.mode }}",
        publish="each",
        partition_by="{{ params.partition_by }}",
        new_table=NewTable(generated_columns={"month": "date_format(date_col, 'yyyy-MM')"}),
        expected_partitions=EXPECTED,
        pool="trips",
        on_conflict="last_writer_wins",
        # Two Spark jobs at once, as if each vendor had a source of its own. By default, one job would read for both.
        shared_scan=False,
    ):
        OneLakeWriteOperator.partial(
            task_id="write",
            source=FileSource(
                "{{ params.input }}/yellow_tripdata_{{ month_of(params, dag_run) }}.json.gz",
                format="json",
                schema=TRIP,
                view="ny_taxi",
            ),
            steps=STEPS,
            retries=2,
        ).expand_kwargs(
            [
                {"writer": "vendor-1", "where": "vendor_id = 1"},
                {"writer": "vendor-2", "where": "vendor_id = 2"},
            ]
        )
    # [END howto_write_group]
