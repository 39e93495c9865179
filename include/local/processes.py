"""The processes of a stack, kept by supervisord: started one by one, started again when they die, stopped in order."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from configparser import ConfigParser
from pathlib import Path
from typing import Any
from xmlrpc.client import Error, ServerProxy

import psutil
from supervisor.xmlrpc import SupervisorTransport

from .jars import SetUpError
from .settings import outside, write_atomically

# Every process of a stack carries this variable; its value is the stack's state directory.
MARK = "LOCAL_STACK"
_STOP_SECONDS, _SWEEP_SECONDS = 90, 10
_DEFAULTS = {
    "autostart": "false",
    "autorestart": "true",
    # What dies within this many seconds has not started: the pause before the next try grows by a second each time.
    "startsecs": "10",
    "startretries": "1000000",
    "stopasgroup": "true",
    "killasgroup": "true",
    "redirect_stderr": "true",
}


def launch(state: Path, programs: Mapping[str, Mapping[str, object]], environment: Mapping[str, str]) -> None:
    """Start supervisord in the background, which starts its programs when it is asked, and ends them in reverse order.

    :param state: directory of the stack; it must not run.
    :param programs: settings of supervisord's section ``[program:x]``, beside the defaults of here, by name.
    :param environment: of all programs.
    """
    logs, file = state / "logs", state / "supervisord.conf"
    pid_file, log_file = state / "supervisord.pid", logs / "supervisord.log"
    config = ConfigParser(interpolation=None)
    config["supervisord"] = {"pidfile": str(pid_file), "logfile": str(log_file), "directory": str(state)}
    config["unix_http_server"] = {"file": f"{outside(state)}/supervisord.sock"}
    factory = "supervisor.rpcinterface:make_main_rpcinterface"
    config["rpcinterface:supervisor"] = {"supervisor.rpcinterface_factory": factory}
    for number, (name, settings) in enumerate(programs.items()):
        own = {"stdout_logfile": f"{logs}/{name}.log", "priority": number, **settings}
        config[f"program:{name}"] = _DEFAULTS | {key: str(value) for key, value in own.items()}
    logs.mkdir(parents=True, exist_ok=True)
    config.write(text := io.StringIO())
    write_atomically(file, text.getvalue(), mode=0o600)
    command = [sys.executable, "-m", "supervisor.supervisord", "-c", str(file)]
    subprocess.run(command, env={**environment, MARK: str(state)}, check=True, stdout=subprocess.DEVNULL)


def ask(state: Path, what: str, *arguments: object) -> Any:
    """Ask supervisord by its XML-RPC API, such as for ``getAllProcessInfo``.

    :raises SetUpError: it does not answer, or refuses.
    """
    transport = SupervisorTransport(None, None, f"unix://{outside(state)}/supervisord.sock")
    try:
        with ServerProxy("http://localhost", transport=transport) as server:
            return getattr(server.supervisor, what)(*arguments)
    except (OSError, Error) as error:
        raise SetUpError(f"supervisord of {state} does not {what}: {error}.") from error


def start(state: Path, *names: str) -> None:
    """Start programs of a stack, and return at once."""
    for name in names:
        ask(state, "startProcess", name, False)


def leader(state: Path) -> psutil.Process | None:
    """Return the running supervisord of a stack, or None."""
    with contextlib.suppress(psutil.Error, OSError, ValueError):
        process = psutil.Process(int((state / "supervisord.pid").read_text()))
        # Else the pid was given to a stranger since, or its parent has not yet noticed that it ended.
        return process if process.environ().get(MARK) == str(state) else None
    return None


def leftovers(state: Path) -> list[psutil.Process]:
    """Return every running process of a stack: of supervisord's session, which its children share, or with the mark."""
    session, found = _session(state), []
    for process in psutil.process_iter():
        # Not allowed, gone, or its environment overwritten by a process title: then its session tells.
        with contextlib.suppress(psutil.Error, OSError):
            in_session = session is not None and os.getsid(process.pid) == session
            ours = in_session or process.environ().get(MARK) == str(state)
            if ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def shut_down(state: Path) -> bool:
    """Stop a stack from any shell, and whatever one has left whose supervisord is gone; return whether anything ran."""
    running = leader(state)
    _end([running] if running else [], _STOP_SECONDS)
    left = leftovers(state)
    _end(left, _SWEEP_SECONDS)
    _end(leftovers(state), 0)  # what those have started meanwhile
    (state / "supervisord.pid").unlink(missing_ok=True)
    return bool(running or left)


def _end(left: list[psutil.Process], grace: float) -> None:
    for how, patience in ((psutil.Process.terminate, grace), (psutil.Process.kill, 10)):
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                how(process)
        _, left = psutil.wait_procs(left, timeout=patience)


def _session(state: Path) -> int | None:
    """Return the session of a stack's processes, also of one whose supervisord is gone, but not one of a stranger."""
    with contextlib.suppress(OSError, ValueError):
        number = int((state / "supervisord.pid").read_text())
        gone = not psutil.pid_exists(number) or psutil.Process(number).status() == psutil.STATUS_ZOMBIE
        # Below 2 are those of whoever comes from outside of a container, and of the machine itself.
        return number if number > 1 and (gone or leader(state)) else None
    return None
