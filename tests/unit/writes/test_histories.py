"""The one rule, history by history: which rows each policy leaves, and what the tasks of the writers are told.

Writer ``a`` of a load replaces p1 and p2 by the rows 10 and 11, which Spark has staged by ten o'clock. The table has the
rows 1 and 2 in p1, and 3 in p2. Every version is judged by :mod:`tests.support.log_order` as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_provider_onelake.buffers.beginnings import beginning_of
from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.claims import Start, Turn, begin
from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.buffers.layout import share_name, share_path
from airflow_provider_onelake.buffers.scan import ScanShare, offer, open_scan
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.definition.create import define
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.steps.write import write
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.engines import FakeEngine
from tests.support.log_order import Commit, LogOrder, Row, Rows, Write
from tests.support.stores import through
from tests.support.tables import (
    LOAD,
    SCHEMA,
    Stage,
    append_files,
    cleaned_up,
    complete,
    foreign_append,
    landed_at,
    live,
    local_log,
    make_table,
    newest,
    of_attempt,
    prepare,
    writer_spec,
)
from tests.support.vectors import delete_rows

EVERYWHERE = frozenset(("p1", "p2", "p3", "p9"))
OTHER = attrs.evolve(LOAD, dag="another")
POLICIES = [Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS, Policy.FAIL]
TOGETHER = PublishMode.TOGETHER
A, ANEW = {"p1": 10, "p2": 11}, {"p1": 110, "p2": 111}
_EVENING = datetime.now(UTC).replace(microsecond=0)
_ENDS = {"published": "g", "already_published": "g", "set_aside": "sa", "superseded": "su", "refused": "r"}


def at(hour: float) -> datetime:
    """A time of today, if it is eight in the evening now."""
    return _EVENING - timedelta(hours=20 - hour)


def by_month(rows: dict[str, int]) -> dict[str | None, list[int]]:
    return {month: [row] for month, row in rows.items()}


@attrs.frozen
class Staged:
    """What the judge is told of a buffer.

    :param path: of what Spark appended to: its version 1 says when it finished.
    """

    spec: WriteSpec
    rows: Rows
    read: int
    began: int
    path: str


@attrs.define
class World:
    """A table, everybody at it, and the judge of its versions. What a writer ends with is returned: g, sa, su or r."""

    log: DeltaLog
    policy: Policy
    order: LogOrder = attrs.field(factory=LogOrder)
    copied: bool = False
    _buffers: dict[str, Buffer] = attrs.field(factory=dict)
    _older: Any = None
    _staged: dict[str, Staged] = attrs.field(factory=dict)
    _begun: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _scanned: tuple[str, int] | None = None
    _deeds: int = 0

    @property
    def version(self) -> int:
        return len(self.order.states) - 1

    @property
    def anew(self) -> DeltaLog:
        log = through(self.log.store, self.log)
        log.planned = self.log.planned
        return log

    # -- writers of ours -----------------------------------------------------------------------------------------------

    def begin(
        self, key: str = "a", load: Load = LOAD, life: str = "", run: str = "r", mode: Mode | None = None, **terms: Any
    ) -> tuple[WriteSpec, int]:
        """Begin a writer, or run it again; return the version at which its load began for it.

        :param life: of its run: another one for each clear, and for a run that was made again.
        """
        self._deeds += 1
        number, task = self._deeds, f"load.write[{key}]"
        task_start = Start(
            id=f"{number}", task=task, run_id=run, chain=f"{key} {run}", first_try=number, began=number, life=life
        )
        turn = begin(self.anew, load.writer(key), task_start)
        began = beginning_of(self.anew.store, load, turn, life)
        since = self._begun.setdefault((load.id, life if turn.generation > 1 else ""), self.version)
        spec = writer_spec(
            key, load, generation=turn.generation, began=began, mode=mode or OverwritePartitions(), **terms
        )
        return spec, since

    def stage(self, key: str = "a", hour: float = 10, *, reads: bool = False, **more: Any) -> None:
        rows = {month: more.pop(month) for month in EVERYWHERE & {*more}} or A
        log, (spec, began) = self.anew, self.begin(key, **more)
        assert isinstance(prepare(log, spec), Stage)
        self._note(spec, began, rows)
        actions = append_files(log.store, spec.buffer, by_month(rows), **of_attempt(spec.attempt, reads_target=reads))
        log.store.create(f"{spec.buffer}/{version_path(1)}", dump_actions(actions))
        self._finished(spec.buffer, hour)
        self._older = self._buffers.get(key)
        self._buffers[key] = complete(log, spec.buffer)

    def publish(self, key: str = "a", policy: Policy | None = None) -> str:
        """Publish what a writer has staged, as its own task does, but for staging it anew."""
        policy = policy or self.policy
        try:
            status = Committer(self.anew).publish([self._buffers[key]], policy).status.value
        except ConflictError:
            status = "refused"
        self._look(policy)
        return _ENDS[status]

    def run(self, key: str, hour: float = 10, **more: Any) -> str:
        self.stage(key, hour, **more)
        return self.publish(key)

    def late(self) -> str:
        """What writer ``a`` had staged before it was cleared lands now: its put was on its way."""
        newer, self._buffers["a"] = self._buffers["a"], self._older
        end = self.publish("a")
        self._buffers["a"] = newer
        return end

    def one_slot(self) -> str:
        return f"{self.run('a', p1=10)} {self.run('b', 11, p1=20)}"

    def b(self, hour: float, load: Load = OTHER, **more: Any) -> None:
        self.stage("b", hour, load=load, **more)
        assert self.publish("b", Policy.LAST_WRITER_WINS) == "g"
        landed_at(self.log, self.version, at(hour))

    def reconcile(self, *keys: str, **terms: Any) -> str:
        report = reconcile(Committer(self.anew), LOAD, keys or ("a",), on_conflict=self.policy, **terms)
        self._look(self.policy)
        return " ".join(_ENDS[outcome.status] for outcome in report.outcomes)

    def scan(self) -> None:
        """A shared scan has staged 10 and 11 for writer ``a`` by ten."""
        log, who = self.anew, LOAD.writer("a")
        share, name = ScanShare(identity=who, where="", fingerprint="same"), share_name(who.directory)
        scan = open_scan(log, "deed", "load.scan", [share], newest(log))
        info, *adds = append_files(log.store, f"{scan.path}/onelake_writer={name}", by_month(A), userMetadata="{}")
        for add in (action["add"] for action in adds):
            add["path"] = f"onelake_writer={name}/{add['path']}"
            add["partitionValues"] = {"onelake_writer": name, **add["partitionValues"]}
        log.store.create(f"{scan.path}/{version_path(1)}", dump_actions([info, *adds]))
        self._finished(scan.path, 10)
        offer(log, scan, [share])
        self._scanned = scan.path, self.version

    def own(self, *then: Callable[[World], object]) -> str:
        """Do the whole task of writer ``a``: it stages 10 and 11, if no earlier try and no scan has done so.

        :param then: what others do when Spark has staged them by ten. What is staged anew is 110 and 111.
        """
        spec, began = (self._staged[self._buffers["a"].path].spec, 0) if self._buffers.get("a") else self.begin()
        spec = attrs.evolve(spec, attempt="own")
        scan, read = self._scanned or (None, 0)
        if scan is not None:
            share = share_path(scan, LOAD.writer("a").directory)
            self._staged[share] = Staged(spec, _rows(A), read, began, scan)
        engine = _Engine({}, to_come=[] if scan or "a" in self._buffers else [A])

        def staged(job: StageJob, rows: dict[str, int]) -> None:
            self._note(attrs.evolve(spec, attempt=job.attempt), began, rows)
            if rows is A:
                self._finished(spec.buffer, 10)
                for step in then:
                    step(self)

        engine.staged_by = staged
        task = OneLakeWriteOperator(task_id="write", table="Tables/trips", source=SqlSource("SELECT 1"))
        table = OneLakeHook().table("Tables/trips")
        try:
            turn = Turn.of(table.log, spec.identity, spec.generation)
            done = write(spec, turn, task.terms(), table, SparkWork(lambda: engine), Metrics({}), self.policy, scan)
        except ConflictError:
            return "r"
        self._look(self.policy)
        return _ENDS[done.status]

    def _note(self, spec: WriteSpec, began: int, rows: dict[str, int]) -> None:
        self._staged[spec.buffer] = Staged(spec, _rows(rows), self.version, began, spec.buffer)

    def _finished(self, path: str, hour: float) -> None:
        moment = at(hour).timestamp()
        os.utime(Path(self.log.table, path, version_path(1)), (moment, moment))

    # -- others --------------------------------------------------------------------------------------------------------

    def append(self, hour: float, **rows: int) -> None:
        info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
        foreign_append(self.anew, by_month(rows), **info)
        self._landed(hour, Commit("an append", Write(puts=_rows(rows))))

    def delete_by_vector(self, hour: float) -> None:
        (there,) = (add for add in live(self.anew) if add["partitionValues"]["month"] == "p1")
        delete_rows(self.anew, there, [0])
        self._landed(hour, Commit("DELETE", Write(changes=lambda row: row if row[1] != 1 else None)))

    def overwrite_by_deltalake(self, hour: float) -> None:
        """It does not say whether it has replaced the whole table, or the partition of its row."""
        write_deltalake(self.log.table, pa.table({"id": [20], "month": ["p1"]}), mode="overwrite")
        replaced = Write(EVERYWHERE, puts=_rows({"p1": 20}))
        self._landed(hour, Commit("deltalake", replaced, may_replace=EVERYWHERE))

    def restore(self, to: float, hour: float) -> None:
        version = int(to)
        DeltaTable(self.log.table).restore(version)
        back = Write(EVERYWHERE, puts=self.order.states[version])
        self._landed(hour, Commit("RESTORE", back, restores=True))

    def optimize(self, hour: float) -> None:
        DeltaTable(self.log.table).optimize.compact()
        self._landed(hour, Commit("OPTIMIZE"))

    def z_order(self, hour: float) -> None:
        DeltaTable(self.log.table).optimize.z_order(["id"])
        self._landed(hour, Commit("OPTIMIZE"))

    def clean_up(self, *versions: float) -> None:
        """The log behind a checkpoint is gone, or some entries of it."""
        self.log = cleaned_up(self.log, *map(int, versions))

    def copy(self, hour: float) -> None:
        """The table is copied: all times are new."""
        for path in Path(self.log.table).rglob("*.json"):
            os.utime(path, (at(hour).timestamp(), at(hour).timestamp()))
        self.copied = True

    def without_table(self) -> None:
        """The writers are of a table that is still to be made."""
        self.log, self.order = local_log(Path(self.log.table).with_name("new")), LogOrder()
        self.log.plan(*define(self.log, SCHEMA, ["month"], {}, Random(1)))

    # -- the judge -----------------------------------------------------------------------------------------------------

    def _landed(self, hour: float, commit: Commit) -> None:
        landed_at(self.log, DeltaTable(self.log.table).version(), at(hour))
        self._look(None, commit)

    def _look(self, policy: Policy | None, *others: Commit) -> None:
        """Judge the versions that are new.

        :param policy: of those of ours.
        :param others: what others did in theirs.
        """
        for version in range(len(self.order.states), DeltaTable(self.log.table).version() + 1):
            entry = Path(self.log.table, version_path(version))
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            (info,) = [action["commitInfo"] for action in actions if "commitInfo" in action]
            files = [action.get("add") or action["remove"] for action in actions if {"add", "remove"} & {*action}]
            ours = [self._staged[writer["buffer"]] for writer in info.get("staged", {}).get("writers", ())]
            if ours:
                commit = self._ours(policy, ours)
            else:
                (commit,) = others
                commit = attrs.evolve(commit, finished=(entry.stat().st_mtime_ns, ""))
            changed = frozenset(file["partitionValues"]["month"] for file in files if file["dataChange"])
            query = QueryBuilder().register("t", DeltaTable(self.log.table, version=version))
            found = pa.table(query.execute("SELECT month, id FROM t").read_all()).to_pylist()
            there = frozenset((row["month"], row["id"]) for row in found)
            self.order.take_in(attrs.evolve(commit, may_change=changed), there)
        assert not self.order.complaints

    def _ours(self, policy: Policy | None, staged: Sequence[Staged]) -> Commit:
        spec, one = staged[0].spec, staged[0]
        writers, rows = frozenset(each.spec.identity.app_id for each in staged), _all(staged)
        parts = {Overwrite: EVERYWHERE, Append: frozenset()}.get(type(spec.mode), frozenset(row[0] for row in rows))
        mates = [s for s in self._staged.values() if s.spec.identity.load == spec.identity.load]
        mates = [s for s in mates if spec.publish is TOGETHER and s.spec.identity.app_id not in writers]
        finished = max(
            (Path(self.log.table, s.path, version_path(1)).stat().st_mtime_ns, s.spec.identity.app_id) for s in staged
        )
        return Commit(
            ", ".join(sorted(writers)),
            Write(parts, _all(mates), puts=rows),
            None if self.copied else finished,
            parts,
            policy=policy if parts else None,
            read=min(each.read for each in staged),
            writers=writers,
            allies=frozenset(each.spec.identity.app_id for each in mates),
            load=spec.identity.load,
            began=None if spec.publish is TOGETHER else one.began,
        )


@attrs.define
class _Engine(FakeEngine):
    """Stages the rows that are to come, and then others.

    :param staged_by: called with each job, and its rows.
    """

    to_come: list[dict[str, int]] = attrs.field(kw_only=True)
    staged_by: Callable[[StageJob, dict[str, int]], None] = attrs.field(default=lambda job, rows: None, kw_only=True)

    def stage(self, job: StageJob) -> Any:
        rows = self.to_come.pop() if self.to_come else ANEW
        self.rows = {None: by_month(rows)}
        result = FakeEngine.stage(self, job)
        self.staged_by(job, rows)
        return result


def _rows(rows: dict[str, int]) -> Rows:
    return frozenset(rows.items())


def _all(staged: Sequence[Staged]) -> Rows:
    return frozenset[Row]().union(*(each.rows for each in staged))


# Words of steps, beside the names of writers, hours and rows.
TERMS: dict[str, dict[str, Any]] = {
    "cleared": {"life": "1"},
    "again": {"life": "made again", "run": "another"},
    "together": {"publish": TOGETHER},
    "appends": {"mode": Append()},
    "overwrites": {"mode": Overwrite()},
    "reads": {"reads": True},
    "third": {"load": attrs.evolve(LOAD, dag="a third")},
    "zoo": {"load": attrs.evolve(LOAD, dag="zoo")},
}


def done(world: World, step: str) -> Any:
    """Do a step such as ``stage b 11 p1=20``: a method of the world, a writer, an hour, a row of a partition.

    ``own b 11 p1=20`` is the whole task of writer ``a``, in which others do what stands behind it.
    """
    name, *words = step.split()
    if name == "own":
        return world.own(*([lambda world: done(world, " ".join(words))] if words else []))
    given = [float(word) if word[0].isdigit() else word for word in words if "=" not in word and word not in TERMS]
    rows = {month: int(row) for month, _, row in (word.partition("=") for word in words if "=" in word)}
    more = {name: value for word in words for name, value in TERMS.get(word, {}).items()}
    return getattr(world, name)(*given, **rows, **more)


# A history, its steps, and for each policy the rows that it leaves and the ends of its writers; or once for all three.
HISTORIES = """
1 nobody else | stage, publish | 10 11: g
2 others replaced a part, earlier | stage, b 9 p1=20, publish | 10 11: g / 3 20: sa / 3 20: r
2 the same, in one second, of a smaller id | stage, b 10 p1=20, publish | 10 11: g / 3 20: sa / 3 20: r
2 the same, in one second, of a greater id | own b 10 zoo p1=20 | 110 111: g / 3 20: sa / 3 20: r
3 the same, before the writer began | stage first, b 9 p1=20, stage, publish | 10 11: g
4 others replaced all, later | stage, b 11 p1=20 p2=21, publish | 20 21: su / 20 21: sa / 20 21: r
5 others replaced a part, later | own b 11 p1=20 | 110 111: g / 3 20: sa / 3 20: r
6 the same, reconciled | stage, b 11 p1=20, reconcile | 3 20: r / 3 20: sa / 3 20: r
7 an append, later | own append 11 p1=20 | 110 111: g / 1 2 3 20: sa / 1 2 3 20: r
8 the same, reconciled | stage, append 11 p1=20, reconcile | 1 2 3 20: r / 1 2 3 20: sa / 1 2 3 20: r
8 the same, in one second | stage, append 10 p1=20, publish | 10 11: g / 1 2 3 20: sa / 1 2 3 20: r
9 an append elsewhere | stage, append 11 p3=20, publish | 10 11 20: g
10 two others replaced all | stage, b 11 p1=20, b 11.5 third p2=21, publish | 20 21: su / 20 21: sa / 20 21: r
11 others replaced all, then an append | stage, b 11 p1=20 p2=21, append 12 p1=30, publish
    | 20 21 30: su / 20 21 30: sa / 20 21 30: r
