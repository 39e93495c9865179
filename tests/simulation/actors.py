"""The processes of a simulated deployment: writers' tasks and reconcile tasks; beside them, others (``foreign``).

They do what the operators do (``work.write``, ``OneLakeReconcileOperator._reconcile``), with the
production code of ``staging`` and ``commit``; only Spark is played: it puts files, then version 1 of the buffer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import TypeVar

import attrs

from airflow_provider_onelake.buffers.beginnings import beginning_of
from airflow_provider_onelake.buffers.buffer import Buffer, complete_buffer
from airflow_provider_onelake.buffers.claims import Turn, begin
from airflow_provider_onelake.buffers.markers import set_aside as close
from airflow_provider_onelake.buffers.read_shadow import open_read_shadow
from airflow_provider_onelake.buffers.reads import Reads
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    ObjectExistsError,
    OneLakeError,
    OutOfDateError,
    TableNotFoundError,
)
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.hooks.context import start_of
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import NO_VERSION
from airflow_provider_onelake.modes import Mode, Overwrite, ReplaceWhere
from airflow_provider_onelake.steps.write import MOST_RERUNS
from airflow_provider_onelake.writes.orphans import check_no_orphans, is_new_beside_others
from airflow_provider_onelake.writes.prepare import prepare
from airflow_provider_onelake.writes.publish import Publication
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.simulation.airflow import Airflow, TaskInstance
from tests.simulation.foreign import set_aside
from tests.simulation.lake import Lake
from tests.simulation.others import spawn_others
from tests.simulation.scenario import PARTITIONS, LoadPlan, Scenario, WriterPlan
from tests.simulation.table import (
    fields_of,
)
from tests.simulation.world import Actor, ViolationError, World

T = TypeVar("T")
_AGAIN = "-again"


@attrs.define
class Staged:
    """What Spark put into a buffer.

    :param files: path relative to the buffer, URL-encoded: partition and rows.
    """

    spec: WriteSpec
    plan: LoadPlan
    writer: WriterPlan
    files: dict[str, tuple[int, tuple[str, ...]]]

    @property
    def row_ids(self) -> set[str]:
        """Every row."""
        return {row for _, rows in self.files.values() for row in rows}


@attrs.define
class Said:
    """What a process said when it was done, and what it knew.

    :param began: the step at which it began.
    :param ended: the step at which it ended.
    :param oldest: the table's version when it began.
    :param newest: the table's version when it ended.
    :param writers: keys of the writers that it was to settle.
    :param stale: whether its task had been cleared, or its run deleted, when it ended.
    :param epoch: how often the table had been made again when it began; -1 if it was while it ran.
    """

    actor: str
    plan: LoadPlan
    began: int
    ended: int
    oldest: int
    newest: int
    epoch: int
    spec: WriteSpec | None = None
    buffer: str | None = None
    said: Publication | Skip | Report | None = None
    error: OneLakeError | None = None
    writers: tuple[str, ...] = ()
    stale: bool = False


class Deployment(Lake):
    """Everything that runs against one table."""

    varies = False
    """Whether writers find no table, and make it with the columns of their rows."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = Random(seed)
        self.scenario = self.draw(random)
        world = World(random, self.scenario.faults, self.scenario.sticky)
        super().__init__(world, coarse=self.scenario.coarse, column=self.scenario.column, table=self.scenario.table)
        self.staged: dict[str, Staged] = {}
        self.said: list[Said] = []
        # The version at which the job of a buffer read the table itself.
        self.reads: dict[str, int] = {}
        self.plans = {plan.load.id: plan for plan in self.scenario.loads}
        self.airflows = {plan.load.id: Airflow(self.world, plan) for plan in self.scenario.loads}
        # Which writer a buffer is of, whom a reconciliation expected, and the generations of a writer's deliberate runs.
        self.writer_of: dict[str, WriterPlan] = {}
        self.expected: dict[str, tuple[str, ...]] = {}
        self.generations: dict[str, dict[int, tuple[str, int]]] = {}
        # Which life of its run a deliberate run is of, as its first try found it.
        self.lives: dict[tuple[str, int], tuple[datetime, int]] = {}
        self._rounds = 0

    def draw(self, random: Random) -> Scenario:
        """Draw what happens."""
        return Scenario.of(random)

    @property
    def terms(self) -> Sequence[object]:
        scenario = self.scenario
        return (scenario.table, *scenario.loads, *scenario.foreign, *scenario.compactions)

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen, and then settle what is left without further faults."""
        scenario, world = self.scenario, self.world
        if scenario.exists:
            world.spawn("setup", lambda: self.create(self.log()), faulty=False)
            world.run()
        for plan in scenario.loads:
            world.spawn(f"{plan.load.dag}: scheduler", lambda p=plan: self._drive(p), faulty=False, after=plan.start)  # type: ignore[misc]
        spawn_others(self, scenario)
        for at in scenario.hands:
            world.spawn("a person", lambda: set_aside(self), faulty=False, after=at)
        world.run()

    def settle(self, plan: LoadPlan) -> Said | None:
        """Reconcile a load once more, without faults.

        :returns: what reconcile said; ``None`` where the table was never made.
        """
        if (self.store.version() < 0 and not self.varies) or plan.lone:
            return None
        before = len(self.said)
        self.world.spawn(f"{plan.load.dag}: final reconcile", lambda: self._by_hand(plan), faulty=False)
        self.world.run()
        none_made = isinstance(self.said[before].error, TableNotFoundError) and self.store.version() < 0
        return None if none_made else self.said[before]

    # -- Airflow -------------------------------------------------------------------------------------------------------

    def _drive(self, plan: LoadPlan) -> None:
        world, random = self.world, self.world.random
        airflow = self.airflows[plan.load.id]
        if plan.redeployed is not None:
            after, retries = plan.redeployed
            world.spawn(f"{plan.load.dag}: a DAG file", lambda: setattr(airflow, "retries", retries), after=after)
        runners = self._start(airflow, airflow.start(), 0)
        for at in plan.early:
            self._rounds += 1
            name = f"{plan.load.dag}: reconcile {self._rounds} by hand"
            world.spawn(name, lambda: self._by_hand(plan), after=at)
        self._wait_for(plan, runners)
        if plan.before_reconcile:
            world.sleep(plan.before_reconcile * random.uniform(0.95, 1.05))
        self._settle_up(plan)
        for rerun in plan.reruns:
            world.sleep(rerun.after)
            airflow.retries = rerun.retries
            if rerun.kind == "again":
                world.counters["runs deleted and made again"] += 1
                instances = airflow.make_again(rerun.listed)
            else:
                world.counters["deliberate reruns"] += 1
                world.counters["mapped lists changed"] += rerun.listed != airflow.writers
                instances = airflow.clear(rerun.writers, rerun.listed)
            world.note(rerun.kind, plan.load.dag, ", ".join(f"{i.label}: {i.writer.key}" for i in instances))
            self._wait_for(plan, self._start(airflow, instances, rerun.source))
            self._settle_up(plan)

    def _start(self, airflow: Airflow, instances: Sequence[TaskInstance], source: int) -> list[Actor]:
        """Start the tasks of writers: at once, or in any order one after another, as where there is one slot."""
        world, plan = self.world, airflow.plan
        tasks = [(instance, self._runner(airflow, instance, source)) for instance in instances]
        if not plan.one_by_one:
            return [world.spawn(f"{plan.load.dag}.{i.label}: scheduler", task, faulty=False) for i, task in tasks]
        world.random.shuffle(tasks)

        def run_all() -> None:
            for _, task in tasks:
                task()

        return [world.spawn(f"{plan.load.dag}: scheduler of one slot", run_all, faulty=False)]

    def _runner(self, airflow: Airflow, instance: TaskInstance, source: int) -> Callable[[], None]:
        plan, number = airflow.plan, instance.number

        def work() -> str:
            return self._write(airflow, instance, number, source)

        def is_over() -> bool:
            return airflow.is_stale(instance, number)

        name = f"{plan.load.dag}.{instance.label}.d{number} of {instance.writer.key}"
        return lambda: self.retry(plan, name, work, is_over)

    def _by_hand(self, plan: LoadPlan) -> None:
        self._reconcile(plan)

    def _wait_for(self, plan: LoadPlan, runners: list[Actor]) -> None:
        if plan.hasty:
            self.world.sleep(10 ** self.world.random.uniform(-1.5, 0.5))
        else:
            self.world.join(runners)

    def _settle_up(self, plan: LoadPlan) -> None:
        if plan.lone:
            return
        self._rounds += 1
        name = f"{plan.load.dag}: reconcile {self._rounds}"
        tries = self.world.spawn(
            f"{name}: scheduler",
            lambda: self.retry(plan, name, lambda: self._reconcile(plan), lambda: False),
            faulty=False,
        )
        self._wait_for(plan, [tries])

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _write(self, airflow: Airflow, instance: TaskInstance, number: int, source: int) -> str:
        plan = airflow.plan
        if airflow.is_stale(instance, number):
            # Airflow does not start what was cleared, or whose run is gone.
            return "over"
        writer, identity = instance.writer, plan.load.writer(instance.writer.key)
        context = airflow.context(instance)
        self.lives.setdefault((plan.load.id, number), (airflow.began, airflow.clears))
        task_start = start_of(context, context["task_state_store"])
        airflow.tell(instance, task_start)

        def work(said: Said) -> Publication | Skip | None:
            log = self.log()
            if log.snapshot_or_none() is None:
                self.without_table(log, writer)
            turn = begin(log, identity, task_start, is_rival=airflow.is_rival)
            self._note_generation(identity.app_id, number, instance.label, turn.generation)
            began = beginning_of(log.store, plan.load, turn, task_start.life)
            spec = self._spec(plan, instance, writer, str(context["ti"].id), turn.generation, source)
            spec = said.spec = attrs.evolve(spec, began=began)
            self.writer_of[spec.buffer] = writer
            if turn.snapshot is not None and is_new_beside_others(identity, turn.snapshot):
                keys = {w.key for w in airflow.writers}
                check_no_orphans(log, spec, keys, {"load"}, complete=airflow.all_begun)
            return self._stage(log, said, turn, plan, writer, source)

        return self._task(plan, work, lambda: airflow.is_stale(instance, number))

    def _stage(
        self, log: DeltaLog, said: Said, turn: Turn, plan: LoadPlan, writer: WriterPlan, source: int
    ) -> Publication | Skip | None:
        spec = said.spec
        assert spec is not None
        decision = prepare(log, spec, turn)
        if isinstance(decision, Skip):
            return decision
        if isinstance(decision, Buffer):
            self.world.counters["buffers reused"] += 1
            buffer = decision
        else:
            if spec.reads is not None:
                open_read_shadow(log, decision, "/lake/table")
            self._spark(plan, writer, spec, source, decision.read_version)
            buffer = complete_buffer(log, decision, reads_target=writer.reads and writer.named is None)
        said.buffer = buffer.path
        if spec.publish is PublishMode.TOGETHER:
            return None
        try:
            try:
                return self.committing(lambda: self.committer(log).publish([buffer], plan.policy))
            except BufferDoesNotFitError as error:
                if buffer.read_version != NO_VERSION:
                    raise
                # Another has made the table meanwhile.
                self.world.counters["staged again for another's new table"] += 1
                raise OutOfDateError(str(error)) from error
        except OutOfDateError as error:
            if spec.attempt.endswith(_AGAIN * MOST_RERUNS):
                raise
            self.world.counters["staged anew"] += 1
            close(log.store, buffer.path, f"staged anew: {error}")
            spec = said.spec = attrs.evolve(spec, attempt=f"{spec.attempt}{_AGAIN}")
            self.writer_of[spec.buffer] = writer
            return self._stage(log, said, turn.anew(log), plan, writer, source)

    def _spec(
        self, plan: LoadPlan, instance: TaskInstance, writer: WriterPlan, attempt: str, generation: int, source: int
    ) -> WriteSpec:
        bounds = self.scenario.column.predicate(writer.into) if writer.into is not None else None
        replaces = plan.mode is ReplaceWhere
        return WriteSpec(
            identity=plan.load.writer(writer.key),
            attempt=attempt,
            generation=generation,
            task=instance.label,
            mode=self._mode(plan, bounds),
            expected_partitions=None if replaces else bounds,
            on_unexpected_rows=plan.on_unexpected_rows,
            on_rerun=plan.on_rerun,
            publish=plan.publish,
            fingerprint=f"source {source} of {writer.name}" if plan.fingerprinted else "",
            reads=self._reads(writer),
        )

    @staticmethod
    def _mode(plan: LoadPlan, bounds: str | None) -> Mode:
        if plan.mode is ReplaceWhere:
            return ReplaceWhere(bounds or "", allow_empty=plan.allow_empty)
        return Overwrite(allow_empty=plan.allow_empty) if plan.mode is Overwrite else plan.mode()

    def _reads(self, writer: WriterPlan) -> Reads | None:
        if writer.named is None:
            return None
        where = "true" if writer.named == PARTITIONS else self.scenario.column.predicate(writer.named)
        return Reads(where)

    def _note_generation(self, app_id: str, number: int, label: str, generation: int) -> None:
        """A generation belongs to one deliberate run, and a deliberate run has one; of one task's, the later is higher."""
        known = self.generations.setdefault(app_id, {})
        for other, (its_label, its_generation) in known.items():
            if (other == number) != (its_generation == generation):
                raise ViolationError(
                    f"{app_id}: the deliberate runs {other} and {number} are of generations {its_generation} and "
                    f"{generation}"
                )
            if its_label == label and (other < number) != (its_generation < generation) and other != number:
                raise ViolationError(
                    f"{app_id}: run {other} of {label} is of generation {its_generation}, and run {number} of {generation}"
                )
        known[number] = label, generation

    def _reconcile(self, plan: LoadPlan) -> str:
        def work(said: Said) -> Report:
            committer = self.committer(self.log())
            keys = tuple(dict.fromkeys(w.key for w in self.airflows[plan.load.id].writers))
            said.writers = self.expected[said.actor] = keys
            return self.committing(
                lambda: reconcile(
                    committer,
                    plan.load,
                    keys,
                    publish=plan.publish,
                    on_conflict=plan.policy,
                    on_missing_writer=plan.on_missing,
                )
            )

        return self._task(plan, work, lambda: False)

    def _task(
        self,
        plan: LoadPlan,
        work: Callable[[Said], Publication | Skip | Report | None],
        is_stale: Callable[[], bool],
    ) -> str:
        world = self.world
        said = Said(world.actor.name, plan, world.steps, 0, self.store.version(), -1, self.epoch)
        ended = self.tried(lambda: work(said))
        said.said, said.error = ended.said, ended.error
        said.ended, said.newest, said.stale = world.steps, self.store.version(), is_stale()
        said.epoch = said.epoch if said.epoch == self.epoch else -1
        self.said.append(said)
        world.note("task", ended.how, str(said.error or _short(said.said)))
        return ended.how

    def without_table(self, log: DeltaLog, writer: WriterPlan) -> None:
        """Make the table, as a writer does whose author gave its columns."""
        self.create(log)

    def create(self, log: DeltaLog) -> None:
        part, table = self.scenario.column.type, self.scenario.table
        if table.made_by_spark:
            # Spark draws an id for every table it makes.
            now = int(self.world.now().timestamp() * 1000)
            made = table.version_0(part, now, f"made-by-spark-{self.epoch}")
            # CREATE TABLE IF NOT EXISTS: whoever was first made it.
            with suppress(ObjectExistsError):
                self.store.create(version_path(0), dump_actions(made))
            return
        schema = json.dumps({"type": "struct", "fields": fields_of(part)})
        create_table(log, schema, ["part"], table.properties, self.world.random)

    def _spark(self, plan: LoadPlan, writer: WriterPlan, spec: WriteSpec, source: int, version: int) -> None:
        """An ordinary Spark append into the buffer: files first, then version 1.

        :param version: of the table, which the buffer was opened on.
        """
        random = self.world.random
        # The rows of a source are the same for every attempt; a rerun that appends means to have them again.
        salt = f"{plan.load.dag}/{writer.name}/{source}"
        if plan.on_rerun == "append":
            salt += f"/g{spec.generation}"
        if writer.reads:
            # It reads the table at some moment after its buffer was opened, and computes for a while.
            self.world.pause(random.choice((0, random.randrange(200_000))))
            self.reads[spec.buffer] = version if spec.reads is not None else self.store.version()
            self.world.pause(random.choice((0, random.randrange(2_000_000))))
        parts: list[tuple[int, tuple[str, ...]]] = []

        def divided() -> Iterator[tuple[int, tuple[str, ...]]]:
            for partition, count in writer.sources[source].items():
                rows = tuple(f"{salt}/p{partition}/{i}" for i in range(count))
                for part in [rows] if count == 1 or random.random() < 0.7 else [rows[:1], rows[1:]]:
                    parts.append((partition, part))
                    yield partition, part

        adds = self.put_append(spec.buffer, divided())
        if not adds:
            return
        files = {add["path"]: part for add, part in zip(adds, parts, strict=True)}
        self.staged[spec.buffer] = Staged(spec, plan, writer, files)
        at_large = writer.reads and writer.named is None
        self.end_append(spec.buffer, adds, {"attempt": spec.attempt, "reads_target": at_large})


def _short(said: Publication | Skip | Report | None) -> str:
    if isinstance(said, Publication):
        return f"{said.status.value} in version {said.version}"
    if isinstance(said, Report):
        return "; ".join(
            f"{o.writer}: {o.status} {o.version if o.version is not None else ''} {o.error or ''}{' '.join(o.decisions)}"
            for o in said.outcomes
        )
    return str(said) if said else "staged"


__all__ = ["Actor", "Deployment", "Said", "Staged"]
