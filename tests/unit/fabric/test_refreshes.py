"""Which refreshes count for a version, and how Fabric and Power BI spell them."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from airflow_provider_onelake.exceptions import ObjectNotFoundError, StoreUnavailableError
from airflow_provider_onelake.fabric.operations import OperationState
from airflow_provider_onelake.fabric.rest import Fabric, Folder
from airflow_provider_onelake.fabric.semantic_model import CLOCKS, Mark, Refresh, SemanticModel
from airflow_provider_onelake.fabric.sql_endpoint import SqlEndpoint, Sync
from airflow_provider_onelake.hooks.fabric import FabricHook
from local_onelake.faults import Fault
from tests.support.onelake import MODEL, MODEL_GUID, WORKSPACE_GUID, OneLake

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def server(onelake: OneLake, monkeypatch: pytest.MonkeyPatch) -> OneLake:
    onelake.add_model()
    onelake.lake().make_table("Tables/trips")
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", onelake.connection(patience="5"))
    return onelake


def saying(**body: Any) -> Fabric:
    """A service that says this, at noon."""

    def answer(request: httpx.Request) -> httpx.Response:
        return httpx.Response(200, json=body, headers={"Date": "Wed, 25 Nov 2026 12:00:00 GMT"})

    rest = Fabric("https://power.bi", dict, 0)
    rest.__dict__["_client"] = httpx.Client(transport=httpx.MockTransport(answer))
    return rest


def listed(*rows: dict[str, Any]) -> SemanticModel:
    """A model whose refreshes are these. The local OneLake has no clock that a test may set."""
    return SemanticModel(saying(value=list(rows)), WORKSPACE_GUID, MODEL_GUID)


def row(guid: str, began: str | None, **more: str) -> dict[str, Any]:
    return {"requestId": guid, "refreshType": "ViaEnhancedApi", "startTime": began, "status": "Completed", **more}


def test_what_was_there_before_does_not_count_and_what_came_later_does() -> None:
    mark = listed(row("there", "2026-11-25T12:00:00.25Z"), row("queued", None)).mark(NOON - timedelta(seconds=9))
    assert mark == Mark(NOON, ("queued", "there"))
    assert Mark.from_json(json.loads(json.dumps(mark.to_json()))) == mark
    second = timedelta(seconds=1)
    counted = {
        "later": NOON + second,
        "there": NOON + second,
        "queued": None,
        # A list that lags behind shows it only later.
        "earlier": NOON - second,
        "not begun": None,
    }
    found = [name for name, began in counted.items() if mark.counts(Refresh(name, OperationState.RUNNING, began=began))]
    assert found == ["later", "not begun"]


def test_what_began_long_after_the_commit_counts_though_it_was_there() -> None:
    committed = NOON - CLOCKS - timedelta(minutes=1)
    model = listed(row("long after", "2026-11-25T11:59:30Z"), row("too soon", "2026-11-25T11:58:59Z"))
    mark = model.mark(committed)
    assert mark.at == committed + CLOCKS
    assert [each.id for each in model.history() if mark.counts(each)] == ["long after"]


@pytest.mark.parametrize(
    ("said", "state", "words"),
    [
        ({"status": "Unknown"}, OperationState.RUNNING, "Unknown"),
        ({"status": "Unknown", "extendedStatus": "NotStarted"}, OperationState.RUNNING, "NotStarted"),
        ({"status": "inProgress"}, OperationState.RUNNING, "inProgress"),
        ({"status": "completed"}, OperationState.COMPLETED, "completed"),
        (
            {"status": "Failed", "serviceExceptionJson": '{"errorCode":"X"}'},
            OperationState.FAILED,
            'Failed: {"errorCode":"X"}',
        ),
        ({"status": "Unknown", "extendedStatus": "TimedOut"}, OperationState.FAILED, "TimedOut"),
        ({"status": "Cancelled"}, OperationState.FAILED, "Cancelled"),
        ({"status": "Disabled"}, OperationState.DISABLED, "Disabled"),
    ],
    ids=str,
)
def test_states_are_read_as_power_bi_spells_them(said: dict[str, str], state: OperationState, words: str) -> None:
    (found,) = listed(row("a", "2026-11-25T11:59:30.1838734Z", **said)).history()
    assert (found.state, found.words) == (state, words)
    assert found.began == datetime(2026, 11, 25, 11, 59, 30, 183873, UTC)


def test_a_refresh_is_asked_for_once_and_anything_else_again(server: OneLake) -> None:
    model = FabricHook().semantic_model(MODEL)
    faults = server.served.faults
    faults.set("throttled", Fault(count=1, seconds=0, only="POST"))
    begun = model.begin(["trips"], HOUR)
    faults.set("error_503", Fault(count=1, only="GET"))
    found = model.look(begun)
    assert found is not None
    assert (found.state, found.enhanced) == (OperationState.COMPLETED, True)
    faults.set("lost_answer", Fault(count=1, only="POST"))
    with pytest.raises(StoreUnavailableError, match=f"for the semantic model {MODEL_GUID}"):
        model.begin(["trips"], HOUR)
    assert len(model.history()) == 2


def test_a_plain_refresh_is_of_all_tables_and_is_found_in_the_list(server: OneLake) -> None:
    model = FabricHook().semantic_model(MODEL)
    everything = Mark(datetime.min.replace(tzinfo=UTC), ())
    model.begin(None, HOUR)
    assert model.covering(model.history(), everything, None) is None
    path = f"/groups/{WORKSPACE_GUID}/datasets/{MODEL_GUID}/refreshes"
    plain = model.rest.ask("POST", path, model, json={}).headers["requestid"]
    for tables in (None, ["TRIPS"]):
        found = model.covering(model.history(), everything, tables)
        assert found is not None
        assert (found.id, found.enhanced) == (plain, False)
    assert model.look(plain) == found
    assert model.look("dropped") is None
    model.cancel("dropped")


def test_a_table_of_an_endpoint_is_known_with_its_schema_or_without() -> None:
    synced = Sync("", OperationState.COMPLETED, "", {"dbo.Trips": "Success", "zones": "NotRun"})
    assert synced.name_of("dbo", "trips") == "dbo.Trips"
    assert synced.name_of("dbo", "zones") == "zones"
    assert synced.name_of(None, "trips") is None


def test_a_lakehouse_that_is_gone_or_has_no_endpoint_yet_says_so(server: OneLake) -> None:
    with pytest.raises(ObjectNotFoundError, match="ItemNotFound"):
        SqlEndpoint.of(FabricHook().get_conn(), Folder(WORKSPACE_GUID, MODEL_GUID.replace("c", "d"), "Tables/trips"))
    with pytest.raises(StoreUnavailableError, match="no SQL endpoint yet"):
        SqlEndpoint.of(saying(properties={}), Folder(WORKSPACE_GUID, MODEL_GUID, "Tables/trips"))