12 others replaced all, then a RESTORE | stage, b 11 p1=20 p2=21, restore 1 12, reconcile
    | 1 2 3: r / 1 2 3: sa / 1 2 3: r
12 the same, a RESTORE of other rows | stage, b 11 p1=20 p2=21, append 11.5 p3=30, restore 2 12, reconcile
    | 20 21: r / 20 21: sa / 20 21: r
13 deltalake overwrote the table | stage p9=10, overwrite_by_deltalake 11, reconcile | 20: r / 20: sa / 20: r
14 compaction and Z-order | append 8 p1=4, stage, optimize 11, z_order 12, publish | 10 11: g
15 a DELETE by a vector | stage, delete_by_vector 11, reconcile | 2 3: r / 2 3: sa / 2 3: r
16 two of a load, one slot | one_slot | 3 20: g g / 3 10: g sa / 3 10: g r
17 two slots, the last to finish lands last | stage a p1=10, stage b 11 p1=20, publish a, publish b
    | 3 20: g g / 3 10: g sa / 3 10: g r
18 two slots, the last to finish lands first | stage a p1=10, stage b 11 p1=20, publish b, publish a
    | 3 20: g su / 3 20: g sa / 3 20: g r
19 the second is cleared alone | one_slot, run b 12 p1=21 cleared, reconcile a b
    | 3 21: g g g su g / 3 21: g sa g su g / 3 21: g r g su g
