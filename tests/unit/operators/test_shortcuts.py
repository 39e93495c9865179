"""The operators of shortcuts, on the local OneLake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.exceptions import InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.operators import shortcuts
from local_onelake.faults import Fault
from tests.support.contexts import context_of
from tests.support.links import GOLD, GOLD_GUID, NOBODYS_GUID, S3, connect, put_links, to, two_lakehouses
from tests.support.onelake import BY_GUIDS, BY_NAMES, LAKEHOUSE_GUID, OTHER_TOKEN, WORKSPACE_GUID, OneLake
from tests.support.rights import Rights, data_role

MADE = {"shortcut": f"onelake://{WORKSPACE_GUID}/{LAKEHOUSE_GUID}/Tables/trips", "target": f"{GOLD}/Tables/trips"}
CHECKED = {**MADE, "kind": "OneLake", "links": [MADE["shortcut"]], "read_only": False}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneLake]:
    with two_lakehouses() as running:
        connect(monkeypatch, running)
        yield running


def create(shortcut: str = "Tables/trips", target: str = MADE["target"]) -> Any:
    task = shortcuts.OneLakeCreateShortcutOperator(task_id="create", shortcut=shortcut, target=target)
    return task.execute(context_of(task))


def delete(shortcut: str = "Tables/trips") -> Any:
    task = shortcuts.OneLakeDeleteShortcutOperator(task_id="delete", shortcut=shortcut)
    return task.execute(context_of(task))


def listed(folder: str | None = None) -> Any:
    task = shortcuts.OneLakeListShortcutsOperator(task_id="list", folder=folder)
    return task.execute(context_of(task))


def check(shortcut: str = "Tables/trips", **terms: Any) -> Any:
    task = shortcuts.OneLakeCheckShortcutOperator(task_id="check", shortcut=shortcut, **terms)
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
        ("s3://bucket/trips", "AddressError: .*folders in OneLake only, and not s3://bucket/trips"),
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
        create(shortcut=f"onelake://{WORKSPACE_GUID}/{GOLD_GUID}/Tables/other", target="Tables/trips")


@pytest.mark.parametrize("terms", [{"shortcut": " ", "target": "Tables/a"}, {"shortcut": "Tables/a", "target": 7}])
def test_what_is_no_path_is_refused_where_the_dag_is_parsed(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match="a path such as Tables/trips"):
        shortcuts.OneLakeCreateShortcutOperator(task_id="create", **terms)


def test_shortcuts_are_listed_below_a_folder_and_in_all(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    assert listed() == []
    create()
    put_links(server, {"Files/s3": {"type": "AmazonS3", "amazonS3": S3}})
    trips = {"path": "Tables/trips", "kind": "OneLake", **MADE}
    files = {"path": "Files/s3", "shortcut": f"{BY_GUIDS}/Files/s3", "kind": "AmazonS3", "target": None}
    for lakehouse in (BY_GUIDS, BY_NAMES):
        connect(monkeypatch, server, lakehouse)
        assert listed() == listed(" ") == [files, trips]
        assert listed("Tables") == listed("Tables/") == [trips]
        assert listed("Files/other") == []
        # The path is what the other tasks take, also where the lakehouse is spelled with names.
        assert check(trips["path"])["target"] == trips["target"]
    json.dumps(listed())


def test_who_may_not_list_is_told_what_it_takes(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    Rights(server).set(None)
    connect(monkeypatch, server, token=OTHER_TOKEN)
    with pytest.raises(AirflowFailException, match="role Viewer"):
        listed()
    connect(monkeypatch, server, token="nobodys")
    with pytest.raises(AirflowFailException, match=r"AccessDeniedError: .* a sign-in that may use Fabric's REST"):
        listed()
    connect(monkeypatch, server, f"onelake://{WORKSPACE_GUID}/c1b2c3d4-e5f6-4789-8abc-def012345678")
    with pytest.raises(AirflowFailException, match=r"AddressError: There are no shortcuts .* sees no such lakehouse"):
        listed()


@pytest.mark.parametrize("target", [None, "", MADE["target"], "onelake://taxi/gold.Lakehouse/Tables/trips"])
def test_a_shortcut_that_leads_to_its_target_is_green(server: OneLake, target: str | None) -> None:
    create()
    before = len(server.asked)
    assert check(target=target) == CHECKED
    assert {each.method for each in server.asked[before:]} == {"GET"}
    json.dumps(check())


@pytest.mark.parametrize(
    ("links", "message"),
    [
        pytest.param({}, "no shortcut at .*Tables/trips nor above it.* make the shortcut", id="none"),
        pytest.param({"Tables/trips": to("Tables/trips", NOBODYS_GUID)}, "There is no item .* anew", id="no item"),
        pytest.param(
            {"Tables/trips": to("Tables/x", GOLD_GUID)}, "TargetNotFound.* to .*Tables/x.* anew", id="no folder"
        ),
        pytest.param({"Tables/trips": to("Tables/b"), "Tables/b": to("Tables/trips")}, "circle: .*delete", id="circle"),
        pytest.param(
            {"Tables/trips": {"type": "AmazonS3", "amazonS3": S3}}, "NotServed.* to AmazonS3", id="not served"
        ),
    ],
)
def test_a_shortcut_that_leads_nowhere_fails(server: OneLake, links: dict[str, dict[str, Any]], message: str) -> None:
    put_links(server, links)
    with pytest.raises(AirflowFailException, match=f"ShortcutError: .*{message}"):
        check()


def test_a_store_that_is_only_read_is_red_to_who_writes(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    put_links(server, {"Tables/trips": {"type": "AmazonS3", "amazonS3": S3}})
    # This server reads nothing through it, and OneLake does.
    monkeypatch.setattr("airflow_provider_onelake.fabric.shortcuts.check_target", lambda *_: None)
    found = check()
    assert (found["kind"], found["target"], found["read_only"]) == ("AmazonS3", None, True)
    with pytest.raises(AirflowFailException, match=r"ShortcutError: OneLake only reads"):
        check(writable=True)
    with pytest.raises(AirflowFailException, match=r"Tables/trips leads to AmazonS3, and not to Tables/other\."):
        check(target="Tables/other")


@pytest.mark.parametrize(
    ("own", "target", "message"),
    [
        pytest.param([data_role("own", "/Tables/trips")], [], "ShortcutError: .*does not show .* leads", id="target"),
        pytest.param([], [data_role("readers", "*")], "AccessDeniedError: .*data access role.* Ask for", id="own side"),
    ],
)
def test_a_shortcut_that_may_not_be_read_says_what_to_ask_for_and_writes_nothing(
    server: OneLake, monkeypatch: pytest.MonkeyPatch, own: list[Any], target: list[Any], message: str
) -> None:
    create()
    rights = Rights(server)
    rights.set("Viewer", data_roles=own)
    rights.data_roles(*target, item=GOLD_GUID)
    connect(monkeypatch, server, token=OTHER_TOKEN)
    server.asked.clear()
    with pytest.raises(AirflowFailException, match=message):
        check()
    assert {each.method for each in server.asked} <= {"GET", "HEAD"}


def test_a_fabric_that_does_not_answer_is_asked_again(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> None:
    create()
    connect(monkeypatch, server, patience=0)
    server.served.faults.set("error_503", Fault())
    for ask in (check, listed):
        with pytest.raises(StoreUnavailableError):
            ask()
