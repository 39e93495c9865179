"""The background process that keeps a stack running, and how other shells speak to it: by files and signals."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from threading import Event
from typing import IO, TYPE_CHECKING

import attrs
import psutil

from .jars import SetUpError
from .processes import Known, end, sweep, write_atomically
from .settings import HOST, REPOSITORY, PortTakenError, Settings
from .stack import Stack, StackError, StoppedError, last_lines

if TYPE_CHECKING:
    from collections.abc import Iterator

_STOP_SECONDS = 90


@attrs.frozen
class Process:
    """A process of the stack, as its supervisor sees it.

    :param name: of the command.
    :param pid: process id, None when it does not run now.
    :param restarts: how often it was started again.
    :param log: its log file.
    """

    name: str
    pid: int | None
    restarts: int
    log: str


@attrs.frozen
class Status:
    """What the supervisor last said.

    :param phase: ``starting``, ``healthy``, ``stopping``, ``stopped`` or ``failed``.
    :param events: what happened so far, with times.
    :param url: address of Airflow's web UI.
    :param remote: address of Spark Connect.
    :param processes: of the stack.
    :param import_errors: DAG files that cannot be imported, each with what is wrong.
    :param error: why it failed.
    :param set_up: whether it failed for something that this machine lacks.
    """

    phase: str
    events: tuple[str, ...] = ()
    url: str | None = None
    remote: str | None = None
    processes: tuple[Process, ...] = ()
    import_errors: tuple[str, ...] = ()
    error: str | None = None
    set_up: bool = False


def read_status(settings: Settings) -> Status | None:
    """Return the status that the stack's supervisor has written, or None when there never was one."""
    try:
        fields = json.loads((settings.state / "status.json").read_text())
    except FileNotFoundError:
        return None
    fields["processes"] = tuple(Process(**process) for process in fields["processes"])
    for key in ("events", "import_errors"):
        fields[key] = tuple(fields[key])
    return Status(**fields)


def supervisor(settings: Settings) -> Known | None:
    """Return the running supervisor of a stack, or None."""
    with _lock(settings) as lock:
        if lock is not None:
            return None
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError):
        return Known(**json.loads((settings.state / "supervisor.json").read_text()))
    return None


