"""Spark's JVMs of the tests take their classes from the archive: else all of this takes a fifth longer, in silence."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.support import spark_jvms
from tests.support.spark import Server


@pytest.mark.skipif(sys.platform != "linux", reason="What a process has mapped is read from /proc.")
def test_the_server_takes_its_classes_from_the_archive(connect_server: Server) -> None:
    archive = spark_jvms.archive()
    if not archive.exists():
        pytest.skip("There is no archive of Spark's classes: run 'make classes'.")
    assert str(archive) in Path(f"/proc/{connect_server.pid}/maps").read_text()
