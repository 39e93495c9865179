"""The writers of a load as Airflow knows them: their keys, their tasks, and the reconciliation that settles them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import TaskInstanceState, XComArg
from jinja2 import UndefinedError

from airflow_provider_onelake.choices import Policy, PublishMode, chosen
from airflow_provider_onelake.exceptions import InvalidWriteError, RerunRefusedError
from airflow_provider_onelake.hooks.context import clears_of, write_group
from airflow_provider_onelake.operators._parameters import check_key
from airflow_provider_onelake.operators._roles import Reconciler, is_a, is_writer
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.buffers.spec import WriteSpec
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

WRITER_XCOM = "writer"
"""The XCom in which every writer names itself before it asks the store or Spark for anything."""

# In this XCom, which is Airflow's, a branch names the tasks that it chose, or those that it skipped.
_BRANCH_XCOM = "skipmixin_key"

OUR_LABEL = (
    "{{ writer | default(task.writer or '', true) }}{{ ' · ' ~ writer_outcome if writer_outcome is defined else '' }}"
)
"""The ``map_index_template`` of a writer whose author gives none. It shows the key, and once the task has ended what
became of the rows; no key is made from it."""

_GONE = (TaskInstanceState.REMOVED,)
_NOT_EXPECTED = (TaskInstanceState.SKIPPED, *_GONE)
# The states of tasks that have not begun since they were cleared. The key that such a task named may be out of date.
_NOT_BEGUN = (None, TaskInstanceState.SCHEDULED, TaskInstanceState.QUEUED)
_WITHOUT_A_KEY = (*_NOT_BEGUN, *_NOT_EXPECTED, TaskInstanceState.UPSTREAM_FAILED)


# The looks together last as long as Airflow allows for parsing a DAG's file.
_LOOKS, _SECONDS_BETWEEN = 16, 2.0


@attrs.frozen
class WritersOfRun:
    """The writers of a load, according to their XComs and to the states of their tasks.

    :param named: keys of the writers that have named themselves.
    :param skipped: keys of the named writers that were skipped, because their rows were in the table already.
    :param unnamed: labels and states of tasks that did not get as far as naming their writer, that got no claim, or
        that failed because another writer has the same key; and keys of named writers whose rerun was refused.
    :param task_starts: the start of each named writer, by key. Its claim records the same id.
    :param labels: the label and the state of each named writer's task, by key.
    :param ended: by key, the name of the error that ended a writer's task; empty for a task that was killed.
    """

    named: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    task_starts: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    labels: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    ended: Mapping[str, str] = attrs.field(factory=dict, eq=False)

    def without(self, keys: Iterable[str]) -> WritersOfRun:
        """Return a roll in which some writers count as unnamed, because they failed before they began.

        :param keys: keys of these writers.
        """
        gone = frozenset(keys)
        return attrs.evolve(
            self,
            named=tuple(key for key in self.named if key not in gone),
            skipped=tuple(key for key in self.skipped if key not in gone),
            unnamed=(*self.unnamed, *(self.labels[key] for key in self.named if key in gone)),
        )


@attrs.frozen
class Names:
    """The keys that the DAG's tasks give to the writers of a load.

    :param keys: the known keys.
    :param complete: whether every key of the load is known.
    :param groups: the write groups of all writers in the DAG.
    """

    keys: frozenset[str]
    complete: bool
    groups: frozenset[str]


def reconciler_of(task: Any) -> Any:
    """Return the reconciliation that stands behind a writer, mapped or not; ``None`` where there is none.

    :param task: a writer. Its DAG must be complete.
    """
    dag = task.get_dag()
    if dag is None or not dag.has_task(task.task_id):
        return None
    behind = dag.get_task(task.task_id).downstream_task_ids
    for other in dag.tasks:
        if is_a(other, Reconciler):
            ids = getattr(other, "partial_kwargs", {}).get("write_task_ids", getattr(other, "write_task_ids", None))
            if task.task_id in ids if ids is not None else other.task_id in behind:
                return other
    return None


def key_of(task: Any, context: Context, map_index: int) -> str:
    """Return the key of a writer without ``writer``: it is made of the task's id, or of a mapped task's label.

    :raises InvalidWriteError: the task is mapped, and its author's ``map_index_template`` gives no key.
    """
    if map_index < 0:
        return default_key(task)
    template = task.map_index_template
    if _makes_labels(template):
        with suppress(UndefinedError):
            # Airflow renders the template in the same way for the grid.
            if label := str(task.get_template_env().from_string(template).render(context)).strip():
                return label
    raise _no_key(task)


def default_key(task: Any) -> str:
    """Return the id of a writer's task without the group's prefix."""
    return str(task.task_id).removeprefix(f"{write_group(task)}.")


def check_mapped_key(task: Any) -> None:
    """Refuse a mapped writer whose tasks would have no keys, as far as that is known when the DAG is parsed.

    :raises InvalidWriteError: neither ``writer`` nor ``map_index_template`` is given, or a key is no text.
    """
    given = getattr(task, "partial_kwargs", None)
    if given is None:
        return
    keys = _mapped(task, "writer")
    for key in (given.get("writer"), *(keys or ())):
        check_key(key)
    if given.get("writer") or _makes_labels(given.get("map_index_template")):
        return
    if keys is not None and not all(keys):
        raise _no_key(task)


def _no_key(task: Any) -> InvalidWriteError:
    """Return the error that tells an author what a mapped writer without a key needs."""
    return InvalidWriteError(
        f"{task.task_id} is mapped and has no `writer`: each of its tasks needs a key of its own, by which a clear "
        "knows what it wrote. A map index is no such key, as it shifts when the list changes. Expand over `writer`, or "
        "give a `map_index_template` that says what each task is. Nothing was staged."
    )


def _makes_labels(template: object) -> bool:
    return bool(template) and template != OUR_LABEL


def names_of(context: Context, group: str, own: Mapping[str, str] | None = None) -> Names:
    """Find out which keys the tasks of a load have, from the DAG and from what the writers have named.

    :param own: the running task's label with its key, where that task is a writer.
    """
    dag = context["task"].get_dag()
    writers = [task for task in dag.tasks if is_writer(task)] if dag is not None else []
    groups = frozenset(write_group(task) for task in writers)
    writers = [task for task in writers if write_group(task) == group]
    in_dag = {str(task.task_id): _keys_in_dag(task, context) for task in writers}
    keys = {key for found in in_dag.values() for key in found or ()}
    unknown = [task_id for task_id, found in in_dag.items() if found is None]
    complete = bool(writers)
    if unknown:
        said = {label: entry["writer"] for label, entry in _writer_entries(context, unknown).items()} | dict(own or {})
        live = {label: state for label, state in states_of(context, unknown).items() if state not in _GONE}
        keys.update(said[label] for label in live if label in said)
        complete = all(label in said and state not in _NOT_BEGUN for label, state in live.items())
    return Names(frozenset(keys), complete, groups)


def _keys_in_dag(task: Any, context: Context) -> list[str] | None:
    """Return the keys of a writer's tasks that the DAG gives, or ``None`` where they are known only at run time."""
    mapped = getattr(task, "partial_kwargs", None)
    if mapped is None:
        if not is_final(task.writer):
            return None
        return [task.writer or default_key(task)]
    keys = _mapped(task, "writer", context if task.task_id == context["task"].task_id else None)
    return keys if keys and all(isinstance(key, str) and key and is_final(key) for key in keys) else None


