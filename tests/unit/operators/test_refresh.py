"""The operators of refreshes, on the local OneLake: one refresh a version, none lost, whenever a try is killed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from typing import Any

import attrs
import httpx
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import InvalidWriteError, RefreshFailedError, StoreUnavailableError
from airflow_provider_onelake.fabric.semantic_model import SemanticModel
from airflow_provider_onelake.hooks.fabric import FabricHook
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.refresh import (
    OneLakeRefreshSemanticModelOperator,
    OneLakeRefreshSqlEndpointOperator,
)
from airflow_provider_onelake.storage.stores import deltalake_options
from local_onelake.faults import Fault
from local_onelake.refreshes import REFRESHES
from tests.support.contexts import Kept, context_of
from tests.support.onelake import BY_NAMES, LAKEHOUSE_GUID, MODEL, MODEL_GUID, OTHER_IDENTITY, WORKSPACE_GUID, OneLake
from tests.support.stores import KilledError
from tests.support.tables import foreign_append
from tests.support.tries import deferral, fired, tried
from tests.support.versions import is_below

ENDPOINT = {"task_id": "endpoint", "table": "Tables/trips"}
REFRAME = {"task_id": "reframe", "table": "Tables/trips", "semantic_model": MODEL}


@attrs.define
class World:
    """A lakehouse with a table, and a semantic model.

    :param left: steps until the process of the task is killed; ``None``: it lives.
    :param steps: that were taken: requests sent, answers received, notes before and after they are kept.
    """

    server: OneLake
    log: DeltaLog
    left: int | None = None
    steps: int = 0

    def step(self) -> None:
        self.steps += 1
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise KilledError

    def checkpoint(self) -> None:
        """Leave little to read of the log to each of many processes."""
        lake = self.server.lake()
        address = lake.address("Tables/trips")
        options = deltalake_options(address, lake.credentials)
        DeltaTable(address.deltalake_uri, storage_options=options).create_checkpoint()

    def commit(self) -> int:
        return foreign_append(self.log, {"2019-01": [1]})

    def fault(self, name: str, **terms: Any) -> None:
        self.server.served.faults.set(name, Fault(**terms))

    def mend(self, name: str) -> None:
        self.server.served.faults.clear(name)

    def recorded(self, of: str = MODEL_GUID) -> list[dict[str, Any]]:
        return list(self.server.served.kept.read(REFRESHES, of) or [])

    def shown(self, of: str = MODEL_GUID, status: str = "Completed") -> list[int]:
        return [each["versions"]["trips"] for each in self.recorded(of) if each["status"] == status]

    def model(self) -> SemanticModel:
        return FabricHook().semantic_model(MODEL)


@pytest.fixture(scope="module")
def server() -> Iterator[OneLake]:
    with OneLake(lists_by_names=True) as running:
        running.add_model()
        running.lake().make_table("Tables/trips")
        yield running


@pytest.fixture
def world(server: OneLake, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", server.connection(patience="0"))
    made = World(server, server.lake().log("Tables/trips"))
    send, keep = httpx.Client.request, Kept.set

    def request(self: httpx.Client, *asked: Any, **more: Any) -> httpx.Response:
        made.step()
        answer = send(self, *asked, **more)
        made.step()
        return answer

    def keeps(self: Kept, key: str, value: Any) -> None:
        made.step()
        keep(self, key, json.loads(json.dumps(value)))
        made.step()

    monkeypatch.setattr(httpx.Client, "request", request)
    monkeypatch.setattr(Kept, "set", keeps)
    yield made
    faults = server.served.faults
    for name in faults.on():
        faults.clear(name)
    with server.served.kept.changing() as document:
        document.pop(REFRESHES, None)


def reframe(run: str = "a", **terms: Any) -> Callable[..., Any]:
    """A task of a run; called once for each of its tries."""
    made = {**REFRAME, "deferrable": True, "poll_interval": 0.01, **terms}
    return partial(tried, lambda: OneLakeRefreshSemanticModelOperator(**made), run_id=run)


def endpoint(run: str = "a", **terms: Any) -> Callable[..., Any]:
    made = {**ENDPOINT, "deferrable": True, "poll_interval": 0.01, **terms}
    return partial(tried, lambda: OneLakeRefreshSqlEndpointOperator(**made), run_id=run)


CLEARED = {"clears": 1, "max_tries": 1, "try_number": 2}


def test_a_model_shows_the_newest_version_and_a_clear_shows_it_again_only_if_there_is_a_newer_one(world: World) -> None:
    version = world.commit()
    task = reframe()
    said = task()
    assert json.loads(json.dumps(said)) == said
    assert (said["table"], said["version"], said["model"], said["own"]) == (world.log.table, version, MODEL_GUID, True)
    assert said["began"] <= said["ended"]
    assert task(try_number=2)["refresh"] == said["refresh"]
    assert task(**CLEARED)["refresh"] == said["refresh"]
    assert world.shown() == [version]
    newer = world.commit()
    again = task(clears=2, max_tries=2, try_number=3)
    assert (again["version"], again["own"], world.shown()) == (newer, True, [version, newer])


def is_killed(world: World, step: int, task: Callable[[], object]) -> bool:
    """Run a task whose process is killed at a step, and say whether it came to that."""
    world.left = step
    try:
        task()
    except KilledError:
        return True
    finally:
        world.left = None
    return False


@pytest.mark.parametrize(
    ("weather", "stride"),
    [("fair", 1), ("slow", 3), ("lost answer", 3), ("other at work", 3)],
    ids=["fair", "slow", "lost answer", "other at work"],
)
def test_a_model_killed_at_each_step(world: World, weather: str, stride: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", world.server.connection(patience="5"))
    model = world.model()
    world.checkpoint()
    for step in count(step=stride):
        before = world.shown()
        # By GUIDs, so that nothing is looked up.
        task = reframe(f"{weather} {step}", semantic_model=MODEL_GUID)
        if weather == "other at work":
            world.fault("refresh_hangs", count=3)
            model.begin(["trips"], timedelta(hours=1))
        version = world.commit()
        if weather == "slow":
            world.fault("refresh_hangs", count=3)
        if weather == "lost answer":
            world.fault("lost_answer", count=1, only="POST /v1.0")
        killed = is_killed(world, step, task)
        if killed:
            said = task(try_number=2) if step % 2 else task(**CLEARED)
            assert said["version"] == version
        others = [version - 1] if weather == "other at work" else []
        assert world.shown() == [*before, *others, version]
        assert len(world.recorded()) == len(world.shown())
        for fault in ("refresh_hangs", "lost_answer"):
            world.mend(fault)
        if not killed:
            break
    assert step > 10


@pytest.mark.parametrize(("weather", "stride"), [("fair", 1), ("slow", 3)], ids=["fair", "slow"])
def test_an_endpoints_refresh_killed_at_each_step(world: World, weather: str, stride: int) -> None:
    world.checkpoint()
    for step in count(step=stride):
        task = endpoint(f"{weather} {step}")
        version = world.commit()
        if weather == "slow":
            world.fault("refresh_hangs", count=2)
        killed = is_killed(world, step, task)
        if killed:
            assert task(try_number=2)["version"] == version
        world.mend("refresh_hangs")
        if not killed:
            break
    shown = world.shown(LAKEHOUSE_GUID)
    assert sorted(set(shown)) == list(range(version - step // stride, version + 1))
    # Where the answer is lost before it is noted, the request is repeated, and Fabric has nothing to do.
    assert len(shown) - len(set(shown)) <= 2
    # Where Airflow keeps nothing for a task, what it notes is one step less.
    assert step > (5 if is_below("3.3") else 6)


def test_a_refresh_that_another_asked_for_after_the_commit_counts(world: World) -> None:
    version = world.commit()
    lists = reframe("lists")
    world.fault("throttled", only="POST /v1.0", seconds=0)
    with pytest.raises(StoreUnavailableError):
        lists()
    world.mend("throttled")
    other = world.model().begin(["trips"], timedelta(hours=1))
    said = lists(try_number=2)
    assert (said["refresh"], said["own"], world.shown()) == (other, False, [version])


@pytest.mark.parametrize("body", [{"type": "full", "objects": [{"table": "zones"}]}, {"type": "calculate"}], ids=str)
def test_a_refresh_of_other_tables_or_of_no_rows_does_not_count(world: World, body: dict[str, Any]) -> None:
    world.server.lake().log("Tables/zones").snapshot_or_none() or world.server.lake().make_table("Tables/zones")
    version = world.commit()
    task = reframe()
    world.fault("throttled", only="POST /v1.0", seconds=0)
    with pytest.raises(StoreUnavailableError):
        task()
    world.mend("throttled")
    model = world.model()
    model.rest.ask("POST", f"/groups/{model.workspace}/datasets/{model.id}/refreshes", model, json=body)
    said = task(try_number=2)
    assert said["own"] is True
    assert len(world.recorded()) == 2
    assert world.recorded()[1]["versions"] == {"trips": version}


def test_a_refresh_long_after_the_commit_counts_for_runs_without_a_new_one(world: World) -> None:
    version = world.commit()
    first = reframe("first")()
    soon = reframe("soon")()
    assert soon["refresh"] != first["refresh"]
    world.server.aged(f"Tables/trips/{version_path(version)}", datetime.now(UTC) - timedelta(minutes=6))
    late = reframe("late")()
    assert (late["refresh"], late["own"], late["version"]) == (soon["refresh"], False, version)


def test_a_failed_refresh_is_repeated_by_a_retry(world: World) -> None:
    world.commit()
    task = reframe()
    world.fault("refresh_fails", count=1)
    with pytest.raises(RefreshFailedError, match=r"Failed: The refresh failed.*a retry or a clear asks for another"):
        task()
    assert task(try_number=2)["own"] is True
    assert [each["status"] for each in world.recorded()] == ["Failed", "Completed"]


def test_a_model_without_the_table_says_so(world: World) -> None:
    world.commit()
    with pytest.raises(RefreshFailedError, match="no table 'rides'"):
        reframe(model_tables=["rides"])()
    assert reframe("b", model_tables="*")()["own"] is True
    assert "trips" in world.recorded()[-1]["versions"]


def test_a_task_that_is_stopped_cancels_its_refresh_and_no_other(world: World) -> None:
    world.commit()
    world.fault("refresh_hangs")
    task = OneLakeRefreshSemanticModelOperator(**REFRAME, deferrable=True)
    trigger = deferral(task)
    other = OneLakeRefreshSemanticModelOperator(**REFRAME, deferrable=True)
    others_trigger = deferral(other, run_id="other")
    assert (trigger.own, others_trigger.own, others_trigger.refresh) == (True, False, trigger.refresh)
    other.on_kill()
    asyncio.run(others_trigger.on_kill())
    assert world.recorded()[0]["status"] == "InProgress"
    asyncio.run(trigger.on_kill())
    assert world.recorded()[0]["status"] == "Cancelled"
    # It has ended, and that is said in the log.
    task.on_kill()
    world.mend("refresh_hangs")
    again = OneLakeRefreshSemanticModelOperator(**REFRAME, deferrable=True)
    with pytest.raises(RefreshFailedError, match="Cancelled"):
        again.resume(context_of(again), {"refresh": trigger.refresh})


@pytest.mark.parametrize("fate", ["Cancelled", "Failed"])
def test_what_became_of_a_refresh_while_nobody_waited_does_not_fail_the_next_try(world: World, fate: str) -> None:
    version = world.commit()
    world.fault("refresh_hangs")
    trigger = deferral(OneLakeRefreshSemanticModelOperator(**REFRAME, deferrable=True))
    if fate == "Cancelled":
        # A user clears the deferred task.
        asyncio.run(trigger.on_kill())
    else:
        world.fault("refresh_fails", count=1)
    world.mend("refresh_hangs")
    assert reframe("manual__1")(**CLEARED)["version"] == version
    assert [each["status"] for each in world.recorded()] == [fate, "Completed"]


def test_an_operation_that_failed_while_nobody_waited_is_asked_for_again(world: World) -> None:
    world.commit()
    world.fault("refresh_hangs", count=1)
    world.fault("refresh_fails", count=1)
    deferral(OneLakeRefreshSqlEndpointOperator(**ENDPOINT, deferrable=True))
    assert endpoint("manual__1")(try_number=2)["status"] == "Success"


def test_it_waits_in_the_worker_if_that_is_wanted(world: World) -> None:
    version = world.commit()
    world.fault("refresh_hangs", count=3)
    task = OneLakeRefreshSemanticModelOperator(**REFRAME, deferrable=False, poll_interval=0.01)
    assert task.execute(context_of(task))["version"] == version


def test_a_version_can_be_asked_for_once_it_is_there(world: World) -> None:
    version = world.commit()
    assert reframe(version=str(version - 1))()["version"] == version - 1
    with pytest.raises(AirflowFailException, match=f"has no version {version + 1}; its newest is {version}"):
        reframe("b", version=version + 1)()
    assert len(world.recorded()) == 1


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"semantic_model": "nothing"}, "AddressError: .*no SemanticModel 'nothing'"),
        ({"semantic_model": LAKEHOUSE_GUID}, "RefreshRefusedError: .*PowerBIEntityNotFound"),
        ({"workspace": "bus"}, "AddressError: .*no workspace 'bus'"),
        ({"model_tables": [" "]}, "InvalidWriteError: model_tables"),
    ],
    ids=str,
)
def test_what_is_not_there_fails_the_task_for_good(world: World, terms: dict[str, Any], message: str) -> None:
    with pytest.raises(AirflowFailException, match=message):
        reframe(**terms)()
    assert world.recorded() == []


def test_without_the_right_nothing_is_refreshed(world: World) -> None:
    workspace = world.server.served.names.workspace(WORKSPACE_GUID)
    kept = world.server.served.kept
    kept.set("workspaceRoles", workspace.guid, {"loader": "Viewer", OTHER_IDENTITY: "Admin"})
    try:
        for task in (reframe(), endpoint()):
            with pytest.raises(AirflowFailException, match=r"AccessDeniedError|TableNotFoundError"):
                task()
    finally:
        with kept.changing() as document:
            del document["workspaceRoles"]
    assert world.recorded() == world.recorded(LAKEHOUSE_GUID) == []


def test_names_are_looked_up_and_guids_save_that(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit()
    steps = []
    for terms in ({"workspace": WORKSPACE_GUID, "semantic_model": MODEL_GUID.upper()}, {"workspace": "taxi"}):
        world.steps = 0
        assert reframe(str(terms), **terms)()["model"] == MODEL_GUID
        steps.append(world.steps)
    assert steps[0] < steps[1]
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", world.server.connection(BY_NAMES))
    assert reframe("names")()["model"] == MODEL_GUID
    assert endpoint("names")()["status"] == "Success"


def test_guardrails_are_looked_at_before_anything_is_refreshed(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from airflow_provider_onelake.fabric import direct_lake

    for _ in range(4):
        world.commit()
    low = attrs.evolve(direct_lake.GUARDRAILS["F2"], files=3)
    monkeypatch.setitem(direct_lake.GUARDRAILS, "F2", low)
    task = OneLakeRefreshSemanticModelOperator(**REFRAME, capacity="F2")
    context = context_of(task)
    with pytest.raises(AirflowFailException, match=r"GuardrailError: .*Nothing was refreshed.*month=2019-01"):
        task.execute(context)
    assert context["ti"].pushed["guardrails"]["to_compact"][0]["files"] >= 4
    assert world.recorded() == []
    said = reframe("warn", capacity="F2", on_guardrail="warn")()
    assert said["guardrails"]["findings"]
    assert "Direct Lake takes 3 on F2" in caplog.text
    assert reframe("large", capacity="F64")()["guardrails"]["findings"] == []
    found = reframe("model", capacity="F64", other_tables=["Tables/trips"])()["guardrails"]
    assert found["model_bytes"] == 2 * found["bytes"]


def test_an_endpoint_shows_the_newest_version(world: World) -> None:
    version = world.commit()
    task = endpoint()
    said = task()
    assert json.loads(json.dumps(said)) == said
    assert (said["table"], said["version"], said["status"]) == (world.log.table, version, "Success")
    assert task(try_number=2) == said
    assert endpoint("b")()["status"] == "NotRun"


def test_an_endpoint_that_is_slow_or_busy_is_waited_for(world: World) -> None:
    version = world.commit()
    world.fault("refresh_hangs", count=1)
    assert FabricHook().sql_endpoint("Tables/trips").begin(timedelta(hours=1)).tables is None
    world.fault("refresh_hangs", count=4)
    assert endpoint()()["version"] == version
    assert world.shown(LAKEHOUSE_GUID)[-1] == version


def test_an_endpoints_refresh_that_fails_is_repeated_by_a_retry(world: World) -> None:
    world.commit()
    task = endpoint()
    world.fault("refresh_fails", count=1)
    with pytest.raises(RefreshFailedError, match="of trips it says RefreshFailed"):
        task()
    world.fault("refresh_hangs", count=1)
    world.fault("refresh_fails", count=1, only="operations")
    with pytest.raises(RefreshFailedError, match="failed: RefreshFailed"):
        task(try_number=2)
    assert task(try_number=3)["status"] == "Success"


def test_an_operation_that_fabric_has_forgotten_is_asked_for_again(world: World) -> None:
    world.commit()
    world.fault("refresh_hangs", count=1)
    task = OneLakeRefreshSqlEndpointOperator(**ENDPOINT, deferrable=True)
    trigger = deferral(task)
    with world.server.served.kept.changing() as document:
        document.pop(REFRESHES)
    (event,) = asyncio.run(fired(trigger))
    assert event["reason"] == "the refresh has ended"
    assert task.resume(context_of(task), event)["status"] == "Success"


@pytest.mark.parametrize(
    ("kind", "terms"),
    [
        (OneLakeRefreshSemanticModelOperator, {**REFRAME, "semantic_model": " "}),
        (OneLakeRefreshSemanticModelOperator, {**REFRAME, "on_guardrail": "ask"}),
        (OneLakeRefreshSemanticModelOperator, {**REFRAME, "capacity": "F63"}),
        (OneLakeRefreshSemanticModelOperator, {**REFRAME, "other_tables": "Tables/zones"}),
        (OneLakeRefreshSemanticModelOperator, {**REFRAME, "refresh_timeout": timedelta()}),
        (OneLakeRefreshSqlEndpointOperator, {**ENDPOINT, "refresh_timeout": 5}),
        (OneLakeRefreshSqlEndpointOperator, {**ENDPOINT, "version": -1}),
        (OneLakeRefreshSqlEndpointOperator, {**ENDPOINT, "version": "newest"}),
    ],
    ids=str,
)
def test_what_is_wrong_is_refused_where_the_dag_is_parsed(kind: Any, terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError):
        kind(**terms)
