"""Translates what Airflow knows of a running task into the core's words: the load, the attempt, the deed."""

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

    from airflow_provider_onelake.commit.earlier import Asker
    from airflow_provider_onelake.staging.claims import Deed
    from airflow_provider_onelake.staging.identity import Load

_DEED = "onelake_deed"
"""The key of the deed in the task's state store, which survives retries and clears until the run is deleted."""


@attrs.frozen
class TaskRun:
    """One try of one task instance.

    :param dag: the DAG's id.
    :param group: the write group that the task belongs to: the id of its task group, or the task's own id.
    :param run: the name of the run, the same for every rerun of it; see :func:`run_name` (protocol: writer identity).
    :param run_id: Airflow's id of the run.
    :param attempt: Airflow's id of the try. Every try has a new one (protocol: attempt id).
    :param label: what people call the task, such as ``load.write[3]``.
    :param map_index: the map index of a mapped task; -1 for other tasks.
    :param number: of the try, counted from 1 over all starts of the task instance.
    """

    dag: str
    group: str
    run: str
    run_id: str
    attempt: str
    label: str
    map_index: int
    number: int = 1

    @classmethod
    def of(cls, context: Context) -> TaskRun:
        """Read the try from a task's context.

        :param context: the context of the running task.
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
            number=ti.try_number,
        )

    def load(self, namespace: str) -> Load:
        """Return the load that the task belongs to.

        :param namespace: the deployment's name, from the connection.
        """
        from airflow_provider_onelake.staging.identity import Load

        return Load(namespace=namespace, dag=self.dag, group=self.group, run=self.run)

    def fence(self, namespace: str) -> str:
        """Return the ``txn`` application id by which a newer start of the task keeps older ones from changing a table.

        :param namespace: the deployment's name, from the connection.
        """
        return f"onelake-task/{self.owner(namespace)}"

    def asker(self, operation: str, asked: str, deed: Deed, namespace: str, message: str | None) -> Asker:
        """Return whose a statement without a buffer is: a DELETE of whole partitions, an ALTER or a RESTORE.

        Its ids do not begin as those of writers do, whose rows a load counts. They end with what is asked, because a
        corrected task is another statement.

        :param operation: such as ``delete``.
        :param asked: names what is asked, in a path.
        :param deed: the task's first start or last clear; all tries of it are one statement.
        :param namespace: the deployment's name, from the connection.
        :param message: of the task's author, for people who read the table's history.
        """
        from airflow_provider_onelake.commit.earlier import Asker
        from airflow_provider_onelake.commit.words import task_in_words

        owner = f"onelake-{operation}/{self.owner(namespace)}"
        return Asker(
            task_id=f"{owner}/{asked}",
            id=f"{owner}/{quote(deed.id, safe='')}/{asked}",
            fence=self.fence(namespace),
            deed=deed,
            try_number=self.number,
            by=task_in_words(self.dag, self.label, self.run_id, namespace),
            message=message,
        )

    def owner(self, namespace: str) -> str:
        """Name the task in its run.

        All tries have the same name. The same task in another run of the partition has another one.

        :param namespace: the deployment's name, from the connection.
        """
        return "/".join(quote(part, safe=":+[]") for part in (namespace, self.dag, self.label, self.run_id))


def run_name(context: Context) -> str:
    """Name the run. Every retry, clear and rerun of it has the same name.

    A logical date is unique in a DAG. A partition that a cron timetable makes is unique too, but several runs may be of
    one partition: a backfill that reprocesses the partition makes another run, and so may a person. Other partition
    keys are no names, because a key such as "us" comes again with every run.

    :param context: the context of the running task.
    :returns: the partition, such as ``partition:2019-01``, if the DAG's timetable makes the partitions; else the
        logical date in UTC, or the run's id if the run has no logical date.
    """
    partition = _cron_partition(context)
    if partition is not None:
        return partition
    date = context["dag_run"].logical_date
    return date.astimezone(UTC).isoformat() if date is not None else context["ti"].run_id


def shares_its_name(context: Context) -> bool:
    """Say whether other runs may have this run's name, because they are of the same partition of a cron timetable.

    :param context: the context of the running task.
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
    """Say whether a key stands for one date only: the key has a year, and the date gives the same key again."""
    try:
        date = datetime.strptime(key, key_format)  # noqa: DTZ007 - compared with its own text only
    except ValueError:
        return False
    return re.search("%[Yy]", key_format) is not None and date.strftime(key_format) == key


def deed_of(context: Context) -> Deed:
    """Return the deed that a try belongs to: the task's first start or last clear (protocol: generation).

    The task instance keeps the deed. The field ``max_tries`` tells a clear from a retry: a clear sets it to the tries
    so far plus the DAG's ``retries``, and a retry does not change it, even if ``retries`` has changed. A run that is
    deleted and made again keeps nothing, so its tasks begin new deeds.

    :param context: the context of the running task.
    :returns: the deed, the same for every retry, and for a try that comes back from the triggerer.
    :raises TransientError: the run is one of several of its partition, and it is not known when the run began.
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


def closest_write_group(task: BaseOperator | MappedOperator) -> Any:
    """Return the closest ``OneLakeWriteTaskGroup`` around a task, or ``None``.

    :param task: any task.
    """
    group = task.task_group
    while group is not None and not hasattr(group, "write_defaults"):
        group = group.parent_group
    return group
