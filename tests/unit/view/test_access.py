"""The tab Access of the page, against a local OneLake: what it says, that nothing is written, and that no secret is told."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fastapi.testclient import TestClient

from airflow_provider_onelake.fabric.access_report import AccessReport, Decision, Right, Step
from airflow_provider_onelake.view.access import page_of_access
from tests.support.onelake import OTHER_TOKEN, TOKEN, OneLake
from tests.support.rights import Rights, data_role
from tests.unit.view.test_routes import HERE, ask, lets_see

TABLE = "Tables/trips"


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as running:
        running.lake().make_table(TABLE)
        yield running


@pytest.fixture
def client(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestClient]:
    """Somebody who may see assets, where the connection's identity is the other one."""
    connection = server.connection().replace(TOKEN, OTHER_TOKEN)
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", connection)
    with lets_see(monkeypatch) as found:
        yield found


def test_a_viewer_sees_what_is_known_and_which_command_tells_the_rest(server: OneLake, client: TestClient) -> None:
    Rights(server).set("Viewer", data_roles=[data_role("readers", f"/{TABLE}")])
    before = server.blobs
    server.asked.clear()
    answer = client.get(f"{HERE}/access", params={"table": TABLE})
    assert answer.status_code == 200, answer.text
    found = answer.json()
    assert {right["right"]: right["allowed"] for right in found["rights"]} == {
        "read": True,
        "write": None,
        "commit": None,
        "delete": None,
    }
    assert found["command"] == "onelake access Tables/trips --connection onelake_default"
    assert found["notes"] == []
    assert {seen.method for seen in server.asked} <= {"GET", "HEAD"}
    assert (len(server.asked) <= 8, server.blobs) == (True, before)
    assert OTHER_TOKEN not in answer.text


def test_a_member_has_nothing_to_ask_further(server: OneLake, client: TestClient) -> None:
    Rights(server).set("Member")
    found = ask(client, f"{HERE}/access", table=TABLE)
    assert {right["allowed"] for right in found["rights"]} == {True}
    assert found["command"] is None


def test_the_page_knows_which_connections_lead_to_onelake_and_asks_nothing_of_access_by_itself(
    server: OneLake, client: TestClient
) -> None:
    server.asked.clear()
    (known,) = ask(client, "/lakehouses")
    assert (known["in_onelake"], known["error"]) == (True, None)
    assert server.asked == []


def test_a_path_of_many_folders_is_not_followed(server: OneLake, client: TestClient) -> None:
    server.asked.clear()
    answer = client.get(f"{HERE}/access", params={"table": "Files/" + "a/" * 50 + "t"})
    assert answer.status_code == 409
    assert "lies too deep: Fabric is asked about each of its folders" in answer.json()["detail"]
    assert server.asked == []


def test_the_command_may_be_pasted() -> None:
    unknown = Decision(right=Right.WRITE, allowed=None, step=Step.PROBE, why="So.", found="a read")
    page = page_of_access(AccessReport("t", (unknown,)), "lake's", "Tables/a b")
    assert page["command"] == """onelake access 'Tables/a b' --connection 'lake'"'"'s'"""
