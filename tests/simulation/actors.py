"""The processes of a simulated deployment: writers' tasks and reconcile tasks; beside them, others (``foreign``).

They do what the operators do (``OneLakeWriteOperator._write``, ``OneLakeReconcileOperator._reconcile``), with the
production code of ``staging`` and ``commit``; only Spark is played: it puts files, then version 1 of the buffer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar
from urllib.parse import quote, unquote

import attrs

from airflow_provider_onelake.commit.backoff import Backoff
from airflow_provider_onelake.commit.create import create_table
from airflow_provider_onelake.commit.publish import Committer, Publication
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import OneLakeError, TerminalError, TransientError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.prepare import Reuse, Skip, complete, prepare
from airflow_provider_onelake.staging.spec import Mode, PublishMode, WriteSpec
from tests.simulation.compactor import Compacted, compact
from tests.simulation.foreign import ForeignWrite, foreign, set_aside, vacuum, write_checkpoint
from tests.simulation.scenario import LoadPlan, Scenario, WriterPlan
from tests.simulation.store import MemoryStore, parsed
from tests.simulation.table import (
    Row,
    data_columns,
    dump_rows,
    fields_of,
    hidden_rows,
    high_water_mark,
    load_rows,
    partition_key,
)
from tests.simulation.world import Actor, ViolationError, World

T = TypeVar("T")


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
    said: Publication | Skip | Report | None = None
    error: OneLakeError | None = None


class Deployment:
    """Everything that runs against one table.

    :param seed: decides everything.
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        random = Random(seed)
        self.scenario = Scenario.of(random)
        self.world = World(random, self.scenario.faults, self.scenario.sticky)
        self.store = MemoryStore(self.world, coarse=self.scenario.coarse)
        self.staged: dict[str, Staged] = {}
        self.said: list[Said] = []
        self.compacted: list[Compacted] = []
        # The version at which the job of a buffer read the table itself.
        self.reads: dict[str, int] = {}
        # What commits of others do to rows, by version, and how often the table was made again.
        self.foreign_writes: dict[int, ForeignWrite] = {}
        self.epoch = 0
        self.before_remake: Callable[[], None] = lambda: None
        self.plans = {plan.load.id: plan for plan in self.scenario.loads}
        # Numbers that no other column, and no other deletion vector, ever had.
        self.columns, self.vectors, self.changes = 100, 0, 0
        # Processes that are about to commit.
        self.busy = 0
        self._files = self._rounds = 0

    # -- the run -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Let everything happen, and then settle what is left without further faults."""
        scenario, world = self.scenario, self.world
        if scenario.exists:
            world.spawn("setup", lambda: self._create(self.log()), faulty=False)
            world.run()
        for plan in scenario.loads:
            world.spawn(f"{plan.load.dag}: scheduler", lambda p=plan: self._drive(p), faulty=False, after=plan.start)  # type: ignore[misc]
        for number, other in enumerate(scenario.foreign):
            name = f"foreign {number}: {other.kind}"
            world.spawn(name, lambda f=other: foreign(self, f), faulty=False, after=other.start)  # type: ignore[misc]
        for number, terms in enumerate(scenario.compactions):
            world.spawn(f"optimize {number}", lambda c=terms: compact(self, c), after=terms.start)  # type: ignore[misc]
        for at in scenario.vacuums:
            world.spawn("VACUUM", lambda: vacuum(self), faulty=False, after=at)
        for at in scenario.checkpoints:
            world.spawn("checkpoint", lambda: write_checkpoint(self), faulty=False, after=at)
        for at in scenario.hands:
            world.spawn("a person", lambda: set_aside(self), faulty=False, after=at)
        world.run()

    def settle(self, plan: LoadPlan) -> Said | None:
        """Reconcile a load once more, without faults.

        :param plan: of the load.
        :returns: what reconcile said; ``None`` where the table was never made.
        """
        if self.store.version() < 0 or plan.lone:
            return None
        before = len(self.said)
        self.world.spawn(f"{plan.load.dag}: final reconcile", lambda: self._by_hand(plan), faulty=False)
        self.world.run()
        return self.said[before]

    def log(self) -> DeltaLog:
        """A log as a new process opens it."""
        return DeltaLog(self.store, "sim", self.world)

    # -- Airflow -------------------------------------------------------------------------------------------------------

    def _drive(self, plan: LoadPlan) -> None:
        world, random = self.world, self.world.random
        runners = self._start(plan, plan.writers, {w.key: 1 for w in plan.writers}, 0)
        for at in plan.early:
            self._rounds += 1
            name = f"{plan.load.dag}: reconcile {self._rounds} by hand"
            world.spawn(name, lambda: self._by_hand(plan), after=at)
        self._wait_for(plan, runners)
        if plan.before_reconcile:
            world.sleep(plan.before_reconcile * random.uniform(0.95, 1.05))
        self._settle_up(plan)
        generations = {w.key: 1 for w in plan.writers}
        for rerun in plan.reruns:
            world.sleep(rerun.after)
            world.counters["deliberate reruns"] += 1
            cleared = [w for w in plan.writers if w.key in rerun.writers]
            for writer in cleared:
                generations[writer.key] += 1
            runners = self._start(plan, cleared, generations, rerun.source)
            self._wait_for(plan, runners)
            self._settle_up(plan)

    def _start(
        self, plan: LoadPlan, writers: Sequence[WriterPlan], generations: Mapping[str, int], source: int
    ) -> list[Actor]:
        """Start the tasks of writers: at once, or in any order one after another, as where there is one slot."""
        world = self.world
        tasks = [(w, self._runner(plan, w, generations[w.key], source)) for w in writers]
        if not plan.one_by_one:
            return [world.spawn(f"{plan.load.dag}.{w.key}: scheduler", task, faulty=False) for w, task in tasks]
        world.random.shuffle(tasks)

        def run_all() -> None:
            for _, task in tasks:
                task()

        return [world.spawn(f"{plan.load.dag}: scheduler of one slot", run_all, faulty=False)]

    def _runner(self, plan: LoadPlan, writer: WriterPlan, generation: int, source: int) -> Callable[[], None]:
        def work() -> str:
            return self._write(plan, writer, generation, source)

        name = f"{plan.load.dag}.{writer.task}.g{generation}"
        return lambda: self._tries(plan, name, work)

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
            f"{name}: scheduler", lambda: self._tries(plan, name, lambda: self._reconcile(plan)), faulty=False
        )
        self._wait_for(plan, [tries])

    def _tries(self, plan: LoadPlan, name: str, work: Callable[[], str]) -> None:
        """Run a task until it ends well or has no try left; one whose heartbeat is lost runs on as a zombie."""
        world, random = self.world, self.world.random
        for number in range(1, plan.tries + 1):
            ended: list[str] = []
            actor = world.spawn(f"{name} try {number}", lambda e=ended: e.append(work()))  # type: ignore[misc]
            if random.random() < plan.lost_heartbeat:
                world.sleep(10 ** random.uniform(-2, 1))
                if not actor.thread.dead:
                    world.counters["zombies"] += 1
                    world.note("zombie", name, f"try {number} runs on")
                    continue
            world.join([actor])
            if ended and ended[0] != "retry":
                return
            world.sleep(random.uniform(0, 1))

    # -- tasks ---------------------------------------------------------------------------------------------------------

    def _write(self, plan: LoadPlan, writer: WriterPlan, generation: int, source: int) -> str:
        random = self.world.random
        bounds: dict[str, Any] = {}
        if writer.into is not None:
            name = "replace_where" if plan.mode is Mode.REPLACE_WHERE else "covers"
            bounds[name] = self.scenario.column.predicate(writer.into)
        spec = WriteSpec(
            identity=plan.load.writer(writer.key),
            attempt=f"a-{random.getrandbits(64):016x}",
            generation=generation,
            task=writer.task,
            mode=plan.mode,
            rows_outside=plan.rows_outside,
            allow_empty=plan.allow_empty,
            on_rerun=plan.on_rerun,
            publish=plan.publish,
            fingerprint=f"source {source} of {writer.task}" if plan.fingerprinted else "",
            **bounds,
        )

        def work() -> Publication | Skip | None:
            log = self.log()
            if log.snapshot() is None:
                self._create(log)
            decision = prepare(log, spec)
            if isinstance(decision, Skip):
                return decision
            if isinstance(decision, Reuse):
                self.world.counters["buffers reused"] += 1
                buffer = decision.buffer
            else:
                self._spark(plan, writer, spec, source)
                buffer = complete(log, decision.path, reads_target=writer.reads)
            if spec.publish is PublishMode.TOGETHER:
                return None
            policy = plan.policy if plan.lone else None
            return self.committing(lambda: Committer(log, random, Backoff(budget=120)).publish([buffer], policy))

        return self._task(plan, work, spec)

    def _reconcile(self, plan: LoadPlan) -> str:
        def work() -> Report:
            committer = Committer(self.log(), self.world.random, Backoff(budget=120))
            return self.committing(
                lambda: reconcile(
                    committer,
                    plan.load,
                    [w.key for w in plan.writers],
                    publish=plan.publish,
                    on_conflict=plan.policy,
                    on_missing_writer=plan.on_missing,
                )
            )

        return self._task(plan, work, None)

    def _task(
        self, plan: LoadPlan, work: Callable[[], Publication | Skip | Report | None], spec: WriteSpec | None
    ) -> str:
        world = self.world
        said = Said(world.actor.name, plan, world.steps, 0, self.store.version(), -1, self.epoch, spec)
        try:
            said.said = work()
            ended = "done"
        except TransientError as error:
            said.error, ended = error, "retry"
        except TerminalError as error:
            said.error, ended = error, "failed"
        except OneLakeError as error:
            raise ViolationError(f"{type(error).__name__} leaves production code: {error}") from error
        except Exception as error:
            if isinstance(error, ViolationError):
                raise
            raise ViolationError(f"{type(error).__name__}: {error}") from error
        said.ended, said.newest = world.steps, self.store.version()
        said.epoch = said.epoch if said.epoch == self.epoch else -1
        self.said.append(said)
        world.note("task", ended, str(said.error or _short(said.said)))
        return ended

    def committing(self, work: Callable[[], T]) -> T:
        """Do what ends in a commit; while anybody does, the table is not made again.

        :param work: to do.
        """
        self.world.actor.began = self.world.steps
        self.busy += 1
        try:
            return work()
        finally:
            self.busy -= 1

    def _create(self, log: DeltaLog) -> None:
        part, table = self.scenario.column.type, self.scenario.table
        if table.made_by_spark:
            made = dump_actions(table.version_0(part, int(self.world.now().timestamp() * 1000)))
            self.store.create(version_path(0), made)
            return
        schema = json.dumps({"type": "struct", "fields": fields_of(part)})
        create_table(log, schema, ["part"], table.properties, self.world.random)

    def _spark(self, plan: LoadPlan, writer: WriterPlan, spec: WriteSpec, source: int) -> None:
        """An ordinary Spark append into the buffer: files first, then version 1."""
        random, column = self.world.random, self.scenario.column
        # The rows of a source are the same for every attempt; a rerun that appends means to have them again.
        salt = f"{plan.load.dag}/{writer.name}/{source}"
        if plan.on_rerun == "append":
            salt += f"/g{spec.generation}"
        twin = self._twin(spec.buffer)
        columns = data_columns(twin["metaData"])
        if writer.reads:
            # It reads the table at some moment after its buffer was opened, and computes for a while.
            self.world.pause(random.choice((0, random.randrange(200_000))))
            self.reads[spec.buffer] = self.store.version()
            self.world.pause(random.choice((0, random.randrange(2_000_000))))
        files: dict[str, tuple[int, tuple[str, ...]]] = {}
        adds = []
        given = 0
        for partition, count in writer.sources[source].items():
            rows = tuple(f"{salt}/p{partition}/{i}" for i in range(count))
            parts = [rows] if count == 1 or random.random() < 0.7 else [rows[:1], rows[1:]]
            for part in parts:
                spelling = column.spell(partition, random)
                written = [(row, columns) for row in part]
                add = self.file(
                    partition, written, prefix=f"{spec.buffer}/", spelling=spelling, metadata=twin["metaData"]
                )
                if self.scenario.table.row_tracking:
                    add |= {"baseRowId": given, "defaultRowCommitVersion": 1}
                given += len(part)
                files[add["path"]] = (partition, part)
                adds.append(add)
        if not adds:
            return
        self.staged[spec.buffer] = Staged(spec, plan, writer, files)
        info = {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True}
        info["userMetadata"] = json.dumps({"onelake": {"reads_target": writer.reads}})
        actions: list[dict[str, Any]] = [
            {"commitInfo": info},
            {"txn": {"appId": spec.attempt, "version": 1, "lastUpdated": 1}},
            *({"add": add} for add in adds),
        ]
        if self.scenario.table.row_tracking:
            actions.append({"domainMetadata": high_water_mark(given - 1)})
        self.store.create(f"{spec.buffer}/{version_path(1)}", dump_actions(actions))

    def _twin(self, path: str) -> dict[str, Any]:
        stored = self.store.peek(f"{path}/{version_path(0)}")
        assert stored is not None
        return {kind: body for action in parsed(stored.data) for kind, body in action.items()}

    def file(
        self,
        partition: int,
        rows: Sequence[Row],
        *,
        prefix: str,
        spelling: str | None,
        metadata: dict[str, Any],
        at_once: bool = False,
    ) -> dict[str, Any]:
        """Put a data file, and return its ``add``.

        :param partition: that its rows are of.
        :param rows: in it.
        :param prefix: of its path, which the ``add`` leaves out.
        :param spelling: of the partition's value.
        :param metadata: of the table that it is written for.
        :param at_once: whether nobody else moves meanwhile.
        """
        self._files += 1
        name = f"part={partition}/part-{self._files:05d} of é.parquet"
        data = dump_rows(rows)
        (self.store.put_at_once if at_once else self.store.put)(f"{prefix}{name}", data)
        return {
            "path": quote(name, safe="/=-._"),
            "partitionValues": {partition_key(metadata): spelling},
            "size": len(data),
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}),
            "tags": {"VORDER": "true"},
        }

    # -- what is in the table ---------------------------------------------------------------------------------------------

    def hidden(self, add: dict[str, Any]) -> frozenset[int]:
        """Return the positions of a file's rows that its deletion vector hides."""
        return hidden_rows(self.store, add)

    def rows_of(self, add: dict[str, Any]) -> list[Row]:
        """Return the rows of a file, as a reader finds them.

        :raises ViolationError: the file is gone.
        """
        stored = self.store.peek(unquote(add["path"]))
        if stored is None:
            raise ViolationError(f"the live file {add['path']} is gone")
        return load_rows(stored.data, self.hidden(add))


def _short(said: Publication | Skip | Report | None) -> str:
    if isinstance(said, Publication):
        return f"{said.status.value} in version {said.version} {' '.join(said.conflicts)}"
    if isinstance(said, Report):
        return "; ".join(
            f"{o.writer}: {o.status} {o.version if o.version is not None else ''} {o.error or ''}{' '.join(o.decisions)}"
            for o in said.outcomes
        )
    return str(said) if said else "staged"


__all__ = ["Actor", "Deployment", "Said", "Staged"]
