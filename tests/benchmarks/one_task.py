"""Runs one task of a DAG in this process, and prints what it took. Airflow is imported and the DAG parsed before.

The measured part is what Airflow does with one task, from its creation in the database to its end. An empty task has run
in the process before, so that what Airflow itself imports for a task is not counted: Airflow's executors keep it, too.
What the task imports is counted; a preloaded writer is one of a process that has called ``preload``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tests.support.airflow_home import use_own_home

EMPTY, WRITER, PRELOADED = "empty", "writer", "preloaded writer"
_WARM_UP = "warm_up"
ROWS = 10
TABLE = "Tables/one_task"


def dag_of(kind: str) -> Any:
    """Return a DAG with one task.

    :param kind: ``writer`` or ``preloaded writer``, or anything else for an empty task.
    """
    from airflow.sdk import DAG, task

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import SqlSource

    with DAG(kind.replace(" ", "_"), schedule=None) as dag:
        if kind in (WRITER, PRELOADED):
            source = SqlSource(f"SELECT id FROM range({ROWS})")
            OneLakeWriteOperator(task_id="write", writer="one", table=TABLE, source=source)
        else:
            task(task_id="nothing")(lambda: None)()
    return dag


def main(kind: str, server: int) -> dict[str, Any]:
    """Run the task.

    :param kind: ``empty``, ``writer`` or ``preloaded writer``.
    """
    from airflow_provider_onelake.preload import preload
    from tests.benchmarks.spark_use import cpu_seconds
    from tests.support.airflow_dags import states, store_dag

    warm_up, dag = dag_of(_WARM_UP), dag_of(kind)
    for made in (warm_up, dag):
        store_dag(made)
    warm_up.test()
    if kind == PRELOADED:
        # The process is to be taken for the one whose forks are Airflow's tasks.
        sys.argv = ["airflow", "scheduler"]
        preload()
    spark, used, begin = cpu_seconds(server), time.process_time(), time.monotonic()
    run = dag.test()
    seconds, cpu, jvm = time.monotonic() - begin, time.process_time() - used, cpu_seconds(server) - spark
    faults = [f"{task} is {state}" for task, state in states(run).items() if state != "success"]
    return {"kind": kind, "seconds": seconds, "cpu": cpu, "jvm": jvm, "faults": faults}


if __name__ == "__main__":
    home = use_own_home()
    from tests.support.airflow_home import migrated_database

    migrated_database(home)
    (home / "dags").mkdir()
    answer = main(sys.argv[1], int(sys.argv[2]))
    print("\n" + json.dumps(answer))
