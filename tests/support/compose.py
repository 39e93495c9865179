"""docker-compose.yaml without an engine: read by docker-compose itself, and its services as processes of this machine.

Commands, environment, order and health checks are the file's. What a container has of its own is made up for: an address
of the loopback network for each service, so that the ports stay those of the file; a directory for each volume; the
programs that the images would bring. Where the tests run as root, a service has no more rights than the file leaves it,
and a read-only disk where the file says so.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs
import psutil
import yaml

from include.local import jars, postgres
from include.local.connect_server import free_port
from include.local.settings import REPOSITORY, from_environment
from tests.support import tools

FILE = REPOSITORY / "docker-compose.yaml"
# What include/compose/Dockerfile puts into the image beside what the file mounts.
IMAGE_PATHS = {"/opt/onelake/jars": from_environment().jars / "jars", "/opt/onelake": REPOSITORY}
# Airflow's servers of logs listen on every address, so two of a machine need two ports.
_EVERY_ADDRESS = ("AIRFLOW__LOGGING__WORKER_LOG_SERVER_PORT", "AIRFLOW__LOGGING__TRIGGER_LOG_SERVER_PORT")
# All containers of the file on two cores that run other tests too: the file's patience is for a machine of its own.
_SLOWER = 4
# First come the directories that stay writable, the first of which holds the others and does not, then the command.
_READ_ONLY = """
state=$1; shift
mount --bind "$state" "$state"
while [ "$1" != -- ]; do mount --bind "$1" "$1"; shift; done; shift
mount -o remount,bind,ro "$state" && mount -o remount,bind,ro / && exec "$@"
"""
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0}


class ComposeError(AssertionError):
    """A service ended, or was not healthy in time; the message has the end of its log."""


@attrs.frozen
class Health:
    """A health check.

    :param patience: seconds until a container counts as unhealthy for good.
    :param timeout: seconds for one try.
    """

    test: list[str]
    patience: float
    timeout: float


@attrs.frozen
class Service:
    """A service of the file, as docker-compose understands it."""

    name: str
    image: str
    command: list[str]
    environment: Mapping[str, str] = attrs.field(repr=False)
    health: Health | None
    after: Mapping[str, str]
    volumes: Mapping[str, str]
    aliases: Sequence[str]
    build: Mapping[str, str]
    read_only: bool


def configuration(variables: Mapping[str, str] | None = None) -> dict[str, Any]:
    """What ``docker-compose config`` makes of the file."""
    program = tools.install_docker_compose(from_environment().jars)
    with tempfile.NamedTemporaryFile() as nothing:  # instead of somebody's own .env
        command = [str(program), "--env-file", nothing.name, "--file", str(FILE), "config"]
        done = subprocess.run(
            command, env={"PATH": os.environ["PATH"], **(variables or {})}, capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr, done.stderr
    found: dict[str, Any] = yaml.safe_load(done.stdout)
    return found


def services(found: Mapping[str, Any], profile: str | None = None) -> dict[str, Service]:
    """The services of a :func:`configuration` that are started, by name.

    :param profile: the one that is chosen. Default: none.
    """
    return {
        name: _service(name, body)
        for name, body in found["services"].items()
        if profile in (body.get("profiles") or [profile])
    }


def _service(name: str, body: Mapping[str, Any]) -> Service:
    def plain(text: Any) -> str:
        return str(text).replace("$$", "$")  # as docker-compose escapes what it prints

    command = body["command"]
    check = body.get("healthcheck")
    health = None
    if check is not None:
        kind, *words = map(plain, check["test"])
        test = words if kind == "CMD" else ["/bin/sh", "-c", *words]
        patience = _seconds(check["start_period"]) + int(check["retries"]) * _seconds(check["interval"])
        health = Health(test, patience, _seconds(check["timeout"]))
    return Service(
        name=name,
        image=body["image"],
        command=shlex.split(plain(command)) if isinstance(command, str) else [plain(word) for word in command],
        environment={key: plain(value) for key, value in body.get("environment", {}).items()},
        health=health,
        after={other: terms["condition"] for other, terms in body.get("depends_on", {}).items()},
        volumes={target: source for source, target, *_ in (text.split(":") for text in body.get("volumes", ()))},
        aliases=body.get("networks", {}).get("default", {}).get("aliases", ()),
        build=body.get("build", {}),
        read_only=body.get("read_only", False),
    )


def _with_those_before(found: Mapping[str, Service], names: Collection[str]) -> set[str]:
    """Services and all that they depend on."""
    wanted, more = set[str](), set(names)
    while more:
        wanted |= more
        more = {other for name in more for other in found[name].after} - wanted
    return wanted


def _seconds(text: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"([\d.]+)(h|m|s)", text))


class NativeStack:
    """All services as processes.

    :param only: services to start, with those that they depend on. Default: all.
    """

    def __init__(self, state: Path, variables: Mapping[str, str], only: Collection[str] | None = None) -> None:
        self.state = state
        self.services = services(configuration(variables), variables.get("COMPOSE_PROFILES"))
        wanted = _with_those_before(self.services, self.services if only is None else only)
        self._wanted = [service for name, service in self.services.items() if name in wanted]
        network = f"127.{Random().randint(64, 250)}.{Random().randint(1, 250)}"
        self.addresses = {name: f"{network}.{10 + number}" for number, name in enumerate(self.services)}
        self.logs = state / "logs"
        self._log_ports = {name: str(free_port()) for name in _EVERY_ADDRESS}
        self._healthy: set[str] = set()
        self._began: dict[str, float] = {}
        self._started: dict[str, psutil.Popen] = {}

    # -- life ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start each service when what it depends on is as far as the file wants, and wait until all are healthy.

        :raises ComposeError: one ended, or was not healthy in time.
        """
        self._write_hosts()
        while len(self._healthy) < len(self._wanted):
            for service in self._wanted:
                if service.name not in self._began and all(other in self._healthy for other in service.after):
                    self._began[service.name] = time.monotonic()
                    self._started[service.name] = self._start(service)
            for name in self._started.keys() - self._healthy:
                self._look_at(self.services[name], self._started[name].poll())
            time.sleep(0.2)

    def stop(self) -> None:
        """End every process, the last one first, and remove what is outside of the directory."""
        left = self.processes()
        for started in reversed(self._started.values()):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.TimeoutExpired):
                started.terminate()
                started.wait(10)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for service in self._wanted:
            postgres.remove(self.state / service.name)

    def processes(self) -> list[psutil.Process]:
        """Every process of the services that run."""
        found: list[psutil.Process] = []
        for started in self._started.values():
            # A service may end at any moment.
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [started, *started.children(recursive=True)] if started.poll() is None else []
        return found

    def commands(self) -> list[str]:
        """The command line of every process of the services that runs."""
        found = []
        for process in self.processes():
            with contextlib.suppress(psutil.NoSuchProcess):  # a zombie too
                found.append(" ".join(process.cmdline()))
        return found

    def _look_at(self, service: Service, status: int | None) -> None:
        """Note that a service is as far as those that depend on it want; a one-off, when it has ended well."""
        name = service.name
        if service.health is None:
            if status == 0:
                self._healthy.add(name)
        elif status is None and self.run(name, service.health.test, service.health.timeout) == 0:
            self._healthy.add(name)
            return
        if status:
            raise ComposeError(f"{name} ended with status {status}:\n{self.log(name)[-4000:]}")
        patience = _SLOWER * (service.health.patience if service.health else 90)
        if time.monotonic() - self._began[name] > patience:
            raise ComposeError(f"{name} was not healthy within {patience:.0f} s:\n{self.log(name)[-4000:]}")

    # -- what tests ask --------------------------------------------------------------------------------------------

    def run(self, name: str, command: Sequence[str], timeout: float) -> int | None:
        """Run a command as in a service's container, and return its exit status, ``None`` for one that takes too long."""
        service = self.services[name]
        with (self.logs / f"{name}.run.log").open("ab") as log:
            try:
                return subprocess.run(
                    self._confined(service, [self._native(word, service) for word in command]),
                    env=self._environment(service),
                    cwd=REPOSITORY,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    timeout=timeout,
                    check=False,
                ).returncode
            except subprocess.TimeoutExpired:
                return None

    def log(self, name: str) -> str:
        """What a service has said."""
        return (self.logs / f"{name}.log").read_text(errors="replace")

    def run_log(self, name: str) -> str:
        """What the commands of :meth:`run` have said."""
        return (self.logs / f"{name}.run.log").read_text(errors="replace")

    def environment(self, name: str) -> dict[str, str]:
        """A service's variables, with this machine's addresses and paths."""
        service = self.services[name]
        return {key: self._native(value, service) for key, value in service.environment.items()}

    def volume(self, name: str) -> Path:
        """The directory that stands for a volume."""
        return self.state / "volumes" / name

    # -- instead of containers -------------------------------------------------------------------------------------

    def _start(self, service: Service) -> psutil.Popen:
        for source in service.volumes.values():
            if not source.startswith("/"):
                self.volume(source).mkdir(parents=True, exist_ok=True)
        argv = [self._native(word, service) for word in service.command]
        user, cwd, environment = None, REPOSITORY, self._environment(service)
        if service.image.startswith("postgres:"):
            # As the image's entry point does before the command.
            data, programs, user = postgres.make(
                self.state / service.name, environment["POSTGRES_USER"], environment["POSTGRES_PASSWORD"]
            )
            # Its user may not get to the state directory.
            environment["PGDATA"], cwd = str(data), data
            argv = [str(programs / argv[0]), *argv[1:], "-c", "unix_socket_directories="]
        elif service.build.get("target") == "s3-server":
            argv = [str(tools.install_versitygw(from_environment().jars)), *argv]
        argv = [shutil.which(argv[0], path=environment["PATH"]) or argv[0], *argv[1:]]
        with (self.logs / f"{service.name}.log").open("ab") as log:
            return psutil.Popen(
                self._confined(service, argv, user),
                env=environment,
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **({} if user is None else {"user": user, "extra_groups": []}),
            )

    def _confined(self, service: Service, argv: Sequence[str], user: int | None = None) -> Sequence[str]:
        """A command as a container runs it: no right of root's, and nothing to write to but its volumes and /tmp."""
        if os.geteuid() or not sys.platform.startswith("linux"):
            return argv  # who is not root has no rights to lose, and may not mount
        rights = [] if user is not None else ["--bounding-set=-all", "--inh-caps=-all"]
        argv = ["setpriv", "--no-new-privs", *rights, "--", *argv]
        if not service.read_only:
            return argv
        volumes = [self.volume(source) for source in service.volumes.values() if not source.startswith("/")]
        places = [self.state, self._tmp(service), *volumes]
        return ["unshare", "--mount", "/bin/sh", "-c", _READ_ONLY, "sh", *map(str, places), "--", *argv]

    def _tmp(self, service: Service) -> Path:
        return self.state / "homes" / service.name / "tmp"

    def _environment(self, service: Service) -> dict[str, str]:
        tmp = self._tmp(service)
        tmp.mkdir(parents=True, exist_ok=True)
        found = self.environment(service.name)
        if "SPARK_CONF_DIR" in found:
            found["SPARK_CONF_DIR"] = str(self._rendered(Path(found["SPARK_CONF_DIR"]), service))
        return {
            "PATH": os.pathsep.join([*map(str, self._programs(service)), "/usr/local/bin", "/usr/bin", "/bin"]),
            "HOME": str(tmp.parent),
            "TMPDIR": str(tmp),
            # Hadoop takes /tmp itself for what it uploads to S3, unless this is said.
            "LOCAL_DIRS": str(tmp),
            "LANG": "C.UTF-8",
            # The image has the package of this checkout, whatever the environment of the tests has installed.
            "PYTHONPATH": str(REPOSITORY),
            # The names that docker-compose's network knows, for what is not in a command or a variable.
            "JAVA_TOOL_OPTIONS": f"-Djdk.net.hosts.file={self.state / 'hosts'} -Djava.io.tmpdir={tmp}",
            **found,
            **{name: port for name, port in self._log_ports.items() if name in found},
        }

    def _programs(self, service: Service) -> list[Path]:
        """Directories of the programs that the service's image brings."""
        match service.build.get("target") or service.image.partition(":")[0]:
            case "postgres":
                with_server = postgres.make(
                    self.state / service.name,
                    service.environment["POSTGRES_USER"],
                    service.environment["POSTGRES_PASSWORD"],
                )
                return [with_server[1]]
            case "azure-server":
                node, script = tools.install_azurite(from_environment().jars)
                program = self.state / "programs" / "azurite"
                program.parent.mkdir(parents=True, exist_ok=True)
                # The image's one starts all three kinds of storage, of which the blobs' alone is needed elsewhere.
                program.write_text(f'#!/bin/sh\nexec "{node}" "{script.parents[1] / "azurite.js"}" "$@"\n')
                program.chmod(0o755)
                return [program.parent]
            case "s3-server":
                return []
            case _:
                return [Path(sys.executable).parent, jars.java().parent]

    def _rendered(self, directory: Path, service: Service) -> Path:
        """A copy of a directory of settings with this machine's addresses and paths."""
        target = self.state / "homes" / service.name / directory.name
        target.mkdir(parents=True, exist_ok=True)
        for file in directory.iterdir():
            (target / file.name).write_text(self._native(file.read_text(), service))
        return target

    def _native(self, text: str, service: Service) -> str:
        """A word of the file with this machine's addresses and paths in place of the container's."""
        paths = {**IMAGE_PATHS, "/tmp": self._tmp(service)}
        for target, source in service.volumes.items():
            paths[target] = Path(source) if source.startswith("/") else self.volume(source)
        own = self.addresses[service.name]
        names = {**{target: str(source) for target, source in paths.items()}, **self.addresses}
        names |= {"0.0.0.0": own, "localhost": own}
        # In one go, as what a name is replaced by may hold another one; the longest first, and whole names only.
        longest_first = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        return re.sub(rf"(?:(?<![\w./-])|(?<=//))(?:{longest_first})(?![\w-])", lambda found: names[found[0]], text)

    def _write_hosts(self) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        lines = [f"127.0.0.1 localhost {socket.gethostname()}"]
        for name, address in self.addresses.items():
            lines.append(" ".join([address, name, *self.services[name].aliases]))
        (self.state / "hosts").write_text("\n".join(lines) + "\n")
