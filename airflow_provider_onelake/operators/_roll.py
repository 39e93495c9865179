"""Who the writers of a load are, as Airflow knows them: their keys, their tasks, and who settles them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import TaskInstanceState, XComArg
from jinja2 import UndefinedError

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.task_run import write_group
from airflow_provider_onelake.operators._terms import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.staging.claims import Deed

WRITER_XCOM = "writer"
"""The XCom in which every writer says who it is, before it does anything that can fail."""

OUR_LABEL = "{{ writer | default(task.writer or '', true) }}"
"""The label of a mapped writer, where its author gives no ``map_index_template``: it says the key, and makes none."""

_GONE = (TaskInstanceState.REMOVED,)
_NOT_EXPECTED = (TaskInstanceState.SKIPPED, *_GONE)
# What Airflow says of tasks that have not begun since they were cleared. What such a task said before may not hold.
_NOT_BEGUN = (None, TaskInstanceState.SCHEDULED, TaskInstanceState.QUEUED)
_WITHOUT_A_KEY = (*_NOT_BEGUN, *_NOT_EXPECTED, TaskInstanceState.UPSTREAM_FAILED)


# Together as long as Airflow gives a DAG's file to be read.
_LOOKS, _SECONDS_BETWEEN = 16, 2.0


@attrs.frozen
class Roll:
    """The writers of a load, as they and Airflow say.

    :param named: keys of the writers that said who they are.
    :param skipped: those of them whose rows were in the table before.
    :param unnamed: labels and states of tasks that failed or never ran before they could, or whose key another has.
    :param deeds: of those that said who they are, by key: what their claims call them.
    :param labels: what people call their tasks, with their states, by key.
    """

    named: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    unnamed: tuple[str, ...] = ()
    deeds: Mapping[str, str] = attrs.field(factory=dict, eq=False)
    labels: Mapping[str, str] = attrs.field(factory=dict, eq=False)

    def without(self, keys: Iterable[str]) -> Roll:
        """Return the roll on which some writers count as unnamed, as they failed before they began.

        :param keys: theirs.
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

    :param keys: as far as they are known.
    :param complete: whether these are all.
    :param groups: of all the DAG's writers.
    """

    keys: frozenset[str]
    complete: bool
    groups: frozenset[str]


def is_writer(task: Any) -> bool:
    """Say whether a task, mapped or not, is a writer.

    :param task: of a DAG.
    """
    from airflow_provider_onelake.operators.write import OneLakeWriteOperator

    return _is_a(task, OneLakeWriteOperator)


def settled_by(task: Any) -> str | None:
    """Return the id of the reconciliation that settles a writer, or ``None`` for a writer that settles itself.

    :param task: a writer, of a DAG that is complete.
    """
    from airflow_provider_onelake.operators.reconcile import OneLakeReconcileOperator

    dag = task.get_dag()
    if dag is None or not dag.has_task(task.task_id):
        return None
    behind = dag.get_task(task.task_id).downstream_task_ids
    for other in dag.tasks:
        if _is_a(other, OneLakeReconcileOperator):
            ids = getattr(other, "partial_kwargs", {}).get("write_task_ids", getattr(other, "write_task_ids", None))
            if task.task_id in ids if ids is not None else other.task_id in behind:
                return str(other.task_id)
    return None


def default_key(task: Any) -> str:
    """Return the key of an unmapped writer to which its author gave none: its task's id, inside of its group.

    :param task: the writer.
    """
    return str(task.task_id).removeprefix(f"{write_group(task)}.")


def check_mapped_key(task: Any) -> None:
    """Refuse a mapped writer whose tasks would have no keys, as far as that is known when the DAG is parsed.

    :param task: of a DAG.
    :raises InvalidWriteError: no ``writer`` is given, and no label that says what it is instead.
    """
    given = getattr(task, "partial_kwargs", None)
    if given is None or given.get("writer") or _makes_labels(given.get("map_index_template")):
        return
    keys = _mapped(task, "writer")
    if keys is not None and not all(keys):
        raise InvalidWriteError(no_key(task.task_id))


def no_key(task_id: str) -> str:
    """Say what a mapped writer without a key needs.

    :param task_id: of the writer.
    """
    return (
        f"{task_id} is mapped and has no `writer`: each of its tasks needs a key of its own, by which a clear knows "
        "what it wrote. The map index is none, as it shifts when the list changes. Expand over `writer`, or give a "
        "`map_index_template` that says what each task is. Nothing was staged."
    )


def _makes_labels(template: object) -> bool:
    return bool(template) and template != OUR_LABEL


def label_key(task: Any, context: Context) -> str | None:
    """Return the key of a mapped writer that its author's label gives, or ``None`` for none.

    :param task: rendered.
    :param context: of the running task.
    """
    template = task.map_index_template
    if not _makes_labels(template):
        return None
    try:
        # As Airflow renders it for the grid.
        return str(task.get_template_env().from_string(template).render(context)).strip() or None
    except UndefinedError:
        return None


def names_of(context: Context, group: str, own: Mapping[str, str] | None = None) -> Names:
    """Find out which keys the tasks of a load have: those that the DAG says, and those that writers have said.

    :param context: of the running task.
    :param group: the write group.
    :param own: the running task's key by its label, where it is a writer.
    """
    dag = context["task"].get_dag()
    writers = [task for task in dag.tasks if is_writer(task)] if dag is not None else []
    groups = frozenset(write_group(task) for task in writers)
    writers = [task for task in writers if write_group(task) == group]
    keys: set[str] = set()
    unknown: list[str] = []
    for task in writers:
        found = _keys_in_dag(task, context)
        if found is None:
            unknown.append(str(task.task_id))
        else:
            keys.update(found)
    complete = bool(writers)
    if unknown:
        said = {label: entry["writer"] for label, entry in _said(context, unknown).items()} | dict(own or {})
        live = {label: state for label, state in _states(context, unknown).items() if state not in _GONE}
        keys.update(said[label] for label in live if label in said)
        complete = all(label in said and state not in _NOT_BEGUN for label, state in live.items())
    return Names(frozenset(keys), complete, groups)


def _keys_in_dag(task: Any, context: Context) -> list[str] | None:
    """Return the keys of a writer's tasks as the DAG says them, or ``None`` where only the tasks can say."""
    mapped = getattr(task, "partial_kwargs", None)
    if mapped is None:
        if not is_final(task.writer):
            return None
        return [task.writer or default_key(task)]
    keys = _mapped(task, "writer", context if task.task_id == context["task"].task_id else None)
    return keys if keys and all(isinstance(key, str) and key and is_final(key) for key in keys) else None


