"""A path through a shortcut is the table that it leads to: two addresses of one table are one."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.assets.commits import commits
from airflow_provider_onelake.assets.tables import table_asset
from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.fabric.rest import Folder
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._outlets import tell_outlets
from airflow_provider_onelake.operators.shortcuts import OneLakeCreateShortcutOperator, OneLakeDeleteShortcutOperator
from airflow_provider_onelake.operators.vacuum import OneLakeVacuumOperator
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from airflow_provider_onelake.writes.report import Report, WriterOutcome
from local_onelake.access import principal_id
from local_onelake.faults import Fault
from tests.support import links
from tests.support.contexts import context_of
from tests.support.links import GOLD, GOLD_GUID, NOBODYS_GUID, S3, put_links, to
from tests.support.onelake import (
    BY_GUIDS,
    BY_NAMES,
    LAKEHOUSE_GUID,
    OTHER_IDENTITY,
    OTHER_TOKEN,
    TOKEN,
    WORKSPACE_GUID,
    OneLake,
    RefusalError,
)
from tests.support.tables import SCHEMA, append_files, foreign_append, foreign_commit
from tests.support.triggerer import Database, Triggerer
from tests.support.versions import needs_airflow

Connect = Callable[..., OneLakeHook]


@pytest.fixture
def server() -> Iterator[OneLake]:
    with links.two_lakehouses() as running:
        running.served.tree.make_directory("taxi/raw.Lakehouse/Tables/own")
        yield running


@pytest.fixture
def connect(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> Connect:
    def connected(*given: str, **extra: Any) -> OneLakeHook:
        links.connect(monkeypatch, server, *given, **{"follow_shortcuts": "true", **extra})
        return OneLakeHook()

    return connected


def folder(path: str, item: str = LAKEHOUSE_GUID) -> Folder:
    return Folder(WORKSPACE_GUID, item, path)


def linked_to_gold(hook: OneLakeHook) -> OneLakeHook:
    FabricHook(lakehouse=hook).get_conn().create_shortcut(folder("Tables/trips"), folder("Tables/trips", GOLD_GUID))
    return hook


def test_a_path_through_a_shortcut_is_the_table_that_it_leads_to(connect: Connect) -> None:
    table = linked_to_gold(connect()).table("Tables/trips")
    assert str(table.address) == f"{GOLD}/Tables/trips"
    assert str(table.shortcut) == f"{BY_GUIDS}/Tables/trips"
    # As by the connection of the other lakehouse.
    assert connect(GOLD).table("Tables/trips").address == table.address


def test_where_no_shortcut_is_on_the_way_the_address_is_as_it_was(connect: Connect) -> None:
    for lakehouse in (BY_GUIDS, BY_NAMES):
        table = connect(lakehouse).table("Tables/own")
        assert (str(table.address), table.shortcut) == (f"{lakehouse}/Tables/own", None)


def test_shortcuts_are_not_followed_if_the_connection_says_so(connect: Connect, server: OneLake) -> None:
    put_links(server, {"Tables/trips": to("Tables/trips", GOLD_GUID)})
    hook = connect(follow_shortcuts="false")
    server.asked.clear()
    assert str(hook.table("Tables/trips").address) == f"{BY_GUIDS}/Tables/trips"
    assert server.asked == []
    with pytest.raises(errors.CredentialsError, match="follow_shortcuts"):
        connect(follow_shortcuts="perhaps").table("Tables/trips")


def test_a_table_in_a_schema_and_one_behind_several_shortcuts(connect: Connect, server: OneLake) -> None:
    for path in ("gold.Lakehouse/Tables/dbo/fares", "raw.Lakehouse/Files/x"):
        server.served.tree.make_directory(f"taxi/{path}")
    put_links(server, {"Tables/sales": to("Tables/dbo", GOLD_GUID)})
    put_links(server, {"Tables/two": to("Files/one"), "Files/one": to("Files/x")})
    assert str(connect().table("Tables/sales/fares").address) == f"{GOLD}/Tables/dbo/fares"
    assert str(connect().table("Tables/two").address) == f"{BY_GUIDS}/Files/x"


@pytest.mark.parametrize("lakehouse", [BY_GUIDS, BY_NAMES])
def test_a_target_at_home_is_spelled_as_the_lakehouse(connect: Connect, server: OneLake, lakehouse: str) -> None:
    put_links(server, {"Tables/link": to("Tables/own")})
    hook = connect(lakehouse)
    assert hook.table("Tables/link").address == hook.table("Tables/own").address
    assert str(hook.table("Tables/link").address) == f"{lakehouse}/Tables/own"


def test_what_is_written_through_a_shortcut_is_in_the_target(connect: Connect, server: OneLake) -> None:
    hook = linked_to_gold(connect())
    log = hook.table("Tables/trips").log
    create_table(log, SCHEMA, ("month",), {})
    foreign_commit(log, append_files(log.store, "", {"2019-01": [1, 2]}))
    assert hook.table("Tables/trips").read(["id"]).read_all().column("id").to_pylist() == [1, 2]
    assert connect(GOLD).table("Tables/trips").log.snapshot().version == 1
    lake = server.directory / "taxi"
    assert list((lake / "gold.Lakehouse/Tables/trips/_delta_log").glob("*.json"))
    assert not list((lake / "raw.Lakehouse/Tables/trips").glob("*"))


@needs_airflow("3.3", "watermarks of watchers")
async def test_events_by_both_addresses_tell_of_one_commit(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(GOLD)
    monkeypatch.setenv("AIRFLOW_CONN_GOLD", os.environ["AIRFLOW_CONN_ONELAKE_DEFAULT"])
    hook = linked_to_gold(connect())
    log = hook.table("Tables/trips").log
    create_table(log, SCHEMA, ("month",), {})
    foreign_append(log, {"2019-01": [1, 2]})
    database = Database()
    by_shortcut = DeltaLogTrigger(table="Tables/trips", poll_interval=0.01, after=0)
    by_target = DeltaLogTrigger(table="Tables/trips", onelake_conn_id="gold", poll_interval=0.01, after=0)
    triggerer = Triggerer(database, by_shortcut=by_shortcut, by_target=by_target)
    await triggerer.until(lambda: len(database.events) >= 2)
    await triggerer.crash()
    told = SimpleNamespace()
    outcome = WriterOutcome(writer="w", status="published", version=1, rows_published=2)
    loaded = table_asset("Tables/trips", "loaded")
    context: Any = {"outlet_events": {loaded: told}, "dag_run": SimpleNamespace(partition_key=None)}
    tell_outlets(context, [loaded], log, Report(load="l", table=log.table, outcomes=(outcome,), missing=()))
    assert told.extra["table"] == f"{GOLD}/Tables/trips"
    watched = [{"from_trigger": True, "payload": payload} for _, payload in database.events]
    events = [SimpleNamespace(extra=extra, partition_key="all") for extra in (*watched, told.extra)]
    assert [(commit.table, commit.version) for commit in commits(events)] == [(f"{GOLD}/Tables/trips", 1)]


def asked_of_fabric(server: OneLake) -> list[str]:
    return [asked.path for asked in server.asked if asked.path.startswith("/v1/")]


@pytest.mark.parametrize("lakehouse", [BY_GUIDS, BY_NAMES])
def test_what_onelake_marks_as_a_shortcut_is_followed(connect: Connect, server: OneLake, lakehouse: str) -> None:
    server.served.tree.make_directory("taxi/gold.Lakehouse/Tables/dbo/fares")
    put_links(server, {"Tables/trips": to("Tables/trips", GOLD_GUID), "Tables/sales": to("Tables/dbo", GOLD_GUID)})
    hook = connect(lakehouse, follow_shortcuts="")
    assert str(hook.table("Tables/trips").address) == f"{GOLD}/Tables/trips"
    server.asked.clear()
    assert str(hook.table("Tables/trips").shortcut) == f"{lakehouse}/Tables/trips"
    assert server.asked == []
    assert str(hook.table("Tables/sales/fares").address) == f"{GOLD}/Tables/dbo/fares"


@pytest.mark.parametrize(
    ("path", "heads"), [("Tables/own", 1), ("Tables/new", 1), ("Tables/dbo/own", 2), ("Tables/other/new", 1)]
)
def test_a_plain_table_costs_a_small_request_a_folder(connect: Connect, server: OneLake, path: str, heads: int) -> None:
    server.served.tree.make_directory("taxi/raw.Lakehouse/Tables/dbo/own")
    hook = connect(follow_shortcuts="")
    server.asked.clear()
    for _ in range(2):
        assert str(hook.table(path).address) == f"{BY_GUIDS}/{path}"
    assert [asked.method for asked in server.asked] == ["HEAD"] * heads
    assert asked_of_fabric(server) == []


@pytest.mark.parametrize("status", [401, 403, 404, 503])
def test_where_fabric_does_not_show_where_it_leads_the_path_stays_and_the_log_says_so(
    connect: Connect, server: OneLake, caplog: pytest.LogCaptureFixture, status: int
) -> None:
    put_links(server, {"Tables/trips": to("Tables/trips", GOLD_GUID)})
    refusal = RefusalError(status, "No", "not for you")
    server.faults = lambda asked: refusal if asked.path.startswith("/v1/") else None
    table = connect(follow_shortcuts="", patience=0).table("Tables/trips")
    assert (str(table.address), table.shortcut) == (f"{BY_GUIDS}/Tables/trips", None)
    if status != 404:
        # 404 says that there is no shortcut.
        assert "Tables/trips is, or lies in, a shortcut of OneLake, and it was not found out" in caplog.text
        assert "follow_shortcuts=true in the connection onelake_default makes this an error" in caplog.text


@pytest.mark.parametrize(
    "links",
    [
        pytest.param({"Tables/a": to("Tables/b"), "Tables/b": to("Tables/a")}, id="circle"),
        pytest.param({"Tables/a": to("Tables/dropped", GOLD_GUID)}, id="no such folder"),
        pytest.param({"Tables/a": to("Tables/t", NOBODYS_GUID)}, id="no such item"),
    ],
)
def test_a_shortcut_that_leads_nowhere(connect: Connect, server: OneLake, links: dict[str, dict[str, Any]]) -> None:
    put_links(server, links)
    table = connect(follow_shortcuts="").table("Tables/a")
    assert (str(table.address), table.shortcut) == (f"{BY_GUIDS}/Tables/a", None)
    with pytest.raises(errors.StoreRefusedError):
        create_table(table.log, SCHEMA, ("month",), {})
    assert not (server.directory / "taxi/gold.Lakehouse/Tables/dropped").exists()


def test_nobody_is_asked_where_fabric_or_the_target_may_be_out_of_reach(connect: Connect, server: OneLake) -> None:
    put_links(server, {"Tables/trips": to("Tables/trips", GOLD_GUID)})
    region = f"abfss://{WORKSPACE_GUID}@westeurope-onelake.dfs.fabric.microsoft.com/{LAKEHOUSE_GUID}"
    for hook in (connect(follow_shortcuts="", fabric_api=""), connect(region, follow_shortcuts="")):
        server.asked.clear()
        assert hook.table("Tables/trips").shortcut is None
        assert server.asked == []
    assert connect(region).table("Tables/trips").shortcut is not None


def test_a_vacuum_through_a_shortcut_not_followed_is_refused(connect: Connect, server: OneLake) -> None:
    put_links(server, {"Tables/trips": to("Tables/trips", GOLD_GUID)})
    hook = connect(follow_shortcuts="", patience=0)
    server.faults = lambda asked: RefusalError(503, "No", "no") if asked.path.startswith("/v1/") else None
    assert hook.table("Tables/trips").shortcut is None
    server.faults = lambda _: None
    assert FabricHook(lakehouse=hook).leads_through_shortcut("Tables/trips") is True


@pytest.mark.parametrize(
    ("links", "why"),
    [
        pytest.param({"Tables/a": to("Tables/t", NOBODYS_GUID)}, f"no item .*{NOBODYS_GUID}/Tables/t", id="gone"),
        pytest.param(
            {"Tables/a": to("Tables/b"), "Tables/b": to("Tables/a")}, r"circle: .*/a, over .*/b\.", id="circle"
        ),
    ],
)
def test_what_leads_nowhere_is_named(connect: Connect, server: OneLake, links: dict[str, Any], why: str) -> None:
    put_links(server, links)
    with pytest.raises(errors.ShortcutError, match=why):
        connect().table("Tables/a")


def test_a_target_that_this_identity_may_not_see_is_said(connect: Connect, server: OneLake) -> None:
    put_links(server, {"Tables/trips": to("Tables/trips", GOLD_GUID)})
    rest = httpx.Client(
        base_url=f"{server.url}/api.fabric.microsoft.com/v1/workspaces/{WORKSPACE_GUID}",
        headers={"Authorization": f"Bearer {TOKEN}"},
    )
    ann = principal_id(OTHER_IDENTITY)
    rest.delete(f"/roleAssignments/{ann}").raise_for_status()
    viewer = {"principal": {"id": ann, "type": "User"}, "role": "Viewer"}
    rest.post("/roleAssignments", json=viewer).raise_for_status()
    with pytest.raises(errors.ShortcutError, match=r"does not show this identity where .*Tables/trips leads"):
        connect(token=OTHER_TOKEN).table("Tables/trips")
    assert str(connect().table("Tables/trips").address) == f"{GOLD}/Tables/trips"


Vacuum = Callable[..., Any]


@pytest.fixture
def vacuum(monkeypatch: pytest.MonkeyPatch) -> Vacuum:
    nobody = {"conn_type": "spark_connect", "host": "sc://127.0.0.1", "port": 1}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_CONNECT_DEFAULT", json.dumps(nobody))

    def run(table: str, **more: Any) -> Any:
        task = OneLakeVacuumOperator(task_id="vacuum", table=table, **more)
        return task.execute(context_of(task))

    return run


def linked(hook: OneLakeHook) -> None:
    create_table(hook.table(f"{BY_GUIDS}/Tables/own").log, SCHEMA, ("month",), {})
    FabricHook(lakehouse=hook).get_conn().create_shortcut(folder("Tables/link"), folder("Tables/own"))


def test_a_vacuum_through_a_shortcut_is_refused_unless_it_is_asked_for(connect: Connect, vacuum: Vacuum) -> None:
    linked(connect())
    with pytest.raises(AirflowFailException, match=r"VacuumRefusedError: .*Tables/link is, .* a shortcut to .*own"):
        vacuum("Tables/link")
    assert vacuum("Tables/link", dry_run=True)["files"] == 0
    assert vacuum("Tables/link", through_shortcut=True)["files"] == 0
    assert vacuum("Tables/own")["files"] == 0


def test_a_vacuum_without_following(connect: Connect, vacuum: Vacuum, caplog: pytest.LogCaptureFixture) -> None:
    linked(connect(follow_shortcuts="false"))
    with pytest.raises(AirflowFailException, match=r"Tables/link is, or lies in, a shortcut of OneLake"):
        vacuum("Tables/link")
    assert vacuum("Tables/link", dry_run=True)["files"] == 0
    assert vacuum("Tables/link", through_shortcut=True)["files"] == 0
    assert vacuum("Tables/own")["files"] == 0
    assert "not known" not in caplog.text
    # Without Fabric's REST, nobody can say it.
    connect(follow_shortcuts="false", fabric_api="")
    assert vacuum("Tables/link")["files"] == 0
    assert "Tables/link: whether it lies behind a shortcut is not known" in caplog.text


def test_a_store_that_onelake_only_reads_is_read_and_not_written(connect: Connect, server: OneLake) -> None:
    put_links(server, {"Tables/trips": {"type": "AmazonS3", "amazonS3": S3}})
    table = connect().table("Tables/trips")
    assert str(table.address) == f"{BY_GUIDS}/Tables/trips"
    for write in (table.log.store.create, table.log.store.put):
        with pytest.raises(errors.ShortcutError, match=r"only reads through a shortcut to AmazonS3, .* Nothing was"):
            write("staged/x", b"")
    with pytest.raises(errors.ShortcutError):
        table.log.store.delete("x")


def test_a_store_that_onelake_writes_is_named_by_the_shortcut(connect: Connect, server: OneLake) -> None:
    adls = {"location": "https://a.dfs.core.windows.net", "subpath": "/c/t", "connectionId": WORKSPACE_GUID}
    put_links(server, {"Tables/trips": {"type": "AdlsGen2", "adlsGen2": adls}, "Tables/two": to("Tables/trips")})
    table = connect().table("Tables/trips")
    assert (str(table.address), table.read_only) == (f"{BY_GUIDS}/Tables/trips", None)
    assert connect().table("Tables/two").address == table.address


def test_who_may_not_ask_fabric_and_a_fabric_that_is_away_are_said(connect: Connect, server: OneLake) -> None:
    with pytest.raises((errors.AccessDeniedError, errors.AddressError)):
        connect(token="nobody").table("Tables/trips")
    server.served.faults.set("error_503", Fault())
    with pytest.raises(errors.StoreUnavailableError):
        connect(patience=0).table("Tables/trips")


def test_a_shortcut_itself_is_still_made_and_deleted_by_its_own_path(connect: Connect) -> None:
    connect()
    create = OneLakeCreateShortcutOperator(task_id="create", shortcut="Tables/trips", target=f"{GOLD}/Tables/trips")
    assert create.execute(context_of(create)) == create.execute(context_of(create))
    delete = OneLakeDeleteShortcutOperator(task_id="delete", shortcut="Tables/trips")
    assert delete.execute(context_of(delete))["deleted"]
