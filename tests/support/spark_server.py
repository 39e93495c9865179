"""One Spark Connect server for the whole session: the fixture that every suite with Spark shares."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.spark import Server
from tests.support.spark_jvms import INTERPRETED

SETTINGS = {
    **INTERPRETED,
    "spark.databricks.delta.snapshotPartitions": "1",
    # What tests ask of Spark, its status answers.
    "spark.eventLog.enabled": "false",
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