def _mapped(task: Any, name: str, context: Context | None = None) -> list[Any] | None:
    """Return the values of one parameter in a mapped task's list, or ``None`` where they are not known.

    :param context: of one of its tasks. It is needed to read a list that another task made.
    """
    if hasattr(task, "op_kwargs_expand_input"):
        return [None]  # A decorated function is mapped over its own arguments, not over the operator's.
    value = task.expand_input.value
    if isinstance(value, XComArg):
        value = value.resolve(context) if context is not None else None
    if isinstance(value, Mapping):
        items = value.get(name, [None])
        if isinstance(items, XComArg):
            items = items.resolve(context) if context is not None else None
        return list(items) if isinstance(items, Sequence) else None
    if not isinstance(value, Sequence) or not all(isinstance(item, Mapping) for item in value):
        return None
    return [item.get(name) for item in value]


def rivals(context: Context, wait: Callable[[float], None] = time.sleep) -> Callable[[Start], bool]:
    """Return a function that says whether the task of another start in this run still has the writer's key.

    The other task has lost the key if the list that it is mapped over has changed, and it was cleared since.

    :param wait: sleeps for some seconds before another look.
    """
    return partial(_is_rival, context, wait)


def _is_rival(context: Context, wait: Callable[[float], None], task_start: Start) -> bool:
    task_id, dag = task_start.task.partition("[")[0], context["task"].get_dag()
    if dag is not None and not dag.has_task(task_id):
        return False
    found = _still_has_key(context, task_id, task_start)
    for _ in range(1, _LOOKS):
        if found is not None:
            break
        # The other task's new try may still be parsing the DAG. Airflow removes the XCom of the try before only after
        # that, so look again.
        wait(_SECONDS_BETWEEN)
        found = _still_has_key(context, task_id, task_start)
    return found is not False


