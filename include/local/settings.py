"""Where a local stack keeps its things, on which ports it listens, and the environment of Airflow's processes."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tempfile
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from .connect_server import HOST, free_port, listens
from .jars import SetUpError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

REPOSITORY = Path(__file__).resolve().parents[2]
USER = "admin"
SPARK_POOL = "spark"
# How many writers of the taxi trips run at once, whoever's: the pool that the example DAGs name.
TRIPS_POOL = {
    "name": "trips",
    "slots": 4,
    "description": "Writers of the table of taxi trips that run at once",
    "include_deferred": True,
}


@attrs.frozen
class Ports:
    """TCP ports of a stack on 127.0.0.1; the usual ones are taken when they are free.

    The environment variable ``LOCAL_<NAME>_PORT`` chooses another one; then it must be free.

    :param api: Airflow's web UI and API.
    :param connect: Spark Connect.
    :param spark_ui: Spark's UI and status API.
    :param postgres: PostgreSQL.
    :param worker_logs: Airflow's server of the logs of running tasks.
    :param trigger_logs: Airflow's server of the logs of running triggers.
    :param onelake: the local OneLake, if the stack has one.
    """

    api: int = 8080
    connect: int = 15002
    spark_ui: int = 4040
    postgres: int = 5442
    worker_logs: int = 8793
    trigger_logs: int = 8794
    onelake: int = 10000


def _secret(size: int) -> Any:
    """Return a field that is made at random, in base64 with its padding, and is not shown by accident."""
    return attrs.field(factory=lambda: secrets.token_urlsafe(size) + "=" * (-size % 3), repr=False)


@attrs.frozen
class Secrets:
    """What a stack keeps to itself, made once per state directory.

    :param password: of the user ``admin`` in Airflow.
    :param database: password of PostgreSQL.
    :param fernet: key that encrypts Airflow's connections.
    :param jwt: key that signs Airflow's tokens.
    :param session: key of the web UI's sessions.
    :param connect: token of Spark Connect.
    """

    password: str = _secret(9)
    database: str = _secret(18)
    fernet: str = _secret(32)
    jwt: str = _secret(48)
    session: str = _secret(32)
    connect: str = _secret(24)


@attrs.frozen
class Settings:
    """Everything that makes one local stack different from another.

    :param state: its directory: database, logs, secrets, pid files.
    :param dags: folder of the DAGs.
    :param lakehouse: directory with ``Tables/`` and ``Files/`` that ``onelake_default`` points to.
    :param jars: directory that keeps the fetched JARs; shared by all stacks.
    :param parallelism: tasks that run at once.
    :param spark_slots: slots of the pool ``spark``.
    :param spark_memory: heap of the Spark Connect server.
    :param more_dags: further folders of DAGs.
    :param onelake: whether the lakehouse is in a local OneLake, and not in a directory.
    :param any_port: whether to take any free port rather than the usual ones.
    :param environment: further variables for Airflow's processes, which win.
    """

    state: Path
    dags: Path
    lakehouse: Path
    jars: Path
    parallelism: int = 6
    spark_slots: int = 4
    spark_memory: str = "2g"
    more_dags: tuple[Path, ...] = ()
    any_port: bool = False
    onelake: bool = False
    environment: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def dag_folders(self) -> tuple[Path, ...]:
        """Every folder of DAGs."""
        return (self.dags, *self.more_dags)

    @property
    def logs(self) -> Path:
        """Directory of the processes' logs."""
        return self.state / "logs"

    @property
    def airflow_home(self) -> Path:
        """Airflow's home; the logs of tasks are in its ``logs``."""
        return self.state / "airflow"

    @property
    def airflow_config(self) -> Path:
        """Directory of modules that Airflow finds, ``airflow_local_settings`` among them."""
        return self.airflow_home / "config"

    @property
    def password_file(self) -> Path:
        """File from which Airflow's simple auth manager takes the passwords."""
        return self.state / "airflow-passwords.json"


def from_environment(**changes: Any) -> Settings:
    """Return the settings that the environment variables ask for.

    ``LOCAL_STATE``, ``LOCAL_DAGS``, ``LOCAL_LAKEHOUSE``, ``LOCAL_JARS``, ``LOCAL_PARALLELISM``, ``LOCAL_SPARK_SLOTS``,
    ``LOCAL_SPARK_MEMORY``, ``LOCAL_ANY_PORT=1``, ``LOCAL_ONELAKE=1``.

    :param changes: fields of :class:`Settings` that win.
    """
    env = {name: value for name, value in os.environ.items() if value}
    state = Path(env.get("LOCAL_STATE", REPOSITORY / ".local")).absolute()
    asked = Settings(
        state=state,
        dags=Path(env.get("LOCAL_DAGS", REPOSITORY / "dags")).absolute(),
        lakehouse=Path(env.get("LOCAL_LAKEHOUSE", state / "lakehouse")).absolute(),
        jars=Path(env.get("LOCAL_JARS", REPOSITORY / ".local")).absolute(),
        parallelism=int(env.get("LOCAL_PARALLELISM", 6)),
        spark_slots=int(env.get("LOCAL_SPARK_SLOTS", 4)),
        spark_memory=env.get("LOCAL_SPARK_MEMORY", "2g"),
        any_port=env.get("LOCAL_ANY_PORT") == "1",
        onelake=env.get("LOCAL_ONELAKE") == "1",
    )
    return attrs.evolve(asked, **changes)


