"""What runs, and in which order it starts: nothing is scheduled before everything that a task needs answers."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from . import jars, onelake, postgres, processes
from .api import AirflowApi, ApiError, wait_for
from .connect_server import HOST, ConnectServer, listens
from .jars import SetUpError
from .settings import SPARK_POOL, TRIPS_POOL, USER, Settings, airflow_environment, choose_ports


def connect_server(settings: Settings, jar_files: Sequence[Path] = ()) -> ConnectServer:
    """Return the Spark Connect server of a stack that has its ports: its addresses, its status, its command."""
    ports, token = settings.ports, settings.secret("connect")
    return ConnectServer(settings.state, port=ports.connect, ui_port=ports.spark_ui, jar_files=jar_files, token=token)


def open_api(settings: Settings) -> AirflowApi:
    """Return a client of the Airflow of a stack that has its ports, logged in as its administrator."""
    return AirflowApi(f"http://{HOST}:{settings.ports.api}", USER, settings.password)


def start(settings: Settings, tell: Callable[[str], None] = lambda _: None) -> None:
    """Start PostgreSQL, Spark Connect and Airflow in the background, and return when they are healthy.

    What an interrupted stack left is ended first. What has started is stopped again when not all of it can.

    :param settings: which stack.
    :param tell: called with a line for people before something that takes long.
    :raises SetUpError: something is missing on this machine, a process ended or did not answer in time.
    """
    state = settings.state
    processes.shut_down(state)
    config = state / "airflow" / "config"
    config.mkdir(parents=True, exist_ok=True)
    shutil.copy(Path(__file__).with_name("airflow_local_settings.py"), config)
    settings.lakehouse.mkdir(parents=True, exist_ok=True)
    choose_ports(settings, tell)
    server = connect_server(settings, jars.resolve(settings.jars))
    environment = airflow_environment(settings)
    try:
        processes.launch(state, _programs(settings, server), environment)
        _start_in_order(settings, tell, server, environment)
    except BaseException as error:
        processes.shut_down(state)
        if isinstance(error, ApiError | httpx.HTTPError | TimeoutError):
            raise SetUpError(f"{error} The logs are in {settings.logs}.") from None
        raise


def _programs(settings: Settings, server: ConnectServer) -> dict[str, dict[str, object]]:
    """Return supervisord's programs. They stop in the reverse order: what uses a process before the process."""
    found: dict[str, dict[str, object]] = {}
    more: dict[str, str] = {}
    if settings.onelake:
        found[onelake.NAME] = {"command": shlex.join(onelake.command(settings))}
        server.settings, more = onelake.for_spark(settings)
    server.prepare()
    own = more | {key: value for key, value in server.environment().items() if os.environ.get(key) != value}
    quoted = ",".join(f'{key}="{value.replace("%", "%%")}"' for key, value in own.items())
    found["spark-connect"] = {"command": shlex.join(server.command()), "environment": quoted}
    found["postgres"] = postgres.prepare(settings)
    for name in ("api-server", "dag-processor", "triggerer", "scheduler"):
        found[name] = {
            "command": shlex.join([sys.executable, "-m", "airflow", name]),
            # The scheduler does not tell the running tasks; the others tell their own, and trip when both are told.
            "stopasgroup": name == "scheduler",
            # The triggerer waits 10 s for its runner, now and then in vain. Its triggers are in the database.
            "stopwaitsecs": 3 if name == "triggerer" else 10,
        }
    return found


