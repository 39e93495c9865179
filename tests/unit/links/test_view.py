"""A task's button leads to its table in the Lakehouse view, where the view shows that table."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.view import page_of
from airflow_provider_onelake.storage.addresses import TableAddress


@pytest.fixture
def hook(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OneLakeHook:
    monkeypatch.setenv("AIRFLOW__API__BASE_URL", "https://airflow.example/team/")
    for name, extra in {"onelake_default": {"lakehouse": f"{tmp_path}/"}, "sales": {}}.items():
        monkeypatch.setenv(f"AIRFLOW_CONN_{name.upper()}", json.dumps({"conn_type": "onelake", "extra": extra}))
    return OneLakeHook()


def test_the_page_is_named_by_connection_table_and_version(hook: OneLakeHook, tmp_path: Path) -> None:
    page = "https://airflow.example/team/plugin/lakehouse?connection=onelake_default&table=Tables/taxi+trips"
    table = hook.table("Tables/taxi trips")
    assert page_of(hook, table) == page
    assert page_of(hook, hook.table(f"{tmp_path}/Tables/taxi trips"), 7) == f"{page}&version=7"


def test_a_table_behind_a_shortcut_is_shown_where_it_was_named(hook: OneLakeHook, tmp_path: Path) -> None:
    named = hook.table("Tables/trips")
    led = attrs.evolve(named, address=TableAddress.parse("/elsewhere/trips"), shortcut=named.address)
    assert page_of(hook, led) == page_of(hook, named)


def test_what_the_view_does_not_show_has_no_page(hook: OneLakeHook, monkeypatch: pytest.MonkeyPatch) -> None:
    table = hook.table("Tables/trips")
    monkeypatch.setenv("AIRFLOW__ONELAKE__VIEW_CONNECTIONS", "sales , finance")
    assert page_of(hook, table) is None
    sales = OneLakeHook("sales")  # it has no lakehouse
    assert page_of(sales, sales.table("/data/trips")) is None
