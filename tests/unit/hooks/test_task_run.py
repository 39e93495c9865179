"""What Airflow knows of a try, in the core's words (protocol, rules 6, 8 and 9)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import DAG, BaseOperator, CronDataIntervalTimetable, CronPartitionTimetable, TaskGroup

from airflow_provider_onelake.exceptions import TransientError
from airflow_provider_onelake.hooks.task_run import TaskRun, write_group
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.contexts import Kept, context_of


@pytest.mark.parametrize(
    ("retries", "max_tries", "generation"),
    [
        pytest.param(0, 0, 1, id="first"),
        pytest.param(2, 2, 1, id="a-retry-leaves-max-tries-alone"),
        pytest.param(2, 3, 2, id="cleared-after-one-try"),
        pytest.param(2, 5, 4, id="cleared-after-a-clear-and-two-retries"),
        pytest.param(0, 1, 2, id="cleared-without-retries"),
        pytest.param(5, 2, 1, id="retries-were-raised-in-the-dag"),
    ],
)
def test_a_clear_raises_the_generation_and_a_retry_does_not(retries: int, max_tries: int, generation: int) -> None:
    task = BaseOperator(task_id="write", retries=retries)
    assert TaskRun.of(context_of(task, max_tries=max_tries)).generation == generation


def test_the_run_is_its_logical_date_in_utc() -> None:
    berlin = datetime(2019, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    task = BaseOperator(task_id="write")
    assert TaskRun.of(context_of(task, berlin)).run == "2019-01-01T00:00:00+00:00"
    assert TaskRun.of(context_of(task, None)).run == "manual__1"


def partition_run(schedule: Any, *, cleared: int = 0, kept: Any = None, **run: Any) -> TaskRun:
    """A try of a run of the partition 2019-01, which began at noon, and whose task was cleared so often.

    What the task instance keeps from try to try may be given.
    """
    with DAG("taxi", schedule=schedule):
        task = BaseOperator(task_id="write", retries=2)
    context = context_of(task, None, max_tries=2 + cleared)
    began = datetime(2026, 1, 1, 12, tzinfo=UTC)
    given = {"partition_key": "2019-01", "partition_date": datetime(2019, 1, 1, tzinfo=UTC), "start_date": began, **run}
    context["dag_run"] = SimpleNamespace(logical_date=None, run_after=began, **given)
    if kept is not None:
        context["task_state_store"] = kept
    return TaskRun.of(context)


MONTHS = CronPartitionTimetable("@monthly", timezone="UTC", key_format="%Y-%m")


def test_every_run_of_a_cron_partition_is_the_same_run() -> None:
    assert partition_run(MONTHS).run == "partition:2019-01"
    february = partition_run(MONTHS, partition_key="2019-02", partition_date=datetime(2019, 2, 1, tzinfo=UTC))
    assert february.run == "partition:2019-02"


def test_a_run_by_hand_is_the_partition_that_the_timetable_makes() -> None:
    at_six = CronPartitionTimetable("0 6 * * *", timezone="UTC", key_format="%Y-%m-%d")
    scheduled, by_hand = (
        partition_run(at_six, partition_key="2019-01-02", partition_date=datetime(2019, 1, 2, hour, tzinfo=UTC))
        for hour in (6, 0)
    )
    assert scheduled.run == by_hand.run == "partition:2019-01-02"


@pytest.mark.parametrize(("key_format", "key"), [("%m", "01"), ("%H:%M", "00:00"), ("%Y-W%W", "2019-W05")], ids=str)
def test_a_key_that_more_dates_have_is_told_by_its_date_too(key_format: str, key: str) -> None:
    timetable = CronPartitionTimetable("@weekly", timezone="UTC", key_format=key_format)
    runs = {
        partition_run(timetable, partition_key=key, partition_date=datetime(year, 1, 1, tzinfo=UTC)).run
        for year in (2019, 2020)
    }
    assert runs == {f"partition:{key} {year}-01-01T00:00:00+00:00" for year in (2019, 2020)}


def test_the_timetable_may_be_airflows_own_class() -> None:
    from airflow.timetables.trigger import CronPartitionTimetable as Core

    assert partition_run(Core("@monthly", timezone="UTC", key_format="%Y-%m")).run == "partition:2019-01"


def test_a_run_that_is_queued_again_while_its_tasks_live_stays_the_same_generation() -> None:
    kept = Kept()
    first = partition_run(MONTHS, kept=kept).generation
    later = datetime(2026, 1, 1, 13, tzinfo=UTC)
    assert partition_run(MONTHS, kept=kept, start_date=later).generation == first
    assert partition_run(MONTHS, kept=kept, start_date=None).generation == first
    assert partition_run(MONTHS, kept=kept, start_date=later, cleared=1).generation > first
    with pytest.raises(TransientError, match="has no start"):
        partition_run(MONTHS, start_date=None)


@pytest.mark.parametrize(
    ("schedule", "date"),
    [
        pytest.param(MONTHS, None, id="no-partition-key"),
        pytest.param(None, datetime(2019, 1, 1, tzinfo=UTC), id="keys-that-come-again"),
        pytest.param(
            CronDataIntervalTimetable("@monthly", timezone="UTC"), datetime(2019, 1, 1, tzinfo=UTC), id="no-partitions"
        ),
    ],
)
def test_a_partition_that_the_timetable_does_not_make_names_no_run(schedule: Any, date: datetime | None) -> None:
    assert partition_run(schedule, partition_date=date).run == "manual__1"
    assert partition_run(schedule, partition_date=date).generation == 1


def test_a_later_run_of_a_partition_is_a_later_generation_and_so_is_a_clear() -> None:
    later = datetime(2026, 1, 1, 12, 0, 0, 1000, tzinfo=UTC)
    first = partition_run(MONTHS).generation
    assert partition_run(MONTHS).generation == first
    assert first < partition_run(MONTHS, cleared=1).generation < partition_run(MONTHS, start_date=later).generation
    # In Delta it is a long; readers of its log that know doubles only must not round it.
    assert first < 2**53


def test_the_attempt_is_the_uuid_of_the_try() -> None:
    task = BaseOperator(task_id="write")
    first, second = context_of(task), context_of(task)
    assert TaskRun.of(first).attempt == str(first["ti"].id)
    assert TaskRun.of(first).attempt != TaskRun.of(second).attempt


@pytest.mark.parametrize(("map_index", "label"), [(-1, "write"), (None, "write"), (3, "write[3]")])
def test_the_label_is_what_people_call_the_task(map_index: int | None, label: str) -> None:
    task = BaseOperator(task_id="write")
    assert TaskRun.of(context_of(task, map_index=map_index)).label == label


def test_the_owner_is_the_same_for_all_tries_and_no_other_run() -> None:
    task = BaseOperator(task_id="load.write")
    owner = TaskRun.of(context_of(task, map_index=1)).owner("prod")
    assert owner == "prod/taxi/load.write[1]/manual__1"
    assert TaskRun.of(context_of(task, map_index=1)).owner("prod") == owner
    # Of the same logical date or partition, even.
    assert TaskRun.of(context_of(task, map_index=1, run_id="manual__2")).owner("prod") != owner


def write(task_id: str = "write") -> Any:
    return OneLakeWriteOperator(task_id=task_id, source=FileSource("/x"), table="/t")


def test_the_group_is_the_closest_write_group() -> None:
    with DAG("taxi", schedule=None):
        alone = write("alone")
        with TaskGroup("outer"):
            grouped = write("grouped")
            with OneLakeWriteTaskGroup(group_id="load", table="/t"):
                direct = write("direct")
                with TaskGroup("inner"):
                    nested = write("nested")
    assert [write_group(task) for task in (alone, grouped, direct, nested)] == ["alone", "outer", *["outer.load"] * 2]
