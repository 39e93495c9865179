from __future__ import annotations

import os
import subprocess
from types import SimpleNamespace

import httpx
import psutil
import pytest
from typer.testing import CliRunner

from include.local import __main__ as cli
from include.local import processes, stack
from include.local.api import AirflowApi, WaitTimeoutError
from include.local.become import MARK
from include.local.demo import BAD_INPUT
from include.local.jars import SetUpError
from include.local.processes import Command, StackError
from include.local.settings import Settings


@pytest.fixture
def settings(tmp_path):
    return Settings(state=tmp_path / "state", dags=tmp_path, lakehouse=tmp_path, jars=tmp_path, any_port=True)


@pytest.fixture
def shell(settings, monkeypatch):
    monkeypatch.setattr(cli, "from_environment", lambda: settings)
    monkeypatch.setattr(cli, "_fetch_jars", lambda _: None)
    yield CliRunner()
    processes.shut_down(settings.state)


@pytest.fixture
def one_process(settings, monkeypatch):
    """A stack of one process, and an Airflow that has nothing to say but the import errors that are put into the list."""
    errors = []

    def airflow(request):
        if request.url.path == "/auth/token":
            return httpx.Response(201, json={"access_token": "token"})
        if request.url.path.endswith("health"):
            return httpx.Response(200, json={"scheduler": {"status": "healthy"}, "triggerer": None})
        return httpx.Response(200, json={"import_errors": errors, "dags": [], "total_entries": len(errors)})

    def start(_, tell=lambda _: None):
        tell("Waiting for the job")
        command = Command("job", ["sleep", "60"], {}, settings.state, settings.logs / "job.log")
        processes.launch(settings.state, [command])
        processes.start(settings.state, "job")

    def open_api(_):
        return AirflowApi("http://airflow", "admin", "right", transport=httpx.MockTransport(airflow))

    settings.state.mkdir()
    stack.choose_ports(settings)
    monkeypatch.setattr(stack, "start", start)
    monkeypatch.setattr(stack, "open_api", open_api)
    return errors


@pytest.fixture
def quiet(settings, monkeypatch):
    """Everything that a stack is started with, but for its processes."""
    monkeypatch.setattr(stack.jars, "resolve", lambda _: [])
    monkeypatch.setattr(stack, "connect_server", lambda *_: SimpleNamespace(
        prepare=lambda: None, command=lambda: ["sleep", "60"], environment=dict, port=1, healthy=lambda: True,
        log_file=settings.logs / "spark.log",
    ))  # fmt: skip
    database = Command("postgres", ["sleep", "60"], {}, settings.state, settings.logs / "postgres.log")
    monkeypatch.setattr(stack.postgres, "prepare", lambda *_: database)
    monkeypatch.setattr(stack.postgres, "answers", lambda *_: True)
    monkeypatch.setattr(stack, "_bootstrap", lambda *_: None)


def test_a_stack_that_ran_and_was_stopped_says_so(shell, one_process):
    up = shell.invoke(cli.app, ["up"])
    assert up.exit_code == 0
    assert "Waiting for the job" in up.output
    assert "Healthy after" in up.output
    status = shell.invoke(cli.app, ["status"])
    assert status.exit_code == 0
    assert "Airflow says: scheduler healthy" in status.output
    assert "spawned: 'job'" in " ".join(status.output.split())
    assert "Stopped in" in shell.invoke(cli.app, ["down"]).output
    assert "Nothing runs" in shell.invoke(cli.app, ["status"]).output


def test_a_stack_that_runs_is_not_started_again(settings, shell, one_process):
    shell.invoke(cli.app, ["up"])
    first = processes.leader(settings.state)
    assert "Waiting" not in shell.invoke(cli.app, ["up"]).output
    assert processes.leader(settings.state) == first


def test_a_stack_whose_start_was_interrupted_is_started_anew(settings, shell, one_process):
    command = Command("job", ["sleep", "60"], {}, settings.state, settings.logs / "job.log")
    processes.launch(settings.state, [command])
    assert not stack.is_complete(settings)
    status = shell.invoke(cli.app, ["status"])
    assert (status.exit_code, "starting" in status.output) == (0, True)


