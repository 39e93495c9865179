"""What runs, and in which order it starts: nothing is scheduled before everything that a task needs answers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import httpx

from . import jars, onelake, postgres, processes
from .api import AirflowApi, WaitTimeoutError, wait_for
from .connect_server import HOST, ConnectServer
from .processes import Command, StackError
from .settings import (
    REPOSITORY,
    SPARK_POOL,
    TRIPS_POOL,
    USER,
    Settings,
    airflow_environment,
    choose_ports,
    known_ports,
    load_secrets,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

_START_SECONDS = 240
_PARSE_SECONDS = 60
_LOCAL_SETTINGS = REPOSITORY / "include" / "local" / "airflow_local_settings.py"
# In the order in which they start. They stop in the reverse order: what uses a process before the process.
_AIRFLOW = ("api-server", "dag-processor", "triggerer", "scheduler")


def connect_server(settings: Settings, jar_files: Sequence[Path] = ()) -> ConnectServer:
    """Return the Spark Connect server of a stack that has its ports: its addresses, its status, its command."""
    ports = known_ports(settings)
    return ConnectServer(
        settings.state,
        port=ports.connect,
        ui_port=ports.spark_ui,
        memory=settings.spark_memory,
        jar_files=jar_files,
        token=load_secrets(settings).connect,
    )


def url(settings: Settings) -> str:
    """Return the address of the web UI of a stack that has its ports."""
    return f"http://{HOST}:{known_ports(settings).api}"


def open_api(settings: Settings) -> AirflowApi:
    """Return a client of the stack's Airflow, logged in as its administrator."""
    return AirflowApi(url(settings), USER, load_secrets(settings).password)


def start(settings: Settings, tell: Callable[[str], None] = lambda _: None) -> None:
    """Start PostgreSQL, Spark Connect and Airflow in the background, and return when they are healthy.

    What an interrupted stack left is ended first. What has started is stopped again when not all of it can.

    :param settings: which stack.
    :param tell: called with a line for people before something that takes long.
    :raises StackError: a process ended or did not answer in time.
    :raises SetUpError: something is missing on this machine.
    """
    processes.shut_down(settings.state)
    for directory in (settings.state, settings.logs, settings.airflow_config, settings.lakehouse):
        directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(_LOCAL_SETTINGS, settings.airflow_config)
    settings.state.chmod(settings.state.stat().st_mode & ~0o022)
    ports, kept = choose_ports(settings, tell), load_secrets(settings)
    server = connect_server(settings, jars.resolve(settings.jars))
    server.prepare()
    lake: list[Command] = []
    more: dict[str, str] = {}
    if settings.onelake:
        lake = [onelake.command(settings, ports)]
        server.settings, more = onelake.for_spark(settings, ports)
    environment = airflow_environment(settings, ports, kept)
    spark = Command("spark-connect", server.command(), server.environment() | more, settings.state, server.log_file)
    airflow = [_airflow_command(settings, name, environment) for name in _AIRFLOW]
    try:
        processes.launch(settings.state, [*lake, spark, postgres.prepare(settings, ports, kept), *airflow])
        # The slowest first: the JVM starts beside the database.
        _run(settings, "spark-connect", *(each.name for each in lake), "postgres")
        if lake:
            _wait(settings, tell, "the local OneLake", lambda: onelake.answers(ports))
        _wait(settings, tell, "PostgreSQL", lambda: postgres.answers(ports, kept))
        tell("Waiting for Airflow's tables, pools and connections")
        _bootstrap(settings, environment, server)
        _start_airflow(settings, tell, server)
    except BaseException as error:
        processes.shut_down(settings.state)
        if isinstance(error, WaitTimeoutError):
            raise StackError(f"{error} The logs are in {settings.logs}.") from None
        raise


def is_complete(settings: Settings) -> bool:
    """Whether a stack runs, and every process was started: its start was not interrupted."""
    if processes.leader(settings.state) is None:
        return False
    return all(process.state != "STOPPED" for process in processes.look(settings.state))


def import_errors(api: AirflowApi) -> list[str]:
    """Return the DAG files that Airflow cannot import, each with the last line of the traceback."""
    return [
        f"{problem['filename']}: {(problem['stack_trace'].strip().splitlines() or ['no traceback'])[-1]}"
        for problem in api.import_errors()
    ]


def _airflow_command(settings: Settings, name: str, environment: dict[str, str]) -> Command:
    return Command(
        name=name,
        argv=[sys.executable, "-m", "airflow", name],
        env=environment,
        cwd=settings.airflow_home,
        log=settings.logs / f"{name}.log",
        # The scheduler does not tell the running tasks; the others tell their own, and trip when both are told.
        stop_group=name == "scheduler",
        # The triggerer waits 10 s for its runner, now and then in vain. Its triggers are in the database.
        grace=3 if name == "triggerer" else 10,
    )


