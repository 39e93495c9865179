"""DAGs run in this process by ``dag.test()``, on a migrated SQLite database."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.airflow_home import migrated_database
from tests.support.engines import FakeEngine
from tests.support.spark import Server


@pytest.fixture(scope="session")
def airflow_home() -> Path:
    home = Path(os.environ["AIRFLOW_HOME"])
    migrated_database(home)
    (home / "dags").mkdir()
    return home


@pytest.fixture
def lakehouse(airflow_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lakehouse and the connection to it."""
    lake = tmp_path / "lake"
    lake.mkdir()
    extra = {"lakehouse": str(lake), "namespace": "test"}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    return lake


@pytest.fixture
def spark_connection(lakehouse: Path, connect_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    """The server to which the connection of a lakehouse's writers leads."""
    connection = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": connect_server.port}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(connection))
    return connect_server


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeEngine]:
    """Two vendors' rows, staged without Spark."""
    fake = FakeEngine(
        {"vendor_id = 1": {"2019-01": [1, 2, 3]}, "vendor_id = 2": {"2019-01": [11, 12], "2019-02": [13]}}
    )
    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: fake)
    return fake
