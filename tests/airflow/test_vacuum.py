"""A vacuum in a DAG, on a real Spark Connect server: dry first, then in earnest."""

from __future__ import annotations

from pathlib import Path

import pendulum
from airflow.sdk import DAG

from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from tests.support.ages import grow_old
from tests.support.airflow_dags import run_dag, states, xcom
from tests.support.spark import Server
from tests.support.tables import commit_of, foreign_append, foreign_commit, ids, local_log, make_table


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
