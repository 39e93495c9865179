"""What Airflow knows of a try, in the core's words (protocol: attempt id, writer identity, generation)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any, Self

import attrs
import pytest
from airflow.sdk import DAG, BaseOperator, TaskGroup
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_provider_onelake.buffers.claims import Start
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.exceptions import TransientError
from airflow_provider_onelake.hooks.context import shares_its_name, start_of, task_run_of, write_group
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from airflow_provider_onelake.task_run import TaskRun
from tests.support.contexts import Kept, context_of, delete_runs, kept_of
from tests.support.versions import cron_partitions, needs_airflow, skip_below


def started(context: Any) -> Start:
    return start_of(context, context.get("task_state_store", kept_of(context)))


@attrs.define
class Instance:
    """A task instance over its tries, as Airflow 3.3 counts: clears, retries, and ``retries`` that the DAG changes."""

    retries: int = 0
    max_tries: int = attrs.field(init=False)
    tries: int = 1
    clears: int = 0

    def __attrs_post_init__(self) -> None:
        self.max_tries = self.retries

    def retry(self) -> Self:
        self.tries += 1
        return self

    def clear(self) -> Self:
        self.max_tries = self.tries + self.retries
        self.tries += 1
        return self.clear_another()

    def clear_another(self) -> Self:
        self.clears += 1
        return self

    def change(self, retries: int) -> Self:
        self.retries = retries
        return self

    def task_start(self) -> Start:
        task = BaseOperator(task_id="write", retries=self.retries)
        counters = {"max_tries": self.max_tries, "try_number": self.tries, "clears": self.clears}
        return started(context_of(task, **counters))


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(lambda it: it, id="it comes back from the triggerer"),
        pytest.param(lambda it: it.retry(), id="a retry"),
        pytest.param(lambda it: it.retry().retry(), id="two retries"),
        pytest.param(lambda it: it.change(0).retry(), id="retries lowered, and a retry"),
        pytest.param(lambda it: it.change(5).retry(), id="retries raised, and a retry"),
        pytest.param(lambda it: it.clear_another().retry(), id="another task was cleared"),
        pytest.param(lambda it: it.clear_another().change(0).retry(), id="another was cleared, and retries lowered"),
    ],
)
@pytest.mark.parametrize("cleared_before", [0, 2])
def test_it_is_the_same_deed(steps: Callable[[Instance], Instance], cleared_before: int) -> None:
    instance = Instance(retries=2)
    for _ in range(cleared_before):
        instance.task_start()
        instance.clear()
    assert instance.task_start() == steps(instance).task_start()


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(lambda it: it.clear(), id="a clear"),
        pytest.param(lambda it: it.retry().clear(), id="a clear after a retry that never began"),
        pytest.param(lambda it: it.clear().clear(), id="two clears"),
        pytest.param(lambda it: it.change(1).clear(), id="a clear that leaves max_tries as it was, by fewer retries"),
        pytest.param(lambda it: it.change(0).clear(), id="a clear with no retries any more"),
        pytest.param(lambda it: it.change(9).clear(), id="a clear with more retries"),
    ],
)
@pytest.mark.parametrize("cleared_before", [0, 2])
def test_it_is_a_new_deed(steps: Callable[[Instance], Instance], cleared_before: int) -> None:
    instance = Instance(retries=2)
    for _ in range(cleared_before):
        instance.task_start()
        instance.clear()
    first = instance.task_start()
    second = steps(instance).task_start()
    assert first.id != second.id
    assert first.precedes(second)
    assert not second.precedes(first)
    # And it stays that one.
    assert instance.retry().task_start() == second


def test_a_run_that_is_deleted_and_made_again_is_a_new_deed() -> None:
    first = Instance().task_start()
    delete_runs()
    task = BaseOperator(task_id="write")
    context = context_of(task)
    context["dag_run"].start_date += timedelta(days=1)
    second = started(context)
    assert first.id != second.id
    assert first.precedes(second)
    delete_runs()
    # Also where its first try died before it got here.
    assert started(context_of(task, try_number=2)).id not in (first.id, second.id)


def test_the_run_is_its_logical_date_in_utc() -> None:
    berlin = datetime(2019, 1, 1, 1, tzinfo=timezone(timedelta(hours=1)))
    task = BaseOperator(task_id="write")
    assert task_run_of(context_of(task, berlin)).run == "2019-01-01T00:00:00+00:00"
    assert task_run_of(context_of(task, None)).run == "manual__1"


def partition_context(schedule: Any, *, cleared: int = 0, kept: Any = None, **run: Any) -> Any:
    """A try of a run of the partition 2019-01, which began at noon, and whose task was cleared so often.

    What the task instance keeps from try to try may be given.
    """
    skip_below("3.2", "timetables of partitions")
    with DAG("taxi", schedule=schedule):
        task = BaseOperator(task_id="write", retries=2)
    context = context_of(task, None, max_tries=2 + cleared, try_number=1 + cleared, clears=cleared)
    began = datetime(2026, 1, 1, 12, tzinfo=UTC)
    given = {"partition_key": "2019-01", "partition_date": datetime(2019, 1, 1, tzinfo=UTC), "start_date": began, **run}
    context["dag_run"] = SimpleNamespace(logical_date=None, run_after=began, clear_number=cleared, **given)
    context["task_state_store"] = Kept() if kept is None else kept
    return context


def partition_run(schedule: Any, **run: Any) -> TaskRun:
    return task_run_of(partition_context(schedule, **run))


def partition_deed(schedule: Any, **run: Any) -> Start:
    return started(partition_context(schedule, **run))


MONTHS = cron_partitions("@monthly", timezone="UTC", key_format="%Y-%m")


def test_every_run_of_a_cron_partition_is_the_same_run() -> None:
    assert partition_run(MONTHS).run == "partition:2019-01"
    february = partition_run(MONTHS, partition_key="2019-02", partition_date=datetime(2019, 2, 1, tzinfo=UTC))
    assert february.run == "partition:2019-02"


def test_a_run_by_hand_is_the_partition_that_the_timetable_makes() -> None:
    at_six = cron_partitions("0 6 * * *", timezone="UTC", key_format="%Y-%m-%d")
    dates = [datetime(2019, 1, 2, hour, tzinfo=UTC) for hour in (6, 0)]
    found = [partition_run(at_six, partition_key="2019-01-02", partition_date=date).run for date in dates]
    assert found == ["partition:2019-01-02"] * 2


@pytest.mark.parametrize(("key_format", "key"), [("%m", "01"), ("%H:%M", "00:00"), ("%Y-W%W", "2019-W05")], ids=str)
def test_a_key_that_more_dates_have_is_told_by_its_date_too(key_format: str, key: str) -> None:
    timetable = cron_partitions("@weekly", timezone="UTC", key_format=key_format)
    dates = [datetime(year, 1, 1, tzinfo=UTC) for year in (2019, 2020)]
    runs = {partition_run(timetable, partition_key=key, partition_date=date).run for date in dates}
    assert runs == {f"partition:{key} {year}-01-01T00:00:00+00:00" for year in (2019, 2020)}


def utc(cron: str, key_format: str) -> dict[str, str]:
    return {"cron": cron, "timezone": "UTC", "key_format": key_format}


NIGHT = {"cron": "0 * * * *", "timezone": "Europe/Berlin"}
HALVES = {**NIGHT, "cron": "*/30 * * * *"}
SIX_HOURS = [f"2024-10-28T{hour}:00" for hour in ("00", "06", "12", "18")]


@pytest.mark.parametrize(
    ("timetable", "key", "dates"),
    [
        pytest.param(NIGHT, "2024-10-27T02:00:00", ("2024-10-27T00:00", "2024-10-27T01:00"), id="clocks go back"),
        pytest.param(HALVES, "2024-10-27T02:30:00", ("2024-10-27T00:30", "2024-10-27T01:30"), id="a tick between"),
        pytest.param(utc("0 */6 * * *", "%Y-%m-%d"), "2024-10-28", SIX_HOURS, id="a key coarser than the cron"),
        pytest.param(
            utc("0 1,3,13,15 * * *", "%Y-%m-%d %I"),
            "2024-10-28 03",
            ("2024-10-28T03:00", "2024-10-28T15:00"),
            id="a clock of twelve hours",
        ),
        pytest.param(
            utc("@daily", "%Y %d"), "2024 05", ("2024-01-05T00:00", "2024-02-05T00:00"), id="without the month"
        ),
    ],
)
@pytest.mark.parametrize("by_core", [False, True])
@needs_airflow("3.3", "dates of partitions")
def test_ticks_with_one_key_are_apart(timetable: dict[str, Any], key: str, dates: Sequence[str], by_core: bool) -> None:
    skip_below("3.2", "timetables of partitions")
    from airflow.timetables.trigger import CronPartitionTimetable as Core

    schedule = (Core if by_core else cron_partitions)(**timetable)
    instants = [datetime.fromisoformat(f"{date}+00:00") for date in dates]
    found = [partition_run(schedule, partition_key=key, partition_date=instant) for instant in instants]
    assert [run.run for run in found] == [f"partition:{key} {date}:00+00:00" for date in dates]
    assert {run.former for run in found} == {f"partition:{key}"}


@pytest.mark.parametrize(
    ("timetable", "key", "date"),
    [
        pytest.param(NIGHT, "2024-10-27T01:00:00", "2024-10-26T23:00", id="before clocks go back"),
        pytest.param(NIGHT, "2024-10-27T03:00:00", "2024-10-27T02:00", id="after clocks went back"),
        pytest.param(NIGHT, "2024-03-31T03:00:00", "2024-03-31T01:00", id="after clocks went forward"),
        pytest.param({**NIGHT, "cron": "0 2 * * *"}, "2024-10-27T02:00:00", "2024-10-27T00:00", id="once a day"),
        pytest.param({**NIGHT, "key_format": "%Y-%m-%dT%H%z"}, "2024-10-27T02+0200", "2024-10-27T00:00", id="its zone"),
        pytest.param(utc("0 3,15 * * *", "%Y-%m-%d %I%p"), "2024-10-28 03PM", "2024-10-28T15:00", id="AM or PM"),
    ],
)
def test_a_key_of_one_tick_is_the_name(timetable: dict[str, Any], key: str, date: str) -> None:
    schedule = cron_partitions(**timetable)
    run = partition_run(schedule, partition_key=key, partition_date=datetime.fromisoformat(f"{date}+00:00"))
    assert (run.run, run.former) == (f"partition:{key}", None)


def test_a_run_that_is_queued_again_while_its_tasks_live_stays_the_same_deed() -> None:
    kept = Kept()
    first = partition_deed(MONTHS, kept=kept)
    later = datetime(2026, 1, 1, 13, tzinfo=UTC)
    assert partition_deed(MONTHS, kept=kept, start_date=later) == first
    assert partition_deed(MONTHS, kept=kept, start_date=None) == first
    assert first.precedes(partition_deed(MONTHS, kept=kept, start_date=later, cleared=1))
    with pytest.raises(TransientError, match="has no start"):
        partition_deed(MONTHS, start_date=None)


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
    # So it needs no start to be told from others.
    assert partition_deed(schedule, partition_date=date, start_date=None).began is None


def test_a_later_run_of_a_partition_is_a_later_deed_whatever_its_tries() -> None:
    later = datetime(2026, 1, 1, 12, 0, 0, 1000, tzinfo=UTC)
    first, cleared = (partition_deed(MONTHS, cleared=times) for times in (0, 1))
    second = attrs.evolve(partition_deed(MONTHS, start_date=later), run_id="other")
    assert first.precedes(second)
    assert cleared.precedes(second)
    assert not second.precedes(first)


def test_a_try_is_numbered_over_all_starts_of_its_task_which_has_one_name_in_its_run() -> None:
    task = BaseOperator(task_id="write")
    first, second = task_run_of(context_of(task)), task_run_of(context_of(task, clears=1, try_number=2))
    assert (first.number, second.number) == (1, 2)
    assert first.owner("prod") == second.owner("prod")


def test_the_attempt_is_the_uuid_of_the_try() -> None:
    task = BaseOperator(task_id="write")
    first, second = context_of(task), context_of(task)
    assert task_run_of(first).attempt == str(first["ti"].id)
    assert task_run_of(first).attempt != task_run_of(second).attempt


@pytest.mark.parametrize(("map_index", "label"), [(-1, "write"), (None, "write"), (3, "write[3]")])
def test_the_label_is_what_people_call_the_task(map_index: int | None, label: str) -> None:
    task = BaseOperator(task_id="write")
    assert task_run_of(context_of(task, map_index=map_index)).label == label


def test_the_owner_is_the_same_for_all_tries_and_no_other_run() -> None:
    task = BaseOperator(task_id="load.write")
    owner = task_run_of(context_of(task, map_index=1)).owner("prod")
    assert owner == "prod/taxi/load.write[1]/manual__1"
    assert task_run_of(context_of(task, map_index=1)).owner("prod") == owner
    # Of the same logical date or partition, even.
    assert task_run_of(context_of(task, map_index=1, run_id="manual__2")).owner("prod") != owner


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


@pytest.mark.parametrize(("name", "dag"), [(None, "taxi_v2"), ("taxi", "taxi")])
def test_a_load_name_stands_for_the_dag_in_the_load_and_nowhere_else(name: str | None, dag: str) -> None:
    with DAG("taxi_v2", schedule=None), OneLakeWriteTaskGroup(group_id="load", table="/t", load_name=name):
        inside = write()
    context = context_of(inside, dag_id="taxi_v2")
    run = task_run_of(context)
    assert run.load("prod") == Load("prod", dag, "load", "2019-01-01T00:00:00+00:00")
    assert run.owner("prod") == "prod/taxi_v2/load.write/manual__1"
    assert started(context).dag == "taxi_v2"
    # A run of another DAG may have that name too.
    assert shares_its_name(context) is (name is not None)
