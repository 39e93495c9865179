"""The operators of shortcuts, on the local OneLake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.operators.shortcuts import OneLakeCreateShortcutOperator, OneLakeDeleteShortcutOperator
from tests.support.contexts import context_of
from tests.support.onelake import BY_GUIDS, BY_NAMES, LAKEHOUSE_GUID, TOKEN, WORKSPACE_GUID, OneLake

OTHER_GUID = "b1b2c3d4-e5f6-4789-8abc-def012345678"
MADE = {
    "shortcut": f"onelake://{WORKSPACE_GUID}/{LAKEHOUSE_GUID}/Tables/trips",
    "target": f"onelake://{WORKSPACE_GUID}/{OTHER_GUID}/Tables/trips",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    """A workspace with two lakehouses; a table is in the other one."""
    with OneLake() as running:
        running.served.names.add_item("taxi", "gold.Lakehouse", OTHER_GUID)
        running.served.tree.make_directory("taxi/gold.Lakehouse/Tables/trips")
        connect(monkeypatch, running)
        yield running


def connect(monkeypatch: pytest.MonkeyPatch, server: OneLake, lakehouse: str = BY_GUIDS) -> None:
    api = f"{server.url}/api.fabric.microsoft.com/v1"
    extra = {"lakehouse": lakehouse, "sign_in": "token", "fabric_api": api, "allow_http": "true"}
    said = {"conn_type": "onelake", "password": TOKEN, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps(said))


def create(shortcut: str = "Tables/trips", target: str = MADE["target"]) -> Any:
    task = OneLakeCreateShortcutOperator(task_id="create", shortcut=shortcut, target=target)
    return task.execute(context_of(task))


def delete(shortcut: str = "Tables/trips") -> Any:
    task = OneLakeDeleteShortcutOperator(task_id="delete", shortcut=shortcut)
    return task.execute(context_of(task))


def test_it_is_made_and_deleted_once_however_often_the_tasks_run(server: OneLake) -> None:
    assert [create(), create()] == [MADE, MADE]
    assert [delete()["deleted"], delete()["deleted"]] == [True, False]


def test_names_become_guids(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, server, BY_NAMES)
    assert create(target="onelake://taxi/gold.Lakehouse/Tables/trips") == MADE
    assert delete(f"{BY_NAMES}/Tables/trips") == {"shortcut": MADE["shortcut"], "deleted": True}


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("onelake://taxi/silver.Lakehouse/Tables/trips", "AddressError: .*no Lakehouse 'silver'.*with GUIDs"),
        ("onelake://bus/gold.Lakehouse/Tables/trips", "AddressError: .*no workspace 'bus'"),
        ("Tables/nothing", r"ShortcutRefusedError: The shortcut Tables/trips to Tables/nothing was not made\."),
        ("s3://bucket/trips", "AddressError: s3://bucket/trips is not in OneLake"),
    ],
)
def test_a_target_that_is_not_there_fails_the_task_for_good(server: OneLake, target: str, message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        create(target=target)


def test_what_is_at_its_place_stays(server: OneLake) -> None:
    server.served.tree.make_directory("taxi/raw.Lakehouse/Tables/trips")
    with pytest.raises(AirflowFailException, match="ShortcutRefusedError"):
        create()
    assert delete()["deleted"] is False
    assert server.served.tree.stat("taxi/raw.Lakehouse/Tables/trips") is not None


def test_nothing_is_made_outside_of_the_connections_lakehouse(server: OneLake) -> None:
    with pytest.raises(AirflowFailException, match="outside the lakehouse"):
        create(shortcut=f"onelake://{WORKSPACE_GUID}/{OTHER_GUID}/Tables/other", target="Tables/trips")


@pytest.mark.parametrize("terms", [{"shortcut": " ", "target": "Tables/a"}, {"shortcut": "Tables/a", "target": 7}])
def test_what_is_no_path_is_refused_where_the_dag_is_parsed(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match="a path such as Tables/trips"):
        OneLakeCreateShortcutOperator(task_id="create", **terms)
