"""The Spark providers of Airflow's constraints do what the newest does; that of 3.2.1, the oldest, in client mode only."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUBMIT = "tests/unit/spark/submit"
PROVIDER = "apache-airflow-providers-apache-spark"
# Airflow itself stays the installed one. It may not be imported before the tests have given it a home.
PLUGIN = """
import importlib.metadata

def pytest_configure():
    import airflow.providers.apache.spark

    airflow.providers.apache.spark.__path__.insert(0, {older!r} + "/airflow/providers/apache/spark")
    from airflow.providers.apache.spark.hooks import spark_submit

    assert spark_submit.__file__.startswith({older!r})
    assert importlib.metadata.version({provider!r}) == {version!r}
"""


@pytest.mark.parametrize("airflow", ["3.2.1", "3.3.1"])
def test_an_older_provider_submits_and_its_drivers_are_followed(
    uv: Callable[..., str], tmp_path: Path, airflow: str
) -> None:
    published = (ROOT / f"tests/packaging/constraints/constraints-{airflow}-python3.12.txt").read_text()
    found = re.search(rf"^{PROVIDER}==(.*)$", published, re.MULTILINE)
    assert found
    floor = f'"{PROVIDER}>={found[1]}"'
    assert (floor in (ROOT / "pyproject.toml").read_text()) == (airflow == "3.2.1")
    older = str(tmp_path / "older")
    uv("pip", "install", "--quiet", "--no-deps", "--target", older, found[0])
    (tmp_path / "plugin.py").write_text(PLUGIN.format(older=older, provider=PROVIDER, version=found[1]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qp", "plugin", SUBMIT],
        # What the oldest cannot do is skipped, in CI too.
        env={**os.environ, "PYTHONPATH": os.pathsep.join((older, str(tmp_path))), "CI": ""},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
