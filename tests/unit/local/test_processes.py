from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time

import attrs
import psutil
import pytest

from include.local import processes
from include.local.processes import MARK, Command, Known, Supervised, known, sweep, write_atomically

# Says the pids of a child that ignores SIGTERM and of a grandchild in a session of its own.
FAMILY = """
import subprocess, sys, time
stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
child = subprocess.Popen([sys.executable, "-c", stubborn], stdout=subprocess.PIPE, process_group=0)
child.stdout.readline()
stray = subprocess.Popen(["sleep", "60"], start_new_session=True)
print(child.pid, stray.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def supervise(tmp_path):
    started = []

    def make(*argv: str, **fields) -> Supervised:
        fields.setdefault("grace", 0.5)
        env = {**os.environ, MARK: str(tmp_path)}
        command = Command("job", argv, env, tmp_path, tmp_path / "job.log", **fields)
        process = Supervised(command, tmp_path / "run", lambda line: said.append(line))
        process.said = said
        started.append(process)
        return process

    said: list[str] = []
    yield make
    for process in started:
        process.stop()
    sweep(tmp_path / "run", str(tmp_path), grace=0.1)


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def family(process: Supervised) -> list[int]:
    until(lambda: process.command.log.exists() and process.command.log.read_text().strip())
    return [int(pid) for pid in process.command.log.read_text().split()]


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_stop_ends_the_whole_session_also_what_ignores_sigterm_or_left_it(supervise):
    process = supervise(sys.executable, "-c", FAMILY)
    process.start()
    pids = [process.pid, *family(process)]
    assert all(lives(pid) for pid in pids)
    process.stop()
    assert not any(lives(pid) for pid in pids)
    assert process.pid is None


def test_another_shell_ends_what_a_killed_supervisor_left(supervise, tmp_path):
    process = supervise(sys.executable, "-c", FAMILY)
    process.start()
    child, stray = family(process)
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: process.pid is None)
    assert lives(child)
    assert lives(stray)
    assert sweep(tmp_path / "run", str(tmp_path), grace=0.5) == 2
    assert not lives(child)
    assert not lives(stray)
    assert known(tmp_path / "run") == []


def test_a_process_that_dies_is_started_again_and_its_children_ended(supervise):
    process = supervise(sys.executable, "-c", FAMILY)
    process.start()
    first, (child, _) = process.pid, family(process)
    os.kill(first, signal.SIGKILL)
    until(lambda: process.watch() or process.restarts == 1)
    assert process.pid not in (None, first)
    assert not lives(child)
    assert "was ended by SIGKILL" in process.said[0]


def test_the_pause_before_a_restart_doubles_up_to_a_limit_and_is_reset_by_a_steady_run(supervise, monkeypatch):
    now = 0.0
    monkeypatch.setattr(processes.time, "monotonic", lambda: now)
    process = supervise("false")
    process.start()
    pauses = []
    for _ in range(7):
        process._popen.wait()
        process.watch()
        pauses.append(process._start_at - now)
        now = process._start_at
        process.watch()
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    now += 61
    process._popen.wait()
    process.watch()
    assert process._start_at - now == 1


def test_a_pid_that_was_given_to_a_stranger_is_left_alone(tmp_path):
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        noted = Known("job", stranger.pid, psutil.Process(stranger.pid).create_time() - 100)
        assert noted.leader() is None
        assert noted.members() == []
        (tmp_path / "job.json").write_text(json.dumps(attrs.asdict(noted)))
        assert sweep(tmp_path, "no such stack") == 0
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_broken_pid_file_is_passed_over(tmp_path):
    (tmp_path / "a.json").write_text("{")
    (tmp_path / "b.json").write_text('{"name": "b"}')
    assert known(tmp_path) == []


def test_a_command_that_cannot_be_run_says_so(supervise):
    with pytest.raises(FileNotFoundError, match="no-such-program"):
        supervise("no-such-program").start()


def test_a_secret_is_never_readable_by_others(tmp_path):
    write_atomically(tmp_path / "secret", "x", mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]
