"""Reads the context of a running task: its try, the name of its run, its start, its write group."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake._airflow import check_has
from airflow_provider_onelake.exceptions import TransientError
from airflow_provider_onelake.task_run import TaskRun

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.fabric.operations import NoteStore

_DEED = "onelake_deed"
"""The key of the start in the task's state store, which survives retries and clears until the run is deleted."""

_RUN = "run"
"""The key of the run's name beside the start; tasks that began under a former name have none."""


def task_run_of(context: Context, writer: BaseOperator | MappedOperator | None = None) -> TaskRun:
    """Read the try from a task's context.

    :param context: the context of the running task.
    :param writer: a task whose load the running task is about. Default: it is about its own.
    """
    ti, task = context["ti"], context["task"] if writer is None else writer
    return TaskRun(
        dag=ti.dag_id,
        group=write_group(task),
        run=run_name(context),
        run_id=ti.run_id,
        attempt=str(ti.id),
        label=_label(ti),
        map_index=ti.map_index if ti.map_index is not None else -1,
        number=ti.try_number,
        former=_former_name(context),
        may_be_former=_may_be_former(context),
        load_name=load_name(task),
    )


def run_name(context: Context) -> str:
    """Name the run. Every retry, clear and rerun of it has the same name.

    A logical date is unique in a DAG. A partition that a cron timetable makes is unique too, but several runs may be of
    one partition: a backfill that reprocesses the partition makes another run, and so may a person. Where two ticks of
    the timetable have one key, as where clocks go back, each is a partition of its own, and its date tells it from the
    other. Other partition keys are no names, because a key such as "us" comes again with every run.

    :param context: the context of the running task.
    :returns: the partition, such as ``partition:2019-01``, or ``partition:2024-10-27T02:00:00
        2024-10-27T01:00:00+00:00`` if another tick has its key, if the DAG's timetable makes the partitions; else the
        logical date in UTC, or the run's id if the run has no logical date.
    """
    partition = _cron_partition(context)
    if partition is not None:
        return partition
    date = context["dag_run"].logical_date
    return date.astimezone(UTC).isoformat() if date is not None else context["ti"].run_id


def shares_its_name(context: Context) -> bool:
    """Say whether other runs may have a load of the same name.

    They may be of the same partition of a cron timetable, or of another DAG with the same ``load_name``.

    :param context: the context of the running task.
    """
    return _cron_partition(context) is not None or load_name(context["task"]) is not None


def _cron_partition(context: Context) -> str | None:
    """Name the run's partition, if every tick of the DAG's timetable is one partition."""
    run, timetable = context["dag_run"], _cron_partitions(context)
    if timetable is None or run.partition_date is None:
        return None
    key = str(run.partition_key)
    # The date of a run by hand is read from its key, so it may lack the hour that the timetable's own runs have.
    if _tells_all(key, _key_format(timetable)) and _is_of_one_tick(key, run.partition_date, timetable):
        return f"partition:{key}"
    return f"partition:{key} {run.partition_date.astimezone(UTC).isoformat()}"


def _former_name(context: Context) -> str | None:
    """Return the name that the run had before other ticks with its key were looked for; ``None`` if it has it still."""
    timetable = _cron_partitions(context)
    if timetable is None:
        return None
    key = str(context["dag_run"].partition_key)
    if not _tells_all(key, _key_format(timetable)):
        return None
    name = f"partition:{key}"
    return name if name != _cron_partition(context) else None


def _may_be_former(context: Context) -> bool:
    """Say whether a task may have begun before it kept the name of its run; one that keeps no start keeps no name."""
    store = context.get("task_state_store")
    if store is None:
        return False  # Releases that gave the former name need Airflow 3.3.
    known = store.get(_DEED)
    return not isinstance(known, Mapping) or _RUN not in known


def _cron_partitions(context: Context) -> Any:
    """Return the timetable of a run that is for a partition of a ``CronPartitionTimetable``, else ``None``."""
    dag, run = context["task"].get_dag(), context["dag_run"]
    timetable = getattr(dag, "timetable", None)
    # Compare names, because Airflow's core and its SDK each have a class of this name.
    of_cron = any(kind.__name__ == "CronPartitionTimetable" for kind in type(timetable).__mro__)
    if not of_cron or getattr(run, "partition_key", None) is None:
        return None
    if not hasattr(run, "partition_date"):
        # By another name, Airflow 3.3 would not know the run's load again.
        check_has(
            f"The name of a load in the partition {run.partition_key!r} of a CronPartitionTimetable",
            "Take a CronDataIntervalTimetable. Nothing was touched.",
        )
    return timetable if run.partition_date is not None else None


def _key_format(timetable: Any) -> str:
    return str(getattr(timetable, "key_format", None) or getattr(timetable, "_key_format", ""))


def _tells_all(key: str, key_format: str) -> bool:
    """Say whether a key can be read back as a date: the key has a year, and the date gives the same key again."""
    try:
        date = datetime.strptime(key, key_format)  # noqa: DTZ007 - compared with its own text only
    except ValueError:
        return False
    return re.search("%[Yy]", key_format) is not None and date.strftime(key_format) == key


_FINER = ("Yy", "mbBj", "dj", "HI", "M", "S")
"""What a key format says of a date, from the year to the second."""


