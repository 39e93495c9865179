"""A Spark session for each test, on the server that all suites share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.spark import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
TAXI = ROOT / "include" / "data" / "nyc_taxi"


@pytest.fixture
def spark(connect_server: Server) -> Iterator[SparkSession]:
    """A session of the test's own."""
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=connect_server.remote)
    yield session
    if connect_server.pid is None:
        session.client.set_retry_policies([])  # else it waits ten minutes for a server that was killed
    session.stop()


@pytest.fixture(scope="session")
def taxi() -> Path:
    """Directory of the real trips."""
    return TAXI
