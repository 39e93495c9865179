"""Upkeep in Airflow: a compaction behind its writers, the DAG of all upkeep, and a vacuum by a real Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pendulum
import pytest
from airflow.sdk import DAG

from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.ages import grow_old
from tests.support.airflow_dags import JANUARY, load_dag, run_dag, states, xcom
from tests.support.engines import FakeEngine
from tests.support.shadows import OptimizeByHand
from tests.support.spark import Server
from tests.support.tables import commit_of, foreign_append, foreign_commit, ids, local_log, make_table

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


DAG_FILE = Path(__file__).parents[2] / "dags" / "upkeep.py"


@pytest.mark.promise
def test_a_table_that_is_refused_does_not_stop_the_others(lakehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: OptimizeByHand())
    make_table(lakehouse / "Tables" / "hasty", **{"delta.deletedFileRetentionDuration": "interval 1 hours"})
    log = make_table(lakehouse / "Tables" / "trips")
    for row in range(4):
        foreign_append(log, {"2019-01": [row]})
    run = run_dag(load_dag(DAG_FILE, "onelake_upkeep"), run_conf={"tables": ["Tables/hasty", " Tables/trips "]})

    assert states(run) == {
        "tables": "success",
        "upkeep.optimize[0]": "success",
        "upkeep.what_would_go[0]": "failed",
        "upkeep.vacuum[0]": "upstream_failed",
        "upkeep.health[0]": "upstream_failed",
        "upkeep.optimize[1]": "success",
        "upkeep.what_would_go[1]": "success",
        "upkeep.vacuum[1]": "success",
        "upkeep.health[1]": "success",
    }
    assert xcom(run, "upkeep.optimize", map_index=1)["files_before"] == 4
    assert xcom(run, "upkeep.vacuum", map_index=1)["files"] == 0
    assert xcom(run, "upkeep.health", map_index=1)["findings"] == []
    assert ids(Path(log.table)) == [0, 1, 2, 3]


def test_what_would_go_spares_what_vacuum_is_to_keep(lakehouse: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Nobody is there: a vacuum of nothing gives Spark no work, but knows where it would.
    spark = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": 1}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(spark))
    log = make_table(lakehouse / "Tables" / "trips")
    version = foreign_append(log, {"2019-01": [1]})
    conf = {"tables": ["Tables/trips"], "keep_versions": str(version)}
    run = run_dag(load_dag(DAG_FILE, "onelake_upkeep"), run_conf=conf)
    kept = [xcom(run, f"upkeep.{task}", map_index=0)["kept_versions"] for task in ("what_would_go", "vacuum")]
    assert kept == [[version], [version]]


def test_a_dry_run_and_then_the_vacuum_itself(lakehouse: Path, spark_connection: Server) -> None:
    log = make_table(lakehouse / "Tables" / "t")
    kept = foreign_append(log, {"a b": [1]})
    commit = commit_of(log, kept)
    removes = [{"remove": {"path": a["path"], "deletionTimestamp": 1, "dataChange": True}} for a in commit.adds]
    foreign_commit(log, removes)
    newest = foreign_append(log, {"a b": [2]})
    log.store.put("month=a b/nobody's", b"abc")
    grow_old(log)

    with DAG("upkeep", schedule=None, start_date=pendulum.datetime(2019, 1, 1, tz="UTC")) as dag:
        dry = OneLakeVacuumOperator(task_id="dry", table="Tables/t", dry_run=True)
        # The result of another task may say which version is to be kept.
        wet = OneLakeVacuumOperator(
            task_id="wet", table="Tables/t", keep_versions="{{ ti.xcom_pull(task_ids='dry')['version'] - 2 }}"
        )
        dry >> wet
    run = run_dag(dag)
    assert set(states(run).values()) == {"success"}
    assert xcom(run, "dry")["files"] == 2
    result = xcom(run, "wet")
    assert (result["files"], result["bytes"], result["left"], result["kept_versions"]) == (1, 3, 0, [kept])
    assert not (lakehouse / "Tables" / "t" / "month=a b" / "nobody's").exists()
    assert ids(Path(log.table)) == [2]
    assert ids(Path(log.table), kept) == [1]
    # On a local disk Spark's commit is not put-if-absent, so it does not record the VACUUM.
    assert local_log(Path(log.table)).commits_since(newest) == []
