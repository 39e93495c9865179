"""One Spark Connect server for the whole session: the fixture that every suite with Spark shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.spark import Server

# The tables have a few rows: compiling a query costs more than running it. The live tests' servers compile.
SETTINGS = {
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@pytest.fixture(scope="session")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Spark Connect server with Delta on two cores."""
    try:
        files = jars.resolve(from_environment().jars)
    except jars.SetUpError as error:
        pytest.skip(str(error))
    state = tmp_path_factory.mktemp("spark")
    server = Server(state, port=free_port(), ui_port=free_port(), jar_files=files, settings=SETTINGS)
    with server:
        yield server
