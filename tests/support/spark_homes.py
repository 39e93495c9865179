"""Other Sparks than pip's to run the tests with, fetched once, and what tests ask of the Spark that they run with.

``TESTS_SPARK_HOME`` names the home of a Spark that every test uses in place of pip's; ``TESTS_DELTA`` a version of
Delta Lake other than the one that fits it. A command line: ``python -m tests.support.spark_homes 3.5.7`` prints a home.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from include.local import jars
from include.local.settings import REPOSITORY, from_environment


def home(version: str) -> Path:
    """Return the home of a Spark, which is in pip's ``pyspark`` of its version: 340 to 480 MB, on the first call only.

    :raises SetUpError: it cannot be had.
    """
    there = from_environment().jars / "matrix" / f"spark-{version}"
    there.parent.mkdir(parents=True, exist_ok=True)
    with jars.lock(there.with_suffix(".lock")):
        if not there.exists():
            new = Path(f"{there}.new")
            shutil.rmtree(new, ignore_errors=True)
            # A cache of its own, which is gone then: the usual one would keep half a gigabyte of each Spark.
            install = [".ci/uv", "pip", "install", "--no-deps", "--target", str(new), "--cache-dir", f"{new}/cache"]
            done = subprocess.run(
                [*install, f"pyspark=={version}"],
                cwd=REPOSITORY,
                env={**os.environ, "UV_LINK_MODE": "hardlink", "VENV": sys.prefix},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise jars.SetUpError(f"Cannot fetch Spark {version}. Is there a network? It said:\n{done.stderr}")
            shutil.rmtree(new / "cache")
            new.rename(there)
    return there / "pyspark"


@cache
def delta_version() -> tuple[int, ...]:
    """Return the version of the Delta Lake that tests run with."""
    (delta,) = (jar for jar in jars.resolve(from_environment().jars) if jar.name.startswith("delta-spark_"))
    return _numbers(delta.stem.rpartition("-")[2])


def spark_version() -> tuple[int, ...]:
    """Return the version of the Spark that tests run with."""
    return _numbers(jars.spark_version())


def needs_delta(major: int, minor: int, feature: str) -> pytest.MarkDecorator:
    """Skip a test whose own statements need a newer Delta Lake than there is; the package is not what lacks it."""
    return pytest.mark.skipif(
        _is_other() and delta_version() < (major, minor), reason=f"Delta Lake {major}.{minor} has {feature}"
    )


def needs_spark(major: int, minor: int, feature: str) -> pytest.MarkDecorator:
    """Skip a test whose own statements, or what Spark answers, need a newer Spark than there is."""
    return pytest.mark.skipif(
        _is_other() and spark_version() < (major, minor), reason=f"Spark {major}.{minor} has {feature}"
    )


def file_is_gone() -> str:
    """Return what Spark says of a file that it looks for in vain."""
    return "FAILED_READ_FILE" if spark_version() >= (4, 0) else "FileNotFoundException"


def let_tests_speak_to_old_servers() -> None:
    """Let sessions that tests open by an address send SQL as servers of Spark 3.5 read it. The package's do so anyway."""
    from pyspark.sql.connect.client import DefaultChannelBuilder, SparkConnectClient

    from airflow_provider_onelake.spark.functions import OldSql

    begin = SparkConnectClient.__init__

    def begun(self: Any, connection: Any, *further: Any, **named: Any) -> None:
        if isinstance(connection, str):
            connection = DefaultChannelBuilder(connection, named.get("channel_options"))
            connection.add_interceptor(OldSql())
        begin(self, connection, *further, **named)

    if _is_other() and spark_version() < (4, 0) and begin.__name__ != begun.__name__:
        SparkConnectClient.__init__ = begun  # type: ignore[method-assign]


def _is_other() -> bool:
    return bool(os.environ.get(jars.OTHER_SPARK))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


GENERATED = needs_delta(4, 4, "generated columns in DDL")


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        print(home(wanted))
