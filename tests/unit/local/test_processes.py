"""What of a stack's processes would go wrong unseen: what is left behind, and whom a stop hits."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time

import psutil
import pytest
from typer.testing import CliRunner

from include.local import __main__ as cli
from include.local import processes
from include.local.processes import ask, launch, leader, leftovers, shut_down, start

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
def state(tmp_path, monkeypatch):
    """A stack's directory."""
    directory = tmp_path / "state"
    monkeypatch.setattr(processes, "_SWEEP_SECONDS", 0.5)
    yield directory
    shut_down(directory)
    assert leftovers(directory) == []


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_another_shell_ends_all_that_a_killed_supervisord_left_also_what_ignores_sigterm_or_left_the_session(
    state, tmp_path
):
    (tmp_path / "family.py").write_text(FAMILY)
    launch(state, {"job": {"command": shlex.join([sys.executable, str(tmp_path / "family.py")])}}, os.environ)
    start(state, "job")
    log = state / "logs" / "job.log"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    pids = {ask(state, "getProcessInfo", "job")["pid"], *map(int, log.read_text().split())}
    killed = leader(state)
    killed.kill()
    until(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
    assert leader(state) is None
    assert {process.pid for process in leftovers(state)} >= pids
    assert shut_down(state)
    assert not any(lives(pid) for pid in pids)


@pytest.mark.parametrize("noted", [True, False], ids=["of a stranger", "broken"])
def test_a_session_that_is_not_the_stacks_is_left_alone(state, noted):
    stranger = subprocess.Popen(["sleep", "60"], start_new_session=True)
    try:
        state.mkdir()
        (state / "supervisord.pid").write_text(str(stranger.pid) if noted else "")
        assert leader(state) is None
        assert leftovers(state) == []
        assert not shut_down(state)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_clean_keeps_what_was_fetched(state, monkeypatch):
    monkeypatch.setenv("LOCAL_STATE", str(state))
    for name in ("jars", "ivy", "logs", "database"):
        (state / name).mkdir(parents=True)
    launch(state, {"job": {"command": "sleep 60"}}, os.environ)
    assert CliRunner().invoke(cli.app, ["clean"]).exit_code == 0
    assert leader(state) is None
    assert sorted(entry.name for entry in state.iterdir()) == ["ivy", "jars"]
