"""The operator of Fabric's table maintenance, on the local OneLake: one job a start, found again, and what it refuses."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.exceptions import InvalidWriteError, MaintenanceFailedError, StoreUnavailableError
from airflow_provider_onelake.fabric.jobs import Upkeep
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import pin_version, release_version
from airflow_provider_onelake.operators.table_maintenance import OneLakeTableMaintenanceOperator
from local_onelake.fabric.jobs import JOBS
from local_onelake.faults import Fault
from tests.support.onelake import LAKEHOUSE_GUID, OneLake
from tests.support.tables import foreign_append
from tests.support.tries import deferral, tried

TERMS: dict[str, Any] = {"task_id": "upkeep", "table": "Tables/trips", "deferrable": True, "poll_interval": 0.01}


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as running:
        running.lake().make_table("Tables/trips")
        yield running


@pytest.fixture
def log(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeltaLog]:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", server.connection(patience="0"))
    yield server.lake().log("Tables/trips")
    for name in ("job_hangs", "job_fails", "lost_answer"):
        server.served.faults.clear(name)
    with server.served.kept.changing() as document:
        document.pop(JOBS, None)


def files(log: DeltaLog) -> int:
    fresh = DeltaLog(log.store, log.table)
    return len(list(fresh.live_files(lambda _: True, fresh.snapshot().version)))


def jobs(server: OneLake) -> list[str]:
    return [each["status"] for each in server.served.kept.read(JOBS, LAKEHOUSE_GUID) or []]


def attempt(run: str = "a", left: int = 100, **terms: Any) -> Any:
    ti = {name: terms.pop(name) for name in ("try_number", "clears", "max_tries") if name in terms}
    return tried(lambda: OneLakeTableMaintenanceOperator(**TERMS | terms), left, run_id=run, **ti)


def test_it_compacts_and_every_row_is_there(server: OneLake, log: DeltaLog) -> None:
    for number in range(3):
        foreign_append(log, {"2019-01": [number]})
    before, version = files(log), log.snapshot().version
    said = attempt(run="compacts")
    assert (said["status"], said["version"]) == ("completed", version)
    assert said["lakehouse"] == LAKEHOUSE_GUID
    assert files(log) < before
    assert server.lake().ids("Tables/trips") == [0, 1, 2]
    assert jobs(server) == ["Completed"]


def test_a_vacuum_deletes_what_no_version_needs_and_nothing_else(server: OneLake, log: DeltaLog) -> None:
    foreign_append(log, {"2019-03": [33]})
    stray = "Tables/trips/month=2019-03/stray.parquet"
    server.served.tree.make_directory(f"taxi/raw.Lakehouse/{stray.rpartition('/')[0]}")
    (server.directory / "taxi/raw.Lakehouse" / stray).write_bytes(b"x")
    server.aged(stray, datetime.now(UTC) - timedelta(days=30))
    needed = set(server.blobs)
    said = attempt(run="vacuum", optimize=False, vacuum_retention=timedelta(days=7))
    assert said["status"] == "completed"
    assert needed - set(server.blobs) == {stray}


def test_a_retry_waits_for_the_job_of_the_try_before(server: OneLake, log: DeltaLog) -> None:
    server.served.faults.set("job_hangs", Fault())
    made = OneLakeTableMaintenanceOperator(**TERMS)
    deferral(made, run_id="retry")
    deferral(made, run_id="retry", try_number=2)
    assert jobs(server) == ["InProgress"]
    server.served.faults.clear("job_hangs")
    _, lakehouse = server.served.names.item("taxi", "raw.Lakehouse")
    with server.served.kept.changing() as document:
        document[JOBS][lakehouse.guid][0]["status"] = "Completed"
    assert attempt(run="retry", try_number=3)["status"] == "completed"
    assert jobs(server) == ["Completed"]
    assert attempt(run="another")["status"] == "completed"
    assert jobs(server) == ["Completed"] * 2


def test_a_clear_asks_for_another_job_also_of_the_same_version(server: OneLake, log: DeltaLog) -> None:
    for ti in ({}, {"clears": 1, "max_tries": 1, "try_number": 2}):
        assert attempt(run="cleared", **ti)["status"] == "completed"
    assert jobs(server) == ["Completed"] * 2


def test_beside_another_job_it_is_skipped(server: OneLake, log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    server.served.faults.set("job_hangs", Fault(count=1))
    deferral(OneLakeTableMaintenanceOperator(**TERMS), run_id="first")
    with caplog.at_level(logging.WARNING):
        assert attempt(run="second")["status"] == "deduped"
    assert "is deduped" in caplog.text
    assert jobs(server) == ["InProgress", "Deduped"]


def test_after_a_lost_answer_it_asks_until_a_job_of_its_own_has_ended(server: OneLake, log: DeltaLog) -> None:
    server.served.faults.set("job_hangs", Fault(count=1))
    server.served.faults.set("lost_answer", Fault(count=1, only="TableMaintenance"))
    with pytest.raises(StoreUnavailableError):
        attempt(run="lost")
    assert jobs(server) == ["InProgress"]
    # The lost one is still at work, and may be of another table, so the task waits and asks again.
    assert not isinstance(attempt(run="lost", left=2, try_number=2), dict)
    with server.served.kept.changing() as document:
        document[JOBS][LAKEHOUSE_GUID][0]["status"] = "Completed"
    assert attempt(run="lost", try_number=3)["status"] == "completed"
    assert jobs(server)[-1] == "Completed"


def test_a_job_that_fails_fails_the_try_and_a_retry_asks_for_another(server: OneLake, log: DeltaLog) -> None:
    server.served.faults.set("job_fails", Fault(count=1))
    with pytest.raises(MaintenanceFailedError, match="The fault job_fails"):
        attempt(run="fails")
    assert attempt(run="fails", try_number=2)["status"] == "completed"
    assert jobs(server) == ["Failed", "Completed"]


def test_a_killed_task_cancels_its_job(server: OneLake, log: DeltaLog) -> None:
    server.served.faults.set("job_hangs", Fault())
    asyncio.run(deferral(OneLakeTableMaintenanceOperator(**TERMS), run_id="killed").on_kill())
    assert jobs(server) == ["Cancelled"]


def test_a_vacuum_beside_kept_versions_is_refused_unless_it_is_wanted(server: OneLake, log: DeltaLog) -> None:
    pin_version(log, log.snapshot().version, "a person")
    vacuum = {"optimize": False, "vacuum_retention": timedelta(days=8)}
    try:
        with pytest.raises(AirflowFailException, match="kept by a person"):
            attempt(run="kept", **vacuum)
        assert jobs(server) == []
        assert attempt(run="kept2", despite_kept_versions=True, **vacuum)["status"] == "completed"
    finally:
        release_version(log, log.snapshot().version)


def test_a_table_that_is_not_there_fails_the_job(server: OneLake, log: DeltaLog) -> None:
    client = FabricHook().table_maintenance("Tables/none")
    job = client.begin(Upkeep("none"))
    while not client.has_ended(job):
        pass
    found = client.look(job)
    assert found is not None
    assert "has no table none" in found.words


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"vacuum_retention": timedelta(days=6, hours=23)}, "7 days or more"),
        ({"vacuum_retention": 7}, "7 days or more"),
        ({"optimize": False}, "nothing to do"),
        ({"optimize": "no"}, "optimize='no' must be True or False"),
        ({"v_order": "no"}, "v_order='no' must be True, False or None"),
        ({"despite_kept_versions": "no"}, "despite_kept_versions='no' must be True or False"),
        ({"poll_interval": "1m"}, "poll_interval='1m' must be seconds"),
        ({"deferrable": "no"}, "deferrable='no' must be True, False or None"),
        ({"optimize": False, "vacuum_retention": timedelta(days=7), "z_order_by": "id"}, "of OPTIMIZE"),
        ({"z_order_by": ["id", ""]}, "names of columns"),
    ],
)
def test_what_is_wrong_is_refused_at_parse(terms: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidWriteError, match=why):
        OneLakeTableMaintenanceOperator(**TERMS | terms)


@pytest.mark.parametrize(
    "execution",
    [
        {"tableName": "trips", "vacuumSettings": {"retentionPeriod": "6.23:00:00"}},
        {"tableName": "trips", "vacuumSettings": {"retentionPeriod": "a week"}},
        {"optimizeSettings": {}},
        {"tableName": "trips", "fast": True},
    ],
    ids=str,
)
def test_the_local_onelake_refuses_a_job_that_is_wrong(server: OneLake, execution: dict[str, Any]) -> None:
    url = f"{server.url}/api.fabric.microsoft.com/v1/workspaces"
    token = {"Authorization": "Bearer a-token-of-entra"}
    (workspace,) = httpx.get(url, headers=token).json()["value"]
    jobs_of = f"{url}/{workspace['id']}/lakehouses/{LAKEHOUSE_GUID}/jobs"
    body = {"executionData": execution}
    said = httpx.post(f"{jobs_of}/TableMaintenance/instances", json=body, headers=token)
    assert (said.status_code, said.json()["errorCode"]) == (400, "InvalidRequest")