def _still_has_key(context: Context, task_id: str, task_start: Start) -> bool | None:
    """Say whether the task of a start has its writer's key; ``None`` if it runs, and has not named a key yet."""
    entries = _writer_entries(context, [task_id])
    state, said = _states(context, [task_id], entries).get(task_start.task), entries.get(task_start.task)
    if state in _WITHOUT_A_KEY or said is None or said["deed"] != task_start.id:
        return False
    if said["clears"] >= clears_of(context) or state == TaskInstanceState.SUCCESS:
        return True
    # The task named this key before the run's last clear. If it is not running to name it again, and runs later with
    # the same key, it finds our claim and is refused.
    return None if state == TaskInstanceState.RUNNING else False


def take_roll(context: Context, task_ids: Sequence[str]) -> WritersOfRun:
    """Find out which writers were to write, from their XComs and from the states of their tasks."""
    entries = _writer_entries(context, task_ids)
    said = {label: entry["writer"] for label, entry in entries.items()}
    results = pulled(context["ti"], task_ids)
    # A retry is also skipped where an earlier try's rows were left out.
    there = [result for result in results if result.get("status") == "skipped" and not result.get("left_out")]
    skipped = {result["writer"] for result in there}
    unnamed: list[str] = []
    labels: dict[str, str] = {}
    task_starts: dict[str, str] = {}
    ended: dict[str, str] = {}
    taken = Counter(said.values())
    for label, state in _states(context, task_ids, entries).items():
        if state in _NOT_EXPECTED:
            said.pop(label, None)
        elif label not in said:
            unnamed.append(f"{label} ({state})")
        elif taken[said[label]] > 1 and state == TaskInstanceState.FAILED:
            # Another writer has the same key, so the rows published under that key are not this task's.
            unnamed.append(f"{label} ({state}: its key {said[label]!r} is another writer's)")
        else:
            labels[said[label]] = f"{label} ({state})"
            task_starts[said[label]] = entries[label]["deed"]
            if state == TaskInstanceState.FAILED:
                ended[said[label]] = entries[label].get("error") or ""
            if ended.get(said[label]) == RerunRefusedError.__name__:
                unnamed.append(said[label])
    named = dict.fromkeys(said.values())
    return WritersOfRun(
        tuple(named), tuple(key for key in named if key in skipped), tuple(unnamed), task_starts, labels, ended
    )


