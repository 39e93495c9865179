"""Everything that works on the tables of the stress.

One takes appends and overwrites that leave each other alone: loads of two kinds, compaction, a vacuum's dry run. In the
other, every load replaces partitions that others replace too, by the policy that its run is given.

``stress/writers.json`` says what each writer writes. A row names its load and its writer, so that every row of the table
can be told from every other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, CronDataIntervalTimetable, Param

from airflow_provider_onelake.modes import ReplaceWhere
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

WRITERS: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "stress" / "writers.json").read_text())

START = pendulum.datetime(2019, 1, 1, tz="UTC")
TABLE = "{{ params.table }}"
# A run that somebody starts says what its load is called; one of a backfill is called after its month.
LOAD = "{{ params.load or dag_run.data_interval_start.strftime('%Y-%m') }}"
PARAMS = {"table": Param("Tables/stress", type="string"), "load": Param("", type="string"), "slot": "0"}
POLICY = "{{ params.policy }}"
RIVAL_PARAMS = {**PARAMS, "table": Param("Tables/rivals", type="string"), "policy": "last_writer_wins"}


def write(name: str, **more: Any) -> OneLakeWriteOperator:
    """A writer, of the group that is open. It is not retried: whatever made it fail is to be seen."""
    given = WRITERS[name]
    parts = ", ".join(f"'{part}'" for part in given["parts"]).replace("{slot}", "{{ params.slot }}")
    return OneLakeWriteOperator(
        task_id=name,
        writer=name,
        mode=ReplaceWhere(f"part IN ({parts})") if given.get("mode") == "replace_where" else given.get("mode"),
        source=SqlSource(
            f"SELECT element_at(array({parts}), CAST(id % {len(given['parts'])} AS INT) + 1) AS part, '{LOAD}' AS load, "
            f"'{name}' AS writer, id, id * 7 AS value FROM range({given['rows']})"
        ),
        retries=0,
        **more,
    )


def rivals(dag_id: str, *writers: str, **group: Any) -> DAG:
    """A DAG whose writers replace what others do; whether its runs succeed depends on its policy."""
    with (
        DAG(dag_id, schedule=None, start_date=START, params=RIVAL_PARAMS) as dag,
        OneLakeWriteTaskGroup(
            group_id="load", table=TABLE, partition_by=["part"], on_conflict=POLICY, committed=False, **group
        ),
    ):
        for name in writers:
            write(name)
    return dag


# Its schedule is for backfills; nothing is due by itself.
with (
    DAG(
        "stress_each",
        schedule=CronDataIntervalTimetable("@monthly", timezone="UTC"),
        start_date=START,
        end_date=pendulum.datetime(2024, 12, 31, tz="UTC"),
        catchup=False,
        params=PARAMS,
    ),
    OneLakeWriteTaskGroup(group_id="load", table=TABLE, publish="each", partition_by=["part"]),
):
    for name in ("spread", "shared", "slot"):
        write(name)

with (
    DAG("stress_together", schedule=None, start_date=START, params=PARAMS),
    OneLakeWriteTaskGroup(
        group_id="load",
        table=TABLE,
        publish="together",
        partition_by=["part"],
        on_missing_writer="publish_nothing",
        committed=False,
    ),
):
    for name in ("left", "right"):
        write(name)

with DAG("stress_optimize", schedule=None, start_date=START, params=PARAMS):
    OneLakeOptimizeOperator(task_id="optimize", table=TABLE, min_files=2, min_deleted=0.05, retries=0)

with DAG("stress_vacuum", schedule=None, start_date=START, params=PARAMS):
    OneLakeVacuumOperator(task_id="vacuum", table=TABLE, dry_run=True, retries=0)

rivals_each = rivals("rivals_each", "first", "second", "joiner")
# One after another, in a pool of one slot: what a policy does must not depend on how many run at once.
rivals_narrow = rivals("rivals_narrow", "third", "first", pool="one_at_a_time")
rivals_together = rivals("rivals_together", "upper", "lower", publish="together")

with DAG("rivals_lone", schedule=None, start_date=START, params=RIVAL_PARAMS):
    write("lone", table=TABLE, partition_by=["part"], on_conflict=POLICY)

with DAG("rivals_optimize", schedule=None, start_date=START, params=RIVAL_PARAMS):
    OneLakeOptimizeOperator(task_id="optimize", table=TABLE, min_files=2, min_deleted=0.05, retries=0)