def _start_in_order(
    settings: Settings, tell: Callable[[str], None], server: ConnectServer, environment: dict[str, str]
) -> None:
    def wait(what: str, ready: Callable[[], bool], seconds: int = 240) -> None:
        def is_ready() -> bool:
            _check_processes(settings.state)
            return ready()

        tell(f"Waiting for {what}")
        wait_for(is_ready, what, seconds, every=0.25)

    # The slowest first: the JVM starts beside the database.
    processes.start(settings.state, "spark-connect", "postgres")
    if settings.onelake:
        processes.start(settings.state, onelake.NAME)
        wait("the local OneLake", lambda: listens(settings.ports.onelake))
    wait("PostgreSQL", lambda: postgres.answers(settings))
    tell("Waiting for Airflow's tables")
    migrate = [sys.executable, "-m", "airflow", "db", "migrate"]
    done = subprocess.run(migrate, env=environment, cwd=settings.state, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SetUpError(f"Airflow's tables could not be made:\n{(done.stdout + done.stderr)[-2000:]}")
    api, began = open_api(settings), datetime.now(UTC)
    processes.start(settings.state, "api-server", "dag-processor", "triggerer")
    wait("Airflow's API", lambda: _beats(api, began))
    _set_up(settings, api)
    # The health of Airflow says nothing of it, and the first task would wait for it.
    wait("Airflow's API for tasks", api.serves_tasks)
    wait("Spark Connect", server.healthy)
    # A run that is scheduled before all of that answers would fail.
    processes.start(settings.state, "scheduler")
    others = ("dag_processor", "triggerer", "scheduler")
    wait("Airflow's DAG processor, triggerer and scheduler", lambda: _beats(api, began, *others))
    try:
        wait("the DAGs to be parsed", lambda: not _unparsed(settings, api), 60)
    except TimeoutError:
        tell(f"No DAG was found in {', '.join(_unparsed(settings, api))}")


def import_errors(api: AirflowApi) -> list[str]:
    """Return the DAG files that Airflow cannot import, each with the last line of the traceback."""
    return [f"{error['filename']}: {error['stack_trace'].strip().splitlines()[-1]}" for error in api.import_errors()]


def _set_up(settings: Settings, api: AirflowApi) -> None:
    """Make the pools and connections, or bring them up to date."""
    lakehouse: dict[str, Any] = {"extra": {"lakehouse": str(settings.lakehouse), "namespace": "local"}}
    if settings.onelake:
        lakehouse = onelake.connection(settings)
    lakehouse |= {"conn_type": "onelake", "connection_id": "onelake_default", "extra": json.dumps(lakehouse["extra"])}
    spark = {
        "connection_id": "spark_connect_default",
        "conn_type": "spark_connect",
        "host": "sc://localhost",
        "port": settings.ports.connect,
        "password": settings.secret("connect"),
    }
    for path, wanted in {"pools": [SPARK_POOL, TRIPS_POOL], "connections": [spark, lakehouse]}.items():
        action = {"action": "create", "entities": wanted, "action_on_existence": "overwrite"}
        if errors := api.request("PATCH", path, json={"actions": [action]})["create"]["errors"]:
            raise SetUpError(f"Airflow did not take the {path}: {errors}")


def _check_processes(state: Path) -> None:
    for process in processes.ask(state, "getAllProcessInfo"):
        if process["statename"] in ("BACKOFF", "EXITED", "FATAL"):
            name, log = process["name"], process["stdout_logfile"]
            last = Path(log).read_text(errors="replace")[-2000:]
            raise SetUpError(f"{name} ended while the stack was starting. {log} ends with:\n{last}")


def _beats(api: AirflowApi, began: datetime, *parts: str) -> bool:
    """Whether Airflow answers, and these parts of it beat since ``began``: a beat of the last start looks fresh too."""
    try:
        health = api.health()
    except (httpx.TransportError, ApiError):
        return False
    beats = [(health[part] or {}).get(f"latest_{part}_heartbeat") for part in parts]
    return all(beat and datetime.fromisoformat(beat) >= began for beat in beats)


def _unparsed(settings: Settings, api: AirflowApi) -> list[str]:
    """Return the DAG files that have not been parsed yet, by Airflow's own rule of thumb for what is one."""
    seen = {Path(dag["fileloc"]).name for dag in api.dags()} | {Path(e["filename"]).name for e in api.import_errors()}
    files = [file for folder in settings.dags for file in sorted(folder.rglob("*.py")) if file.name not in seen]
    return [str(file) for file in files if all(word in file.read_bytes().lower() for word in (b"dag", b"airflow"))]
