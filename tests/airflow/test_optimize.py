"""Writers, then a compaction of what they touched. Without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import JANUARY, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.shadows import OptimizeByHand
from tests.support.tables import commit_of, ids, local_log

VENDORS = [{"writer": "vendor-1", "where": "vendor_id = 1"}, {"writer": "vendor-2", "where": "vendor_id = 2"}]


class Both(OptimizeByHand):
    """Stages as the one engine does, and compacts as the other."""

    def __init__(self, writers: FakeEngine) -> None:
        super().__init__()
        self.analyze, self.stage = writers.analyze, writers.stage


def taxi(**optimize: Any) -> DAG:
    compaction = {"min_files": 2, **optimize}
    with (
        DAG("upkeep", schedule=None, start_date=JANUARY, params={"table": "Tables/trips"}) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="{{ params.table }}", partition_by=["month"], optimize=compaction),
    ):
        OneLakeWriteOperator.partial(
            task_id="write", source=FileSource("/data/{{ ds }}.json", format="json")
        ).expand_kwargs(VENDORS)
    return dag


def test_what_a_run_touched_is_compacted_behind_it(
    lakehouse: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    by_hand = Both(engine)
    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: by_hand)
    run = run_dag(taxi(), logical_date=JANUARY)

    assert set(states(run).values()) == {"success"}
    result = xcom(run, "load.optimize")
    assert (result["status"], result["files_before"], result["files_after"]) == ("published", 2, 1)
    assert [found["partition"] for found in result["partitions"]] == ["month=2019-01"]
    path = lakehouse / "Tables" / "trips"
    assert ids(path) == [1, 2, 3, 11, 12, 13]
    commit = commit_of(local_log(path), result["version"])
    assert commit.operation == "OPTIMIZE"
    assert [job.label for job in by_hand.jobs] == ["compaction of task load.optimize"]

    # Another run appends the rows again; with three small files in a partition, a fourth is waited for.
    again = run_dag(taxi(min_files=4), logical_date=JANUARY.add(months=1))
    assert set(states(again).values()) == {"success"}
    assert xcom(again, "load.optimize")["status"] == "nothing_to_do"
    assert ids(path) == sorted([1, 2, 3, 11, 12, 13] * 2)
