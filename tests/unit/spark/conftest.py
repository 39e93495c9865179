"""Cluster mode without a cluster: a table, a job for it, a script in the place of spark-submit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.hooks.spark import engine_for
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.submit import spool
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.fake_submit import FakeSubmit


@pytest.fixture
def table(tmp_path: Path) -> Path:
    (tmp_path / "lake").mkdir()
    return tmp_path / "lake"


@pytest.fixture
def store(table: Path) -> ObjectStore:
    return ObjectStore(LocalStore(prefix=table), str(table))


@pytest.fixture
def job(table: Path) -> StageJob:
    source = {"kind": "sql", "query": "SELECT 1"}
    metadata = {"schemaString": "{}", "partitionColumns": []}
    return StageJob(
        source=source, table_uri=str(table), attempt="a1", buffer_uri=f"{table}/staged/w/a1", metadata=metadata
    )


@pytest.fixture
def submit_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSubmit:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SPARK_HOME", raising=False)
    found = FakeSubmit(tmp_path / "bin")
    found.does("")
    return found


@pytest.fixture
def clustered(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> Callable[..., SubmitEngine]:
    """Makes an engine in cluster mode for a connection's fields; it asks without a pause."""
    monkeypatch.setattr("airflow_provider_onelake.spark.submit.drivers._POLL_SECONDS", 0.02)
    monkeypatch.setattr("airflow_provider_onelake.spark.submit.drivers._LONGEST_PAUSE", 0.02)

    def make(extra: dict[str, Any], host: str, port: int | None = None, **arguments: Any) -> SubmitEngine:
        said = {"deploy-mode": "cluster", "jars": "/j/delta.jar", **extra}
        connection = {"conn_type": "spark", "host": host, "extra": said, **({"port": port} if port else {})}
        monkeypatch.setenv("AIRFLOW_CONN_S", json.dumps(connection))
        engine = engine_for("s", **{"store": lambda: store, **arguments})
        assert isinstance(engine, SubmitEngine)
        return engine

    return make


@pytest.fixture
def an_hour_later(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return datetime.now(UTC) + timedelta(hours=1)

    return lambda: monkeypatch.setattr(spool, "datetime", Later)
