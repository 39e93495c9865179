"""A writer task with a tiny source, and a preloaded one, beside an empty task: each in a new process, in turns.

The measured part is what Airflow does with one task, from its creation in the database to its end. An empty task has run
in the process before, so that what Airflow itself imports for a task is not counted: Airflow's executors keep it, too.
What the task imports is counted; a preloaded writer is one of a process that has called ``preload``.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import ours
from tests.benchmarks.samples import Sample, cpu_seconds
from tests.support.airflow_home import migrated_database, use_own_home

if TYPE_CHECKING:
    from tests.support.spark import Server

EMPTY, WRITER, PRELOADED = "empty", "writer", "preloaded writer"
_TIMES, _ROWS, _MINUTES = 2, 10, 10
_TABLE = "Tables/one_task"


def measure(server: Server, lakehouse: Path) -> Iterator[Sample]:
    """Run the kinds of task in turns."""
    from deltalake import DeltaTable

    table = lakehouse / _TABLE
    shutil.rmtree(table, ignore_errors=True)
    ours.connect(lakehouse, server.remote)
    # The first writer makes the table, which the others find; it is a warm-up, as the first empty task is.
    for kind in (EMPTY, WRITER):
        _run(kind, server)
    for number in range(_TIMES):
        for kind in (EMPTY, WRITER, PRELOADED):
            task = _run(kind, server)
            wanted = _ROWS * (1 + 2 * number + (EMPTY, WRITER, PRELOADED).index(kind))
            if (rows := DeltaTable(str(table)).to_pyarrow_table().num_rows) != wanted:
                task["faults"].append(f"{rows} rows are in the table instead of {wanted}")
            yield task
    shutil.rmtree(table)


def _run(kind: str, server: Server) -> Sample:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.benchmarks.tasks", kind, str(server.pid)],
        cwd=Path(__file__).resolve().parents[2],
        capture_output=True,
        text=True,
        timeout=60 * _MINUTES,
        check=False,
    )
    if ended.returncode:
        raise RuntimeError(f"The {kind} task ended with status {ended.returncode}:\n{ended.stderr[-4000:]}")
    return json.loads(ended.stdout.splitlines()[-1])


def _dag_of(kind: str) -> Any:
    from airflow.sdk import DAG, task

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import SqlSource

    with DAG(kind.replace(" ", "_"), schedule=None) as dag:
        if kind in (WRITER, PRELOADED):
            source = SqlSource(f"SELECT id FROM range({_ROWS})")
            OneLakeWriteOperator(task_id="write", writer="one", table=_TABLE, source=source)
        else:
            task(task_id="nothing")(lambda: None)()
    return dag


def _one(kind: str, server: int) -> Sample:
    from airflow_provider_onelake.preload import preload
    from tests.support.airflow_dags import states, store_dag

    warm_up, dag = _dag_of("warm_up"), _dag_of(kind)
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
    migrated_database(home)
    (home / "dags").mkdir()
    answer = _one(sys.argv[1], int(sys.argv[2]))
    print("\n" + json.dumps(answer))
