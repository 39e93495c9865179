"""The processes of a simulated deployment: writers' tasks, reconcile tasks, others' engines, VACUUM, a person.

They do what the operators do (``OneLakeWriteOperator._write``, ``OneLakeReconcileOperator._reconcile``), with the
production code of ``staging`` and ``commit``; only Spark is played: it puts files, then version 1 of the buffer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any
from urllib.parse import quote

import attrs

from airflow_provider_onelake.commit.backoff import Backoff
from airflow_provider_onelake.commit.create import create_table
from airflow_provider_onelake.commit.publish import Committer, Publication
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.commit.report import Report
from airflow_provider_onelake.exceptions import OneLakeError, TerminalError, TransientError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import close, closed
from airflow_provider_onelake.staging.prepare import Reuse, Skip, complete, prepare
from airflow_provider_onelake.staging.spec import Mode, PublishMode, WriteSpec
from tests.simulation.checkpoint import checkpoint
from tests.simulation.scenario import ForeignPlan, LoadPlan, Scenario, WriterPlan
from tests.simulation.store import MemoryStore
from tests.simulation.world import Actor, ViolationError, World

DAY = 86_400 * 1_000_000
WEEK = 7 * DAY


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
    :param newest: the table's version when it ended.
    """

    actor: str
    plan: LoadPlan
    began: int
    ended: int
    newest: int
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
        self.plans = {plan.load.id: plan for plan in self.scenario.loads}
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
        for number, foreign in enumerate(scenario.foreign):
            name = f"foreign {number}: {foreign.kind}"
            world.spawn(name, lambda f=foreign: self._foreign(f), faulty=False, after=foreign.start)  # type: ignore[misc]
        for at in scenario.vacuums:
            world.spawn("VACUUM", self._vacuum, faulty=False, after=at)
        for at in scenario.checkpoints:
            world.spawn("checkpoint", self._checkpoint, faulty=False, after=at)
        for at in scenario.hands:
            world.spawn("a person", self._set_aside, faulty=False, after=at)
        world.run()

    def settle(self, plan: LoadPlan) -> Said | None:
        """Reconcile a load once more, without faults.

        :param plan: of the load.
        :returns: what reconcile said; ``None`` where the table was never made.
        """
        if self.store.version() < 0:
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
        runners = [
            world.spawn(f"{plan.load.dag}.{w.key}: scheduler", self._runner(plan, w, 1, 0), faulty=False)
            for w in plan.writers
        ]
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
            runners = [
                world.spawn(
                    f"{plan.load.dag}.{w.key}: scheduler",
                    self._runner(plan, w, generations[w.key], rerun.source),
                    faulty=False,
                )
                for w in cleared
            ]
            self._wait_for(plan, runners)
            self._settle_up(plan)

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
                buffer = complete(log, decision.path)
            if spec.publish is PublishMode.TOGETHER:
                return None
            self.world.actor.began = self.world.steps
            return Committer(log, random, Backoff(budget=120)).publish([buffer])

        return self._task(plan, work, spec)

    def _reconcile(self, plan: LoadPlan) -> str:
        def work() -> Report:
            committer = Committer(self.log(), self.world.random, Backoff(budget=120))
            self.world.actor.began = self.world.steps
            return reconcile(
                committer,
                plan.load,
                [w.key for w in plan.writers],
                publish=plan.publish,
                on_conflict=plan.policy,
                on_missing_writer=plan.on_missing,
            )

        return self._task(plan, work, None)

    def _task(
        self, plan: LoadPlan, work: Callable[[], Publication | Skip | Report | None], spec: WriteSpec | None
    ) -> str:
        world = self.world
        said = Said(world.actor.name, plan, world.steps, 0, -1, spec)
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
        self.said.append(said)
        world.note("task", ended, str(said.error or _short(said.said)))
        return ended

    def _create(self, log: DeltaLog) -> None:
        fields = [
            {"name": "id", "type": "string", "nullable": True, "metadata": {}},
            {"name": "part", "type": self.scenario.column.type, "nullable": True, "metadata": {}},
        ]
        create_table(log, json.dumps({"type": "struct", "fields": fields}), ["part"], random=self.world.random)

    def _spark(self, plan: LoadPlan, writer: WriterPlan, spec: WriteSpec, source: int) -> None:
        """An ordinary Spark append into the buffer: files first, then version 1."""
        random, column = self.world.random, self.scenario.column
        # The rows of a source are the same for every attempt; a rerun that appends means to have them again.
        salt = f"{plan.load.dag}/{writer.task}/{source}"
        if plan.on_rerun == "append":
            salt += f"/g{spec.generation}"
        files: dict[str, tuple[int, tuple[str, ...]]] = {}
        adds = []
        for partition, count in writer.sources[source].items():
            rows = tuple(f"{salt}/p{partition}/{i}" for i in range(count))
            parts = [rows] if count == 1 or random.random() < 0.7 else [rows[:1], rows[1:]]
            for part in parts:
                add = self._file(partition, part, prefix=f"{spec.buffer}/", spelling=column.spell(partition, random))
                files[add["path"]] = (partition, part)
                adds.append(add)
        if not adds:
            return
        self.staged[spec.buffer] = Staged(spec, plan, writer, files)
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": 1, "operation": "WRITE", "isBlindAppend": True}},
            {"txn": {"appId": spec.attempt, "version": 1, "lastUpdated": 1}},
            *({"add": add} for add in adds),
        ]
        self.store.create(f"{spec.buffer}/{version_path(1)}", dump_actions(actions))

    def _file(self, partition: int, rows: tuple[str, ...], *, prefix: str, spelling: str | None) -> dict[str, Any]:
        self._files += 1
        name = f"part={partition}/part-{self._files:05d} of é.parquet"
        data = json.dumps(rows).encode()
        self.store.put(f"{prefix}{name}", data)
        return {
            "path": quote(name, safe="/=-._"),
            "partitionValues": {"part": spelling},
            "size": len(data),
            "modificationTime": 1,
            "dataChange": True,
            "stats": json.dumps({"numRecords": len(rows)}),
            "tags": {"VORDER": "true"},
        }

    # -- others --------------------------------------------------------------------------------------------------------

    def _foreign(self, plan: ForeignPlan) -> None:
        """A commit of an engine that knows nothing of us: it decides on a snapshot, and again where it was overtaken."""
        world, store, random = self.world, self.store, self.world.random
        rows = tuple(f"{world.actor.name}/{i}" for i in range(2))
        new: list[dict[str, Any]] = []
        for _ in range(100):
            if store.version() < 0:
                world.sleep(1)
        if store.version() < 0:
            return
        if plan.kind in ("append", "overwrite"):
            spelling = self.scenario.column.spell(plan.partition, random)
            new = [self._file(plan.partition, rows, prefix="", spelling=spelling)]
        while True:
            version, live, metadata = self.replay()
            mine = [
                add
                for add in live.values()
                if self.scenario.column.read(add["partitionValues"]["part"]) == plan.partition
            ]
            info: dict[str, Any] = {"operation": "WRITE", "isBlindAppend": plan.kind == "append" and plan.blind}
            info["operationParameters"] = {"mode": "Overwrite" if plan.kind == "overwrite" else "Append"}
            actions: list[dict[str, Any]] = [{"add": add} for add in new]
            if plan.kind in ("overwrite", "delete"):
                if plan.kind == "delete" and not mine:
                    return
                actions += [{"remove": _remove(add, change=True)} for add in mine]
            elif plan.kind == "compact":
                info["operation"] = "OPTIMIZE"
                if len(mine) < 2:
                    return
                chosen = mine if random.random() < 0.6 else random.sample(mine, 2)
                merged = tuple(row for add in chosen for row in self.rows_of(add))
                add = self._file(plan.partition, merged, prefix="", spelling=chosen[0]["partitionValues"]["part"])
                actions += [{"remove": _remove(old, change=False)} for old in chosen]
                actions.append({"add": {**add, "dataChange": False}})
            elif plan.kind.startswith("add "):
                actions = [{"metaData": _evolved(metadata, plan.kind)}]
            info["timestamp"] = int(world.now().timestamp() * 1000)
            if not plan.silent or plan.kind not in ("append", "overwrite", "delete"):
                actions.insert(0, {"commitInfo": info})
            world.sleep(plan.thinks)
            try:
                store.create(version_path(version + 1), dump_actions(actions))
            except OneLakeError:
                plan = attrs.evolve(plan, thinks=plan.thinks / 2)
                continue
            world.counters[f"foreign: {plan.kind}"] += 1
            return

    def _vacuum(self) -> None:
        """VACUUM lists first, and deletes later."""
        world, store = self.world, self.store
        _, live, _ = self.replay()
        spared = {f"{path}" for path in live}
        for entry in store.entries.values():
            for action in map(json.loads, entry.data.splitlines()):
                if "remove" in action and world.microseconds - entry.modified < WEEK:
                    spared.add(action["remove"]["path"])
        listed = [
            path
            for path, stored in sorted(store.objects.items())
            if path.endswith(".parquet")
            and "_delta_log/" not in path
            and world.microseconds - stored.modified > WEEK
            and quote(path, safe="/=-._") not in spared
        ]
        world.note("VACUUM", "", f"has listed {len(listed)} files")
        world.sleep(world.random.uniform(0, 130_000))
        for path in listed:
            store.delete(path)
            world.counters["files deleted by VACUUM"] += 1

    def _checkpoint(self) -> None:
        """An engine writes a checkpoint, and cleans up the log behind it."""
        world, store = self.world, self.store
        version, live, metadata = self.replay()
        if version < 0:
            return
        txns: dict[str, dict[str, Any]] = {}
        protocol: dict[str, Any] = {}
        for _, entry in sorted(store.entries.items()):
            for action in map(json.loads, entry.data.splitlines()):
                protocol = action.get("protocol", protocol)
                if "txn" in action:
                    txns[action["txn"]["appId"]] = action["txn"]
        actions: list[dict[str, Any]] = [{"protocol": protocol}, {"metaData": metadata}]
        actions += [{"txn": txn} for txn in txns.values()]
        actions += [{"add": {**add, "dataChange": False}} for add in live.values()]
        store.put(f"_delta_log/{version:020d}.checkpoint.parquet", checkpoint(actions))
        store.put("_delta_log/_last_checkpoint", json.dumps({"version": version, "size": len(actions)}).encode())
        old = [v for v, e in sorted(store.entries.items()) if v < version and world.microseconds - e.modified > DAY]
        for v in old:
            store.delete(version_path(v))
        world.counters["checkpoints"] += 1
        world.counters["log entries cleaned up"] += len(old)

    def _set_aside(self) -> None:
        """A person closes a complete buffer by hand."""
        waiting = [path for path in self.staged if self.store.peek(f"{path}/{version_path(1)}")]
        if waiting:
            path = self.world.random.choice(sorted(waiting))
            if closed(self.store, path) is None:
                close(self.store, path, {"reason": "a person does not want it"})
                self.world.counters["buffers closed by hand"] += 1

    # -- what is in the table ---------------------------------------------------------------------------------------------

    def replay(self) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
        """Return the newest version, its live files and its metadata: an independent, naive replay."""
        live: dict[str, dict[str, Any]] = {}
        metadata: dict[str, Any] = {}
        for _, entry in sorted(self.store.entries.items()):
            actions = [json.loads(line) for line in entry.data.splitlines()]
            for action in actions:
                if "remove" in action:
                    live.pop(action["remove"]["path"], None)
                metadata = action.get("metaData", metadata)
            for action in actions:
                if "add" in action:
                    live[action["add"]["path"]] = action["add"]
        return self.store.version(), live, metadata

    def rows_of(self, add: dict[str, Any]) -> tuple[str, ...]:
        """Return the rows of a file, as a reader finds them.

        :raises ViolationError: the file is gone.
        """
        from urllib.parse import unquote

        stored = self.store.peek(unquote(add["path"]))
        if stored is None:
            raise ViolationError(f"the live file {add['path']} is gone")
        return tuple(json.loads(stored.data))


def _remove(add: dict[str, Any], *, change: bool) -> dict[str, Any]:
    return {
        "path": add["path"],
        "partitionValues": add["partitionValues"],
        "size": add["size"],
        "deletionTimestamp": 1,
        "dataChange": change,
    }


def _evolved(metadata: dict[str, Any], kind: str) -> dict[str, Any]:
    if kind == "add check":
        return {**metadata, "configuration": {**metadata["configuration"], "delta.constraints.c": "id > 0"}}
    schema = json.loads(metadata["schemaString"])
    if all(field["name"] != "extra" for field in schema["fields"]):
        schema["fields"].append({"name": "extra", "type": "string", "nullable": True, "metadata": {}})
    return {**metadata, "schemaString": json.dumps(schema)}


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