19 the first is, and its earlier generation lands late | stage a p1=10, stage a 9 p1=11 cleared, late, publish a
    | 3 11: g g
20 the run is cleared, one slot | one_slot, run a 12 p1=11 cleared, run b 13 p1=21 cleared
    | 3 21: g g g g / 3 11: g sa g sa / 3 11: g r g r
20 the run is cleared, two slots | one_slot, stage a 12 p1=11 cleared, stage b 13 p1=21 cleared, publish a, publish b
    | 3 21: g g g g / 3 11: g sa g sa / 3 11: g r g r
21 the run is made again | one_slot, run a 12 p1=11 again, run b 13 p1=21 again
    | 3 21: g g g g / 3 11: g sa g sa / 3 11: g r g r
22 the list grows, and the log is gone | run a p1=10, clean_up, run new 11 p1=20, run new 12 p1=21 cleared
    | 3 21: g g g / 3 21: g r g / 3 21: g r g
23 one begins after a clear of another | run w1 p1=10, run w2 11 p2=20, run w2 12 p2=21 cleared,
    run w3 13 p1=30 cleared
    | 21 30: g g g g / 10 21: g g g sa / 10 21: g g g r
24 others replaced a part since the scan | scan, b 11 p1=20, own | 110 111: g
24 nobody has since the scan | scan, own | 10 11: g
25 computed from what the load appended | run a p1=10 appends, run w 11 p2=30 appends reads | 1 2 3 10 30: g g
26 a retry after hours | stage, b 11 p1=20, own | 110 111: g / 3 20: sa / 3 20: r
27 together, one is cleared after OPTIMIZE | stage a p1=10 together, stage b p2=11 together,
    reconcile a b together, append 11 p1=5, optimize 11, stage a 12 p1=110 together cleared, reconcile a b together
    | 11 110: g g g g
