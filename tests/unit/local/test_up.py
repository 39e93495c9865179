"""What `make up` says where not all is as usual, and that it has not failed for that."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

from include.local import __main__ as cli
from include.local import stack
from include.local.api import AirflowApi
from include.local.settings import Settings, choose_ports


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state=tmp_path, dags=tmp_path, lakehouse=tmp_path, jars=tmp_path, any_port=True)


def test_a_dag_file_that_cannot_be_imported_is_named_and_all_else_runs(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def airflow(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/auth/token":
            return httpx.Response(201, json={"access_token": "token"})
        broken = {"filename": "broken.py", "stack_trace": "Traceback …\nNameError: name 'x' is not defined\n"}
        return httpx.Response(200, json={"import_errors": [broken], "total_entries": 1})

    choose_ports(settings)
    transport = httpx.MockTransport(airflow)
    monkeypatch.setattr(cli, "from_environment", lambda: settings)
    monkeypatch.setattr(cli, "_fetch_jars", lambda _: None)
    monkeypatch.setattr(stack, "is_complete", lambda _: True)
    monkeypatch.setattr(stack, "open_api", lambda _: AirflowApi("http://airflow", "admin", "right", transport))
    done = CliRunner().invoke(cli.app, ["up"])
    assert done.exit_code == 0
    assert "broken.py: NameError: name 'x' is not defined" in done.output
    assert "Everything else runs" in done.output


def test_a_port_that_somebody_else_has_is_named_and_one_that_is_free_is_kept(settings: Settings) -> None:
    said: list[str] = []
    ports = choose_ports(settings, said.append)
    assert (choose_ports(settings, said.append), said) == (ports, [])
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        (settings.state / "ports.json").write_text(json.dumps({"api": taken, "connect": ports.connect}))
        again = choose_ports(settings, said.append)
    assert again.connect == ports.connect
    assert said == [f"Something else listens at port {taken}: api is at {again.api}"]
