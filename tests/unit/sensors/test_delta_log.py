"""The sensor: here or in the triggerer, it waits for one thing and takes every commit on the way."""

from __future__ import annotations

import asyncio
import contextlib
import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, TaskDeferred
from airflow.sdk import DAG, PokeReturnValue

from airflow_provider_onelake import _airflow
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sensors.delta_log import DeltaLogSensor
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from airflow_provider_onelake.triggers.wait import DeltaLogWaitTrigger
from airflow_provider_onelake.writes.publish import Committer
from tests.support.contexts import Kept, connect, context_of
from tests.support.tables import LOAD, foreign_append, local_log, make_table, stage, writer_spec
from tests.support.versions import needs_airflow


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")


def sensor(**arguments: Any) -> DeltaLogSensor:
    return DeltaLogSensor(**{"task_id": "committed", "table": "trips", "poke_interval": 0.01, **arguments})


def deferral(task: DeltaLogSensor, **where: str) -> Any:
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context_of(task, **where))
    return deferred.value


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"version": 1, "operation": "WRITE"},
        {"writers": ["a"], "partition": "x = 1"},
        {"rows_at_least": 1, "fresher_than": 1},
    ],
    ids=str,
)
def test_it_waits_for_one_thing(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match="waits for one thing"):
        sensor(**arguments)


def test_what_is_there_already_ends_the_wait_without_deferring(tmp_path: Path) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    task = sensor(version="1", deferrable=True)
    assert task.execute(context_of(task)) == {"version": 1}


def test_a_text_says_neither_yes_nor_no() -> None:
    with pytest.raises(InvalidWriteError, match="deferrable='no' must be True, False or None"):
        sensor(version="1", deferrable="no")


@pytest.mark.parametrize("deferrable", [True, False])
def test_for_a_load_without_writers_it_does_not_wait_even_for_a_table(deferrable: bool) -> None:
    task = sensor(writers={}, deferrable=deferrable, timeout=0)
    assert task.execute(context_of(task)) is None


def test_it_defers_with_what_it_has_seen(tmp_path: Path) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    task = sensor(partition="month = '2019-02'", deferrable=True, timeout=60)
    deferred = deferral(task)
    assert isinstance(deferred.trigger, DeltaLogWaitTrigger)
    assert (deferred.trigger.after, deferred.timeout.total_seconds()) == (1, 60)


@pytest.mark.parametrize(
    ("arguments", "writers"),
    [
        ({"writers": {"onelake/x": 3}}, {"onelake/x": 3}),
        ({"writers": ["a"], "writer_group": "load", "writer_dag_id": "taxi"}, {LOAD.writer("a").app_id: 1}),
    ],
    ids=["of-reconcile", "keys"],
)
def test_writers_are_what_reconcile_left_or_keys(arguments: dict[str, Any], writers: dict[str, int]) -> None:
    task = sensor(**arguments, deferrable=True)
    assert deferral(task).trigger.awaited.writers == writers


def test_keys_are_those_of_the_load_name_of_the_group() -> None:
    with (
        DAG("taxi_v2", schedule=None),
        OneLakeWriteTaskGroup(group_id="load", table="/t", load_name="taxi", committed=False),
    ):
        OneLakeWriteOperator(task_id="a", source=SqlSource("SELECT 1"))
        task = sensor(writers=["a"], deferrable=True)
    assert deferral(task, dag_id="taxi_v2").trigger.awaited.writers == {LOAD.writer("a").app_id: 1}


async def test_a_writer_is_waited_for_again_where_the_table_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "trips"

    def publish(writer: str) -> None:
        log = local_log(path)
        Committer(log).publish([stage(log, writer_spec(writer), {"2019-01": [1]})])

    make_table(path)
    publish("a")
    task = sensor(writers={LOAD.writer(key).app_id: 1 for key in ("a", "b")}, deferrable=True)
    kwargs = deferral(task).trigger.serialize()[1]
    shutil.rmtree(path)
    make_table(path)
    publish("b")
    trigger = DeltaLogWaitTrigger(**json.loads(json.dumps(kwargs)))
    waiting = asyncio.create_task(trigger.run().__anext__())  # type: ignore[arg-type]
    await asyncio.sleep(0.1)
    assert not waiting.done()
    publish("a")
    event: Any = await asyncio.wait_for(waiting, 60)
    assert (event.payload["status"], event.payload["version"]) == ("met", 2)


def test_the_event_is_the_result() -> None:
    task = sensor(version=1)
    event = {"status": "met", "version": 1}
    assert task.execute_complete(context_of(task), event) == event


def test_an_error_of_the_trigger_fails_without_a_retry() -> None:
    task = sensor(version=1)
    with pytest.raises(AirflowFailException, match="log gap"):
        task.execute_complete(context_of(task), {"status": "error", "message": "log gap"})


