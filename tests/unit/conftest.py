"""A table of the test's own, which most unit tests begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.tables import make_table


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """An empty table of the columns ``id`` and ``month``, partitioned by month."""
    return make_table(tmp_path / "t")
