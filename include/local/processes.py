"""The processes of a stack, kept by supervisord: started one by one, started again when they die, stopped in order.

supervisord knows its own children only. What a process leaves behind is found by the session that all of them share,
and by a mark in the environment for what made a session of its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
from configparser import ConfigParser
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xmlrpc.client import Fault, ServerProxy

import attrs
import psutil
from supervisor.xmlrpc import SupervisorTransport

from .become import MARK, end
from .settings import REPOSITORY, outside, write_atomically

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_STOP_SECONDS, _SWEEP_SECONDS = 90, 10
# What dies within this many seconds has not started: the pause before the next try grows by a second each time.
_STARTED_AFTER = 10
_ENDED = ("BACKOFF", "EXITED", "FATAL")


class StackError(RuntimeError):
    """The stack did not start; the message says which process, why, and where its log is."""


@attrs.frozen
class Command:
    """What to run.

    :param name: short name, also of its log.
    :param argv: program and arguments.
    :param env: the whole environment.
    :param cwd: working directory.
    :param log: file that gets its output, appended.
    :param user: number of the user to run as; only root may name one.
    :param stop_signal: the polite way to end it.
    :param stop_group: whether its process group gets that signal too, or only its leader, which tells the others.
    :param grace: seconds between the polite way and SIGKILL.
    :param restart: whether it is started again when it has ended.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    user: int | None = None
    stop_signal: str = "TERM"
    stop_group: bool = True
    grace: int = 15
    restart: bool = True


@attrs.frozen
class Process:
    """A process of a stack, as supervisord sees it.

    :param name: of its command.
    :param pid: process id, None when it does not run now.
    :param state: supervisord's word: ``STOPPED`` before the first start, ``RUNNING``, ``EXITED``, …
    :param exit_status: of the last run, where it is known.
    :param log: its log file.
    """

    name: str
    pid: int | None
    state: str
    exit_status: int
    log: Path

    @property
    def ended(self) -> bool:
        """Whether it was started, and does not run now."""
        return self.state in _ENDED


