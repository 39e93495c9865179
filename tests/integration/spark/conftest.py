"""An engine on the session's server, and a target with one open buffer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.schemas import field
from tests.support.spark import Server, Target, open_buffer


@pytest.fixture
def engine(connect_server: Server) -> ConnectEngine:
    """An engine on the test's server."""
    return ConnectEngine(connect_server.remote)


@pytest.fixture
def new_target(tmp_path: Path) -> Callable[..., Target]:
    """Makes a target with one buffer; takes the fields, the partition columns and the table's configuration."""

    def make(fields: Sequence[dict[str, Any]], partition_by: Sequence[str] = (), **configuration: str) -> Target:
        return open_buffer(tmp_path / "lake" / "trips", fields, partition_by, **configuration)

    return make


@pytest.fixture
def target(new_target: Callable[..., Target]) -> Target:
    """One with a single column, ``id``."""
    return new_target([field("id")])
