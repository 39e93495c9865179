"""Airflow's side of a load: its runs, their task instances, and what a try finds in its context.

Only what ``hooks.context`` looks at is there. What Airflow does with it is as Airflow does it: a retry changes nothing
but the number of the try, a clear raises ``max_tries``, and a run that is deleted and made again knows nothing of before.
"""

from __future__ import annotations

import uuid
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import attrs

from airflow_provider_onelake.buffers.claims import Start
from tests.simulation.scenario import LoadPlan, WriterPlan
from tests.simulation.world import World


class _Kept(dict[str, Any]):
    """What one task instance keeps."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value


@attrs.define
class TaskInstance:
    """One mapped writer of one run.

    :param writer: that it is now, by the list that it is mapped over.
    :param begun: whether it has begun since it was made, or cleared.
    :param said: the start that it has told others of.
    :param number: of its deliberate runs, counted over all that ever were of the load.
    """

    label: str
    index: int
    writer: WriterPlan
    max_tries: int
    tries: int = 0
    begun: bool = False
    said: str | None = None
    number: int = 0
    kept: _Kept = attrs.field(factory=_Kept)


class Airflow:
    """The runs of a load, one after another; each has the same logical date."""

    def __init__(self, world: World, plan: LoadPlan) -> None:
        self.plan = plan
        self.retries = plan.tries - 1
        self._world = world
        self._deeds = 0
        self._make_run(plan.writers)

    def _make_run(self, writers: tuple[WriterPlan, ...]) -> None:
        self.began: datetime = self._world.now()
        self.clears = 0
        self.instances: dict[str, TaskInstance] = {}
        self._map(writers)

    def _map(self, writers: tuple[WriterPlan, ...]) -> None:
        known, self.instances = self.instances, {}
        for index, writer in enumerate(writers):
            label = f"load.write[{index}]"
            found = known.get(label) or TaskInstance(label, index, writer, self.retries)
            found.writer = writer
            self.instances[label] = found

    @property
    def writers(self) -> tuple[WriterPlan, ...]:
        """The writers of the run, as its list is now."""
        return tuple(instance.writer for instance in self.instances.values())

    # -- what people do ------------------------------------------------------------------------------------------------

    def start(self) -> list[TaskInstance]:
        """Return the tasks of a new run."""
        return self._scheduled(list(self.instances.values()))

    def clear(self, keys: tuple[str, ...], writers: tuple[WriterPlan, ...]) -> list[TaskInstance]:
        """Clear some writers' tasks; where the list has changed, all of them."""
        changed = writers != self.writers
        self._map(writers)
        self.clears, self.began = self.clears + 1, self._world.now()
        cleared = [i for i in self.instances.values() if changed or i.writer.key in keys]
        for instance in cleared:
            if instance.tries:
                instance.max_tries = instance.tries + self.retries
        return self._scheduled(cleared)

    def make_again(self, writers: tuple[WriterPlan, ...]) -> list[TaskInstance]:
        """Delete the run, and make it again."""
        self._make_run(writers)
        return self.start()

    def _scheduled(self, instances: list[TaskInstance]) -> list[TaskInstance]:
        for instance in instances:
            self._deeds += 1
            instance.begun, instance.said, instance.number = False, None, self._deeds
        return instances

    def is_stale(self, instance: TaskInstance, number: int) -> bool:
        """Say whether a deliberate run of a task is over: the task was cleared, or its run deleted."""
        return self.instances.get(instance.label) is not instance or instance.number != number

    @property
    def all_begun(self) -> bool:
        """Whether every task has told who it is."""
        return all(instance.begun for instance in self.instances.values())

    # -- what a try finds ----------------------------------------------------------------------------------------------

    def context(self, instance: TaskInstance) -> dict[str, Any]:
        """Return the context of a new try."""
        instance.tries += 1
        plan, run_id = self.plan, "scheduled__2019-01-01T00:00:00+00:00"
        ti = SimpleNamespace(
            id=uuid.UUID(int=self._world.random.getrandbits(128), version=4),
            task_id="load.write",
            dag_id=plan.load.dag,
            run_id=run_id,
            map_index=instance.index,
            try_number=instance.tries,
            max_tries=instance.max_tries,
        )
        run = SimpleNamespace(
            run_id=run_id,
            start_date=self.began,
            clear_number=self.clears,
            logical_date=self.began,
            partition_date=None,
            partition_key=None,
        )
        dag = SimpleNamespace(timetable=None)
        task = SimpleNamespace(retries=self.retries, task_group=None, task_id="load.write", get_dag=lambda: dag)
        return {"ti": ti, "task": task, "dag_run": run, "task_state_store": instance.kept}

    def tell(self, instance: TaskInstance, task_start: Start) -> None:
        """A try tells others who it is, before it does anything else."""
        instance.begun, instance.said = True, task_start.id

    def is_rival(self, task_start: Start) -> bool:
        """Say of the start of another task whether that task has its key still."""
        other = self.instances.get(task_start.task)
        return other is not None and other.begun and other.said == task_start.id
