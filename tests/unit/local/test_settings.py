from __future__ import annotations

import socket
import stat

import attrs
import pytest

from include.local.jars import SetUpError
from include.local.settings import (
    REPOSITORY,
    Settings,
    airflow_environment,
    choose_ports,
    from_environment,
    known_ports,
    load_secrets,
)


@pytest.fixture
def settings(tmp_path):
    return Settings(state=tmp_path, dags=tmp_path / "dags", lakehouse=tmp_path / "lake", jars=tmp_path, any_port=True)


@pytest.fixture
def listener():
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield server.getsockname()[1]


def test_everything_is_below_the_repository_unless_asked_otherwise(monkeypatch, tmp_path):
    for name in ("STATE", "DAGS", "LAKEHOUSE", "JARS"):
        monkeypatch.delenv(f"LOCAL_{name}", raising=False)
    assert from_environment().state == REPOSITORY / ".local"
    assert from_environment().dags == REPOSITORY / "dags"
    monkeypatch.setenv("LOCAL_STATE", str(tmp_path))
    assert from_environment().lakehouse == tmp_path / "lakehouse"
    assert from_environment().jars == REPOSITORY / ".local"
    assert from_environment(parallelism=2).parallelism == 2


def test_ports_differ_and_are_kept(settings):
    ports = choose_ports(settings)
    assert len(set(attrs.astuple(ports))) == 7
    assert known_ports(settings) == ports
    assert choose_ports(settings) == ports


def test_a_port_in_use_is_replaced(settings, listener):
    ports = choose_ports(settings)
    (settings.state / "ports.json").write_text(f'{{"api": {listener}, "connect": {ports.connect}}}')
    again = choose_ports(settings)
    assert again.api != listener
    assert again.connect == ports.connect


def test_a_port_asked_for_by_name_must_be_free(settings, listener, monkeypatch):
    monkeypatch.setenv("LOCAL_API_PORT", str(listener))
    with pytest.raises(SetUpError, match=f"{listener}.*LOCAL_API_PORT"):
        choose_ports(attrs.evolve(settings, any_port=False))


def test_secrets_are_made_once_and_readable_by_their_owner_only(settings):
    kept = load_secrets(settings)
    assert load_secrets(settings) == kept
    for name in ("secrets.json", "airflow-passwords.json"):
        assert stat.S_IMODE((settings.state / name).stat().st_mode) == 0o600


def test_two_stacks_have_different_secrets(settings, tmp_path):
    other = attrs.evolve(settings, state=tmp_path / "other")
    assert not set(attrs.astuple(load_secrets(settings))) & set(attrs.astuple(load_secrets(other)))


def test_secrets_are_not_shown_by_accident(settings):
    kept = load_secrets(settings)
    assert not [value for value in attrs.astuple(kept) if value in repr(kept)]


def test_the_callers_own_airflow_does_not_leak_in(settings, monkeypatch):
    monkeypatch.setenv("AIRFLOW__CORE__EXECUTOR", "CeleryExecutor")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "http://elsewhere")
    env = airflow_environment(settings, choose_ports(settings), load_secrets(settings))
    assert env["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert "AIRFLOW_CONN_OTHER" not in env


def test_a_task_waits_for_a_busy_api_server_as_long_as_in_containers(settings):
    # With 5 s, Airflow's default, it gives up after five tries of a request that takes longer, and ends in "Pre Execute".
    name = "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT"
    env = airflow_environment(settings, choose_ports(settings), load_secrets(settings))
    assert f'{name}: "{env[name]}"' in (REPOSITORY / "docker-compose.yaml").read_text()


def test_a_setting_of_the_stack_wins(settings):
    changed = attrs.evolve(settings, environment={"AIRFLOW__CORE__PARALLELISM": "3"})
    env = airflow_environment(changed, choose_ports(settings), load_secrets(settings))
    assert env["AIRFLOW__CORE__PARALLELISM"] == "3"
