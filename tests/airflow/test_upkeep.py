"""The upkeep DAG, over tables of which one is refused. Without Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.airflow_dags import load_dag, run_dag, states, xcom
from tests.support.shadows import OptimizeByHand
from tests.support.tables import foreign_append, ids, make_table

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
