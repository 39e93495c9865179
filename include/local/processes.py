"""Processes that are watched: each in a session of its own, restarted when it dies, stopped with all it started.

A process is known by its pid **and** its start time, noted in a file, so that another shell can stop it and a reused
pid is never mistaken for it. What it started is found by its session, and by a mark in the environment for children
that made a session of their own.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from typing import TYPE_CHECKING

import attrs
import psutil

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

# Every process of a stack carries this variable; its value is the stack's state directory.
MARK = "LOCAL_STACK"
_FIRST_BACK_OFF, _LONGEST_BACK_OFF = 1.0, 30.0
# A process that ran this long had started well: its next death is a new story for the back-off.
_STEADY_AFTER = 60.0
_KEEP_LOG_BYTES = 20 * 1024 * 1024


@attrs.frozen
class Command:
    """What to run.

    :param name: short name, also of its log and pid file.
    :param argv: program and arguments.
    :param env: the whole environment.
    :param cwd: working directory.
    :param log: file that gets its output, appended.
    :param user: user to run as; only root may name one.
    :param stop_signal: the polite way to end it.
    :param stop_whole_session: whether all it started gets that signal too, or only its leader, which tells the others.
    :param grace: seconds between the polite way and SIGKILL.
    """

    name: str
    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    user: str | None = None
    stop_signal: signal.Signals = signal.SIGTERM
    stop_whole_session: bool = True
    grace: float = 15.0


@attrs.frozen
class Known:
    """A process as noted in its pid file.

    :param name: of the command.
    :param pid: of its leader, which is the number of its session too.
    :param created: start time of the leader, seconds since 1970.
    """

    name: str
    pid: int
    created: float

    def leader(self) -> psutil.Process | None:
        """Return the running leader, or None when it has ended."""
        try:
            process = psutil.Process(self.pid)
            same = abs(process.create_time() - self.created) < 1.0
            return process if same and process.status() != psutil.STATUS_ZOMBIE else None
        except psutil.NoSuchProcess:
            return None

    def members(self) -> list[psutil.Process]:
        """Return every running process of its session, whether the leader still runs or not."""
        if psutil.pid_exists(self.pid) and self.leader() is None and not _is_zombie(self.pid):
            return []  # the pid has been given to a stranger, so no process of our session is left
        return [process for process in psutil.process_iter() if _session(process.pid) == self.pid and _lives(process)]


class Supervised:
    """One process that is kept running.

    :param command: what to run.
    :param run_dir: directory for its pid file.
    :param tell: called with a line for people when it dies and when it is started again.
    """

    def __init__(self, command: Command, run_dir: Path, tell: Callable[[str], None] = lambda _: None) -> None:
        self.command = command
        self.restarts = 0
        self._pid_file = run_dir / f"{command.name}.json"
        self._tell = tell
        self._popen: subprocess.Popen[bytes] | None = None
        self._known: Known | None = None
        self._started = 0.0
        self._back_off = _FIRST_BACK_OFF
        self._start_at: float | None = None

    @property
    def pid(self) -> int | None:
        """Process id of the leader, or None when it does not run."""
        return self._popen.pid if self._popen is not None and self._popen.poll() is None else None

    @property
    def exit_status(self) -> int | None:
        """Exit status of the last run, negative for a signal, or None."""
        return self._popen.poll() if self._popen is not None else None

    def start(self) -> None:
        """Start it and return at once.

        :raises OSError: the program cannot be run.
        """
        command = self.command
        command.cwd.mkdir(parents=True, exist_ok=True)
        command.log.parent.mkdir(parents=True, exist_ok=True)
        self._pid_file.parent.mkdir(parents=True, exist_ok=True)
        if command.log.exists() and command.log.stat().st_size > _KEEP_LOG_BYTES:
            command.log.replace(command.log.with_suffix(".old.log"))
        with command.log.open("ab") as log:
            self._popen = subprocess.Popen(
                list(command.argv),
                env=dict(command.env),
                cwd=command.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                user=command.user,
                extra_groups=[] if command.user else None,
            )
        self._started = time.monotonic()
        self._start_at = None
        with contextlib.suppress(psutil.NoSuchProcess):
            created = psutil.Process(self._popen.pid).create_time()
            self._known = Known(command.name, self._popen.pid, created)
            write_atomically(self._pid_file, json.dumps(attrs.asdict(self._known)))

    def watch(self) -> None:
        """Start it again when it has died: at once the first time, later after a growing pause. Call it often."""
        if self._popen is None or self.pid is not None:
            return
        now = time.monotonic()
        if self._start_at is None:
            if now - self._started > _STEADY_AFTER:
                self._back_off = _FIRST_BACK_OFF
            # What it left behind holds its ports and its memory.
            if self._known is not None:
                end([*self._known.members()], signal.SIGTERM, grace=2.0)
            self._start_at = now + self._back_off
            self._tell(
                f"{self.command.name} {_how_it_ended(self._popen.returncode)}; starting it again in "
                f"{self._back_off:.0f} s (log: {self.command.log})"
            )
            self._back_off = min(self._back_off * 2, _LONGEST_BACK_OFF)
        elif now >= self._start_at:
            self.restarts += 1
            self.start()

    def stop(self) -> None:
        """End it and everything it started: politely, then by force. No-op when it does not run."""
        if self._popen is None or self._known is None:
            return
        self._stop(self._known)
        self._popen.wait(10)
        self._popen = None
        self._pid_file.unlink(missing_ok=True)

    def _stop(self, known: Known) -> None:
        leader = known.leader()
        if leader is not None and not self.command.stop_whole_session:
            end([leader], self.command.stop_signal, self.command.grace)
        end(known.members(), self.command.stop_signal, self.command.grace, again=known.members)


def end(
    processes: Iterable[psutil.Process],
    how: signal.Signals,
    grace: float,
    again: Callable[[], Iterable[psutil.Process]] = lambda: (),
) -> None:
    """End processes: politely, and by force after a while, then with their children.

    :param processes: which ones get the polite signal; their children are theirs to end.
    :param how: the polite signal.
    :param grace: seconds until SIGKILL.
    :param again: asked for those that appeared meanwhile, which are ended by force.
    """
    doomed = set(processes)
    asked = list(doomed)
    for process in asked:
        with contextlib.suppress(psutil.NoSuchProcess):
            doomed.update(process.children(recursive=True))
    for process in asked:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(how)
    _, left = psutil.wait_procs(list(doomed), timeout=grace)
    left = [process for process in {*left, *again()} if _lives(process)]
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)


def known(run_dir: Path) -> list[Known]:
    """Return what the pid files note.

    :param run_dir: directory of the pid files.
    """
    found = []
    for file in sorted(run_dir.glob("*.json")):
        with contextlib.suppress(ValueError, TypeError, OSError):
            found.append(Known(**json.loads(file.read_text())))
    return found


def leftovers(run_dir: Path, mark: str) -> list[psutil.Process]:
    """Return every running process of a stack, by its pid files and by its mark.

    :param run_dir: directory of the pid files.
    :param mark: value of the stack's environment variable.
    """
    found = {process for noted in known(run_dir) for process in noted.members()}
    for process in psutil.process_iter():
        # Not allowed, gone, or its environment overwritten by a process title: then its session tells.
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get(MARK) == mark and _lives(process):
                found.add(process)
    found.discard(psutil.Process())
    return sorted(found, key=lambda process: process.pid)


def sweep(run_dir: Path, mark: str, grace: float = 10.0) -> int:
    """End what is left of a stack whose supervisor is gone, and remove its pid files.

    :param run_dir: directory of the pid files.
    :param mark: value of the stack's environment variable.
    :param grace: seconds until SIGKILL.
    :returns: how many processes there were.
    """
    found = leftovers(run_dir, mark)
    if found:
        end(found, signal.SIGTERM, grace, again=lambda: leftovers(run_dir, mark))
    for file in run_dir.glob("*.json"):
        file.unlink(missing_ok=True)
    return len(found)


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


def _how_it_ended(status: int) -> str:
    if status >= 0:
        return f"ended with status {status}"
    try:
        return f"was ended by {signal.Signals(-status).name}"
    except ValueError:
        return f"was ended by signal {-status}"


def _session(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def _is_zombie(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _lives(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