def launch(settings: Settings, owner: int | None = None) -> None:
    """Start a supervisor in the background and return at once; its status tells how it gets on.

    :param settings: which stack.
    :param owner: pid of a process; when that ends, the stack stops.
    """
    settings.logs.mkdir(parents=True, exist_ok=True)
    (settings.state / "status.json").unlink(missing_ok=True)
    wanted = {**attrs.asdict(settings), "environment": dict(settings.environment), "owner": owner}
    with (settings.logs / "supervisor.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "include.local.supervisor"],
            cwd=REPOSITORY,
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(json.dumps(wanted, default=str).encode())
        process.stdin.close()
    # It outlives this process: silence the warning that it still runs.
    process.returncode = 0


def follow(settings: Settings, timeout: float = 600) -> Iterator[Status]:
    """Yield the status whenever it changes, until the stack is healthy, has failed or has stopped.

    :param settings: which stack.
    :param timeout: seconds.
    """
    deadline = time.monotonic() + timeout
    last: Status | None = None
    while time.monotonic() < deadline:
        status = read_status(settings)
        if status is not None and status != last:
            last = status
            yield status
            if status.phase not in ("starting", "stopping"):
                return
        if supervisor(settings) is None and time.monotonic() > deadline - timeout + 15:
            break
        time.sleep(0.2)
    log = settings.logs / "supervisor.log"
    yield Status("failed", error=f"The supervisor ended or hangs. Last lines of {log}:\n{last_lines(log)}")


def shut_down(settings: Settings) -> bool:
    """Stop a stack from any shell, and whatever an unsupervised one has left.

    :returns: whether anything ran.
    """
    running = supervisor(settings)
    leader = running.leader() if running is not None else None
    if leader is not None:
        end([leader], signal.SIGTERM, _STOP_SECONDS)
    left = sweep(settings.run, settings.mark)
    return leader is not None or left > 0


def run(settings: Settings, owner: int | None = None) -> int:
    """Start a stack, keep it running until a signal or the end of its owner, stop it.

    :param settings: which stack.
    :param owner: pid of a process; when that ends, the stack stops.
    :returns: exit status.
    """
    settings.state.mkdir(parents=True, exist_ok=True)
    # Another shell that asks whether it runs holds the lock for a moment.
    with _lock(settings, wait=3) as lock:
        if lock is None:
            sys.stderr.write(f"The stack of {settings.state} runs already.\n")
            return 1
        own = Known("supervisor", os.getpid(), psutil.Process().create_time())
        write_atomically(settings.state / "supervisor.json", json.dumps(attrs.asdict(own)))
        return _Supervisor(settings, owner).run()


class _Supervisor:
    def __init__(self, settings: Settings, owner: int | None) -> None:
        self._settings = settings
        self._owner = psutil.Process(owner) if owner is not None else None
        self._stop = Event()
        self._stack = Stack(settings, self._tell, self._stop)
        self._status = Status("starting")
        self._events: list[str] = []

    def run(self) -> int:
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, lambda *_: self._stop.set())
        signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the terminal that started it may go
        sweep(self._settings.run, self._settings.mark)
        failed: str | None = None
        set_up = False
        try:
            self._write("starting")
            self._stack.start()
            self._write("healthy")
            while not self._stop.wait(0.5):
                self._stack.watch()
                self._write("healthy")
                if self._owner is not None and not self._owner.is_running():
                    break
        except StoppedError:
            pass
        except (StackError, SetUpError, PortTakenError) as error:
            failed, set_up = str(error), isinstance(error, SetUpError | PortTakenError)
        except Exception as error:
            failed = f"{type(error).__name__}: {error}"
            raise
        finally:
            self._write("stopping")
            self._stack.stop()
            sweep(self._settings.run, self._settings.mark)
            self._write("failed" if failed else "stopped", failed, set_up)
        return 1 if failed else 0

    def _tell(self, line: str) -> None:
        self._events.append(f"{datetime.now(UTC):%H:%M:%S} {line}")
        sys.stderr.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} {line}\n")
        self._write(self._status.phase)

    def _write(self, phase: str, error: str | None = None, set_up: bool = False) -> None:
        ports = self._stack.ports
        status = Status(
            phase,
            events=tuple(self._events[-200:]),
            url=f"http://{HOST}:{ports.api}" if ports else None,
            remote=f"sc://{HOST}:{ports.connect}" if ports else None,
            processes=tuple(
                Process(service.command.name, service.pid, service.restarts, str(service.command.log))
                for service in self._stack.services
            ),
            import_errors=tuple(f"{problem.file}: {problem.last_line}" for problem in self._stack.import_problems),
            error=error,
            set_up=set_up,
        )
        if status != self._status or phase in ("starting", "stopping"):
            self._status = status
            write_atomically(self._settings.state / "status.json", json.dumps(attrs.asdict(status), indent=1))


@contextlib.contextmanager
def _lock(settings: Settings, wait: float = 0) -> Iterator[IO[str] | None]:
    """Yield the lock that the supervisor of a stack holds while it lives, or None when another process has it."""
    settings.state.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait
    with (settings.state / "supervisor.lock").open("a") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() < deadline:
                    time.sleep(0.05)
                    continue
                yield None
            else:
                yield file
            return


def _main() -> int:
    wanted = json.load(sys.stdin)
    owner = wanted.pop("owner")
    for key in ("state", "dags", "lakehouse", "jars"):
        wanted[key] = Path(wanted[key])
    wanted["more_dags"] = tuple(map(Path, wanted["more_dags"]))
    return run(Settings(**wanted), owner)


if __name__ == "__main__":
    sys.exit(_main())
