from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import time

import psutil
import pytest

from include.local import processes
from include.local.become import MARK
from include.local.processes import Command, StackError, events, launch, leader, leftovers, look, shut_down, start
from include.local.settings import REPOSITORY, write_atomically

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


def pid(state, name: str = "job") -> int | None:
    return next(process.pid for process in look(state) if process.name == name)


def family(state) -> list[int]:
    log = state / "logs" / "job.log"
    until(lambda: log.exists() and log.read_text().endswith("\n"))
    return [int(pid) for pid in log.read_text().split()][-2:]


def lives(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


def test_nothing_runs_before_it_is_started(state):
    launch(state, [command(state, *SLEEP), command(state, *SLEEP, name="other")])
    start(state, "other")
    assert [(process.name, process.state) for process in look(state)] == [("job", "STOPPED"), ("other", "STARTING")]
    assert pid(state) is None
    assert pid(state, "other")


def test_stop_ends_all_of_it_also_what_ignores_sigterm_or_left_the_session(state):
    run(state, sys.executable, "-c", FAMILY)
    pids = [pid(state), *family(state)]
    assert all(lives(pid) for pid in pids)
    assert shut_down(state)
    assert not any(lives(pid) for pid in pids)
    assert leader(state) is None
    assert not shut_down(state)


def test_what_uses_a_process_is_stopped_before_the_process(state):
    names = ("database", "server", "client")
    launch(state, [command(state, *SLEEP, name=name) for name in names])
    for name in names:
        start(state, name)
    shut_down(state)
    stopped = [line.partition("stopped: ")[2].split()[0] for line in events(state) if "stopped: " in line]
    assert stopped == ["client", "server", "database"]


def test_another_shell_ends_what_a_killed_supervisord_left(state):
    run(state, sys.executable, "-c", FAMILY)
    pids = [pid(state), *family(state)]
    killed = leader(state)
    killed.kill()
    until(lambda: not killed.is_running() or killed.status() == psutil.STATUS_ZOMBIE)
    assert leader(state) is None
    assert {process.pid for process in leftovers(state)} >= set(pids)
    assert shut_down(state)
    assert not any(lives(pid) for pid in pids)


def test_a_process_that_dies_is_started_again_and_what_it_left_in_the_session_ended(state):
    run(state, sys.executable, "-c", FAMILY)
    first, (child, _) = pid(state), family(state)
    os.kill(first, signal.SIGKILL)
    assert until(lambda: pid(state) not in (None, first) and family(state)[0] != child)
    assert not lives(child)
    assert processes.restarts(state, "job") == 1
    assert any("exited: job (terminated by SIGKILL; not expected)" in line for line in events(state))


def test_what_cannot_stay_is_tried_again_and_again(state):
    run(state, "false")
    until(lambda: processes.restarts(state, "job") >= 2)
    (job,) = look(state)
    assert job.state in ("BACKOFF", "STARTING")
    assert any("exited: job (exit status 1; not expected)" in line for line in events(state))


def test_a_one_off_is_not_started_again_and_its_exit_status_is_known(state):
    run(state, "sh", "-c", "exit 3", restart=False)
    job = until(lambda: next((process for process in look(state) if process.ended), None))
    assert (job.state, job.exit_status, job.pid) == ("EXITED", 3, None)


def test_a_command_reaches_the_process_as_it_is(state):
    strange = "50% of \"it\", 'quoted' \\ %(here)s\n;x"
    said = "import json, os, sys; print(json.dumps([sys.argv[1:], os.environ['A'], os.getcwd(), os.environ['LOCAL_STACK']]))"
    run(state, sys.executable, "-c", said, strange, env={"A": strange}, restart=False)
    until(lambda: look(state)[0].ended)
    log = (state / "logs" / "job.log").read_text()
    assert json.loads(log) == [[strange], strange, str(state.parent), str(state)]


def test_a_command_is_readable_by_its_owner_only(state):
    launch(state, [command(state, *SLEEP)])
    assert stat.S_IMODE((state / "run" / "job.json").stat().st_mode) == 0o600
    shut_down(state)
    assert not (state / "run").exists()


def test_only_one_supervisord_runs_for_a_state_directory(state):
    launch(state, [command(state, *SLEEP)])
    first = leader(state)
    with pytest.raises(StackError, match="supervisord did not start"):
        launch(state, [])
    assert leader(state) == first


def test_a_stack_that_does_not_run_is_told(state):
    with pytest.raises(StackError, match=f"supervisord of {state} does not getAllProcessInfo"):
        look(state)


def test_a_session_that_was_given_to_a_stranger_is_left_alone(state):
    stranger = subprocess.Popen(SLEEP, start_new_session=True)
    try:
        (state / "run").mkdir(parents=True)
        (state / "run" / "session").write_text(str(stranger.pid))
        assert leader(state) is None
        assert leftovers(state) == []
        assert not shut_down(state)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_broken_note_of_the_session_is_passed_over(state):
    (state / "run").mkdir(parents=True)
    (state / "run" / "session").write_text("")
    assert leader(state) is None
    assert leftovers(state) == []


def test_a_command_that_cannot_be_run_says_so(state):
    run(state, "no-such-program")
    log = state / "logs" / "job.log"
    until(lambda: log.exists() and "FileNotFoundError" in log.read_text())
    assert "no-such-program" in log.read_text()


def test_a_stack_ends_with_its_owner(state):
    from tests.live.harness import _GUARD

    owner = subprocess.Popen(SLEEP)
    guard = subprocess.Popen([sys.executable, "-c", _GUARD, str(owner.pid), str(state)], cwd=REPOSITORY)
    run(state, *SLEEP)
    job = pid(state)
    owner.kill()
    owner.wait()
    assert guard.wait(60) == 0
    assert not lives(job)
    assert leader(state) is None


def test_the_mark_is_in_the_environment_of_supervisord(state):
    launch(state, [])
    assert leader(state).environ()[MARK] == str(state)


def test_a_secret_is_never_readable_by_others(tmp_path):
    write_atomically(tmp_path / "secret", "x", mode=0o600)
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    assert [file.name for file in tmp_path.iterdir()] == ["secret"]
