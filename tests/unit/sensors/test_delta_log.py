"""The sensor: here or in the triggerer, it waits for one thing and takes every commit on the way."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, PokeReturnValue
from airflow.sdk.exceptions import AirflowFailException, TaskDeferred

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.sensors.delta_log import DeltaLogSensor
from airflow_provider_onelake.triggers.delta_log import DeltaLogTrigger
from tests.support.contexts import connect, context_of
from tests.support.tables import foreign_append, make_table


@pytest.fixture(autouse=True)
def connection(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")


def sensor(**arguments: Any) -> DeltaLogSensor:
    return DeltaLogSensor(**{"task_id": "committed", "table": "trips", "poke_interval": 0.01, **arguments})


@pytest.mark.parametrize(
    "arguments", [{}, {"version": 1, "operation": "WRITE"}, {"writers": ["a"], "partition": "x = 1"}], ids=str
)
def test_it_waits_for_one_thing(arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError, match="waits for one thing"):
        sensor(**arguments)


def test_what_is_there_already_ends_the_wait_without_deferring(tmp_path: Path) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    task = sensor(version="1", deferrable=True)
    assert task.execute(context_of(task)) == {"version": 1}


def test_it_defers_with_what_it_has_seen(tmp_path: Path) -> None:
    foreign_append(make_table(tmp_path / "trips"), {"2019-01": [1]})
    task = sensor(partition="month = '2019-02'", deferrable=True, timeout=60)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context_of(task))
    trigger = deferred.value.trigger
    assert isinstance(trigger, DeltaLogTrigger)
    assert trigger.after == 1
    assert deferred.value.timeout is not None
    assert deferred.value.timeout.total_seconds() == 60


def test_keys_of_writers_become_their_identities(tmp_path: Path) -> None:
    task = sensor(writers=["a"], writer_group="load", writer_dag_id="taxi", deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context_of(task))
    trigger: Any = deferred.value.trigger
    assert trigger.awaited.writers == {"onelake/test/taxi/load/2019-01-01T00:00:00+00:00/a": 1}


def test_what_reconcile_left_is_taken_as_it_is(tmp_path: Path) -> None:
    task = sensor(writers={"onelake/x": 3}, deferrable=True)
    with pytest.raises(TaskDeferred) as deferred:
        task.execute(context_of(task))
    trigger: Any = deferred.value.trigger
    assert trigger.awaited.writers == {"onelake/x": 3}


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


def test_rescheduled_pokes_go_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    context = context_of(sensor(operation="OPTIMIZE", mode="reschedule"))
    assert not sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    assert context["task_state_store"] == {"version": 0}
    # Committed between two pokes, each of which is a process of its own.
    foreign_append(log, {"2019-01": [1]}, operation="OPTIMIZE")
    foreign_append(log, {"2019-01": [1]})
    poked = sensor(operation="OPTIMIZE", mode="reschedule").poke(context)
    assert poked.is_done
    assert poked.xcom_value["version"] == 1


def test_a_gap_in_the_log_fails_without_a_retry(tmp_path: Path) -> None:
    log = make_table(tmp_path / "trips")
    for _ in range(3):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / "trips" / "_delta_log" / f"{2:020d}.json").unlink()
    task = sensor(operation="OPTIMIZE", after=1)
    with pytest.raises(AirflowFailException):
        task.poke(context_of(task))


@pytest.mark.parametrize("arguments", [{"version": "latest"}, {"operation": "WRITE", "after": "x"}], ids=str)
def test_a_version_is_a_number(arguments: dict[str, Any]) -> None:
    task = sensor(**arguments)
    with pytest.raises(AirflowFailException, match="whole number"):
        task.poke(context_of(task))


def test_templates_are_rendered() -> None:
    with DAG("taxi", schedule=None):
        task = sensor(partition="month = '{{ month }}'")
    task.render_template_fields({"month": "2019-01"})  # type: ignore[typeddict-unknown-key]
    assert task.partition == "month = '2019-01'"
