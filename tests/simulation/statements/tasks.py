"""The tasks of statements and writers, with the production code of ``work``, ``staging`` and ``commit``."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer, complete_buffer
from airflow_provider_onelake.buffers.claims import Start, Turn, begin
from airflow_provider_onelake.buffers.identity import Identity, Load, WriterIdentity
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import OnRerun, OnStatementRerun, Policy
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Append, Merge, Mode, OverwritePartitions
from airflow_provider_onelake.statements.asker import TaskIdentity
from airflow_provider_onelake.statements.delete import Deleted
from airflow_provider_onelake.statements.engine import Changed
from airflow_provider_onelake.statements.statement import DELETE, UPDATE, Statement, StatementStatus
from airflow_provider_onelake.steps.change import RowChange
from airflow_provider_onelake.steps.merge import merge_buffer
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.steps.statement import Deletion
from airflow_provider_onelake.task_run import TaskRun
from airflow_provider_onelake.writes.prepare import prepare
from airflow_provider_onelake.writes.publish import Committer, Publication
from tests.simulation.foreign import foreign
from tests.simulation.lake import Lake
from tests.simulation.others import spawn_others
from tests.simulation.scenario import ForeignPlan
from tests.simulation.statements.records import Placed, Record
from tests.simulation.statements.scenario import (
    KEYS,
    LoadPlan,
    MergePlan,
    RowsPlan,
    Scenario,
    TaskPlan,
    WipePlan,
    WriterPlan,
)
from tests.simulation.statements.spark import ADDRESS, SimulatedSpark
from tests.simulation.table import KEY, Row, physical_names
from tests.simulation.world import ViolationError, World

Result = Changed | Deleted | Publication | Skip

# Of one start: more than any plan has.
_MOST_TRIES = 100


@attrs.define
class Told:
    """What a try said when it was done.

    :param task_start: the number of the start of the task that it belongs to.
    :param oldest: the table's version when it began.
    :param newest: the table's version when it ended.
    """

    actor: str
    plan: TaskPlan
    task_start: int
    oldest: int
    newest: int = -1
    said: Result | None = None
    error: OneLakeError | None = None


@attrs.frozen
class _Table:
    """The table, as ``work`` knows it."""

    log: DeltaLog
    committer: Callable[[], Committer]
    address = ADDRESS

    @property
    def name(self) -> str:
        return self.log.table

    def __str__(self) -> str:
        return self.log.table


class Statements(Lake):
    """Everything that runs against one table."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = Random(seed)
        self.scenario = scenario = Scenario.of(random)
        world = World(random, scenario.faults, scenario.sticky)
        super().__init__(world, coarse=scenario.coarse, column=scenario.column, table=scenario.table)
        self.told: list[Told] = []
        # The start of a task that a generation of a writer is of.
        self.task_starts: dict[tuple[str, int], tuple[TaskPlan, int]] = {}
        self.newest_deed = {plan.name: 0 for plan in scenario.tasks}
        # Every try that has begun, by the name of its process.
        self.tries: dict[str, Told] = {}
        self._appended = 0

    @property
    def terms(self) -> Sequence[object]:
        scenario = self.scenario
        return (scenario.table, *scenario.tasks, *scenario.foreign, *scenario.compactions)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen."""
        scenario, world = self.scenario, self.world
        world.spawn("setup", self._set_up, faulty=False)
        world.run()
        for plan in scenario.tasks:
            world.spawn(f"{plan.name}: scheduler", lambda p=plan: self._drive(p), faulty=False, after=plan.start)  # type: ignore[misc]
        spawn_others(self, scenario)
        world.run()

    def settle(self, plan: TaskPlan) -> Told:
        """Let a task try once more, with nobody else and without faults."""
        before = len(self.told)
        task_start = self.newest_deed[plan.name]
        self.world.spawn(f"{plan.name}: last try", lambda: self._try(plan, task_start), faulty=False)
        self.world.run()
        return self.told[before]

    def _set_up(self) -> None:
        now = int(self.world.now().timestamp() * 1000)
        self.store.create(version_path(0), dump_actions(self.table.version_0(self.column.type, now, "sim")))
        for partition in self.scenario.first:
            foreign(self, ForeignPlan("append", partition, 0.0, 0.01, True, False, None, 0.0, False))

    def _drive(self, plan: TaskPlan) -> None:
        for task_start in range(1 + len(plan.clears)):
            self.newest_deed[plan.name] = task_start

            def work(task_start: int = task_start) -> str:
                return self._try(plan, task_start)

            def is_over(task_start: int = task_start) -> bool:
                return self.newest_deed[plan.name] != task_start

            def tries(task_start: int = task_start, work: Any = work, is_over: Any = is_over) -> None:
                self.retry(plan, f"{plan.name}.d{task_start}", work, is_over)

            running = self.world.spawn(f"{plan.name}.d{task_start}: scheduler", tries, faulty=False)
            if not plan.hasty:
                self.world.join([running])
            if task_start < len(plan.clears):
                self.world.sleep(plan.clears[task_start])
                self.world.counters["clears"] += 1
                self.world.note("clear", plan.name, "")

    # -- a try ---------------------------------------------------------------------------------------------------------

    def _try(self, plan: TaskPlan, task_start: int) -> str:
        world = self.world
        told = Told(world.actor.name, plan, task_start, self.store.version())
        self.tries[world.actor.name] = told
        ended = self.tried(lambda: self._work(plan, task_start))
        told.said, told.error = ended.said, ended.error
        told.newest = self.store.version()
        self.told.append(told)
        world.note("task", ended.how, str(told.error or told.said))
        return ended.how

    def _work(self, plan: TaskPlan, task_start: int) -> Result:
        log = self.log()
        table: Any = _Table(log, lambda: self.committer(log))
        if isinstance(plan, WriterPlan):
            return self._write(plan, task_start, table)
        number = self.number_of(self.world.actor.name, task_start)
        run = TaskRun("dag", plan.name, "run", "run", self._new_id(), plan.name, -1, number)
        identity = TaskIdentity(run.owner("sim"))
        _, begun = self._begin(table.log, identity, plan, task_start)
        start: dict[str, Any] = {"run": run, "task_start": begun, "namespace": "sim"}
        if isinstance(plan, WipePlan):
            where = self.column.predicate(plan.covers) if plan.covers is not None else None
            return Deletion(table=table, where=where, **start).carry_out()
        assert isinstance(plan, RowsPlan)
        statement = Statement(
            operation=UPDATE if plan.updates else DELETE,
            where=plan.where.sql,
            covers=self.column.predicate(plan.covers) if plan.covers is not None else None,
            assignments=self._assignments(plan) if plan.updates else {},
        )
        spark = self._spark(plan, task_start)
        done = RowChange(
            table=table,
            spark=spark,
            statement=statement,
            on_rerun=OnStatementRerun.AGAIN if plan.again else OnStatementRerun.SKIP,
            max_rounds=plan.max_rounds,
            **start,
        ).carry_out()
        return self._counted(spark, done)

    @staticmethod
    def _assignments(plan: RowsPlan) -> dict[str, str]:
        moves = {"part": f"partition {plan.into}"} if plan.into is not None else {}
        return {"marks": f"concat(marks, '.{plan.name}')", **({"open": "false"} if plan.closes else {}), **moves}

    def _spark(self, plan: TaskPlan, task_start: int) -> SparkWork:
        def effect(source: dict[int, Placed]) -> Any:
            found: Any = plan.effect(task_start)
            return attrs.evolve(found, source=source) if isinstance(plan, MergePlan) else found

        return SparkWork(lambda: SimulatedSpark(self, effect, plan.works))

    def _counted(self, spark: SparkWork, result: Changed) -> Changed:
        engine: Any = spark.engine()
        if result.status is StatementStatus.DONE and result.rounds != engine.jobs:
            raise ViolationError(f"{result.rounds} rounds are told, and Spark ran {engine.jobs} times")
        return result

    @staticmethod
    def number_of(actor: str, task_start: int) -> int:
        """Return the number of a try among all tries of its task.

        :param task_start: the number of the start that it belongs to.
        """
        tried = actor.rpartition("try ")[2]
        return _first_try(task_start) + (int(tried) - 1 if tried.isdigit() else _MOST_TRIES - 1)

    def _new_id(self) -> str:
        return str(uuid.UUID(int=self.world.random.getrandbits(128), version=4))

    def _begin(self, log: DeltaLog, identity: Identity, plan: TaskPlan, task_start: int) -> tuple[Turn, Start]:
        """Claim a generation for a start, which no other start has."""
        start = Start(
            id=f"{plan.name}.d{task_start}",
            task=plan.name,
            run_id="run",
            chain=plan.name,
            first_try=_first_try(task_start),
        )
        turn = begin(log, identity, start)
        known = self.task_starts.setdefault((identity.app_id, turn.generation), (plan, task_start))
        if known != (plan, task_start):
            raise ViolationError(
                f"{plan.name}: the starts {known[1]} and {task_start} are of one generation, {turn.generation}"
            )
        return turn, start

    # -- writers -------------------------------------------------------------------------------------------------------

    def _write(self, plan: WriterPlan, task_start: int, table: Any) -> Result:
        identity = identity_of(plan)
        turn, _ = self._begin(table.log, identity, plan, task_start)
        spec = WriteSpec(
            identity=identity,
            attempt=self._new_id(),
            generation=turn.generation,
            task=plan.name,
            mode=self._mode(plan),
            on_rerun=OnRerun.REPLACE if plan.again else OnRerun.SKIP,
            fingerprint=f"source {plan.turns[task_start]} of {plan.name}",
        )
        decision = prepare(table.log, spec, turn)
        if isinstance(decision, Skip):
            return decision
        if isinstance(decision, Buffer):
            self.world.counters["sources reused"] += 1
            buffer = decision
        else:
            self._stage(plan, task_start, spec)
            buffer = complete_buffer(table.log, decision)
        if isinstance(plan, MergePlan):
            spark = self._spark(plan, task_start)
            retried = self.number_of(self.world.actor.name, task_start) > _first_try(task_start)
            merged = merge_buffer(table, spark, buffer, retried=retried)
            return self._counted(spark, merged)
        return self.committing(lambda: table.committer().publish([buffer], Policy.LAST_WRITER_WINS))

    @staticmethod
    def _mode(plan: WriterPlan) -> Mode:
        if isinstance(plan, LoadPlan):
            return OverwritePartitions() if plan.overwrites else Append()
        assert isinstance(plan, MergePlan)
        keys: Any = ("part", KEY) if plan.clauses.by_partition else (KEY,)
        on = None if plan.keyed else " AND ".join(f"target.{key} = source.{key}" for key in keys)
        return Merge(keys=keys if plan.keyed else (), on=on, when=plan.clauses.texts)

    def _stage(self, plan: WriterPlan, task_start: int, spec: WriteSpec) -> None:
        """An ordinary Spark append into the buffer: files first, then version 1."""
        self.world.sleep(plan.works)
        by_partition: dict[int, list[str]] = {}
        for partition, record in plan.rows(task_start).values():
            by_partition.setdefault(partition, []).append(record.name)
        adds = self.put_append(spec.buffer, by_partition.items())
        self.end_append(spec.buffer, adds, {"attempt": spec.attempt, "reads_target": False})

    # -- rows ----------------------------------------------------------------------------------------------------------

    def spread(self, plan: ForeignPlan) -> tuple[int, ...]:
        random = self.world.random
        if plan.kind != "append" or random.random() < 0.4:
            return super().spread(plan)
        return (plan.partition, *(random.choice(self.scenario.hot) for _ in range(random.choice((1, 2)))))

    def new_rows(self, count: int) -> list[str]:
        random = self.world.random
        found = []
        for key in random.sample(range(KEYS), random.choice((1, 1, count, 4))):
            self._appended += 1
            found.append(Record(key, random.random() < 0.7, (f"a{self._appended}",)).name)
        return found

    def changed_row(self, row: str) -> str:
        record = Record.parse(row)
        # It may come into the predicate of a statement, or leave it.
        return attrs.evolve(record.marked(f"f{self.changes}"), open=not record.open).name

    def statistics(self, rows: Sequence[Row], metadata: dict[str, Any]) -> dict[str, Any]:
        ids = [Record.parse(name).id for name, _ in rows]
        key = physical_names(metadata)[KEY]
        return {**super().statistics(rows, metadata), "minValues": {key: min(ids)}, "maxValues": {key: max(ids)}}


def _first_try(task_start: int) -> int:
    return 1 + _MOST_TRIES * task_start


def identity_of(plan: WriterPlan) -> WriterIdentity:
    """Return who a writer is."""
    return Load("sim", "dag", plan.name, "2019-01-01T00:00:00+00:00").writer(plan.name)
