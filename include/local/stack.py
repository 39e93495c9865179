"""What runs, and in which order it starts: nothing is scheduled before everything that a task needs answers."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

import attrs
import httpx

from . import jars, postgres
from .api import AirflowApi
from .connect_server import ConnectServer
from .processes import MARK, Command, Supervised
from .settings import (
    HOST,
    REPOSITORY,
    SPARK_POOL,
    TRIPS_POOL,
    USER,
    Ports,
    Settings,
    airflow_environment,
    choose_ports,
    load_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_START_SECONDS = 240
_PARSE_SECONDS = 60


class StackError(RuntimeError):
    """The stack did not start; the message says which process, why, and where its log is."""


class StoppedError(Exception):
    """The start was given up because somebody asked to stop."""


@attrs.frozen
class ImportProblem:
    """A DAG file that Airflow cannot import.

    :param file: path in the DAG folder.
    :param trace: the traceback.
    """

    file: str
    trace: str

    @property
    def last_line(self) -> str:
        """What went wrong, in a line."""
        return (self.trace.strip().splitlines() or ["no traceback"])[-1]


def connect_server(settings: Settings, ports: Ports) -> ConnectServer:
    """Return the stack's Spark Connect server: its addresses, its status, its command."""
    return ConnectServer(
        settings.state, port=ports.connect, ui_port=ports.spark_ui, memory=settings.spark_memory, cores=2
    )


def open_api(settings: Settings, ports: Ports) -> AirflowApi:
    """Return a client of the stack's Airflow, logged in as its administrator."""
    return AirflowApi(f"http://{HOST}:{ports.api}", USER, load_secrets(settings).password)


