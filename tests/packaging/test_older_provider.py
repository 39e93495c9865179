"""The oldest Spark provider that is taken, that of Airflow 3.3.1's constraints, does all that the newest does."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

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


def test_the_oldest_provider_submits_and_its_drivers_are_followed(uv: Callable[..., str], tmp_path: Path) -> None:
    published = (ROOT / "tests/packaging/constraints/constraints-3.3.1-python3.12.txt").read_text()
    found = re.search(rf"^{PROVIDER}==(.*)$", published, re.MULTILINE)
    assert found
    assert f'"{PROVIDER}>={found[1]}"' in (ROOT / "pyproject.toml").read_text()
    older = str(tmp_path / "older")
    uv("pip", "install", "--quiet", "--no-deps", "--target", older, found[0])
    (tmp_path / "plugin.py").write_text(PLUGIN.format(older=older, provider=PROVIDER, version=found[1]))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qp", "plugin", SUBMIT],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((older, str(tmp_path)))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
