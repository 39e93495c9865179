"""What Airflow knows about a running task, in the core's words: the load, the attempt, the generation."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import TransientError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from airflow_provider_onelake.staging.identity import Load

_GENERATION = "onelake_generation"


@attrs.frozen
class TaskRun:
    """One try of one task instance.

    :param dag: the DAG's id.
    :param group: the write group that the task belongs to: its task group's id, or the task's own.
    :param run: what names the run, the same for every rerun of it: see :func:`run_name` (protocol, rule 8).
    :param run_id: Airflow's id of the run.
    :param attempt: Airflow's id of the try, new for every one (protocol, rule 6).
    :param generation: rises with a clear, and with a later run of the same partition, not with a retry (protocol,
        rule 9).
    :param label: what people call the task: ``load.write[3]``.
    :param map_index: of a mapped task, else -1.
    """

    dag: str
    group: str
    run: str
    run_id: str
    attempt: str
    generation: int
    label: str
    map_index: int

    @classmethod
    def of(cls, context: Context) -> TaskRun:
        """Read them from a task's context.

        :param context: of the running task.
        :returns: this try.
        """
        ti, task = context["ti"], context["task"]
        map_index = ti.map_index if ti.map_index is not None else -1
        return cls(
            dag=ti.dag_id,
            group=write_group(task),
            run=run_name(context),
            run_id=ti.run_id,
            attempt=str(ti.id),
            generation=_generation(context),
            label=ti.task_id if map_index < 0 else f"{ti.task_id}[{map_index}]",
            map_index=map_index,
        )

    def load(self, namespace: str) -> Load:
        """Return the load that the task belongs to.

        :param namespace: of the deployment, from the connection.
        """
        from airflow_provider_onelake.staging.identity import Load

        return Load(namespace=namespace, dag=self.dag, group=self.group, run=self.run)

    def owner(self, namespace: str) -> str:
        """Name the task in its run, the same for all tries, and another one for another run of the same partition.

        :param namespace: of the deployment, from the connection.
        """
        return "/".join(quote(part, safe=":+[]") for part in (namespace, self.dag, self.label, self.run_id))


def run_name(context: Context) -> str:
    """Name the run, the same for every retry, clear and rerun of it.

    A logical date is unique in a DAG. So is a partition that a cron timetable makes, though not among its runs: a
    backfill that reprocesses it makes another run of it, and so does a person. Other partition keys are no name: keys
    such as "us" come again with every run.

    :param context: of the running task.
    :returns: the partition, where the DAG's timetable makes its partitions, such as ``partition:2019-01``; else the
        logical date in UTC, or the run's id where the run has none.
    """
    partition = _cron_partition(context)
    if partition is not None:
        return partition
    date = context["dag_run"].logical_date
    return date.astimezone(UTC).isoformat() if date is not None else context["ti"].run_id


def shares_its_name(context: Context) -> bool:
    """Say whether other runs have this run's name: of the same partition of a cron timetable.

    :param context: of the running task.
    """
    return _cron_partition(context) is not None


def _cron_partition(context: Context) -> str | None:
    """Name the run's partition, if every tick of the DAG's timetable is one partition."""
    dag, run = context["task"].get_dag(), context["dag_run"]
    timetable = getattr(dag, "timetable", None)
    # A DAG may be given Airflow's own class for the one of the same name in its SDK.
    if not any(kind.__name__ == "CronPartitionTimetable" for kind in type(timetable).__mro__):
        return None
    if run.partition_date is None or run.partition_key is None:
        return None
    key = str(run.partition_key)
    key_format = getattr(timetable, "key_format", None) or getattr(timetable, "_key_format", "")
    # The date of a run by hand is read from its key, so it may lack the hour that the timetable's own runs have.
    if _tells_all(key, str(key_format)):
        return f"partition:{key}"
    return f"partition:{key} {run.partition_date.astimezone(UTC).isoformat()}"


def _tells_all(key: str, key_format: str) -> bool:
    """Whether a key is one date's only: neither of every year, nor of a week that cannot be read back."""
    try:
        date = datetime.strptime(key, key_format)  # noqa: DTZ007 - compared with its own text only
    except ValueError:
        return False
    return re.search("%[Yy]", key_format) is not None and date.strftime(key_format) == key


def _generation(context: Context) -> int:
    ti, task = context["ti"], context["task"]
    # A clear sets max_tries to the tries so far plus the task's retries; a retry leaves it alone.
    cleared = max(1, ti.max_tries - (task.retries or 0) + 1)
    if not shares_its_name(context):
        return cleared
    # Kept, as a run that somebody queues again gets another start while its tasks live.
    kept = context["task_state_store"]
    known = str(kept.get(_GENERATION) or "").split("/")
    if known[0] == str(cleared):
        return int(known[1])
    began = context["dag_run"].start_date
    if began is None:
        raise TransientError(
            f"The run {ti.run_id} has no start, as it was queued again just now: nothing was touched; a retry goes on."
        )
    # The runs of a partition are told apart by when they began, by the scheduler's clock. A clear of a run that has
    # ended begins it anew.
    generation = round(began.timestamp() * 1000) * 1000 + cleared
    kept.set(_GENERATION, f"{cleared}/{generation}")
    return generation


def write_group(task: BaseOperator | MappedOperator) -> str:
    """Name the write group of a task.

    :param task: a writer, or what settles writers.
    :returns: the id of the closest ``OneLakeWriteTaskGroup``, else of the closest task group, else of the task.
    """
    closest = group = task.task_group
    while group is not None and not group.is_root:
        if hasattr(group, "write_defaults"):
            return str(group.group_id)
        group = group.parent_group
    return str(closest.group_id) if closest is not None and not closest.is_root else str(task.task_id)
