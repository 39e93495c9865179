from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys

import attrs
import psutil
import pytest
from typer.testing import CliRunner

from include.local import __main__ as cli
from include.local import supervisor
from include.local.processes import MARK, Known
from include.local.settings import Settings
from include.local.stack import ImportProblem, StackError


@pytest.fixture
def settings(tmp_path):
    return Settings(state=tmp_path / "state", dags=tmp_path, lakehouse=tmp_path, jars=tmp_path, any_port=True)


@pytest.fixture
def shell(settings, monkeypatch):
    monkeypatch.setattr(cli, "from_environment", lambda: settings)
    return CliRunner()


class FakeStack:
    """Starts and stops nothing, and says so."""

    failure: Exception | None = None

    def __init__(self, settings, tell, stop_asked):
        self.ports, self.services, self.import_problems = None, [], []
        self._tell, self._stop_asked = tell, stop_asked

    def start(self):
        self._tell("starting")
        if self.failure is not None:
            raise self.failure

    def watch(self):
        self._stop_asked.set()

    def stop(self):
        self._tell("stopped")


@pytest.fixture
def fake_stack(monkeypatch):
    monkeypatch.setattr(supervisor, "Stack", FakeStack)
    monkeypatch.setattr(supervisor.signal, "signal", lambda *_: None)
    monkeypatch.setattr(FakeStack, "failure", None)
    return FakeStack


def events(settings) -> list[str]:
    return [event.partition(" ")[2] for event in supervisor.read_status(settings).events]


def test_a_stack_that_ran_and_was_stopped_says_so(settings, fake_stack):
    assert supervisor.run(settings) == 0
    assert supervisor.read_status(settings).phase == "stopped"
    assert events(settings) == ["starting", "stopped"]
    assert supervisor.supervisor(settings) is None


def test_a_stack_that_does_not_start_is_stopped_and_says_why(settings, fake_stack, monkeypatch):
    monkeypatch.setattr(FakeStack, "failure", StackError("scheduler ended with status 1"))
    assert supervisor.run(settings) == 1
    status = supervisor.read_status(settings)
    assert (status.phase, status.error, status.set_up) == ("failed", "scheduler ended with status 1", False)
    assert events(settings) == ["starting", "stopped"]


def test_what_the_machine_lacks_is_told_apart(settings, fake_stack, monkeypatch):
    monkeypatch.setattr(FakeStack, "failure", supervisor.SetUpError("Java 17 or later is needed"))
    assert supervisor.run(settings) == 1
    assert supervisor.read_status(settings).set_up


def test_a_stack_ends_with_its_owner(settings, fake_stack, monkeypatch):
    owner = subprocess.Popen(["sleep", "60"])
    monkeypatch.setattr(FakeStack, "watch", lambda _: (owner.kill(), owner.wait()))
    assert supervisor.run(settings, owner.pid) == 0
    assert supervisor.read_status(settings).phase == "stopped"


def test_only_one_supervisor_runs_for_a_state_directory(settings, fake_stack, monkeypatch, capsys):
    settings.state.mkdir()
    monkeypatch.setattr(supervisor.time, "monotonic", iter(range(100)).__next__)
    with (settings.state / "supervisor.lock").open("a") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        own = Known("supervisor", os.getpid(), psutil.Process().create_time())
        (settings.state / "supervisor.json").write_text(json.dumps(attrs.asdict(own)))
        assert supervisor.run(settings) == 1
        assert supervisor.supervisor(settings) == own
    assert "runs already" in capsys.readouterr().err


def test_down_ends_what_a_killed_supervisor_left(settings, shell):
    settings.state.mkdir()
    orphan = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: settings.mark}, start_new_session=True)
    assert "Stopped" in shell.invoke(cli.app, ["down"]).output
    assert not psutil.pid_exists(orphan.pid)
    assert "Nothing runs" in shell.invoke(cli.app, ["down"]).output


def test_status_of_nothing(shell):
    done = shell.invoke(cli.app, ["status"])
    assert done.exit_code == 1
    assert "make up" in done.output


def test_up_shows_dags_that_cannot_be_imported_and_fails(settings, shell, monkeypatch):
    problem = ImportProblem("broken.py", "Traceback …\nNameError: name 'x' is not defined\n")
    status = supervisor.Status(
        "healthy", url="http://127.0.0.1:1", import_errors=(f"{problem.file}: {problem.last_line}",)
    )
    monkeypatch.setattr(cli, "_fetch_jars", lambda _: None)
    monkeypatch.setattr(cli, "_show_addresses", lambda *_: None)
    monkeypatch.setattr(supervisor, "launch", lambda _: None)
    monkeypatch.setattr(supervisor, "follow", lambda _: iter([status]))
    done = shell.invoke(cli.app, ["up"])
    assert done.exit_code == cli.DAGS_FAILED
    assert "broken.py: NameError: name 'x' is not defined" in done.output


def test_up_says_what_the_machine_lacks(settings, shell, monkeypatch):
    def missing(_):
        raise cli.spark_jars.SetUpError("Java 17 or later is needed")

    monkeypatch.setattr(cli.spark_jars, "resolve", missing)
    done = shell.invoke(cli.app, ["up"])
    assert done.exit_code == cli.SET_UP_FAILED
    assert "Set-up failed. Java 17 or later is needed" in done.output


def test_clean_keeps_the_jars_only(settings, shell):
    for name in ("jars", "ivy", "logs", "postgres"):
        (settings.state / name).mkdir(parents=True)
    (settings.state / "status.json").touch()
    assert shell.invoke(cli.app, ["clean"]).exit_code == 0
    assert sorted(entry.name for entry in settings.state.iterdir()) == ["ivy", "jars"]


def test_the_settings_reach_the_background_process(settings, monkeypatch):
    changed = attrs.evolve(settings, more_dags=(settings.dags / "more",), environment={"A": "b"}, parallelism=3)
    echo = "import sys; sys.stderr.write(sys.stdin.read())"
    real = subprocess.Popen
    launched = []

    def popen(argv, **options):
        launched.append(real([sys.executable, "-c", echo], **options))
        return launched[0]

    monkeypatch.setattr(supervisor.subprocess, "Popen", popen)
    supervisor.launch(changed, owner=7)
    launched[0].returncode = None
    launched[0].wait(10)
    received = []
    monkeypatch.setattr(supervisor, "run", lambda *given: received.append(given) or 0)
    monkeypatch.setattr(sys, "stdin", (changed.logs / "supervisor.log").open())
    assert supervisor._main() == 0
    assert received == [(changed, 7)]
