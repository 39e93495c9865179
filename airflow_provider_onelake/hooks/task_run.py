"""Translate what Airflow knows about a running task into the core's words: the load, the attempt, the deed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import attrs

from airflow_provider_onelake.exceptions import TransientError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator, Context
    from airflow.sdk.definitions.mappedoperator import MappedOperator

    from airflow_provider_onelake.staging.claims import Deed
    from airflow_provider_onelake.staging.identity import Load

_DEED = "onelake_deed"
"""The key of the deed in the task's state store, which survives retries and clears until the run is deleted."""


@attrs.frozen
class TaskRun:
    """One try of one task instance.

    :param dag: the DAG's id.
    :param group: the write group that the task belongs to: its task group's id, or the task's own.
    :param run: what names the run, the same for every rerun of it: see :func:`run_name` (protocol: writer identity).
    :param run_id: Airflow's id of the run.
    :param attempt: Airflow's id of the try, new for every one (protocol: attempt id).
    :param label: what people call the task: ``load.write[3]``.
    :param map_index: of a mapped task, else -1.
    """

    dag: str
    group: str
    run: str
    run_id: str
    attempt: str
    label: str
    map_index: int

    @classmethod
    def of(cls, context: Context) -> TaskRun:
        """Read them from a task's context.

        :param context: of the running task.
        :returns: this try.
        """
        ti, task = context["ti"], context["task"]
        return cls(
            dag=ti.dag_id,
            group=write_group(task),
            run=run_name(context),
            run_id=ti.run_id,
            attempt=str(ti.id),
            label=_label(ti),
            map_index=ti.map_index if ti.map_index is not None else -1,
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
    # Compare names, because Airflow's core and its SDK each have a class of this name.
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
    """Return whether a key stands for one date only: it has a year, and can be read back into the same key."""
    try:
        date = datetime.strptime(key, key_format)  # noqa: DTZ007 - compared with its own text only
    except ValueError:
        return False
    return re.search("%[Yy]", key_format) is not None and date.strftime(key_format) == key


def deed_of(context: Context) -> Deed:
    """Return the deed that a try belongs to: the task's first start or last clear (protocol: generation).

    The task instance keeps it. A clear is told from a retry by ``max_tries``: a clear sets it to the tries so far plus
    the DAG's ``retries``, and a retry leaves it alone, whatever ``retries`` is by then. A run that is deleted and made
    again keeps nothing, so its tasks begin anew.

    :param context: of the running task.
    :returns: the same for every retry, and for a try that comes back from the triggerer.
    :raises TransientError: the run is one of several of its partition, and nobody knows when it began.
    """
    from airflow_provider_onelake.staging.claims import Deed

    ti, run, kept = context["ti"], context["dag_run"], context["task_state_store"]
    retries, clears = context["task"].retries or 0, run.clear_number or 0
    known = kept.get(_DEED)
    known = known if isinstance(known, Mapping) else {}
    if known and not _cleared(known, ti, retries, clears):
        deed = Deed.from_json(known["deed"])
        assert deed is not None
    else:
        if run.start_date is None and shares_its_name(context):
            # The runs of one partition are ordered by the times at which they began.
            raise TransientError(
                f"The run {ti.run_id} has no start, as it was queued again just now: nothing was touched; a retry goes "
                "on."
            )
        deed = Deed(
            id=str(ti.id),
            task=_label(ti),
            run_id=ti.run_id,
            chain=str(known.get("chain") or ti.id),
            first_try=ti.try_number,
            began=round(run.start_date.timestamp() * 1000) if run.start_date is not None else None,
        )
    now: dict[str, Any] = {
        "deed": attrs.asdict(deed),
        "chain": deed.chain,
        "max_tries": ti.max_tries,
        "try_number": ti.try_number,
        "clears": clears,
    }
    if now != known:
        kept.set(_DEED, now)
    return deed


def _cleared(known: Mapping[str, Any], ti: Any, retries: int, clears: int) -> bool:
    """Say whether a task was cleared since it was last seen."""
    if known["max_tries"] != ti.max_tries:
        return True
    # A clear after `retries` was lowered may arrive at the same number. Then, by that number, a try since the last one
    # that was seen was the first after a clear; and the run counts its clears.
    before = ti.max_tries - retries
    return clears > int(known["clears"]) and int(known["try_number"]) <= before < ti.try_number


def _label(ti: Any) -> str:
    return str(ti.task_id) if ti.map_index is None or ti.map_index < 0 else f"{ti.task_id}[{ti.map_index}]"


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
