"""What the page asks for, on real tables: who may see it, what it says, and that it leads nowhere else."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from inspect import iscoroutinefunction
from pathlib import Path
from typing import Any

import attrs
import pytest
from airflow.api_fastapi.auth.managers.models.resource_details import DagDetails
from airflow.api_fastapi.core_api.security import get_user
from fastapi import HTTPException
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from airflow_provider_onelake.hooks.onelake import DEFAULT_NAMESPACE, OneLakeHook
from airflow_provider_onelake.maintenance.pinned_versions import pin_version
from airflow_provider_onelake.view import permissions, routes
from airflow_provider_onelake.view import tables as view_tables
from airflow_provider_onelake.view.lakehouse import LakehousePlugin
from airflow_provider_onelake.view.routes import app
from airflow_provider_onelake.writes.publish import Committer
from tests.support.tables import LOAD, foreign_append, local_log, make_table, stage, writer_spec
from tests.support.versions import needs_airflow

HERE = "/lakehouses/onelake_default"
ROUTES = [route for route in app.routes if isinstance(route, APIRoute)]
# A new route of a table is in this list by itself.
OF_TABLES = [route.path for route in ROUTES if "table" in {asked.alias for asked in route.dependant.query_params}]


@pytest.fixture
def lakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lakehouse with a table of one load of this deployment, and a table outside of it."""
    for place in ("lake/Tables/trips", "outside"):
        log = make_table(tmp_path / place)
        load = attrs.evolve(LOAD, namespace=DEFAULT_NAMESPACE)
        Committer(log).publish([stage(log, writer_spec("eu", load), {"2019-01": [1, 2]})])
    extra = {"lakehouse": str(tmp_path / "lake")}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_HIDDEN", json.dumps({"conn_type": "onelake", "extra": extra}))
    return tmp_path / "lake"