def _states(context: Context, task_ids: Sequence[str], said: Mapping[str, Mapping[str, Any]]) -> dict[str, str | None]:
    """Return the states of writers by their labels. One that skipped itself, after its commit, counts as succeeded.

    :param said: the XComs in which the writers named themselves.
    """
    states = states_of(context, task_ids)
    for label, state in states.items():
        itself = state == TaskInstanceState.SKIPPED and said.get(label, {}).get("left_out")
        if itself and not _skipped_by_branch(context, label.partition("[")[0]):
            states[label] = TaskInstanceState.SUCCESS
    return states


def _skipped_by_branch(context: Context, task_id: str) -> bool:
    """Say whether a branch skipped a writer. Its XCom may still be there, of a try before it was cleared."""
    dag = context["task"].get_dag()
    assert dag is not None
    before = dag.get_task(task_id).upstream_task_ids
    return any(
        task_id in choice.get("skipped", ()) or task_id not in choice.get("followed", (task_id,))
        for choice in pulled(context["ti"], sorted(before), _BRANCH_XCOM)
    )


def _writer_entries(context: Context, task_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the XCom in which each writer named itself, by the label of its task."""
    return {entry["task"]: entry for entry in pulled(context["ti"], task_ids, WRITER_XCOM)}


def pulled(ti: Any, task_ids: Sequence[str], key: str = "return_value") -> list[dict[str, Any]]:
    """Return the dicts that tasks of this run have left in XCom.

    :param key: of the XCom. Default: the tasks' results.
    """
    # For a list of tasks, Airflow returns one flat list over all map indexes, with None for a task without a value.
    return [value for value in ti.xcom_pull(task_ids=list(task_ids), key=key) or [] if isinstance(value, dict)]


def states_of(context: Context, task_ids: Sequence[str]) -> dict[str, str | None]:
    """Return the states of tasks by their labels. Airflow returns ``task_3`` for the label ``task[3]``."""
    ti: Any = context["ti"]
    states = ti.get_task_states(dag_id=ti.dag_id, task_ids=list(task_ids), run_ids=[ti.run_id]).get(ti.run_id, {})
    labels: dict[str, str | None] = {}
    for name, state in states.items():
        task_id, _, index = name.rpartition("_")
        if name not in task_ids and task_id in task_ids and index.isdigit():
            labels[f"{task_id}[{index}]"] = state
        else:
            labels[name] = state
    return labels


def check_published(writer: Any) -> None:
    """Refuse ``publish="together"`` without a reconciliation, and one that has another policy."""
    behind = reconciler_of(writer)
    if chosen("publish", writer.publish, PublishMode) == PublishMode.TOGETHER and behind is None:
        raise InvalidWriteError(
            f"{writer.task_id}: publish='together' leaves the rows to a reconciliation, and there is none behind "
            "this writer, so nobody would publish them. Put it into a OneLakeWriteTaskGroup, or leave "
            "publish='each'. Nothing was staged."
        )
    given = getattr(behind, "partial_kwargs", vars(behind) if behind is not None else {})
    asked = (writer.on_conflict, given.get("on_conflict"))
    mine, theirs = (chosen("on_conflict", value, Policy, Policy.LAST_WRITER_WINS) for value in asked)
    if behind is not None and is_final(mine) and is_final(theirs) and mine != theirs:
        raise InvalidWriteError(
            f"{writer.task_id}: on_conflict is {str(mine)!r}, and {behind.task_id} behind it has {str(theirs)!r}. A "
            "writer settles its conflicts in its own task, so give both the same. Nothing was staged."
        )


def check_orphans(
    context: Context, log: DeltaLog, spec: WriteSpec, snapshot: Snapshot | None, former: str | None
) -> None:
    """Before Spark is asked, refuse to double rows that the run published under a name that no task has now."""
    from airflow_provider_onelake.writes.orphans import check_no_orphans, check_other_dags, is_new_beside_others

    if snapshot is None or spec.identity.app_id in snapshot.txns:
        return
    check_other_dags(log, spec, snapshot, former)
    if not is_new_beside_others(spec.identity, snapshot):
        return
    names = names_of(context, spec.identity.load.group, {spec.task: spec.identity.key})
    check_no_orphans(log, spec, names.keys, names.groups, complete=names.complete)
