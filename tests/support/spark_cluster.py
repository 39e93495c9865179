"""A Spark standalone cluster as processes of this machine: a master and workers that tests may kill."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from include.local import jars
from include.local.connect_server import HOST, free_port, listens
from tests.support import spark_jvms
from tests.support.spark import Server

_CORES = 1
_MEMORY = "768m"
_EXECUTOR_MEMORY = "512m"


@attrs.define
class Daemon:
    """A master, or a worker with the drivers and executors that it starts."""

    command: list[str]
    log: Path
    environment: dict[str, str]
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it in a process group of its own."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Kill it and what it started, as a machine that is lost. No-op when it is down."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def children(self) -> list[tuple[int, str]]:
        """Process ids and command lines of what runs in its group, but for itself."""
        found = []
        for directory in Path("/proc").iterdir():
            with contextlib.suppress(OSError, ValueError):
                pid = int(directory.name)
                if self.process is not None and pid != self.process.pid and os.getpgid(pid) == self.process.pid:
                    found.append((pid, (directory / "cmdline").read_text().replace("\0", " ")))
        return found


class Cluster:
    """A master and two workers with a core and an executor of 512 MB each."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.port, self.ui_port, self.rest_port = free_port(), free_port(), free_port()
        self.event_log = state / "events"
        master = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self.ui_port)]
        self.master_daemon = self._daemon("master", "org.apache.spark.deploy.master.Master", master)
        self.workers = [self._worker(name) for name in ("worker-1", "worker-2")]

    @property
    def master(self) -> str:
        """Its address."""
        return f"spark://{HOST}:{self.port}"

    def connection(self, files: list[Path], **extra: Any) -> dict[str, Any]:
        """An Airflow connection of the type ``spark`` to it."""
        conf = {
            **spark_jvms.INTERPRETED,
            "spark.executor.memory": _EXECUTOR_MEMORY,
            "spark.driver.memory": _MEMORY,
            "spark.driver.extraJavaOptions": spark_jvms.options(),
            "spark.executor.extraJavaOptions": spark_jvms.options(),
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.ui.enabled": False,
            "spark.sql.shuffle.partitions": 2,
            "spark.databricks.delta.snapshotPartitions": 2,
            "spark.eventLog.enabled": True,
            "spark.eventLog.dir": self.event_log.as_uri(),
            **extra.pop("conf", {}),
        }
        return {
            "conn_type": "spark",
            "host": f"spark://{HOST}",
            "port": self.port,
            "extra": {"jars": ",".join(map(str, files)), "rest-port": str(self.rest_port), "conf": conf, **extra},
        }

    def start(self) -> None:
        """Start all of it and wait until the workers are known."""
        self.event_log.mkdir(parents=True, exist_ok=True)
        self.master_daemon.start()
        until(lambda: listens(self.port) and listens(self.ui_port))
        for worker in self.workers:
            worker.start()
        self.wait_workers(len(self.workers))

    def wait_workers(self, count: int) -> None:
        """Wait until the master knows so many living workers."""
        until(lambda: self.status()["aliveworkers"] == count)

    def stop(self) -> None:
        """End all of it."""
        for daemon in (*self.workers, self.master_daemon):
            daemon.kill()

    def status(self) -> dict[str, Any]:
        """What the master says."""
        with urllib.request.urlopen(f"http://{HOST}:{self.ui_port}/json/", timeout=10) as answer:
            said: dict[str, Any] = json.load(answer)
        return said

    def drivers(self) -> set[str]:
        """Ids of all drivers that were ever submitted to it."""
        said = self.status()
        return {driver["id"] for driver in (*said["activedrivers"], *said["completeddrivers"])}

    def applications(self) -> set[str]:
        """Ids of all applications that ever ran on it."""
        said = self.status()
        return {application["id"] for application in (*said["activeapps"], *said["completedapps"])}

    def executors(self) -> list[tuple[Daemon, int]]:
        """Workers with the process ids of the executors on them."""
        return [
            (worker, pid)
            for worker in self.workers
            for pid, command in worker.children()
            if "CoarseGrainedExecutorBackend" in command
        ]

    def _worker(self, name: str) -> Daemon:
        arguments = ["--host", HOST, "--port", str(free_port()), "--webui-port", str(free_port())]
        # Room for a driver beside the executor.
        arguments += ["--cores", str(2 * _CORES), "--memory", "2g", "--work-dir", str(self.state / name)]
        return self._daemon(name, "org.apache.spark.deploy.worker.Worker", [*arguments, self.master])

    def _daemon(self, name: str, main: str, arguments: list[str]) -> Daemon:
        self.state.mkdir(parents=True, exist_ok=True)
        environment = {
            **jars.environment(),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": f"-Dspark.master.rest.enabled=true -Dspark.master.rest.port={self.rest_port} "
            f"-Dspark.master.rest.host={HOST} -Dspark.worker.timeout=10 {spark_jvms.options()}",
            "PYSPARK_PYTHON": sys.executable,
        }
        command = [str(jars.spark_home() / "bin" / "spark-class"), main, *arguments]
        return Daemon(command, self.state / f"{name}.log", environment)


def until(condition: Callable[[], Any], seconds: float = 240) -> Any:
    """Wait until something is true, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, ValueError):
            if found := condition():
                return found
        time.sleep(0.1)
    raise AssertionError(f"{condition} did not come true within {seconds} s")


class ClusterConnectServer(Server):
    """A Spark Connect server whose executors are the cluster's."""

    def __init__(self, cluster: Cluster, files: list[Path]) -> None:
        settings = {**spark_jvms.INTERPRETED, "spark.executor.memory": _EXECUTOR_MEMORY}
        super().__init__(
            cluster.state / "connect",
            port=free_port(),
            ui_port=free_port(),
            jar_files=files,
            settings=settings,
            memory=_MEMORY,
        )
        self.cluster = cluster

    def command(self) -> list[str]:
        """See :meth:`~include.local.connect_server.ConnectServer.command`."""
        command = super().command()
        command[command.index("--master") + 1] = self.cluster.master
        return command