28 together, others between | stage a p1=10 together, b 11 p1=20, stage b 12 p2=11 together, reconcile a b together
    | 10 11: g g / 3 20: sa sa / 3 20: r r
29 formed on no table | without_table, stage, run first 8 p3=5, b 9 p1=20, publish
    | 5 10 11: g g / 5 20: g sa / 5 20: g r
29 formed on version 0 | without_table, run first 8 p3=5, stage, b 9 p1=20, publish
    | 5 10 11: g g / 5 20: g sa / 5 20: g r
30 others replaced all, and a copy | stage, b 9 p1=20 p2=21, copy 13, reconcile | 20 21: su / 20 21: sa / 20 21: r
30 others replaced a part, and a copy | stage, b 9 p1=20, copy 13, reconcile | 3 20: r / 3 20: sa / 3 20: r
30 others replaced all, earlier, and the entry of its version is gone | stage, b 9 p1=20 p2=21, clean_up 0 1, publish
    | 10 11: g / 20 21: sa / 20 21: r
31 two dead writers | stage b 10.1 p1=20, stage, reconcile b a | 11 20: g g / 10 11: sa g / 10 11: r g
32 an append, the table refreshed | stage appends p1=10, b 11 p1=20 overwrites, reconcile | 10 20: g
"""


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("history", re.split(r"\n(?=\d)", HISTORIES.strip()), ids=lambda text: text.partition(" |")[0])
def test_a_history(history: str, policy: Policy, tmp_path: Path) -> None:
    _, steps, told = " ".join(history.split()).split(" | ")
    log = make_table(tmp_path / "Tables" / "trips", **{"delta.enableDeletionVectors": "true"})
    world = World(log, policy)
    world._look(None, Commit("CREATE TABLE"))
    foreign_append(log, {"p1": [1, 2], "p2": [3]})
    world._landed(6, Commit("the first rows", Write(puts=frozenset({("p1", 1), ("p1", 2), ("p2", 3)}))))
    ends = [end for step in steps.split(", ") for end in (done(world, step) or "").split()]
    rows = [str(row) for _, row in sorted(world.order.states[-1], key=lambda row: row[1])]
    expected = told.split(" / ")
    assert f"{' '.join(rows)}: {' '.join(ends)}" == expected[POLICIES.index(policy) % len(expected)]