def choose_ports(settings: Settings, tell: Callable[[str], None] = lambda _: None) -> Ports:
    """Choose ports that are free now, and note them in the state directory.

    A port named by the environment is taken as it is; else the one of last time, the usual one, any.

    :param settings: which stack.
    :param tell: called with a line for people about each port that cannot be had.
    :raises SetUpError: a port that the environment names is in use.
    """
    file = settings.state / "ports.json"
    last: dict[str, int] = json.loads(file.read_text()) if file.exists() else {}
    chosen: dict[str, int] = {}
    for name, usual in attrs.asdict(Ports()).items():
        variable = f"LOCAL_{name.upper()}_PORT"
        asked = "" if settings.any_port else os.environ.get(variable)
        if asked and listens(int(asked)):
            raise SetUpError(f"Port {asked}, asked for by {variable}, is in use: choose another one.")
        wanted = [int(asked)] if asked else [last.get(name), None if settings.any_port else usual]
        free = (port for port in wanted if port and not listens(port))
        # The system may name a port again that it has named just now.
        chosen[name] = next(port for port in chain(free, iter(free_port, 0)) if port not in chosen.values())
        expected = next(filter(None, wanted), chosen[name])
        if chosen[name] != expected:
            tell(f"Something else listens at port {expected}: {name.replace('_', ' ')} is at {chosen[name]}")
    write_atomically(file, json.dumps(chosen))
    return Ports(**chosen)


def outside(state: Path) -> Path:
    """Return a directory of a stack with a short path that every user can reach, made when it is not there.

    :param state: directory of the stack.
    :raises SetUpError: somebody else made it.
    """
    name = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
    directory = Path(tempfile.gettempdir()) / f"local-stack-{name}"
    directory.mkdir(mode=0o755, exist_ok=True)
    if directory.stat().st_uid != os.geteuid():
        raise SetUpError(f"{directory} belongs to another user: remove it, or set TMPDIR.")
    return directory


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that readers see the old or the new text, never a part.

    :param path: the file.
    :param text: its new content.
    :param mode: permissions, set before the content is there.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    fresh.replace(path)


def known_ports(settings: Settings) -> Ports:
    """Return the ports that a started stack has chosen.

    :raises FileNotFoundError: it was never started.
    """
    return Ports(**json.loads((settings.state / "ports.json").read_text()))


def load_secrets(settings: Settings) -> Secrets:
    """Return the stack's secrets, made at the first call and kept in files that only the owner reads."""
    file = settings.state / "secrets.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    kept = Secrets(**known)
    if attrs.asdict(kept) != known:  # a state of an older checkout lacks some
        settings.state.mkdir(parents=True, exist_ok=True)
        write_atomically(file, json.dumps(attrs.asdict(kept)), mode=0o600)
    if not settings.password_file.exists():
        write_atomically(settings.password_file, json.dumps({USER: kept.password}), mode=0o600)
    return kept


def database_url(ports: Ports, kept: Secrets) -> str:
    """Return the address of Airflow's database."""
    return f"postgresql+psycopg2://postgres:{kept.database}@{HOST}:{ports.postgres}/postgres"


def airflow_environment(settings: Settings, ports: Ports, kept: Secrets) -> dict[str, str]:
    """Return the environment for Airflow's processes.

    Airflow's settings of the caller's own environment are left out: they belong to another Airflow.
    """
    url = f"http://{HOST}:{ports.api}"
    bundles = [
        {
            "name": f"dags-{number}" if number else "dags-folder",
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(folder)},
        }
        for number, folder in enumerate(settings.dag_folders)
    ]
    airflow = {
        "CORE__DAGS_FOLDER": str(settings.dags),
        "CORE__EXECUTOR": "LocalExecutor",
        # LocalExecutor forks this many workers at once when it starts.
        "CORE__PARALLELISM": str(settings.parallelism),
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__TEST_CONNECTION": "Enabled",
        "CORE__FERNET_KEY": kept.fernet,
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(settings.password_file),
        "CORE__MAX_ACTIVE_RUNS_PER_DAG": "16",
        "API__HOST": HOST,
        "API__PORT": str(ports.api),
        "API__BASE_URL": url,
        "API__WORKERS": "1",
        "API__SECRET_KEY": kept.session,
        "API_AUTH__JWT_SECRET": kept.jwt,
        "DATABASE__SQL_ALCHEMY_CONN": database_url(ports, kept),
        "DATABASE__LOAD_DEFAULT_CONNECTIONS": "False",
        "DATABASE__SQL_ALCHEMY_POOL_SIZE": "5",
        "DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(bundles),
        # A new DAG file is seen within seconds, an edited one too: this is where people try things.
        "DAG_PROCESSOR__REFRESH_INTERVAL": "10",
        "DAG_PROCESSOR__PARSING_PROCESSES": "1",
        "LOGGING__WORKER_LOG_SERVER_PORT": str(ports.worker_logs),
        "LOGGING__TRIGGER_LOG_SERVER_PORT": str(ports.trigger_logs),
        # A task whose supervisor was killed is noticed after this many seconds (300 by default).
        "SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "60",
        # What a killed scheduler ran is taken over by the next one at such a look, in seconds (300 by default).
        "SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "30",
        "SCHEDULER__ENABLE_TRACEMALLOC": "False",
        # A request of a task is slow on a busy machine. After five times 5 s, the default, its supervisor gives up, and
        # the task ends before it has begun.
        "WORKERS__EXECUTION_API_TIMEOUT": "60",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "_AIRFLOW"))}
    return {
        **inherited,
        "AIRFLOW_HOME": str(settings.airflow_home),
        "NO_PROXY": ",".join(filter(None, [inherited.get("NO_PROXY"), HOST, "localhost"])),
        "PYTHONUNBUFFERED": "1",
        **{f"AIRFLOW__{key}": value for key, value in airflow.items()},
        **settings.environment,
    }