@pytest.fixture
def signed_in(lakehouse: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Somebody who may see assets, and every DAG."""
    with lets_see(monkeypatch) as client:
        yield client


@contextmanager
def lets_see(monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Let a client see assets, and read every DAG."""
    let_read(monkeypatch, lambda dag: True)
    needed = {asked.dependency for route in ROUTES for asked in route.dependencies if asked.dependency}
    app.dependency_overrides.update({asked: lambda: None for asked in (get_user, *needed)})
    yield TestClient(app)
    app.dependency_overrides.clear()


def let_read(monkeypatch: pytest.MonkeyPatch, reads: Callable[[str], bool]) -> None:
    """Have Airflow's auth manager say so of who may read a DAG."""

    class Manager:
        def is_authorized_dag(self, *, method: str, details: DagDetails, user: object) -> bool:
            assert method == "GET"
            return reads(details.id or "")

    monkeypatch.setattr(permissions, "get_auth_manager", Manager)


def address_of(path: str) -> str:
    """A route's path with something in each of its places."""
    return path.format(name="lakehouse.js", connection="onelake_default", version=0)


def ask(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def names(client: TestClient, **query: Any) -> list[str]:
    """The paths of the tables that somebody sees, in order."""
    return sorted(row["table"] for row in ask(client, f"{HERE}/tables", **query)["tables"])


def test_all_that_is_mounted_is_a_route_that_these_tests_know() -> None:
    assert list(app.routes) == ROUTES
    assert len(OF_TABLES) >= 6


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_nobody_who_is_signed_out_sees_anything(lakehouse: Path, route: APIRoute) -> None:
    client = TestClient(app)
    for method in (*route.methods, "HEAD", "POST"):
        answer = client.request(method, address_of(route.path), params={"table": "Tables/trips"})
        assert answer.status_code == (401 if method in route.methods else 405)


@pytest.mark.parametrize("route", ROUTES, ids=lambda route: route.path)
def test_every_route_but_the_pages_own_files_asks_for_the_permission_to_see_assets(
    signed_in: TestClient, route: APIRoute
) -> None:
    def refuse() -> None:
        raise HTTPException(403, "Forbidden")

    # The app's own dependency is the first of each.
    (asked,) = {asked.dependency for asked in route.dependencies if asked.dependency} - {get_user} or (None,)
    if asked is None:
        assert route.path == "/static/{name}"
        return
    app.dependency_overrides[asked] = refuse
    answer = signed_in.get(address_of(route.path), params={"table": "Tables/trips"})
    assert answer.status_code == 403


@pytest.mark.parametrize("path", OF_TABLES)
def test_a_table_of_a_dag_that_is_not_theirs_is_refused(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    let_read(monkeypatch, lambda dag: dag == "another")
    answer = signed_in.get(address_of(path), params={"table": "Tables/trips"})
    assert answer.status_code == 403, answer.text
    assert (
        answer.json()["detail"]
        == "Tables/trips is written by DAGs that you may not read, so you may not see it either."
    )
    let_read(monkeypatch, lambda dag: dag == LOAD.dag)
    assert signed_in.get(address_of(path), params={"table": "Tables/trips"}).status_code == 200


def test_tables_of_dags_that_are_not_theirs_are_not_named(
    signed_in: TestClient, lakehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = make_table(lakehouse / "Tables" / "shared")
    for dag in ("taxi", "sales"):
        load = attrs.evolve(LOAD, namespace=DEFAULT_NAMESPACE, dag=dag)
        Committer(shared).publish([stage(shared, writer_spec("eu", load), {"2019-01": [1]})])
    foreign_append(make_table(lakehouse / "Tables" / "others"), {"2019-01": [1]})
    Path(make_table(lakehouse / "Tables" / "damaged").table, "_delta_log", f"{1:020d}.json").write_text("{")
    elsewhere = make_table(lakehouse / "Tables" / "elsewhere")
    another = attrs.evolve(LOAD, namespace="another deployment")
    Committer(elsewhere).publish([stage(elsewhere, writer_spec("eu", another), {"2019-01": [1]})])
    assert len(names(signed_in)) == 5

    assert names(signed_in, find="ELSE") == ["Tables/elsewhere"]

    # A table of several DAGs is theirs if one of them is; what no DAG of this deployment wrote is everybody's.
    let_read(monkeypatch, lambda dag: dag == "sales")
    assert names(signed_in) == ["Tables/elsewhere", "Tables/others", "Tables/shared"]
    let_read(monkeypatch, lambda dag: dag == LOAD.dag)
    assert names(signed_in) == ["Tables/elsewhere", "Tables/others", "Tables/shared", "Tables/trips"]


def test_of_many_tables_the_first_are_looked_at_and_that_is_said(
    signed_in: TestClient, lakehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        make_table(lakehouse / "Tables" / f"t{number}")
    monkeypatch.setattr(view_tables, "MOST_TABLES", 2)
    for reads in (lambda dag: True, lambda dag: dag == LOAD.dag):
        let_read(monkeypatch, reads)
        page = ask(signed_in, f"{HERE}/tables")
        assert (page["found"], page["whole"], names(signed_in)) == (2, False, ["Tables/t0", "Tables/t1"])
        assert ask(signed_in, f"{HERE}/tables", find="trips")["whole"]
    assert (
        ask(signed_in, f"{HERE}/tables", page=7)["tables"] == ask(signed_in, f"{HERE}/tables", find="?")["tables"] == []
    )


def test_the_filters_of_the_page_reach_the_log(signed_in: TestClient) -> None:
    def found(**query: Any) -> list[int]:
        page = ask(signed_in, f"{HERE}/commits", table="Tables/trips", **query)
        return [commit["version"] for commit in page["commits"]]

    assert found() == [1, 0]
    assert found(dag=LOAD.dag) == found(writer="eu") == found(operation="write") == found(since="1") == [1]
    assert found(until="0") == found(operation="create") == [0]
    assert found(conflicts=True) == found(dag="nobody") == found(since="3000-01-01") == []
    answer = signed_in.get(f"{HERE}/commits", params={"table": "Tables/trips", "until": "soon"})
    assert (answer.status_code, answer.json()["detail"].split(",")[0]) == (
        409,
        "until='soon' is neither a version nor a time",
    )


def test_every_parameter_of_a_route_that_the_page_sends_is_one(signed_in: TestClient) -> None:
    script = signed_in.get("/static/lakehouse.js").text
    (filters,) = re.findall(r"const FILTERS = (\[.*?\]);", script)
    (route,) = [route for route in ROUTES if route.path.endswith("/commits")]
    assert set(json.loads(filters)) < {asked.alias for asked in route.dependant.query_params}


def test_a_table_is_shown(signed_in: TestClient, lakehouse: Path) -> None:
    assert ask(signed_in, "/lakehouses") == [
        {"connection": "onelake_default", "lakehouse": str(lakehouse), "in_onelake": False, "error": None}
    ]
    assert names(signed_in) == ["Tables/trips"]
    page = ask(signed_in, f"{HERE}/commits", table="Tables/trips")
    assert [(each["version"], each["writers"], each["rows_added"]) for each in page["commits"]] == [
        (1, "eu", 2),
        (0, None, 0),
    ]
    assert ask(signed_in, f"{HERE}/commits/1", table="Tables/trips")["partitions_added"] == ["month=2019-01"]
    now = ask(signed_in, f"{HERE}/now", table="Tables/trips", version=[0, 1])
    assert {version: [writer["rows_in_table"] for writer in writers] for version, writers in now.items()} == {
        "0": [],
        "1": [2],
    }
    assert ask(signed_in, f"{HERE}/partitions", table="Tables/trips")["largest"][0]["rows"] == 2
    staged = ask(signed_in, f"{HERE}/staged", table="Tables/trips")
    assert staged == {"staged": [], "found": 0, "closed": 1, "whole": True, "kept": []}
    pin_version(local_log(lakehouse / "Tables" / "trips"), 1, "an auditor")
    (kept,) = ask(signed_in, f"{HERE}/staged", table="Tables/trips")["kept"]
    assert (kept["version"], kept["by"], kept["until"]) == (1, "an auditor", None)
    assert ask(signed_in, f"{HERE}/health", table="Tables/trips")["files"] == 1


@pytest.mark.parametrize(
    ("path", "table", "status", "said"),
    [
        ("commits", "Tables/none", 409, "There is no directory"),
        ("commits", "../outside", 409, "it has the segment '..'"),
        ("commits/7", "Tables/trips", 409, "has no version 7"),
    ],
)
def test_what_is_not_there_is_said(signed_in: TestClient, path: str, table: str, status: int, said: str) -> None:
    answer = signed_in.get(f"{HERE}/{path}", params={"table": table})
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True)


def test_a_table_outside_of_the_lakehouse_is_refused(signed_in: TestClient, lakehouse: Path) -> None:
    answer = signed_in.get(f"{HERE}/commits", params={"table": str(lakehouse.parent / "outside")})
    assert answer.status_code == 409


def test_a_connection_that_is_not_to_be_shown_is_not(signed_in: TestClient) -> None:
    answer = signed_in.get("/lakehouses/hidden/tables")
    assert answer.status_code == 404
    assert "view_connections" in answer.json()["detail"]


def test_a_connection_without_a_lakehouse_shows_nothing(signed_in: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake"}))
    (found,) = ask(signed_in, "/lakehouses")
    assert (found["lakehouse"], found["in_onelake"]) == (None, False)
    assert "has no lakehouse" in found["error"]
    assert signed_in.get(f"{HERE}/commits", params={"table": "/etc"}).status_code == 409


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        ("[1]", "The connection broken has an extra that is no JSON object."),
        ('"text"', "The connection broken has an extra that is no JSON object."),
        ("not JSON", "The connection broken has an extra that is no JSON object."),
        ('{"lakehouse": ["/data"]}', "it is relative"),
        ('{"lakehouse": "/data?"}', "The connection's `lakehouse`, of 6 characters, is refused"),
    ],
)
@needs_airflow("3.2", "a word for a connection that is broken")
def test_a_broken_connection_is_named_and_takes_no_other_down(
    signed_in: TestClient, lakehouse: Path, monkeypatch: pytest.MonkeyPatch, extra: str, said: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BROKEN", json.dumps({"conn_type": "onelake", "extra": extra}))
    monkeypatch.setenv("AIRFLOW__ONELAKE__VIEW_CONNECTIONS", "broken, onelake_default")
    broken, whole = ask(signed_in, "/lakehouses")
    assert said in broken["error"]
    assert (whole["connection"], whole["lakehouse"], whole["error"]) == ("onelake_default", str(lakehouse), None)
    assert signed_in.get("/lakehouses/broken/tables").status_code == 409


def test_a_connection_that_airflow_does_not_give_is_named(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__ONELAKE__VIEW_CONNECTIONS", "nobodys, onelake_default")
    nobodys, whole = ask(signed_in, "/lakehouses")
    assert nobodys["error"].startswith("The conn_id `nobodys` isn't defined, or it cannot be read")
    assert whole["error"] is None


def test_an_error_that_nobody_foresaw_takes_no_other_connection_down_and_says_no_secret(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given = OneLakeHook.get_connection

    def get_connection(hook: OneLakeHook, conn_id: str) -> Any:
        if conn_id == "broken":
            raise ZeroDivisionError("hush")
        return given(conn_id)

    monkeypatch.setattr(OneLakeHook, "get_connection", get_connection)
    monkeypatch.setenv("AIRFLOW__ONELAKE__VIEW_CONNECTIONS", "broken, onelake_default")
    broken, whole = ask(signed_in, "/lakehouses")
    assert broken["error"].startswith("Airflow's API server met an error that was not expected: ZeroDivisionError.")
    assert "hush" not in broken["error"]
    assert whole["error"] is None
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [ZeroDivisionError]


def test_airflow_finds_the_page_and_its_file(signed_in: TestClient) -> None:
    assert {each["destination"] for each in LakehousePlugin.react_apps} == {"nav", "dag_run", "task_instance"}
    (mounted,) = LakehousePlugin.fastapi_apps
    for each in LakehousePlugin.react_apps:
        path = f"/{each['bundle_url']}".removeprefix(mounted["url_prefix"])
        answer = signed_in.get(path)
        assert answer.headers["content-type"].startswith("text/javascript")
        # Airflow takes the component that the module leaves under its name.
        assert f"globalThis.{each['name']} =" in answer.text
    assert signed_in.get("/static/routes.py").status_code == 404


def hang(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Have each lakehouse be opened only when the event is set."""
    ends = threading.Event()
    given = routes.shown_connections

    def shown_connections() -> Any:
        ends.wait(30)
        return given()

    monkeypatch.setattr(routes, "shown_connections", shown_connections)
    return ends


def test_eight_questions_are_answered_at_once_and_more_are_told_to_come_again(
    signed_in: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = hang(monkeypatch)
    with signed_in, ThreadPoolExecutor(8) as people:
        asked = [people.submit(signed_in.get, "/lakehouses") for _ in range(8)]
        for _ in range(1_000):
            if not routes._free._value:
                break
            time.sleep(0.01)
        busy = signed_in.get("/lakehouses")
        ends.set()
        assert (busy.status_code, "busy" in busy.json()["detail"]) == (503, True)
        assert {each.result().status_code for each in asked} == {200}
    assert signed_in.get("/lakehouses").status_code == 200


def test_a_read_that_never_ends_is_answered_in_time(signed_in: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = hang(monkeypatch)
    monkeypatch.setattr(routes, "_LONGEST", 0.1)
    answer = signed_in.get("/lakehouses")
    ends.set()
    assert (answer.status_code, "no answer within" in answer.json()["detail"]) == (500, True)


def test_every_route_of_a_lakehouse_has_threads_of_its_own() -> None:
    assert [route.path for route in ROUTES if not iscoroutinefunction(route.endpoint)] == ["/static/{name}"]


@pytest.mark.parametrize("path", ["/static/lakehouse.js", "/static/none", "/lakehouses"])
def test_no_browser_guesses_the_type_of_an_answer(signed_in: TestClient, path: str) -> None:
    assert signed_in.get(path).headers["X-Content-Type-Options"] == "nosniff"


def test_the_page_makes_no_markup_and_no_code_of_texts() -> None:
    """A table of somebody else may say anything; React shows it as text."""
    script = (Path(routes.__file__).parent / "static" / "lakehouse.js").read_text()
    assert "createElement" in script
    assert re.findall(r"\w*HTML\b|document\.write|\beval\(|\bFunction\(|srcdoc|javascript:", script) == []


@pytest.mark.parametrize("query", ["table=Tables/trips&since=" + "5" * 5_000, "table=Tables/%ED%A0%80"])
def test_strange_questions_are_refused_and_not_unforeseen(signed_in: TestClient, query: str) -> None:
    assert signed_in.get(f"{HERE}/commits?{query}").status_code == 409
