"""Secrets of a stack and of the tests' servers: for their owner only, never on a command line, never the caller's own."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import attrs
import pytest
from pyspark.sql.connect.client import DefaultChannelBuilder

from include.compose.prepare import write_password
from include.local import onelake, stack
from include.local.settings import REPOSITORY, Settings, airflow_environment, choose_ports, write_atomically
from tests.support import tools
from tests.support.store_servers import BlobServer, S3Server


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(tmp_path, (tmp_path,), tmp_path / "lake", tmp_path, any_port=True, onelake=True)


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


def test_they_are_made_once_for_their_owner_only_and_not_shown_by_accident(settings: Settings, tmp_path: Path) -> None:
    made = {settings.secret(name) for name in ("connect", "database", "jwt")}
    assert len(made) == 3
    assert made == {settings.secret(name) for name in ("connect", "database", "jwt")}
    assert mode(tmp_path / "secret-key") == 0o600
    assert not [value for value in made if value in repr(settings)]
    assert attrs.evolve(settings, state=tmp_path / "other").secret("connect") not in made


def test_spark_connect_wants_a_token_that_is_in_its_environment_and_not_on_its_command_line(settings: Settings) -> None:
    choose_ports(settings)
    server, token = stack.connect_server(settings), settings.secret("connect")
    assert server.environment()["SPARK_CONNECT_AUTHENTICATE_TOKEN"] == token
    assert token in server.remote
    assert DefaultChannelBuilder(server.remote).token == token
    assert token not in repr(server) + " ".join(server.command())


def test_a_file_of_them_is_never_readable_by_others(tmp_path: Path) -> None:
    write_atomically(tmp_path / "secret", "x", mode=0o600)
    for password in ("a longer one", "mine"):
        write_password(tmp_path / "passwords.json", password)
    assert {file.name: mode(file) for file in tmp_path.iterdir()} == {"secret": 0o600, "passwords.json": 0o600}
    assert json.loads((tmp_path / "passwords.json").read_text()) == {"admin": "mine"}


def test_sparks_command_line_has_none_of_the_local_onelake_and_its_environment_has(settings: Settings) -> None:
    choose_ports(settings)
    said, environment = onelake.for_spark(settings)
    secret = onelake.connection(settings)["password"]
    assert secret not in json.dumps(said)
    (name,) = environment
    assert said["spark.hadoop.fs.azure.sas.fixed.token"] == f"${{env.{name}}}"
    assert environment[name].endswith(f"sig={secret}")


@pytest.mark.parametrize("kind", [S3Server, BlobServer])
def test_keys_of_the_tests_stores_are_made_once_and_are_not_on_the_command_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: type[S3Server | BlobServer]
) -> None:
    monkeypatch.setattr(tools, "install_versitygw", lambda state: Path("/bin/versitygw"))
    monkeypatch.setattr(tools, "install_azurite", lambda state: (Path("/bin/node"), Path("/main.js")))
    server, again = kind(tmp_path), kind(tmp_path)
    assert dict(server.environment()) == dict(again.environment())
    assert mode(tmp_path / "secrets.json") == 0o600
    kept = json.loads((tmp_path / "secrets.json").read_text())
    assert not any(secret in part for secret in kept.values() for part in server.command())


def test_the_callers_own_airflow_does_not_leak_in(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "http://elsewhere")
    choose_ports(settings)
    env = airflow_environment(settings)
    assert mode(settings.state / "airflow-passwords.json") == 0o600
    assert env["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW_CONN_OTHER" not in env
    # With 5 s, Airflow's default, a task gives up after five tries of a request that takes longer, in "Pre Execute".
    name = "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT"
    assert f'{name}: "{env[name]}"' in (REPOSITORY / "docker-compose.yaml").read_text()
