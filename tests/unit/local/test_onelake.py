"""The local OneLake of a stack: its command runs, its connection works, and Spark's command line has no secret."""

from __future__ import annotations

import json
import subprocess
import time

import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from include.local import onelake
from include.local.settings import Settings, choose_ports, from_environment


@pytest.fixture
def settings(tmp_path):
    made = Settings(
        state=tmp_path, dags=tmp_path, lakehouse=tmp_path / "lake", jars=tmp_path, any_port=True, onelake=True
    )
    made.logs.mkdir()
    return made


def test_it_is_by_choice(monkeypatch):
    monkeypatch.delenv("LOCAL_ONELAKE", raising=False)
    assert not from_environment().onelake
    monkeypatch.setenv("LOCAL_ONELAKE", "1")
    assert from_environment().onelake


def test_its_command_serves_the_lakehouse_of_its_connection_and_prints_nothing(settings, monkeypatch):
    ports = choose_ports(settings)
    command = onelake.command(settings, ports)
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(onelake.connection(settings, ports)))
    with command.log.open("wb") as log:
        server = subprocess.Popen(command.argv, env=command.env, cwd=command.cwd, stdout=log, stderr=log)
    try:
        until = time.monotonic() + 60
        while not onelake.answers(ports) and server.poll() is None and time.monotonic() < until:
            time.sleep(0.05)
        worked, message = OneLakeHook().test_connection()
        assert worked, message
        assert str(OneLakeHook().address("Tables/trips")) == f"{onelake.LAKEHOUSE}/Tables/trips"
    finally:
        server.terminate()
        server.wait(30)
    assert command.log.read_text() == ""


def test_sparks_command_line_has_no_secret_and_its_environment_has(settings):
    ports = choose_ports(settings)
    said, environment = onelake.for_spark(settings, ports)
    secret = onelake.connection(settings, ports)["password"]
    assert secret not in json.dumps(said)
    (name,) = environment
    assert said["spark.hadoop.fs.azure.sas.fixed.token"] == f"${{env.{name}}}"
    assert environment[name].endswith(f"sig={secret}")
