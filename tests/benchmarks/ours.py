"""A load by this package as a DAG's author writes it: a write group with mapped writers.

Airflow's scheduler is left out, as it would not be Spark's time that is measured: the group's tasks are executed in
threads of this process. What stands before the writers runs first, then all writers run at once.
"""

from __future__ import annotations

import inspect
import json
import os
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.benchmarks.tpch import Share

PARTITION = "ship_year"
STEPS = {"dated": f"SELECT *, year(l_shipdate) AS {PARTITION} FROM source"}


def connect(lakehouse: Path, remote: str) -> None:
    """Give this process and those that it starts the two connections."""
    host, _, port = remote.rpartition(":")
    spark = {"conn_type": "spark_connect", "host": host, "port": int(port)}
    lake = {"conn_type": "onelake", "extra": {"lakehouse": str(lakehouse), "namespace": "bench"}}
    os.environ |= {
        "AIRFLOW_CONN_SPARK_CONNECT_DEFAULT": json.dumps(spark),
        "AIRFLOW_CONN_ONELAKE_DEFAULT": json.dumps(lake),
    }


def load(table: Path, shares: Sequence[Share]) -> None:
    """Load the shares of all writers at once. The connections must be there.

    :raises RuntimeError: writers that share a source would read it each for itself: the bench is not of that.
    """
    from airflow.sdk import DAG

    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.sources import FileSource
    from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup

    with (
        DAG("bench", schedule=None) as dag,
        OneLakeWriteTaskGroup(group_id="load", table=str(table), partition_by=[PARTITION]),
    ):
        if shares[0].where is None:
            common: dict[str, Any] = {}
            each = [{"writer": share.writer, "source": FileSource(share.path.as_uri())} for share in shares]
        else:
            common = {"source": FileSource(shares[0].path.as_uri())}
            each = [{"writer": share.writer, "where": share.where} for share in shares]
        OneLakeWriteOperator.partial(task_id="write", steps=STEPS, **common).expand_kwargs(each)
    run = f"manual__{uuid.uuid4()}"
    writers: Any = dag.get_task("load.write")
    before = writers.get_flat_relative_ids(upstream=True)
    left = [execute(task, run) for task in dag.topological_sort() if task.task_id in before]
    for result in left:
        if isinstance(result, Mapping) and result.get("status") == "not_shared":
            raise RuntimeError(f"The writers do not share a scan: {result['reason']}")
    mapped = [writers.unmap(kwargs) for kwargs in each]
    with ThreadPoolExecutor(len(mapped)) as pool:
        list(pool.map(lambda index: execute(mapped[index], run, index, left), range(len(mapped))))


def execute(task: Any, run: str = "manual__bench", map_index: int = -1, left: Sequence[Any] = ()) -> Any:
    """Execute a task that finds what others have left in XCom."""
    from tests.support.contexts import context_of

    context = context_of(task, dag_id="bench", run_id=run, map_index=map_index, pulled={"return_value": list(left)})
    # Airflow's guard around execute() would warn that no task runner calls it.
    return inspect.unwrap(type(task).execute)(task, context)
