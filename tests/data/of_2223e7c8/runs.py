"""What Airflow keeps of a run, so that a task can be retried and cleared long after the table was made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import copy
from datetime import datetime
from typing import Any

import attrs

from tests.support.contexts import FakeTaskInstance, Kept, context_of


@attrs.define
class TaskInstance(FakeTaskInstance):
    """A task instance that sees the XComs of the tasks that it names.

    :param xcoms: by the name of the task instance, as Airflow spells it in ``get_task_states``.
    """

    xcoms: Mapping[str, Mapping[str, Any]] = attrs.field(factory=dict)

    def xcom_pull(self, task_ids: Any, key: str = "return_value", *, map_indexes: Any = None) -> Any:
        names = [task_ids] if isinstance(task_ids, str) else task_ids
        of = {name: name if name in names else name.rpartition("_")[0] for name in self.xcoms}
        found = [said[key] for name, said in self.xcoms.items() if of[name] in names and key in said]
        return found if names is task_ids else (found or [None])[0]


@attrs.define
class TaskOfRun:
    """A task instance between its tries.

    :param number: of its last try.
    :param max_tries: as Airflow counts: a clear raises it.
    :param state: its state.
    :param kept: its state store, which survives retries and clears.
    :param xcoms: of its last try, by key.
    """

    number: int = 1
    max_tries: int = 0
    state: str | None = None
    kept: dict[str, Any] = attrs.field(factory=dict)
    xcoms: dict[str, Any] = attrs.field(factory=dict)


@attrs.define
class Run:
    """A run of a DAG.

    :param dag_id: of the DAG.
    :param run_id: of the run.
    :param began: when it began.
    :param logical_date: in ISO's spelling; ``None`` for a run of a partition.
    :param partition_key: of the partition.
    :param partition_date: of the partition, in ISO's spelling.
    :param clears: how many times it was cleared.
    :param tasks: its task instances that have begun, by name.
    """

    dag_id: str
    run_id: str
    began: str
    logical_date: str | None = None
    partition_key: str | None = None
    partition_date: str | None = None
    clears: int = 0
    tasks: dict[str, TaskOfRun] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """What is kept in the file of runs."""
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Run:
        """Read it back."""
        return cls(**{**value, "tasks": {name: TaskOfRun(**task) for name, task in value["tasks"].items()}})

    def as_it_is(self) -> Run:
        """The run as it is now, which does not change with this one."""
        return Run.from_json(json.loads(json.dumps(self.to_json())))

    def made_again(self) -> Run:
        """The run after it was deleted and made again: its tasks have kept nothing."""
        later = datetime.fromisoformat(self.began).replace(year=2027).isoformat()
        return attrs.evolve(self, began=later, clears=0, tasks={})

    def retry(self, name: str) -> None:
        """Let the next try of a task be a retry of the last one."""
        self.tasks[name].number += 1

    def clear(self, *names: str) -> None:
        """Clear tasks as the web UI does; by default, all that have begun."""
        self.clears += 1
        for task in [self.tasks[name] for name in names] or self.tasks.values():
            task.number, task.max_tries, task.state = task.number + 1, task.number, None

    def run(self, dag: Any, task_id: str, map_index: int = -1) -> Any:
        """Run a try of a task, and return its result."""
        # Every try is a process of its own, which parses the DAG anew.
        operator = copy(dag.get_task(task_id))
        name = task_id if map_index < 0 else f"{task_id}_{map_index}"
        if map_index >= 0:
            operator = operator.unmap(dict(operator.expand_input.value[map_index]))
        task = self.tasks.setdefault(name, TaskOfRun())
        task.state, task.xcoms = "running", {}
        context = self._context(operator, task, map_index)
        task.xcoms = context["ti"].pushed
        task.state = "failed"
        try:
            result = operator.execute(context)
        finally:
            # What an operator keeps is kept whatever becomes of the try.
            task.kept = json.loads(json.dumps(task.kept))
            task.xcoms = {key: value for key, value in task.xcoms.items() if key == "writer"}
        task.state = "success"
        if result is not None:
            # Of a task's result, other tasks look at this only.
            seen = ("writer", "status", "scan", "run")
            task.xcoms["return_value"] = (
                {name: result[name] for name in seen if name in result} if isinstance(result, dict) else result
            )
        return result

    def _context(self, operator: Any, task: TaskOfRun, map_index: int) -> Any:
        logical = datetime.fromisoformat(self.logical_date) if self.logical_date else None
        context = context_of(
            operator, logical, clears=self.clears, began=datetime.fromisoformat(self.began), run_id=self.run_id
        )
        context["ti"] = TaskInstance(
            task_id=operator.task_id,
            dag_id=self.dag_id,
            run_id=self.run_id,
            map_index=map_index,
            max_tries=task.max_tries,
            try_number=task.number,
            states={name: other.state for name, other in self.tasks.items()},
            xcoms={name: other.xcoms for name, other in self.tasks.items()},
        )
        run = context["dag_run"]
        run.partition_key = self.partition_key
        run.partition_date = datetime.fromisoformat(self.partition_date) if self.partition_date else None
        task.kept = Kept(task.kept)
        context["task_state_store"] = task.kept
        return context


def written(runs: Mapping[str, Run]) -> str:
    """Runs as a file keeps them."""
    lines = (f"{json.dumps(name)}: {json.dumps(run.to_json())}" for name, run in runs.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read_runs(text: str) -> dict[str, Run]:
    """Return the runs of a file, by name."""
    return {name: Run.from_json(value) for name, value in json.loads(text).items()}
