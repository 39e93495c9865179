"""The table of a lakehouse that most tasks here write to."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import make_table


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return make_table(tmp_path / "Tables" / "trips")