def test_a_stack_that_does_not_start_is_stopped_and_says_why(settings, shell, monkeypatch, quiet):
    def airflow(_, name, __):
        argv = ["sh", "-c", "echo no such table; exit 1"] if name == "triggerer" else ["sleep", "60"]
        return Command(name, argv, dict(os.environ), settings.state, settings.logs / f"{name}.log")

    monkeypatch.setattr(stack, "_airflow_command", airflow)
    monkeypatch.setattr(stack, "_healthy", lambda *_: False)
    done = shell.invoke(cli.app, ["up"])
    assert done.exit_code == cli.SET_UP_FAILED
    said = " ".join(done.output.split())
    assert "Start failed. triggerer ended while the stack was starting" in said
    assert "exit status 1" in said
    assert "no such table" in said
    assert processes.leader(settings.state) is None
    assert processes.leftovers(settings.state) == []


def test_what_does_not_answer_in_time_is_stopped_and_says_where_the_logs_are(settings, monkeypatch, quiet):
    def waited(*_, **__):
        raise WaitTimeoutError("Waited 240 s for PostgreSQL.")

    monkeypatch.setattr(stack, "wait_for", waited)
    with pytest.raises(StackError, match=f"Waited 240 s for PostgreSQL. The logs are in {settings.logs}"):
        stack.start(settings)
    assert processes.leftovers(settings.state) == []


def test_what_the_machine_lacks_is_told_apart(shell, monkeypatch):
    def missing(*_):
        raise SetUpError("there is no user postgres or nobody on this machine")

    monkeypatch.setattr(stack, "start", missing)
    done = shell.invoke(cli.app, ["up"])
    assert done.exit_code == cli.SET_UP_FAILED
    assert "Set-up failed. there is no user postgres" in done.output


def test_down_ends_what_a_killed_supervisor_left(settings, shell):
    orphan = subprocess.Popen(["sleep", "60"], env={**os.environ, MARK: str(settings.state)}, start_new_session=True)
    assert "Stopped" in shell.invoke(cli.app, ["down"]).output
    assert not psutil.pid_exists(orphan.pid) or orphan.wait(10)
    assert "Nothing runs" in shell.invoke(cli.app, ["down"]).output


def test_status_of_nothing(shell):
    done = shell.invoke(cli.app, ["status"])
    assert done.exit_code == 1
    assert "make up" in done.output


def test_up_shows_dags_that_cannot_be_imported_and_fails(shell, one_process):
    one_process.append({"filename": "broken.py", "stack_trace": "Traceback …\nNameError: name 'x' is not defined\n"})
    done = shell.invoke(cli.app, ["up"])
    assert done.exit_code == cli.DAGS_FAILED
    assert "broken.py: NameError: name 'x' is not defined" in done.output


def test_up_says_what_the_machine_lacks(settings, monkeypatch):
    def missing(_):
        raise SetUpError("Java 17 or later is needed")

    monkeypatch.setattr(cli, "from_environment", lambda: settings)
    monkeypatch.setattr(cli.spark_jars, "resolve", missing)
    done = CliRunner().invoke(cli.app, ["up"])
    assert done.exit_code == cli.SET_UP_FAILED
    assert "Set-up failed. Java 17 or later is needed" in done.output


def test_clean_keeps_the_jars_only(settings, shell):
    for name in ("jars", "ivy", "logs", "postgres"):
        (settings.state / name).mkdir(parents=True)
    (settings.state / "ports.json").touch()
    assert shell.invoke(cli.app, ["clean"]).exit_code == 0
    assert sorted(entry.name for entry in settings.state.iterdir()) == ["ivy", "jars"]


def test_clean_leaves_a_stack_that_runs_alone(settings, shell, one_process):
    shell.invoke(cli.app, ["up"])
    done = shell.invoke(cli.app, ["clean"])
    assert done.exit_code == 1
    assert "make down" in done.output
    assert processes.leader(settings.state) is not None


@pytest.mark.parametrize(
    ("option", "choices"),
    [("--table-mode", ("append", "overwrite_partitions")), ("--partition-by", ("month", "vendor_id"))],
)
def test_the_demo_names_the_choices_that_there_are(option, choices):
    done = CliRunner().invoke(cli.app, ["demo", option, "another"], env={"COLUMNS": "200"})
    assert done.exit_code == BAD_INPUT
    assert all(choice in done.output for choice in (option, "another", *choices))
