"""A live Airflow of the tests' own: state, ports and lakehouse apart from those of ``make up``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import httpx
import psutil
import pytest

from include.local import postgres, processes, stack
from include.local.api import ApiError, wait_for
from include.local.jars import SetUpError
from include.local.settings import REPOSITORY, Settings, from_environment
from tests.support.spark import Server

# Stops a stack when a process is gone, however that ended. It ends with the stack, of which it is no part.
_GUARD = """
import sys, time
from pathlib import Path
import psutil
from include.local import processes

owner, state = int(sys.argv[1]), Path(sys.argv[2])
began, seen = time.monotonic(), False
while psutil.pid_exists(owner) and (processes.leader(state) or not seen and time.monotonic() < began + 60):
    seen = seen or processes.leader(state) is not None
    time.sleep(0.5)
if not psutil.pid_exists(owner):
    processes.shut_down(state)
"""


class LiveStack:
    """A running stack, as a test sees it.

    ``api`` is Airflow's REST API, ``connect_server`` the Spark Connect server (its address, status and jobs),
    ``lakehouse`` the directory of ``onelake_default``, ``logs`` the logs of the processes, ``dags`` a folder of its own
    for DAGs that a test writes.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.ports = settings.ports
        self.api = stack.open_api(settings)
        token = settings.secret("connect")
        self.connect_server = Server(settings.state, port=self.ports.connect, ui_port=self.ports.spark_ui, token=token)
        self.lakehouse = settings.lakehouse
        self.logs = settings.logs
        self.dags = settings.dags[-1]

    @property
    def task_logs(self) -> Path:
        """Directory of the logs of tasks."""
        return self.settings.state / "airflow" / "logs"

    @property
    def spark_events(self) -> Path:
        """Directory of Spark's event logs, one file for each start of the server."""
        return self.connect_server.event_log_dir

    def pid(self, name: str) -> int | None:
        """Return the pid of ``spark-connect``, ``postgres``, ``api-server``, ``dag-processor``, ``triggerer`` or
        ``scheduler``, None while it does not run."""
        said = processes.ask(self.settings.state, "getProcessInfo", name)
        return said["pid"] or None

    def kill(self, name: str) -> int:
        """Kill a process of the stack and its children as ``kill -9`` does, and return the pid that it had."""
        first = psutil.Process(self.pid(name))
        for process in (first, *first.children(recursive=True)):
            process.kill()
        return first.pid

    def wait_until_restarted(self, name: str, former: int, timeout: float = 90) -> int:
        """Return the pid of a process that was started again."""
        return wait_for(lambda: pid if (pid := self.pid(name)) != former else None, f"{name} to be restarted", timeout)

    def wait_until_spark_answers(self, timeout: float = 90) -> None:
        """Return when the Spark Connect server takes work."""
        wait_for(self.connect_server.healthy, "Spark Connect to answer", timeout)

    def wait_until_healthy(self, timeout: float = 120) -> None:
        """Return when Airflow's API answers and says that all its parts are well, and Spark takes work."""

        def healthy() -> bool:
            try:
                parts = self.api.health()
                self.api.dags()
            except (httpx.HTTPError, ApiError):
                return False
            return all(parts[part]["status"] == "healthy" for part in ("metadatabase", "scheduler", "triggerer"))

        wait_for(healthy, "Airflow to be healthy", timeout)
        self.wait_until_spark_answers(timeout)

    def kill_task(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> int:
        """Kill the process of a running task as ``kill -9`` does, and return its pid."""
        pid = wait_for(
            lambda: next(
                (
                    task["pid"]
                    for task in self.api.task_instances(dag_id, run_id, task_id)
                    if task["map_index"] == map_index and task["state"] == "running"
                ),
                None,
            ),
            f"{task_id}[{map_index}] to run",
            60,
        )
        os.kill(pid, signal.SIGKILL)
        return int(pid)

    def add_dag(self, dag_id: str, source: str, timeout: float = 60, *, unpause: bool = True) -> None:
        """Write a DAG file, wait until Airflow knows the DAG, and unpause it."""
        fresh = self.dags / f".{dag_id}"
        fresh.write_text(textwrap.dedent(source))
        fresh.replace(self.dags / f"{dag_id}.py")

        def parsed() -> bool:
            problems = [e["stack_trace"] for e in self.api.import_errors() if e["filename"].endswith(f"{dag_id}.py")]
            assert not problems, problems[0]
            return dag_id in {dag["dag_id"] for dag in self.api.dags()}

        wait_for(parsed, f"DAG {dag_id} to be parsed", timeout)
        if unpause:
            self.api.unpause(dag_id)

    def run_dag(self, dag_id: str, timeout: float = 300, **trigger: object) -> dict[str, object]:
        """Start a run by hand, wait until it has ended, and return it."""
        run_id = self.api.trigger(dag_id, **trigger)
        return self.api.wait_for_run(dag_id, run_id, timeout)


def make_settings(directory: Path, *dag_folders: Path, **environment: str) -> Settings:
    """Settings of a stack that shares nothing but the JARs with any other.

    :param directory: parent of its state and of a folder for DAGs that are written while it runs.
    :param dag_folders: folders of DAGs; those that do not exist are left out.
    """
    own = directory / "dags"
    own.mkdir(parents=True, exist_ok=True)
    return from_environment(
        state=directory / "state",
        dags=(*(folder for folder in dag_folders if folder.is_dir()), own),
        lakehouse=directory / "lakehouse",
        any_port=True,
        environment={
            "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "2",
            # A DAG file is parsed when it is new or has changed. To parse all of them again and again, every 30 s by
            # default, keeps a third of a core busy.
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "600",
            **environment,
        },
    )


def start(settings: Settings, owner: int | None = None) -> LiveStack:
    """Start a stack that ends with its owner, by default this process, and return when every DAG imports."""
    guard = [sys.executable, "-c", _GUARD, str(owner or os.getpid()), str(settings.state)]
    subprocess.Popen(guard, cwd=REPOSITORY, start_new_session=True).returncode = 0  # it may outlive this process
    said: list[str] = []
    try:
        stack.start(settings, said.append)
    except SetUpError as error:
        pytest.fail("\n".join([str(error), *said]))
    running = LiveStack(settings)
    if broken := stack.import_errors(running.api):
        processes.shut_down(settings.state)
        pytest.fail("\n".join(broken))
    return running


def stop(settings: Settings) -> None:
    """Stop a stack, delete its database, and make sure that no process is left."""
    processes.shut_down(settings.state)
    postgres.remove(settings.state)
    assert processes.leftovers(settings.state) == []
