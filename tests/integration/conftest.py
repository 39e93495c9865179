"""A real Spark Connect server for the whole session, and a Spark session for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.spark import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
TAXI = ROOT / "include" / "data" / "nyc_taxi"


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Spark Connect server with Delta on two cores."""
    try:
        files = jars.resolve(from_environment().jars)
    except jars.SetUpError as error:
        pytest.skip(str(error))
    state = tmp_path_factory.mktemp("spark")
    server = Server(state, port=free_port(), ui_port=free_port(), jar_files=files)
    server.start()
    try:
        server.wait_ready()
        yield server
    finally:
        server.stop()


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