def test_it_pokes_here_where_it_is_not_deferrable(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    task = sensor(operation="OPTIMIZE")
    context = context_of(task)
    assert not task.poke(context)
    foreign_append(log, {"2019-01": [1]})
    assert not task.poke(context)
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    poked = task.poke(context)
    assert isinstance(poked, PokeReturnValue)
    assert poked.is_done
    assert poked.xcom_value["version"] == 2


@needs_airflow("3.3", "a store for what a task keeps")
def test_rescheduled_pokes_go_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    context = context_of(sensor(operation="OPTIMIZE", mode="reschedule"))
    assert not sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    asked = {"table": log.table, "after": None}
    assert context["task_state_store"] == {"seen": {"asked": asked, "version": 0, "digest": log.digest(0)}}
    # Committed between two pokes, each of which is a process of its own.
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    foreign_append(log, {"2019-01": [1]})
    poked = sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    assert poked.is_done
    assert poked.xcom_value["version"] == 1


def test_where_airflow_keeps_nothing_pokes_of_several_processes_need_a_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_table(tmp_path / "trips")
    monkeypatch.setattr(_airflow, "RELEASE", (3, 2))
    context = context_of(sensor(operation="OPTIMIZE"))
    with pytest.raises(AirflowFailException, match=r"mode='reschedule' and without `after` needs Airflow 3\.3"):
        sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    for fine in ({"operation": "OPTIMIZE", "after": 0}, {"rows_at_least": 99}):
        assert not sensor(mode="reschedule", **fine).poke(context)
    assert not sensor(operation="OPTIMIZE").poke(context)


@needs_airflow("3.3", "a store for what a task keeps")
@pytest.mark.parametrize("notes", [0, 1])
def test_notes_of_a_dead_process_do_not_contradict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, notes: int) -> None:
    log = make_table(tmp_path / "trips")
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    context = context_of(sensor(operation="OPTIMIZE", mode="reschedule"))
    assert not sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    foreign_append(log, {"2019-01": [1]})
    left = iter(range(notes))

    def die(kept: Kept, key: str, value: Any) -> None:
        if next(left, None) is None:
            raise ConnectionError
        kept[key] = value

    with monkeypatch.context() as dying, contextlib.suppress(ConnectionError):
        dying.setattr(Kept, "set", die)
        sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    # A note of another version than its digest's would say that the table was made again.
    assert not sensor(operation="OPTIMIZE", mode="reschedule").poke(context)


@pytest.mark.parametrize("way", [{"deferrable": True}, {}, {"mode": "reschedule"}], ids=str)
@needs_airflow("3.3", "a store for what a task keeps")
def test_a_retry_sees_what_was_committed_since_the_first_try_began(tmp_path: Path, way: dict[str, Any]) -> None:
    log = make_table(tmp_path / "trips")
    first = sensor(operation="OPTIMIZE", **way)
    context = context_of(first)

    def once() -> Any:
        task = sensor(operation="OPTIMIZE", **way)
        if not task.deferrable:
            return task.poke(context).xcom_value
        try:
            return task.execute(context)
        except TaskDeferred:
            return None

    assert once() is None
    # The try dies, and before the next one begins:
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    foreign_append(log, {"2019-01": [1]})
    assert once()["version"] == 1
    # When somebody clears it, it is as it was.
    assert once()["version"] == 1


@needs_airflow("3.3", "a store for what a task keeps")
def test_a_retry_whose_table_was_corrected_waits_for_a_commit_that_is_still_to_come(tmp_path: Path) -> None:
    make_table(tmp_path / "trips")
    context = context_of(sensor(operation="OPTIMIZE"))
    assert not sensor(operation="OPTIMIZE").poke(context)
    log = make_table(tmp_path / "other")
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    assert not sensor(operation="OPTIMIZE", table="other").poke(context)
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    assert sensor(operation="OPTIMIZE", table="other").poke(context).xcom_value["version"] == 2


def test_a_retry_goes_on_from_another_version_where_that_is_asked_for_behind_a_gap(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    context = context_of(sensor(operation="OPTIMIZE"))
    assert not sensor(operation="OPTIMIZE").poke(context)
    for _ in range(3):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / "trips" / "_delta_log" / f"{1:020d}.json").unlink()
    with pytest.raises(AirflowFailException, match="LogGapError"):
        sensor(operation="OPTIMIZE").poke(context)
    assert not sensor(operation="OPTIMIZE", after=2).poke(context)
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    assert sensor(operation="OPTIMIZE", after=2).poke(context).xcom_value["version"] == 4


def test_where_airflow_keeps_nothing_for_a_task_it_waits_all_the_same(tmp_path: Path) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    task = sensor(version=1)
    context = context_of(task)
    context.pop("task_state_store", None)
    assert task.poke(context).xcom_value == {"version": 1}


