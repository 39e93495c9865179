"""The table of a lakehouse that most tasks here write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.contexts import connect
from tests.support.engines import FakeEngine, use_engine
from tests.support.tables import make_table


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """An empty table in the lakehouse ``tmp_path``."""
    return make_table(tmp_path / "Tables" / "trips")


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> FakeEngine:
    """An engine that stages two rows, whatever it is asked."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    return use_engine(monkeypatch, FakeEngine({None: {"2019-01": [1, 2]}}))
