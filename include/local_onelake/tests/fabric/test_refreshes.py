"""Refreshes by Fabric's and Power BI's REST: recorded, one at a time, with states; who may ask for them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from include.local_onelake.tests.fabric.conftest import WORKSPACE, Fabric, error
from local_onelake.faults import Fault
from local_onelake.refreshes import REFRESHES
from tests.support.onelake import LAKEHOUSE_GUID, MODEL_GUID, TOKEN, WORKSPACE_GUID

REFRESHES_OF_MODEL = f"/groups/{WORKSPACE_GUID}/datasets/{MODEL_GUID}/refreshes"
FULL = {"type": "full"}
NOBODY = "11111111-2222-4333-8444-555555555555"


@pytest.fixture
def power_bi(fabric: Fabric) -> Iterator[httpx.Client]:
    fabric.server.add_model()
    base = f"{fabric.server.url}/api.powerbi.com/v1.0/myorg"
    with httpx.Client(base_url=base, headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def commit(fabric: Fabric, table: str, version: int) -> None:
    assert fabric.put(f"Tables/{table}/_delta_log/{version:020}.json").status_code == 201


def refresh_of_endpoint(fabric: Fabric, **body: Any) -> httpx.Response:
    said = fabric.rest.get(f"{WORKSPACE}/lakehouses/{LAKEHOUSE_GUID}").json()
    endpoint = said["properties"]["sqlEndpointProperties"]["id"]
    return fabric.rest.post(f"{WORKSPACE}/sqlEndpoints/{endpoint}/refreshMetadata", json=body)


def code(answer: httpx.Response) -> tuple[int, str]:
    """Status and error code of an answer, in Power BI's form."""
    assert set(answer.json()) == {"error"}
    return answer.status_code, answer.json()["error"]["code"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"timeout": 5}, (400, "InvalidRequest")),
        ({"timeout": {"timeUnit": "Weeks", "value": 5}}, (400, "InvalidRequest")),
        ({"recreateTables": "yes"}, (400, "InvalidRequest")),
        ({"tables": ["trips"]}, (400, "InvalidRequest")),
    ],
)
def test_what_is_not_known_of_an_endpoints_refresh_is_refused(
    fabric: Fabric, body: dict[str, Any], expected: tuple[int, str]
) -> None:
    assert error(refresh_of_endpoint(fabric, **body)) == expected


def test_a_model_is_refreshed_once_at_a_time_and_shows_what_was_there_when_it_was_asked(
    fabric: Fabric, power_bi: httpx.Client
) -> None:
    commit(fabric, "trips", 0)
    commit(fabric, "dbo/zones", 4)
    faults = fabric.server.served.faults
    faults.set("refresh_hangs", Fault())
    begun = power_bi.post(REFRESHES_OF_MODEL, json={**FULL, "objects": [{"table": "trips"}]})
    assert begun.status_code == 202
    refresh = begun.headers["location"].rpartition("/")[2]
    assert begun.headers["requestid"] == refresh
    commit(fabric, "trips", 1)
    busy = power_bi.post(REFRESHES_OF_MODEL, json=FULL)
    assert code(busy) == (400, "InvalidRequest")
    assert "already executing" in busy.text
    (listed,) = power_bi.get(REFRESHES_OF_MODEL).json()["value"]
    assert (listed["status"], listed["extendedStatus"], "endTime" in listed) == ("Unknown", "InProgress", False)
    looked = power_bi.get(f"{REFRESHES_OF_MODEL}/{refresh}")
    assert (looked.status_code, looked.json()["extendedStatus"]) == (202, "InProgress")
    faults.clear("refresh_hangs")
    looked = power_bi.get(f"{REFRESHES_OF_MODEL}/{refresh}")
    assert (looked.status_code, looked.json()["status"], looked.json()["type"]) == (200, "Completed", "full")
    assert [each["table"] for each in looked.json()["objects"]] == ["trips"]
    assert power_bi.post(REFRESHES_OF_MODEL, json=FULL).status_code == 202
    newest, oldest = power_bi.get(REFRESHES_OF_MODEL).json()["value"]
    assert (newest["status"], oldest["requestId"]) == ("Completed", refresh)
    assert len(power_bi.get(REFRESHES_OF_MODEL, params={"$top": 1}).json()["value"]) == 1
    recorded = fabric.server.served.kept.read(REFRESHES, MODEL_GUID)
    assert [each["versions"] for each in recorded] == [{"trips": 0}, {"trips": 1, "zones": 4}]


@pytest.mark.parametrize(
    ("path", "body", "expected"),
    [
        (REFRESHES_OF_MODEL, [], (400, "InvalidRequest")),
        (REFRESHES_OF_MODEL, {"type": "half"}, (400, "InvalidRequest")),
        (REFRESHES_OF_MODEL, {"objects": ["trips"]}, (400, "InvalidRequest")),
        (REFRESHES_OF_MODEL, {"timeout": "an hour"}, (400, "InvalidRequest")),
        (REFRESHES_OF_MODEL, {"notifyOption": "MailOnFailure"}, (400, "InvalidRequest")),
        (REFRESHES_OF_MODEL, {"effectiveDate": "2026-01-01"}, (400, "InvalidRequest")),
        ("/groups/taxi/datasets/reports/refreshes", FULL, (400, "InvalidRequest")),
        (REFRESHES_OF_MODEL.replace(MODEL_GUID, LAKEHOUSE_GUID), FULL, (404, "PowerBIEntityNotFound")),
        (REFRESHES_OF_MODEL.replace(MODEL_GUID, NOBODY), FULL, (404, "ItemNotFound")),
        (f"/datasets/{MODEL_GUID}/refreshes", FULL, (404, "UnsupportedOperation")),
    ],
)
def test_what_is_not_known_of_a_models_refresh_is_refused(
    power_bi: httpx.Client, path: str, body: Any, expected: tuple[int, str]
) -> None:
    assert code(power_bi.post(path, json=body)) == expected
