"""The Spark provider of Airflow 3.2.1's constraints submits jobs, and where it cannot follow them it is refused."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUBMIT = "tests/unit/engines/submit"
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


def test_an_older_provider_submits_and_is_refused_where_it_cannot_follow(
    uv: Callable[..., str], tmp_path: Path
) -> None:
    published = (ROOT / "tests/packaging/constraints/constraints-3.2.1-python3.12.txt").read_text()
    found = re.search(rf"^{PROVIDER}==(.*)$", published, re.MULTILINE)
    assert found
    older = str(tmp_path / "older")
    uv("pip", "install", "--quiet", "--no-deps", "--target", older, found[0])
    (tmp_path / "plugin.py").write_text(PLUGIN.format(older=older, provider=PROVIDER, version=found[1]))
    # Before 6.3 the provider leaves its output to the task's log, so the error does not repeat the last lines.
    but = f"--deselect={SUBMIT}/test_engine.py::test_a_driver_without_a_result_says_its_last_lines_without_secrets"
    tests = ("test_engine.py", "test_yarn.py", "test_hook.py::test_a_driver_in_the_task_needs_no_rest_server")
    refused = (
        "test_hook.py::test_a_standalone_master_in_cluster_mode_needs_a_provider_that_knows_its_rest_server",
        "test_kubernetes.py::test_a_provider_that_cannot_leave_a_pod_at_work_is_refused_with_what_to_install",
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-qp", "plugin", but, *(f"{SUBMIT}/{name}" for name in tests + refused)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join((older, str(tmp_path)))},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
