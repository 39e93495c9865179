"""What Airflow knows about a running task, in the core's words: the load, the attempt, the generation."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING
from urllib.parse import quote

import attrs

if TYPE_CHECKING:
    from datetime import datetime

    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from airflow_provider_onelake.staging.identity import Load


@attrs.frozen
class TaskRun:
    """One try of one task instance.

    :param dag: the DAG's id.
    :param group: the write group that the task belongs to: its task group's id, or the task's own.
    :param run: what names the run, the same for every rerun of it: see :func:`run_name` (protocol, rule 8).
    :param attempt: Airflow's id of the try, new for every one (protocol, rule 6).
    :param generation: rises with a clear, and with a later run of the same partition, not with a retry (protocol,
        rule 9).
    :param label: what people call the task: ``load.write[3]``.
    :param map_index: of a mapped task, else -1.
    """

    dag: str
    group: str
    run: str
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
        """Name the task in its run, the same for all tries.

        :param namespace: of the deployment, from the connection.
        """
        return "/".join(quote(part, safe=":+[]") for part in (namespace, self.dag, self.label, self.run))


def run_name(context: Context) -> str:
    """Name the run, the same for every retry, clear and rerun of it.

    A logical date is unique in a DAG. So is a cron partition's date, though not among its runs: a backfill that
    reprocesses a partition makes another run of it. A partition key is no name: keys such as "us" come again with every
    run.

    :param context: of the running task.
    :returns: the partition's date, where the DAG's timetable makes its partitions, or the logical date, both in UTC, or
        the run's id where the run has neither.
    """
    date = _cron_partition(context) or context["dag_run"].logical_date
    return date.astimezone(UTC).isoformat() if date is not None else context["ti"].run_id


def _cron_partition(context: Context) -> datetime | None:
    """Return the date of the run's partition, if every tick of the DAG's timetable is one partition."""
    from airflow.sdk import CronPartitionTimetable

    dag = context["task"].get_dag()
    if dag is None or not isinstance(dag.timetable, CronPartitionTimetable):
        return None
    return context["dag_run"].partition_date


def _generation(context: Context) -> int:
    ti, task = context["ti"], context["task"]
    # A clear sets max_tries to the tries so far plus the task's retries; a retry leaves it alone.
    cleared = max(1, ti.max_tries - (task.retries or 0) + 1)
    if _cron_partition(context) is None:
        return cleared
    # The runs of a partition are told apart by when they began, by the scheduler's clock. A clear of a run that has
    # ended begins it anew.
    run = context["dag_run"]
    return round((run.start_date or run.run_after).timestamp() * 1000) * 1000 + cleared


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
