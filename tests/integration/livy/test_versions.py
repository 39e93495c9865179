"""A batch by any Spark of the matrix. Its files lie on disk: Spark 3.5 takes no token of the settings."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.livy import engine
from include.local import jars
from include.local.settings import from_environment
from local_onelake.fabric import livy
from tests.support.contexts import context_of
from tests.support.livy import connection, spark_batches
from tests.support.onelake import LAKEHOUSE_GUID, OneLake


@pytest.mark.timeout(600)
def test_a_writer_loads_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In Fabric both refuse a disk, which no Spark there sees.
    monkeypatch.setattr(engine, "_LOCAL", re.compile("nothing"))
    monkeypatch.setattr(livy, "_check_addresses", lambda _: None)
    (state := tmp_path / "livy").mkdir()
    (lakehouse := tmp_path / "lakehouse").mkdir()
    lake = {"conn_type": "onelake", "extra": {"lakehouse": str(lakehouse)}}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(lake))
    task = OneLakeWriteOperator(
        task_id="write", table="Tables/t", writer="w", source=SqlSource("SELECT id, '2019-01' AS month FROM range(5)")
    )
    with OneLake() as served, spark_batches(served, state, jars.resolve(from_environment().jars)) as batches:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", connection(served))
        assert task.execute(context_of(task))["status"] == "published"
        logs = "\n".join(line for batch in batches.of(LAKEHOUSE_GUID) for line in batch.log())
    assert f"This is Spark {jars.spark_version()}" in logs
    assert sorted(DeltaTable(str(lakehouse / "Tables/t")).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3, 4]