def _run(settings: Settings, *names: str) -> None:
    for name in names:
        processes.start(settings.state, name)


def _bootstrap(settings: Settings, environment: dict[str, str], server: ConnectServer) -> None:
    log = settings.logs / "bootstrap.log"
    spark_pool = {"name": SPARK_POOL, "slots": settings.spark_slots, "description": "Spark jobs that run at once"}
    spark = {
        "conn_id": "spark_connect_default",
        "conn_type": "spark_connect",
        "host": "sc://localhost",
        "port": server.port,
        "password": server.token,
        "description": "Spark Connect server of the local stack",
    }
    lakehouse: dict[str, Any] = {
        "conn_type": "onelake",
        "extra": {"lakehouse": str(settings.lakehouse), "namespace": "local"},
    }
    if settings.onelake:
        lakehouse = onelake.connection(settings, known_ports(settings))
    lakehouse |= {"conn_id": "onelake_default", "description": "Lakehouse of the local stack"}
    with log.open("ab") as output:
        done = subprocess.run(
            [sys.executable, "-m", "include.local.bootstrap"],
            env=environment,
            cwd=REPOSITORY,
            input=json.dumps({"pools": [spark_pool, TRIPS_POOL], "connections": [spark, lakehouse]}).encode(),
            stdout=output,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode:
        said = processes.last_lines(log)
        raise StackError(f"Airflow's database could not be set up. Last lines of {log}:\n{said}")


def _start_airflow(settings: Settings, tell: Callable[[str], None], server: ConnectServer) -> None:
    with open_api(settings) as api:
        began = datetime.now(UTC)
        _run(settings, *_AIRFLOW[:-1])
        parts = ("metadatabase", "dag_processor", "triggerer")
        _wait(settings, tell, "Airflow's API, DAG processor and triggerer", lambda: _healthy(api, parts, began))
        # The health of Airflow says nothing of it, and the first task would wait for it.
        _wait(settings, tell, "Airflow's API for tasks", api.serves_tasks)
        _wait(settings, tell, "Spark Connect", server.healthy)
        # A run that is scheduled before all of that answers would fail.
        again = datetime.now(UTC)
        _run(settings, _AIRFLOW[-1])
        _wait(settings, tell, "Airflow's scheduler", lambda: _healthy(api, ("scheduler",), again))
        try:
            _wait(settings, tell, "the DAGs to be parsed", lambda: not _unparsed(settings, api), _PARSE_SECONDS)
        except WaitTimeoutError:
            tell(f"No DAG was found in {', '.join(_unparsed(settings, api))}")


def _wait(
    settings: Settings, tell: Callable[[str], None], what: str, ready: Callable[[], bool], timeout: int = _START_SECONDS
) -> None:
    def is_ready() -> bool:
        for process in processes.look(settings.state):
            if process.ended:
                said = [line for line in processes.events(settings.state) if f"exited: {process.name} " in line]
                raise StackError(
                    f"{process.name} ended while the stack was starting{f' ({said[-1]})' if said else ''}. "
                    f"Last lines of {process.log}:\n{processes.last_lines(process.log)}"
                )
        return ready()

    tell(f"Waiting for {what}")
    wait_for(is_ready, what, timeout, every=0.25)


def _unparsed(settings: Settings, api: AirflowApi) -> list[str]:
    """Return the DAG files that have not been parsed yet."""
    seen = {str(dag["relative_fileloc"]) for dag in api.dags()} | {error["filename"] for error in api.import_errors()}
    return sorted(
        file for folder in settings.dag_folders for file in _dag_files(folder) if not {file, f"{folder}/{file}"} & seen
    )


def _healthy(api: AirflowApi, parts: tuple[str, ...], began: datetime) -> bool:
    """Whether these parts of Airflow beat since ``began``: the heart-beats of the last start may still look fresh."""
    try:
        health = api.health()
    except (httpx.HTTPError, ValueError):
        return False
    said = {name: health.get(name) or {} for name in parts}
    beats = [part.get(f"latest_{name}_heartbeat") for name, part in said.items() if name != "metadatabase"]
    return all(part.get("status") == "healthy" for part in said.values()) and all(
        beat is not None and datetime.fromisoformat(beat) >= began for beat in beats
    )


def _dag_files(folder: Path) -> list[str]:
    """Return the files that Airflow takes for DAG files: its own rule of thumb, without ``.airflowignore``."""
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*.py")
        if b"dag" in (text := file.read_bytes().lower()) and b"airflow" in text
    ]
