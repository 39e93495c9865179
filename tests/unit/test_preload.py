"""What a process that forks tasks imports for them, and that it does nothing else."""

from __future__ import annotations

import json
import logging
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from airflow_provider_onelake import preload as preloading

ROOT = Path(__file__).resolve().parents[2]

_PRELOAD = """
import json, os, sys, threading
sys.argv = json.loads(sys.argv[1])
import airflow
import airflow.executors.workloads, airflow.sdk.execution_time.supervisor
files = {os.readlink(f"/proc/self/fd/{number}") for number in os.listdir("/proc/self/fd")[:-1]}
print(json.dumps({
    "loaded": sorted(sys.modules),
    "threads": [thread.name for thread in threading.enumerate()],
    "sockets": sorted(file for file in files if file.startswith("socket:")),
}))
"""


def airflow(tmp_path: Path, *argv: str) -> dict[str, list[str]]:
    """Start a process of Airflow with the settings of ``make up``, and return what it has then.

    Airflow imports its settings while it is being imported itself.
    """
    (tmp_path / "config").mkdir()
    shutil.copy(ROOT / "include/local/airflow_local_settings.py", tmp_path / "config")
    done = subprocess.run(
        [sys.executable, "-c", _PRELOAD, json.dumps(["airflow", *argv])],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(tmp_path)},
    )
    found: dict[str, list[str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_process_that_forks_tasks_has_what_they_need_and_opens_nothing(tmp_path: Path) -> None:
    found = airflow(tmp_path, "scheduler", "--skip-serve-logs")
    assert {*preloading._MODULES, "airflow_provider_onelake.writes.publish"} <= set(found["loaded"])
    assert [name for name in found["loaded"] if name.startswith(preloading._NOT_FOR_TASKS)] == []
    assert found["threads"] == ["MainThread"]
    assert found["sockets"] == []


@pytest.mark.parametrize(
    ("command", "forks"),
    [
        pytest.param("airflow scheduler", True, id="local-executor"),
        pytest.param("airflow celery worker --queues spark", True, id="celery"),
        pytest.param("airflow triggerer", False, id="triggerer"),
        pytest.param("airflow dag-processor", False, id="dag-processor"),
        pytest.param("airflow dags test worker", False, id="a-dag-of-that-name"),
        pytest.param("airflow", False, id="no-command"),
    ],
)
def test_a_process_is_known_by_its_command(monkeypatch: pytest.MonkeyPatch, command: str, forks: bool) -> None:
    asked: list[str] = []
    monkeypatch.setattr(sys, "argv", command.split())
    monkeypatch.setattr(preloading, "import_module", asked.append)
    monkeypatch.setattr(preloading, "_for_tasks", lambda _: iter(()))
    preloading.preload()
    assert bool(asked) == forks


def test_what_cannot_be_imported_is_left_to_the_tasks(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "argv", ["airflow", "scheduler"])
    monkeypatch.setattr(preloading, "_MODULES", ("there_is_no_such_module", "json"))
    monkeypatch.setattr(preloading, "_for_tasks", lambda _: iter(()))
    with caplog.at_level(logging.WARNING):
        preloading.preload()
    assert "there_is_no_such_module is not preloaded" in caplog.text
