"""A writer that waits in the triggerer for its driver: from the submission to the rows."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, TaskDeferred

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import Engine, StageJob, StageResult
from airflow_provider_onelake.triggers import driver
from airflow_provider_onelake.triggers.driver import DriverTrigger
from tests.support.contexts import connect, context_of
from tests.support.engines import FakeEngine
from tests.support.tables import foreign_append, ids, make_table

ATTEMPT = "a1"


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    path = tmp_path / "Tables/trips/staged/jobs" / ATTEMPT / "staging"
    path.mkdir(parents=True)
    return path


def trigger(**arguments: Any) -> DriverTrigger:
    return DriverTrigger(
        **{
            "engine": "airflow_provider_onelake.spark.submit.engine:SubmitEngine",
            "table": "Tables/trips",
            "attempt": ATTEMPT,
            "onelake_conn_id": "onelake_default",
            "spark_conn_id": "s",
            "poll_interval": 0.01,
            **arguments,
        }
    )


async def fired(waiting: DriverTrigger) -> list[Any]:
    return [event.payload async for event in waiting.run()]


def say(place: Path, **fields: Any) -> None:
    (place / "result.json").write_text(json.dumps({"format": 1, **fields}))


@pytest.mark.parametrize(
    "result",
    [
        {"result": {"reads_target": False}},
        {"error": {"class": "X", "message": "m", "condition": None, "state": None, "stack": "", "starting": False}},
    ],
    ids=["result", "error"],
)
async def test_it_fires_with_the_result_and_not_before(place: Path, result: dict[str, Any]) -> None:
    say(place, driver="driver-1-0")
    waiting = asyncio.create_task(fired(trigger()))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    say(place, **result)
    assert await asyncio.wait_for(waiting, 10) == [{"reason": "the driver's result is there", "attempt": ATTEMPT}]


async def test_the_task_is_woken_in_any_case(place: Path) -> None:
    assert await asyncio.wait_for(fired(trigger(seconds=0.1)), 10) == [
        {"reason": "no result for 0 s", "attempt": ATTEMPT}
    ]


async def test_half_a_result_is_looked_at_again(place: Path) -> None:
    (place / "result.json").write_text('{"format": 1, "resu')
    waiting = asyncio.create_task(fired(trigger()))
    await asyncio.sleep(0.2)
    assert not waiting.done()
    say(place, result={})
    assert await asyncio.wait_for(waiting, 10)


def test_it_is_made_again_in_the_triggerer() -> None:
    path, arguments = trigger(seconds=7).serialize()
    assert path == "airflow_provider_onelake.triggers.driver.DriverTrigger"
    assert json.loads(json.dumps(arguments)) == arguments
    assert DriverTrigger(**arguments).serialize() == (path, arguments)


async def test_a_deferred_task_ended_by_hand_ends_its_driver(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[Any] = []

    class Killer(Engine):
        def kill(self, table_uri: str, attempt: str, doing: str) -> None:
            killed.append((Path(table_uri.removeprefix("file://")), attempt, doing))

    monkeypatch.setattr(driver, "engine_for", lambda *_: Killer())
    await trigger().on_kill()
    assert killed == [(place.parents[3], ATTEMPT, "staging")]


@pytest.mark.parametrize("query", ["SELECT 1", "SELECT 2"], ids=["as before", "other by now"])
@pytest.mark.parametrize("done", [False, True], ids=["at work", "complete"])
def test_a_task_is_back_at_its_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, query: str, done: bool) -> None:
    """It defers when its driver is at work, and runs as before when it is back: the attempt is the same."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    table = tmp_path / "Tables" / "trips"
    make_table(table)
    fake = FakeEngine({None: {"2019-01": [1, 2]}})
    jobs: list[StageJob] = []
    awaited: list[Any] = []

    class Leaves(Engine):
        outlives_the_task = True

        def __init__(self, *given: Any) -> None:
            self.leave = given[4]

        def wait_for(self, table_uri: str, attempt: str, doing: str) -> None:
            awaited.append((attempt, doing))

        def kill(self, *_: Any) -> None:
            raise AssertionError("The driver is the task's own.")

        def stage(self, job: StageJob) -> StageResult:
            jobs.append(job)
            if len(jobs) == 1:
                if done:
                    fake.stage(job)
                self.leave(job.attempt, 42.0)
            return fake.stage(job)

    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", Leaves)

    def task(query: str) -> OneLakeWriteOperator:
        return OneLakeWriteOperator(
            task_id="write", table="Tables/trips", writer="w", source=SqlSource(query), deferrable=True
        )

    context = context_of(task("SELECT 1"))
    with pytest.raises(TaskDeferred) as deferred:
        task("SELECT 1").execute(context)
    assert isinstance(deferred.value.trigger, DriverTrigger)
    assert deferred.value.trigger.attempt == jobs[0].attempt
    assert deferred.value.trigger.seconds == 42.0
    told = getattr(task(query), deferred.value.method_name)(context, {"reason": "x"})
    assert told["status"] == "published"
    assert {(job.attempt, job.buffer_uri) for job in jobs} == {(jobs[0].attempt, jobs[0].buffer_uri)}
    assert len(jobs) == (1 if done else 2)
    # It is told apart from an earlier one's; where it is done, what it was told is tidied away.
    assert awaited == ([(jobs[0].attempt, "staging")] if done else [])
    assert ids(table) == [1, 2]


def test_a_job_that_reads_its_table_is_back_at_its_rerun(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    log = make_table(tmp_path / "Tables" / "trips")
    leave: list[Any] = []

    def before(job: StageJob) -> None:
        if len(fake.staged) == 1:
            foreign_append(log, {"2019-01": [100]})
        if len(fake.staged) == 2:
            leave[-1](job.attempt, None)

    fake = FakeEngine({None: {"2019-01": [1, 2]}}, before, reads_target=True)

    def engine_for(*given: Any) -> FakeEngine:
        leave.append(given[4])
        return fake

    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", engine_for)
    task = OneLakeWriteOperator(task_id="write", table="Tables/trips", source=SqlSource("SELECT 1"), deferrable=True)
    context = context_of(task)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context)
    done = getattr(task, deferred.value.method_name)(context, {"reason": "x"})
    assert (done["status"], done["reruns"]) == ("published", 1)
    attempts = [job.attempt for job in fake.staged]
    assert attempts[1:] == [f"{attempts[0]}-1"] * 2
    assert ids(Path(log.table)) == [1, 2, 100]


def test_a_task_that_is_stopped_as_it_comes_back_ends_the_driver_that_it_left(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It has not asked Spark for anything yet, so no engine knows the driver."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    killed: list[Any] = []

    class Left(Engine):
        outlives_the_task = True

        def kill(self, table_uri: str, attempt: str, doing: str) -> None:
            killed.append((attempt, doing))

        def stop(self) -> None:
            raise AssertionError("There is nothing that it does.")

    monkeypatch.setattr("airflow_provider_onelake.operators._spark_task.engine_for", lambda *_: Left())
    task = OneLakeWriteOperator(
        task_id="write", table="Tables/trips", writer="w", source=SqlSource("SELECT 1"), deferrable=True
    )

    def stopped(context: Any) -> None:
        task.on_kill()
        task.spark.check_not_stopped()

    monkeypatch.setattr(OneLakeWriteOperator, "execute", lambda self, context: stopped(context))
    with pytest.raises(AirflowException, match="stopped"):
        task.resume(context_of(task), {"reason": "x", "attempt": ATTEMPT})
    assert killed == [(ATTEMPT, "staging")]