def launch(state: Path, commands: Iterable[Command]) -> None:
    """Start supervisord in the background; :func:`start` starts its processes. They end in the reverse order.

    :param state: directory of the stack; it must not run.
    :param commands: all of its processes.
    :raises StackError: supervisord did not start.
    """
    run, log = state / "run", log_file(state)
    for directory in (run, log.parent):
        directory.mkdir(parents=True, exist_ok=True)
    config = ConfigParser(interpolation=None)
    config["supervisord"] = {"pidfile": f"{run}/supervisord.pid", "logfile": str(log), "directory": str(REPOSITORY)}
    config["unix_http_server"] = {"file": str(_socket(state))}
    config["rpcinterface:supervisor"] = {
        "supervisor.rpcinterface_factory": "supervisor.rpcinterface:make_main_rpcinterface"
    }
    for number, command in enumerate(commands):
        file = run / f"{command.name}.json"
        write_atomically(file, json.dumps(attrs.asdict(command), default=str), mode=0o600)
        config[f"program:{command.name}"] = {
            "command": shlex.join([sys.executable, "-m", "include.local.become", str(file)]),
            "priority": str(number),
            "autostart": "false",
            "autorestart": str(command.restart),
            "startsecs": str(_STARTED_AFTER if command.restart else 0),
            "startretries": "1000000",
            "stopsignal": command.stop_signal,
            "stopasgroup": str(command.stop_group),
            "killasgroup": "true",
            "stopwaitsecs": str(command.grace),
            "redirect_stderr": "true",
            "stdout_logfile": str(command.log),
            "stdout_logfile_maxbytes": "20MB",
            "stdout_logfile_backups": "1",
        }
        command.log.parent.mkdir(parents=True, exist_ok=True)
    for section in config.values():
        for key, value in section.items():
            section[key] = value.replace("%", "%%")  # supervisord's sign for its own variables
    with (run / "supervisord.conf").open("w") as out:
        config.write(out)
    done = subprocess.run(
        [sys.executable, "-m", "supervisor.supervisord", "-c", str(run / "supervisord.conf")],
        env={**os.environ, MARK: str(state)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StackError(f"supervisord did not start: {done.stderr.strip() or done.stdout.strip()}")
    write_atomically(run / "session", str(_ask(state, "getPID")))


def start(state: Path, name: str) -> None:
    """Start a process and return at once.

    :param state: directory of the stack.
    :param name: of its command.
    """
    _ask(state, "startProcess", name, False)


def look(state: Path) -> list[Process]:
    """Return the processes of a running stack, by name.

    :param state: directory of the stack.
    :raises StackError: its supervisord does not answer.
    """
    return [
        Process(said["name"], said["pid"] or None, said["statename"], said["exitstatus"], Path(said["stdout_logfile"]))
        for said in _ask(state, "getAllProcessInfo")
    ]


def events(state: Path) -> list[str]:
    """Return what happened to the processes since the stack was started, a line each.

    :param state: directory of the stack.
    """
    log = log_file(state)
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    begun = [number for number, line in enumerate(lines) if "supervisord started with pid" in line]
    return lines[begun[-1] if begun else 0 :]


def restarts(state: Path, name: str) -> int:
    """Return how often a process was started again.

    :param state: directory of the stack.
    :param name: of its command.
    """
    return max(0, sum(f"spawned: '{name}'" in line for line in events(state)) - 1)


def leader(state: Path) -> psutil.Process | None:
    """Return the running supervisord of a stack, or None.

    :param state: directory of the stack.
    """
    with contextlib.suppress(OSError, ValueError, psutil.Error):
        process = psutil.Process(int((state / "run" / "session").read_text()))
        # Else the pid was given to a stranger since.
        if process.environ().get(MARK) == str(state) and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def leftovers(state: Path) -> list[psutil.Process]:
    """Return every running process of a stack, by its session and by its mark.

    :param state: directory of the stack.
    """
    session = _session(state)
    found = []
    for process in psutil.process_iter():
        # Not allowed, gone, or its environment overwritten by a process title: then its session tells.
        with contextlib.suppress(psutil.Error, OSError):
            ours = os.getsid(process.pid) == session or process.environ().get(MARK) == str(state)
            if ours and process.pid != os.getpid() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def shut_down(state: Path) -> bool:
    """Stop a stack from any shell, and whatever one has left whose supervisord is gone.

    :param state: directory of the stack.
    :returns: whether anything ran.
    """
    running = leader(state)
    if running is not None:
        end([running], _STOP_SECONDS)
    left = leftovers(state)
    end(left, _SWEEP_SECONDS)
    end(leftovers(state), 0)  # what those have started meanwhile
    shutil.rmtree(state / "run", ignore_errors=True)
    with contextlib.suppress(OSError):  # the database may be there
        _socket(state).unlink(missing_ok=True)  # of one that was killed
        _socket(state).parent.rmdir()
    return running is not None or bool(left)


def log_file(state: Path) -> Path:
    """Return the log of a stack's supervisord.

    :param state: directory of the stack.
    """
    return state / "logs" / "supervisord.log"


def last_lines(log: Path, lines: int = 15) -> str:
    """Return the end of a log, for a message.

    :param log: the file.
    :param lines: how many.
    """
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"(no log: {error})"


def _session(state: Path) -> int | None:
    """Return the session of a stack's processes, also of one whose supervisord is gone, but not one of a stranger."""
    try:
        number = int((state / "run" / "session").read_text())
        stranger = leader(state) is None and psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return number
    except (OSError, ValueError):
        return None
    return None if stranger else number


def _socket(state: Path) -> Path:
    # The path of a socket may have about a hundred characters only.
    return outside(state) / "supervisord.sock"


def _ask(state: Path, what: str, *arguments: object) -> Any:
    transport = SupervisorTransport(None, None, f"unix://{_socket(state)}")
    try:
        with ServerProxy("http://localhost", transport=transport) as server:
            return getattr(server.supervisor, what)(*arguments)
    except (OSError, HTTPException, Fault) as error:
        raise StackError(f"supervisord of {state} does not {what}: {error}. See {log_file(state)}.") from error