def _mapped(task: Any, name: str, context: Context | None = None) -> list[Any] | None:
    """Return what a mapped task's list says of one parameter, or ``None`` where that is not known.

    :param context: of one of its tasks, for a list that another task made.
    """
    if hasattr(task, "op_kwargs_expand_input"):
        return [None]  # A decorated function's list is of its own arguments, not of the operator's.
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


def rivals(context: Context, wait: Callable[[float], None] = time.sleep) -> Callable[[Deed], bool]:
    """Return what says of the deed of another task in the run whether that task has the key still.

    It has lost it where the list that it is mapped over has changed, and it was cleared since.

    :param context: of the running task.
    :param wait: for so many seconds, before another look.
    """

    def is_rival(deed: Deed) -> bool:
        task_id = deed.task.partition("[")[0]
        dag = context["task"].get_dag()
        if dag is not None and not dag.has_task(task_id):
            return False
        for look in range(_LOOKS):
            state = _states(context, [task_id]).get(deed.task)
            said = _said(context, [task_id]).get(deed.task)
            if state in _WITHOUT_A_KEY or said is None or said["deed"] != deed.id:
                return False
            if said["clears"] >= clears_of(context) or state == TaskInstanceState.SUCCESS:
                return True
            if state != TaskInstanceState.RUNNING:
                # It said so before something in the run was cleared, and has not come to say anything since. If it
                # has the key still, it finds ours, and is refused.
                return False
            # Its new try may be reading the DAG: what the one before said is taken away only after that.
            if look < _LOOKS - 1:
                wait(_SECONDS_BETWEEN)
        return True

    return is_rival


def clears_of(context: Context) -> int:
    """Return how often something of the run was cleared.

    :param context: of the running task.
    """
    return context["dag_run"].clear_number or 0


def take_roll(context: Context, task_ids: Sequence[str]) -> Roll:
    """Find out who was to write, from what the writers said of themselves and from the states of their tasks.

    :param context: of the running task.
    :param task_ids: of the writers' tasks.
    :returns: who they are.
    """
    entries = _said(context, task_ids)
    said = {label: entry["writer"] for label, entry in entries.items()}
    results = _pull(context["ti"], task_ids, "return_value")
    skipped = {result["writer"] for result in results if result.get("status") == "skipped"}
    unnamed: list[str] = []
    labels: dict[str, str] = {}
    deeds: dict[str, str] = {}
    taken = Counter(said.values())
    for label, state in _states(context, task_ids).items():
        if state in _NOT_EXPECTED:
            said.pop(label, None)
        elif label not in said:
            unnamed.append(f"{label} ({state})")
        elif taken[said[label]] > 1 and state == TaskInstanceState.FAILED:
            # Its key is another's, so its rows are not among those that the key stands for.
            unnamed.append(f"{label} ({state}: its key {said[label]!r} is another writer's)")
        else:
            labels[said[label]] = f"{label} ({state})"
            deeds[said[label]] = entries[label]["deed"]
    named = dict.fromkeys(said.values())
    return Roll(tuple(named), tuple(key for key in named if key in skipped), tuple(unnamed), deeds, labels)


def _said(context: Context, task_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what writers said of themselves, by the label of their tasks."""
    return {entry["task"]: entry for entry in _pull(context["ti"], task_ids, WRITER_XCOM)}


def _pull(ti: Any, task_ids: Sequence[str], key: str) -> list[dict[str, Any]]:
    # Asked for a list of tasks, Airflow answers with a flat list over their map indexes, and None for a task with none.
    return [value for value in ti.xcom_pull(task_ids=list(task_ids), key=key) or [] if isinstance(value, dict)]


def _states(context: Context, task_ids: Sequence[str]) -> dict[str, str | None]:
    """Return the states of tasks by what people call them; Airflow says ``task_3`` for the mapped ``task[3]``."""
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


def _is_a(task: Any, kind: type) -> bool:
    found = getattr(task, "operator_class", type(task))
    return isinstance(found, type) and issubclass(found, kind)