def met_in_each_way(**arguments: Any) -> list[dict[str, Any]]:
    deferring, poking, rescheduling = (
        sensor(**arguments, **way) for way in ({"deferrable": True}, {}, {"mode": "reschedule"})
    )
    pokes: list[Any] = [poking.poke(context_of(poking)), rescheduling.poke(context_of(rescheduling))]
    return [deferring.execute(context_of(deferring)), *(poked.xcom_value for poked in pokes)]


def test_rows_of_a_partition_are_waited_for_in_each_way(tmp_path: Path) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1, 2], "2019-02": [3]})
    enough = {"partition": "month = '2019-01'", "rows_at_least": "2"}
    assert met_in_each_way(**enough) == [{"version": 1, "rows": 2}] * 3
    task = sensor(partition="month = '2019-01'", rows_at_least=3, deferrable=True)
    awaited = deferral(task).trigger.serialize()[1]
    assert (awaited["partition"], awaited["rows_at_least"]) == ("month = '2019-01'", 3)


def test_freshness_is_waited_for_in_each_way(tmp_path: Path) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]}, timestamp=now)
    assert [met["version"] for met in met_in_each_way(fresher_than=timedelta(hours=1))] == [1] * 3
    foreign_append(make_table(tmp_path / "old"), {"2019-01": [1]}, timestamp=now - 7_200_000)
    task = sensor(table="old", fresher_than=3600, deferrable=True)
    assert deferral(task).trigger.serialize()[1]["fresher_than"] == 3600


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"version": "latest"}, "version='latest': a whole number is wanted"),
        ({"version": True}, "version=True: a whole number is wanted"),
        ({"version": -1}, "version=-1: a whole number is wanted, at least 0"),
        ({"rows_at_least": "-1"}, "rows_at_least=-1: a whole number is wanted, at least 0"),
        ({"rows_at_least": 1.5}, "rows_at_least=1.5: a whole number"),
        ({"operation": "WRITE", "after": "x"}, "after='x': a whole number"),
        ({"operation": []}, r"operation=\[\]: an operation as the log spells it, such as 'WRITE', or a list of such"),
        ({"operation": ["WRITE", 7]}, "operation=.* or a list of such"),
        ({"operation": " "}, "operation=' ': an operation"),
        ({"operation": {"WRITE": 1}}, "operation=.* or a list of such"),
        ({"partition": 7}, "partition=7: a predicate on partition columns"),
        ({"fresher_than": "1h"}, "fresher_than='1h': a timedelta, or a number of seconds, is wanted, above 0"),
        ({"fresher_than": "{{ params.age }}"}, "fresher_than='{{ params.age }}': a timedelta, or a number"),
        ({"fresher_than": timedelta(0)}, r"fresher_than=0.0: a timedelta"),
        ({"fresher_than": float("inf")}, r"fresher_than=inf: a timedelta"),
    ],
    ids=str,
)
def test_what_would_be_waited_for_for_ever_or_not_at_all_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidWriteError, match=f"^committed: {message}"):
        sensor(**arguments)


@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize(
    ("arguments", "message"),
    [({"version": "-1"}, "at least 0"), ({"operation": "WRITE", "after": "x"}, "whole number")],
    ids=str,
)
def test_it_is_refused_where_a_template_renders_it(arguments: dict[str, Any], message: str, deferrable: bool) -> None:
    task = sensor(**dict.fromkeys(arguments, "{{ params.x }}"), deferrable=deferrable, timeout=0)
    for name, value in arguments.items():
        setattr(task, name, value)
    with pytest.raises(AirflowFailException, match=message):
        task.execute(context_of(task))


@pytest.mark.parametrize("after", [None, 0])
@pytest.mark.parametrize("deferrable", [True, False])
@pytest.mark.parametrize(
    ("partition", "message"), [("month =", "partition|predicate"), ("year = '2019'", "year"), ("", "predicate")]
)
def test_a_predicate_that_the_table_cannot_have_fails_at_the_first_look(
    tmp_path: Path, partition: str, message: str, deferrable: bool, after: int | None
) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    task = sensor(partition=partition, after=1 if after == 0 else after, deferrable=deferrable, timeout=0)
    with pytest.raises(AirflowFailException, match=message):
        task.execute(context_of(task))


@pytest.mark.parametrize("operation", [["OPTIMIZE", "DELETE"], ("DELETE",), {"DELETE"}], ids=str)
async def test_one_of_several_operations_ends_the_wait(tmp_path: Path, operation: Any) -> None:
    log = make_table(tmp_path / "trips")
    here, there = sensor(operation=operation), sensor(operation=operation, deferrable=True)
    context = context_of(here)
    assert not here.poke(context)
    kwargs = deferral(there).trigger.serialize()[1]
    foreign_append(log, {"2019-01": [1]}, operation="WRITE")
    assert not here.poke(context)
    foreign_append(log, {"2019-01": [1]}, operation="DELETE")
    assert here.poke(context).xcom_value["version"] == 2
    trigger = DeltaLogWaitTrigger(**json.loads(json.dumps(kwargs)))
    assert [event.payload["version"] async for event in trigger.run()] == [2]
