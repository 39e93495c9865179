"""What the page asks for, on real tables: who may see it, what it says, and that it leads nowhere else."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.api_fastapi.core_api.security import get_user
from fastapi.routing import APIRoute
from fastapi.testclient import TestClient

from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.maintenance.pinned_versions import pin_version
from airflow_provider_onelake.plugins.lakehouse import LakehousePlugin
from airflow_provider_onelake.plugins.routes import app
from tests.support.tables import local_log, make_table, stage, writer_spec

HERE = "/lakehouses/onelake_default"


@pytest.fixture
def lakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lakehouse with a table of one load, and a table outside of it."""
    for place in ("lake/Tables/trips", "outside"):
        log = make_table(tmp_path / place)
        Committer(log).publish([stage(log, writer_spec("eu"), {"2019-01": [1, 2]})])
    extra = {"lakehouse": str(tmp_path / "lake")}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    monkeypatch.setenv("AIRFLOW_CONN_HIDDEN", json.dumps({"conn_type": "onelake", "extra": extra}))
    return tmp_path / "lake"


@pytest.fixture
def signed_in(lakehouse: Path) -> Iterator[TestClient]:
    """Somebody who may see assets."""
    routes = [route for route in app.routes if isinstance(route, APIRoute)]
    needed = {asked.dependency for route in routes for asked in route.dependencies if asked.dependency}
    app.dependency_overrides.update({asked: lambda: None for asked in (get_user, *needed)})
    yield TestClient(app)
    app.dependency_overrides.clear()


def ask(client: TestClient, path: str, **query: Any) -> Any:
    answer = client.get(path, params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_nobody_who_is_signed_out_sees_anything(lakehouse: Path) -> None:
    client = TestClient(app)
    routes = [route.path.format(name="lakehouse.js", connection="onelake_default", version=0) for route in app.routes]  # type: ignore[attr-defined]
    assert len(routes) == 9
    assert {client.get(path, params={"table": "Tables/trips"}).status_code for path in routes} == {401}


def test_every_route_but_the_pages_own_files_asks_for_the_permission_to_see_assets() -> None:
    asked = {route.path: len(route.dependencies) for route in app.routes if isinstance(route, APIRoute)}
    # The app's own dependency is the first of each.
    assert {path: number for path, number in asked.items() if number < 2} == {"/static/{name}": 1}


def test_a_table_is_shown(signed_in: TestClient, lakehouse: Path) -> None:
    assert ask(signed_in, "/lakehouses") == [
        {"connection": "onelake_default", "lakehouse": str(lakehouse), "error": None}
    ]
    assert ask(signed_in, f"{HERE}/tables") == ["Tables/trips"]
    page = ask(signed_in, f"{HERE}/commits", table="Tables/trips")
    assert [(each["version"], each["writers"], each["rows_added"]) for each in page["commits"]] == [
        (1, "eu", 2),
        (0, None, 0),
    ]
    assert ask(signed_in, f"{HERE}/commits/1", table="Tables/trips")["partitions_added"] == ["month=2019-01"]
    assert ask(signed_in, f"{HERE}/partitions", table="Tables/trips")["largest"][0]["rows"] == 2
    assert ask(signed_in, f"{HERE}/staged", table="Tables/trips")[0]["state"] == "closed"
    assert ask(signed_in, f"{HERE}/kept", table="Tables/trips") == []
    pin_version(local_log(lakehouse / "Tables" / "trips"), 1, "an auditor")
    (kept,) = ask(signed_in, f"{HERE}/kept", table="Tables/trips")
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
    assert found["lakehouse"] is None
    assert "has no lakehouse" in found["error"]
    assert signed_in.get(f"{HERE}/commits", params={"table": "/etc"}).status_code == 409


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
