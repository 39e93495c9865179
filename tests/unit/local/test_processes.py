"""What of a stack's processes would go wrong unseen: what is left behind, whom a stop hits, in which order."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from include.local import __main__ as cli
from include.local import processes
from include.local.processes import Command, launch, leader, leftovers, look, shut_down, start
from include.local.settings import Settings

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
SLEEP = ("sleep", "60")


@pytest.fixture
def state(tmp_path, monkeypatch):
    """A stack's directory."""
    directory = tmp_path / "state"
    monkeypatch.setattr(processes, "_SWEEP_SECONDS", 0.5)
    yield directory
    shut_down(directory)
    assert leftovers(directory) == []


def command(state, *argv: str, name: str = "job", **fields) -> Command:
    fields = {"grace": 1, "env": dict(os.environ), **fields}
    return Command(name=name, argv=argv, cwd=state.parent, log=state / "logs" / f"{name}.log", **fields)


def run(state, *argv: str, **fields) -> None:
    """Launch a stack of one process, and start that."""
    launch(state, [command(state, *argv, **fields)])
    start(state, "job")


def until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return found


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_another_shell_ends_all_that_a_killed_supervisord_left_also_what_ignores_sigterm_or_left_the_session(state):
    run(state, sys.executable, "-c", FAMILY)
    log = state / "logs" / "job.log"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    pids = {look(state)[0].pid, *(int(pid) for pid in log.read_text().split()[-2:])}
    killed = leader(state)
    killed.kill()
    until(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
    assert leader(state) is None
    assert {process.pid for process in leftovers(state)} >= pids
    assert shut_down(state)
    assert not any(lives(pid) for pid in pids)


def test_a_command_reaches_the_process_as_it_is_and_is_readable_by_its_owner_only(state):
    strange = "50% of \"it\", 'quoted' \\ %(here)s\n;x"
    said = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.getcwd()])); sys.exit(3)"
    run(state, sys.executable, "-c", said, strange, env={"A": strange}, restart=False)
    assert (state / "run" / "job.json").stat().st_mode & 0o777 == 0o600
    job = until(lambda: next((process for process in look(state) if process.ended), None))
    assert (job.state, job.exit_status, job.pid) == ("EXITED", 3, None)
    assert json.loads((state / "logs" / "job.log").read_text()) == [[strange], strange, str(state.parent)]


@pytest.mark.parametrize("noted", [True, False], ids=["of a stranger", "broken"])
def test_a_session_that_is_not_the_stacks_is_left_alone(state, noted):
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        (state / "run").mkdir(parents=True)
        (state / "run" / "session").write_text(str(stranger.pid) if noted else "")
        assert leader(state) is None
        assert leftovers(state) == []
        assert not shut_down(state)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_clean_leaves_a_stack_that_runs_alone_and_keeps_what_was_fetched(state, tmp_path: Path, monkeypatch):
    settings = Settings(state=state, dags=tmp_path, lakehouse=tmp_path, jars=tmp_path, any_port=True)
    monkeypatch.setattr(cli, "from_environment", lambda: settings)
    for name in ("jars", "ivy", "logs", "postgres"):
        (state / name).mkdir(parents=True)
    launch(state, [command(state, *SLEEP)])
    done = CliRunner().invoke(cli.app, ["clean"])
    assert (done.exit_code, "make down" in done.output) == (1, True)
    assert leader(state) is not None
    shut_down(state)
    assert CliRunner().invoke(cli.app, ["clean"]).exit_code == 0
    assert sorted(entry.name for entry in state.iterdir()) == ["ivy", "jars"]