class Stack:
    """PostgreSQL, Spark Connect and Airflow's four processes.

    :param settings: which stack.
    :param tell: called with a line for people when something happens.
    :param stop_asked: set by whoever wants it to stop, also while it starts.
    """

    def __init__(
        self, settings: Settings, tell: Callable[[str], None] = lambda _: None, stop_asked: Event | None = None
    ) -> None:
        self.settings = settings
        self.ports: Ports | None = None
        self.services: list[Supervised] = []
        self.import_problems: list[ImportProblem] = []
        self._tell = tell
        self._stop_asked = stop_asked or Event()

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything and return when it is healthy.

        :raises StackError: a process ended or did not answer in time. What has started still runs: call :meth:`stop`.
        :raises jars.SetUpError: something is missing on this machine.
        :raises StoppedError: ``stop_asked`` was set meanwhile.
        """
        settings = self.settings
        for directory in (settings.state, settings.logs, settings.run, settings.airflow_home, settings.lakehouse):
            directory.mkdir(parents=True, exist_ok=True)
        settings.state.chmod(settings.state.stat().st_mode & ~0o022)
        ports = self.ports = choose_ports(settings)
        kept = load_secrets(settings)

        # The slowest first: the JVM starts beside the database.
        server = connect_server(settings, ports)
        self._add(self._connect_command(server))
        database = self._add(postgres.prepare(settings, ports, kept))
        self._wait("PostgreSQL", lambda: postgres.answers(ports, kept), [database])

        environment = airflow_environment(settings, ports, kept)
        self._bootstrap(environment, server)
        began = datetime.now(UTC)
        for name in ("api-server", "dag-processor", "triggerer"):
            self._add(self._airflow_command(name, environment))
        with open_api(settings, ports) as api:
            parts = ("metadatabase", "dag_processor", "triggerer")
            self._wait("Airflow's API, DAG processor and triggerer", lambda: _healthy(api, parts, began), self.services)
            self._wait("Spark Connect", server.healthy, self.services)
            # A run that is scheduled before all of that answers would fail.
            began = datetime.now(UTC)
            self._add(self._airflow_command("scheduler", environment))
            self._wait("Airflow's scheduler", lambda: _healthy(api, ("scheduler",), began), self.services)
            self._gate_on_imports(api)

    def watch(self) -> None:
        """Start again what has died. Call it about twice a second."""
        for service in self.services:
            service.watch()

    def stop(self) -> None:
        """Stop everything, what uses a process before the process. No-op for what does not run."""
        for service in reversed(self.services):
            self._tell(f"Stopping {service.command.name}")
            service.stop()
        self.services.clear()

    # -- parts -----------------------------------------------------------------------------------------------------

    def _add(self, command: Command) -> Supervised:
        service = Supervised(command, self.settings.run, self._tell)
        service.start()
        self.services.append(service)
        return service

    def _connect_command(self, server: ConnectServer) -> Command:
        server = ConnectServer(
            server.state,
            port=server.port,
            ui_port=server.ui_port,
            memory=server.memory,
            cores=server.cores,
            jar_files=jars.resolve(self.settings.jars),
        )
        server.prepare()
        return Command(
            name="spark-connect",
            argv=server.command(),
            env={**server.environment(), MARK: self.settings.mark},
            cwd=self.settings.state,
            log=server.log_file,
        )

    def _airflow_command(self, name: str, environment: dict[str, str]) -> Command:
        return Command(
            name=name,
            argv=[sys.executable, "-m", "airflow", name],
            env=environment,
            cwd=self.settings.airflow_home,
            log=self.settings.logs / f"{name}.log",
            # The scheduler does not tell the running tasks; the others tell their own, and trip when both are told.
            stop_whole_session=name == "scheduler",
            # The triggerer waits 10 s for its runner, now and then in vain. Its triggers are in the database.
            grace=3 if name == "triggerer" else 10,
        )

    def _bootstrap(self, environment: dict[str, str], server: ConnectServer) -> None:
        log = self.settings.logs / "bootstrap.log"
        wanted = {
            "pools": [
                {"name": SPARK_POOL, "slots": self.settings.spark_slots, "description": "Spark jobs that run at once"},
                TRIPS_POOL,
            ],
            "connections": [
                {
                    "conn_id": "spark_connect_default",
                    "conn_type": "spark_connect",
                    "host": f"sc://{HOST}",
                    "port": server.port,
                    "description": "Spark Connect server of the local stack",
                },
                {
                    "conn_id": "onelake_default",
                    "conn_type": "onelake",
                    "extra": {"lakehouse": str(self.settings.lakehouse), "namespace": "local"},
                    "description": "Lakehouse of the local stack",
                },
            ],
        }
        self._tell("Waiting for Airflow's tables, pools and connections")
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "include.local.bootstrap"],
                env=environment,
                cwd=REPOSITORY,
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
            try:
                assert process.stdin is not None
                process.stdin.write(json.dumps(wanted).encode())
                process.stdin.close()
                self._until(lambda: process.poll() is not None, "Airflow's tables", self.services)
            finally:
                process.kill()
                process.wait()
        if process.returncode != 0:
            raise StackError(f"Airflow's database could not be set up. Last lines of {log}:\n{last_lines(log)}")

    def _gate_on_imports(self, api: AirflowApi) -> None:
        """Wait until every DAG file has been parsed, and note those that cannot be imported."""
        self._tell("Waiting for the DAGs to be parsed")
        missing: set[str] = set()

        def parsed() -> bool:
            errors = [ImportProblem(problem["filename"], problem["stack_trace"]) for problem in api.import_errors()]
            seen = {str(dag["relative_fileloc"]) for dag in api.dags()} | {error.file for error in errors}
            self.import_problems = errors
            missing.clear()
            for folder in self.settings.dag_folders:
                missing.update(file for file in _dag_files(folder) if not {file, f"{folder}/{file}"} & seen)
            return not missing

        try:
            self._until(parsed, "the DAGs to be parsed", self.services, _PARSE_SECONDS)
        except StackError:
            if any(service.pid is None for service in self.services):
                raise
            self._tell(f"No DAG was found in {', '.join(sorted(missing))}")
        for problem in self.import_problems:
            self._tell(f"{problem.file} cannot be imported: {problem.last_line}")

    # -- waiting ---------------------------------------------------------------------------------------------------

    def _wait(self, what: str, ready: Callable[[], bool], needed: list[Supervised]) -> None:
        self._tell(f"Waiting for {what}")
        self._until(ready, what, needed)

    def _until(
        self, ready: Callable[[], bool], what: str, needed: list[Supervised], timeout: float = _START_SECONDS
    ) -> None:
        deadline = time.monotonic() + timeout
        while True:
            for service in needed:
                if service.pid is None:
                    command = service.command
                    raise StackError(
                        f"{command.name} ended with status {service.exit_status} while the stack was starting. "
                        f"Last lines of {command.log}:\n{last_lines(command.log)}"
                    )
            if ready():
                return
            if time.monotonic() >= deadline:
                raise StackError(f"Waited {timeout:.0f} s for {what}. The logs are in {self.settings.logs}.")
            if self._stop_asked.wait(0.25):
                raise StoppedError


def last_lines(log: Path, lines: int = 15) -> str:
    """Return the end of a log, for a message.

    :param log: the file.
    :param lines: how many.
    """
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error})"


def _healthy(api: AirflowApi, parts: tuple[str, ...], began: datetime) -> bool:
    """Whether these parts of Airflow beat since ``began``: the heart-beats of the last start may still look fresh."""
    try:
        health = api.health()
    except (httpx.HTTPError, ValueError):
        return False
    return all(_beats(health.get(part) or {}, part, began) for part in parts)


def _beats(part: dict[str, Any], name: str, began: datetime) -> bool:
    if part.get("status") != "healthy":
        return False
    latest = part.get(f"latest_{name}_heartbeat")
    return name == "metadatabase" or (latest is not None and datetime.fromisoformat(latest) >= began)


def _dag_files(folder: Path) -> set[str]:
    """Return the files that Airflow takes for DAG files: its own rule of thumb, without ``.airflowignore``."""
    found = set()
    for file in folder.rglob("*.py"):
        text = file.read_bytes().lower()
        if b"dag" in text and b"airflow" in text:
            found.add(str(file.relative_to(folder)))
    return found