def _is_of_one_tick(key: str, date: datetime, timetable: Any) -> bool:
    """Say whether no two ticks of a timetable have a run's key.

    :param key: that can be read back as a date.
    :param date: of the run's partition.
    """
    key_format = _key_format(timetable)
    said = set(re.findall("%-?(.)", key_format))
    there = [bool(said.intersection(finer)) for finer in _FINER]
    if there != sorted(there, reverse=True) or ("I" in said and "p" not in said):
        # Ticks with one key may lie far from each other, such as 3:00 and 15:00, or the fifth days of two months.
        return False
    import pendulum
    from airflow.timetables.trigger import CronPartitionTimetable

    if isinstance(timetable, CronPartitionTimetable):
        core = timetable
    else:
        core = CronPartitionTimetable(timetable.expression, timezone=timetable.timezone, key_format=key_format)
    at = pendulum.instance(date.astimezone(UTC))
    after = core._align_to_next(at)
    ticks = {core._get_prev(at), after, core._get_next(after)}
    read = datetime.strptime(key, key_format)  # noqa: DTZ007 - the timetable's zone follows
    if read.tzinfo is None:
        # Where clocks go back, a time of day comes twice.
        for fold in (0, 1):
            instant = pendulum.instance(read.replace(tzinfo=core._timezone, fold=fold).astimezone(UTC))
            ticks.add(core._align_to_next(instant))
    return sum(core._format_key(tick) == key for tick in ticks) <= 1


def clears_of(context: Context) -> int:
    """Return how many clears the run has had."""
    return context["dag_run"].clear_number or 0


def life_of(context: Context) -> dict[str, Any]:
    """Return what tells a run from one of the same id that was deleted, and from itself before it was cleared."""
    began = context["dag_run"].start_date
    return {"began": began.isoformat() if began is not None else None, "clears": clears_of(context)}


def start_of(context: Context, state: NoteStore) -> Start:
    """Return the start that a try belongs to: the task's first start or last clear (protocol: generation).

    The task instance keeps the start. The field ``max_tries`` tells a clear from a retry: a clear sets it to the tries
    so far plus the DAG's ``retries``, and a retry does not change it, even if ``retries`` has changed. A run that is
    deleted and made again keeps nothing, so its tasks begin new starts.

    :param context: the context of the running task.
    :param state: what the task instance keeps over its tries.
    :returns: the start, the same for every retry, and for a try that comes back from the triggerer.
    :raises TransientError: the run is one of several of its partition, and it is not known when the run began.
    """
    from airflow_provider_onelake.buffers.claims import Start

    ti, run = context["ti"], context["dag_run"]
    retries, life = context["task"].retries or 0, life_of(context)
    clears = life["clears"]
    known = state.get(_DEED)
    known = known if isinstance(known, Mapping) else {}
    if known and not _cleared(known, ti, retries, clears):
        task_start = Start.from_json(known["deed"])
        assert task_start is not None
    else:
        if run.start_date is None and shares_its_name(context):
            # The runs of one partition are ordered by the times at which they began.
            raise TransientError(
                f"The run {ti.run_id} has no start, as it was queued again just now: nothing was touched; a retry goes "
                "on."
            )
        task_start = Start(
            id=str(ti.id),
            dag=ti.dag_id,
            task=_label(ti),
            run_id=ti.run_id,
            chain=str(known.get("chain") or ti.id),
            first_try=ti.try_number,
            began=round(run.start_date.timestamp() * 1000) if run.start_date is not None else None,
            life=f"{life['began'] or ''} {life['clears']}",
        )
    now: dict[str, Any] = {
        "deed": attrs.asdict(task_start),
        "chain": task_start.chain,
        "max_tries": ti.max_tries,
        "try_number": ti.try_number,
        "clears": clears,
    }
    if not known or _RUN in known:
        now[_RUN] = run_name(context)
    if now != known:
        state.set(_DEED, now)
    return task_start


def _cleared(known: Mapping[str, Any], ti: Any, retries: int, clears: int) -> bool:
    """Say whether a task was cleared since its last try that we saw."""
    if known["max_tries"] != ti.max_tries:
        return True
    # If `retries` was lowered before the clear, `max_tries` may be the same number as before. But the run counts its
    # clears, and by `max_tries` the first try after the clear came after the last try that we saw.
    before = ti.max_tries - retries
    return clears > int(known["clears"]) and int(known["try_number"]) <= before < ti.try_number


def _label(ti: Any) -> str:
    return str(ti.task_id) if ti.map_index is None or ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"


def write_group(task: BaseOperator | MappedOperator) -> str:
    """Name the write group of a task.

    :param task: a writer, or a reconciliation of writers.
    :returns: the id of the closest ``OneLakeWriteTaskGroup``, else of the closest task group, else of the task.
    """
    group = closest_write_group(task)
    if group is None:
        group = task.task_group
    return str(task.task_id if group is None or group.is_root else group.group_id)


def load_name(task: BaseOperator | MappedOperator) -> str | None:
    """Return what stands in place of the DAG's id in the identity of a task's load; ``None`` where the id itself does.

    :param task: a writer, or a task of its write group.
    """
    name: str | None = getattr(closest_write_group(task), "load_name", None)
    return name


def closest_write_group(task: BaseOperator | MappedOperator) -> Any:
    """Return the closest ``OneLakeWriteTaskGroup`` around a task, or ``None``.

    :param task: any task.
    """
    group = task.task_group
    while group is not None and not hasattr(group, "write_defaults"):
        group = group.parent_group
    return group
