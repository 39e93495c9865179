"""Where a local stack keeps its things, on which ports it listens, and the environment of Airflow's processes."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from .connect_server import HOST, free_port, listens

REPOSITORY = Path(__file__).resolve().parents[2]
USER = "admin"
SPARK_POOL = {"name": "spark", "slots": 4, "description": "Spark jobs that run at once"}
# The pool that the example DAGs name.
TRIPS_POOL: dict[str, Any] = {
    "name": "trips",
    "slots": 4,
    "description": "Writers of taxi trips at once",
    "include_deferred": True,
}


@attrs.frozen
class Ports:
    """TCP ports of a stack on 127.0.0.1; these are taken when they are free."""

    api: int = 8080
    connect: int = 15002
    spark_ui: int = 4040
    postgres: int = 5442
    worker_logs: int = 8793
    trigger_logs: int = 8794
    onelake: int = 10000


@attrs.frozen
class Settings:
    """Everything that makes one local stack different from another.

    :param state: its directory: logs, secrets, the database, Airflow's home ``airflow``.
    :param dags: folders of DAGs.
    :param lakehouse: directory with ``Tables/`` and ``Files/`` that ``onelake_default`` points to.
    :param jars: directory that keeps the fetched JARs; shared by all stacks.
    :param any_port: whether to take any free port rather than the usual ones.
    :param onelake: whether the lakehouse is in a local OneLake, and not in a directory.
    :param environment: further variables for Airflow's processes, which win.
    """

    state: Path
    dags: tuple[Path, ...]
    lakehouse: Path
    jars: Path
    any_port: bool = False
    onelake: bool = False
    environment: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def logs(self) -> Path:
        """Directory of the processes' logs."""
        return self.state / "logs"

    @property
    def ports(self) -> Ports:
        """The ports that :func:`choose_ports` has chosen."""
        return Ports(**json.loads((self.state / "ports.json").read_text()))

    def secret(self, name: str) -> str:
        """Return a secret of the stack, 64 hexadecimal digits: of a key that is made once, and for its owner only."""
        file = self.state / "secret-key"
        if not file.exists():
            self.state.mkdir(parents=True, exist_ok=True)
            write_atomically(file, secrets.token_hex(32), mode=0o600)
        return hmac.digest(file.read_bytes(), name.encode(), "sha256").hex()

    @property
    def password(self) -> str:
        """Password of the user ``admin`` in Airflow."""
        return self.secret("password")[:12]

    @property
    def database_url(self) -> str:
        """Address of Airflow's database."""
        return f"postgresql://postgres:{self.secret('database')}@{HOST}:{self.ports.postgres}/postgres"


def from_environment(**changes: Any) -> Settings:
    """Return the settings that ``LOCAL_STATE``, ``LOCAL_JARS`` and ``LOCAL_ONELAKE=1`` ask for.

    :param changes: fields of :class:`Settings` that win.
    """
    home = REPOSITORY / ".local"
    state = Path(os.environ.get("LOCAL_STATE") or home).absolute()
    jars = Path(os.environ.get("LOCAL_JARS") or home).absolute()
    asked = Settings(state, (REPOSITORY / "dags",), state / "lakehouse", jars)
    return attrs.evolve(asked, **{"onelake": os.environ.get("LOCAL_ONELAKE") == "1", **changes})


def choose_ports(settings: Settings, tell: Callable[[str], None] = lambda _: None) -> None:
    """Choose ports that are free, the usual ones first, and note them; tell a person which of those are not free."""
    chosen: dict[str, int] = {}
    for name, port in attrs.asdict(Ports()).items():
        free = not settings.any_port and not listens(port)
        # The system may name a port again that it has named just now.
        chosen[name] = port if free else next(one for one in iter(free_port, 0) if one not in chosen.values())
        if not free and not settings.any_port:
            tell(f"Something else listens at port {port}: {name.replace('_', ' ')} is at {chosen[name]}")
    write_atomically(settings.state / "ports.json", json.dumps(chosen))


def outside(state: Path) -> Path:
    """Return a directory of a stack with a short path that every user can reach, made when it is not there."""
    name = hashlib.sha256(str(state.resolve()).encode()).hexdigest()[:12]
    directory = Path(tempfile.gettempdir()) / f"local-stack-{name}"
    directory.mkdir(mode=0o755, exist_ok=True)
    if directory.stat().st_uid != os.geteuid():
        raise PermissionError(f"{directory} belongs to another user: remove it, or set TMPDIR.")
    return directory


def write_atomically(path: Path, text: str, mode: int = 0o644) -> None:
    """Write a file so that readers see the old or the new text, never a part, and only those whom ``mode`` lets."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    with os.fdopen(os.open(fresh, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, mode), "w") as file:
        file.write(text)
    fresh.replace(path)


def airflow_environment(settings: Settings) -> dict[str, str]:
    """Return the environment for Airflow's processes.

    Airflow's settings of the caller's own environment are left out: they belong to another Airflow.
    """
    ports, passwords = settings.ports, settings.state / "airflow-passwords.json"
    write_atomically(passwords, json.dumps({USER: settings.password}), mode=0o600)
    url = f"http://{HOST}:{ports.api}"
    local = "airflow.dag_processing.bundles.local.LocalDagBundle"
    bundles = [
        {"name": f"dags-{number}", "classpath": local, "kwargs": {"path": str(folder)}}
        for number, folder in enumerate(settings.dags)
    ]
    airflow = {
        "CORE__DAGS_FOLDER": str(settings.dags[0]),
        "CORE__EXECUTOR": "LocalExecutor",
        # LocalExecutor forks this many workers at once when it starts.
        "CORE__PARALLELISM": "6",
        "CORE__LOAD_EXAMPLES": "False",
        "CORE__TEST_CONNECTION": "Enabled",
        "CORE__FERNET_KEY": base64.urlsafe_b64encode(bytes.fromhex(settings.secret("fernet"))).decode(),
        "CORE__EXECUTION_API_SERVER_URL": f"{url}/execution/",
        "CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(passwords),
        "API__HOST": HOST,
        "API__PORT": str(ports.api),
        "API__BASE_URL": url,
        "API__WORKERS": "1",
        "API__SECRET_KEY": settings.secret("session"),
        "API_AUTH__JWT_SECRET": settings.secret("jwt") * 2,
        "DATABASE__SQL_ALCHEMY_CONN": settings.database_url,
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
        # A request of a task is slow on a busy machine. After five times 5 s, the default, its supervisor gives up, and
        # the task ends before it has begun.
        "WORKERS__EXECUTION_API_TIMEOUT": "60",
        "USAGE_DATA_COLLECTION__ENABLED": "False",
    }
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("AIRFLOW", "_AIRFLOW"))}
    return {
        **inherited,
        "AIRFLOW_HOME": str(settings.state / "airflow"),
        "NO_PROXY": ",".join(filter(None, [inherited.get("NO_PROXY"), HOST, "localhost"])),
        "PYTHONUNBUFFERED": "1",
        **{f"AIRFLOW__{key}": value for key, value in airflow.items()},
        **settings.environment,
    }
