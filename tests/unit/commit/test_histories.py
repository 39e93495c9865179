"""The one rule, history by history: what each policy makes of a write, by which rows, and what its task is told.

Writer ``a`` of a load replaces p1 and p2 by the rows 10 and 11, which Spark has staged by ten o'clock. The table has the
rows 1 and 2 in p1, and 3 in p2. Every version is judged by :mod:`tests.support.log_order` as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.definition import define
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.metrics import Metrics
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.staging.beginnings import beginning_of
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.claims import Deed, begin
from airflow_provider_onelake.staging.identity import Load
from airflow_provider_onelake.staging.layout import share_name, share_path
from airflow_provider_onelake.staging.modes import Append, Mode, Overwrite, OverwritePartitions
from airflow_provider_onelake.staging.prepare import Stage, complete, prepare
from airflow_provider_onelake.staging.scan import Share, offer, open_scan
from airflow_provider_onelake.staging.spec import WriteSpec
from airflow_provider_onelake.work.spark import SparkWork
from airflow_provider_onelake.work.write import write
from tests.support.commits import committer
from tests.support.engines import FakeEngine, Rows, overtake
from tests.support.log_order import Commit, LogOrder, Row, Write
from tests.support.stores import through
from tests.support.tables import (
    LOAD,
    SCHEMA,
    append_files,
    cleaned_up,
    finish,
    foreign_append,
    landed_at,
    live,
    local_log,
    make_table,
    newest,
    of_attempt,
    writer_spec,
)
from tests.support.vectors import delete_rows

EVERYWHERE = frozenset(("p1", "p2", "p3", "p9"))
OTHER, THIRD = attrs.evolve(LOAD, dag="another"), attrs.evolve(LOAD, dag="a third")
A: Rows = {"p1": [10], "p2": [11]}
ANEW: Rows = {"p1": [110], "p2": [111]}
LAST, FIRST, FAIL = Policy.LAST_WRITER_WINS, Policy.FIRST_WRITER_WINS, Policy.FAIL
_EVENING = datetime.now(UTC).replace(microsecond=0)
_ENDS = {"published": "g", "already_published": "g", "set_aside": "sa", "superseded": "su", "refused": "r"}


def at(hour: float) -> datetime:
    """A time of today, if it is eight in the evening now."""
    return _EVENING - timedelta(hours=20 - hour)


def rows_of(rows: Rows) -> frozenset[Row]:
    return frozenset((month, row) for month, found in rows.items() for row in found)


@attrs.define
class Staged:
    """What the judge is told of a buffer.

    :param path: of what Spark appended to, whose version 1 says when it finished.
    """

    spec: WriteSpec
    rows: frozenset[Row]
    read: int
    began: int
    path: str


@attrs.define
class World:
    """A table, whoever writes it, and the judge of its versions.

    :param log: of the table.
    :param policy: of the load.
    """

    log: DeltaLog
    policy: Policy
    engine: FakeEngine
    patch: pytest.MonkeyPatch
    order: LogOrder = attrs.field(factory=LogOrder)
    copied: bool = False
    _staged: dict[str, Staged] = attrs.field(factory=dict)
    _begun: dict[tuple[str, str], int] = attrs.field(factory=dict)
    _lives: dict[tuple[str, str, int], str] = attrs.field(factory=dict)
    _scans: dict[str, tuple[str, int]] = attrs.field(factory=dict)
    _deeds: int = 0

    @property
    def version(self) -> int:
        return len(self.order.states) - 1

    # -- writers of ours -----------------------------------------------------------------------------------------------

    def begin(
        self, key: str = "a", load: Load = LOAD, *, life: str = "", run: str = "r", mode: Mode | None = None, **terms: Any
    ) -> WriteSpec:
        """Begin a writer, or run it again.

        :param life: of its run: another one for each clear, and for a run that was made again.
        """
        self._deeds += 1
        deed = Deed(
            id=f"deed {self._deeds}",
            task=f"load.write[{key}]",
            run_id=run,
            chain=f"{key} of {run}",
            first_try=self._deeds,
            began=self._deeds,
            life=life,
        )
        log = through(self.log.store, self.log)
        generation = begin(log, load.writer(key), deed)
        self._begun.setdefault((load.id, life if generation > 1 else ""), self.version)
        began = beginning_of(log, load, generation, deed.life)
        mode = mode or OverwritePartitions()
        self._lives[load.id, key, generation] = life if generation > 1 else ""
        return writer_spec(key, load, generation=generation, began=began, mode=mode, **terms)

    def stage(self, spec: WriteSpec, rows: Rows, hour: float = 10, *, reads: bool = False) -> Buffer:
        """Stage the rows of a writer that has begun."""
        log = through(self.log.store, self.log)
        log.planned = self.log.planned
        self.note(spec, rows, spec.buffer)
        assert isinstance(prepare(log, spec), Stage)
        actions = append_files(log.store, spec.buffer, rows, **of_attempt(spec.attempt, reads_target=reads))
        log.store.create(f"{spec.buffer}/{version_path(1)}", dump_actions(actions))
        self.finished(spec.buffer, hour)
        return complete(log, spec.buffer)

    def note(self, spec: WriteSpec, rows: Rows, path: str) -> None:
        identity = spec.identity
        began = self._begun[identity.load.id, self._lives[identity.load.id, identity.key, spec.generation]]
        self._staged[path] = Staged(spec, rows_of(rows), self.version, began, path)

    def finished(self, path: str, hour: float) -> None:
        moment = at(hour).timestamp()
        os.utime(Path(self.log.table, path, version_path(1)), (moment, moment))

    def a(self, rows: Rows = A) -> Buffer:
        return self.stage(self.begin(), rows)

    def publish(self, buffer: Buffer, policy: Policy | None = None) -> str:
        """Publish a buffer in its writer's own task, which does not stage anew."""
        policy = policy or self.policy
        try:
            status = committer(self.log).publish([buffer], policy).status.value
        except ConflictError as error:
            assert "lear the writers" in str(error)
            status = "refused"
        self.look(policy)
        return _ENDS[status]

    def run(self, key: str, rows: Rows, hour: float = 10, **terms: Any) -> str:
        """Run a writer, from its beginning to its commit."""
        return self.publish(self.stage(self.begin(key, **terms), rows, hour))

    def own(self, spec: WriteSpec, scan: str | None = None, then: Callable[[], None] | None = None) -> str:
        """Run the whole task of a writer.

        :param scan: whose rows it may take.
        :param then: done when Spark has staged 10 and 11 by ten. Whatever it stages anew is 110 and 111.
        """
        task = OneLakeWriteOperator(task_id="write", table="Tables/trips", source=SqlSource("SELECT 1"))
        stage, late = self.engine.stage, then

        def staged(job: StageJob) -> Any:
            nonlocal late
            assert job.buffer_uri is not None
            path = "staged/" + job.buffer_uri.partition("/staged/")[2]
            self.note(spec, self.engine.rows[None], path)
            result = stage(job)
            if late is not None:
                self.finished(path, 10)
                self.engine.rows = {None: ANEW}
                late()
                late = None
            return result

        self.patch.setattr(self.engine, "stage", staged)
        table, spark = OneLakeHook().table("Tables/trips"), SparkWork(lambda: self.engine)
        try:
            done = write(spec, task.terms(), table, spark, Metrics({}), self.policy, scan)
        except ConflictError:
            return "r"
        self.look(self.policy)
        return _ENDS[done.status]

    def scan(self, hour: float) -> str:
        """Let a shared scan stage the rows of writer ``a``; returns its path."""
        log, who = through(self.log.store, self.log), LOAD.writer("a")
        share, name = Share(identity=who, where="", fingerprint="same"), share_name(who.directory)
        scan = open_scan(log, "deed", "load.scan", [share], newest(log))
        info, *adds = append_files(log.store, f"{scan.path}/onelake_writer={name}", A, userMetadata="{}")
        for add in (each["add"] for each in adds):
            add["path"] = f"onelake_writer={name}/{add['path']}"
            add["partitionValues"] = {"onelake_writer": name, **add["partitionValues"]}
        log.store.create(f"{scan.path}/{version_path(1)}", dump_actions([info, *adds]))
        self.finished(scan.path, hour)
        offer(log, scan, [share])
        self._scans[share_path(scan.path, who.directory)] = scan.path, self.version
        return scan.path

    def reconcile(self, *writers: str, publish: PublishMode = PublishMode.EACH) -> list[str]:
        """Reconcile the load."""
        report = reconcile(committer(self.log), LOAD, writers, publish=publish, on_conflict=self.policy)
        self.look(self.policy)
        return [_ENDS[outcome.status] for outcome in report.outcomes]

    def b(self, rows: Rows, hour: float, load: Load = OTHER, mode: Mode | None = None) -> None:
        """Another load replaces rows."""
        buffer = self.stage(self.begin("b", load, mode=mode), rows, hour)
        assert self.publish(buffer, LAST) == "g"
        self.landed(hour)

    # -- others --------------------------------------------------------------------------------------------------------

    def landed(self, hour: float) -> None:
        landed_at(self.log, self.version, at(hour))

    def append(self, rows: Rows, hour: float) -> None:
        info = {"operation": "WRITE", "operationParameters": {"mode": "Append"}}
        landed_at(self.log, foreign_append(through(self.log.store, self.log), rows, **info), at(hour))
        self.look(None, Commit("an append", Write(puts=rows_of(rows))))

    def moved(self, hour: float = 11) -> None:
        """What a compaction has left."""
        landed_at(self.log, newest(through(self.log.store, self.log)).version, at(hour))
        self.look(None, Commit("a compaction"))

    def restored(self, version: int, hour: float = 12) -> None:
        DeltaTable(self.log.table).restore(version)
        landed_at(self.log, newest(through(self.log.store, self.log)).version, at(hour))
        back = Write(EVERYWHERE, puts=self.order.states[version])
        self.look(None, Commit("a RESTORE", back, restores=True))

    # -- the judge -----------------------------------------------------------------------------------------------------

    def look(self, policy: Policy | None, *others: Commit) -> None:
        """Judge the versions that are new.

        :param policy: of those of ours.
        :param others: what others did in theirs.
        """
        left = list(others)
        newest = max(int(path.stem) for path in Path(self.log.table, "_delta_log").glob("*.json") if path.stem.isdigit())
        for version in range(len(self.order.states), newest + 1):
            entry = Path(self.log.table, version_path(version))
            actions = [json.loads(line) for line in entry.read_text().splitlines()]
            (info, *_) = [action["commitInfo"] for action in actions if "commitInfo" in action]
            files = [action.get("add") or action["remove"] for action in actions if {"add", "remove"} & {*action}]
            changed = frozenset(f["partitionValues"]["month"] for f in files if f["dataChange"])
            paths = [writer["buffer"] for writer in info.get("staged", {}).get("writers", ())]
            commit = self._ours(policy, [self._staged[path] for path in paths]) if paths else left.pop(0)
            if not paths:
                commit = attrs.evolve(commit, finished=(entry.stat().st_mtime_ns, ""))
            self.order.take_in(attrs.evolve(commit, may_change=changed), self._rows(version))
        assert not self.order.complaints
        assert not left

    def _ours(self, policy: Policy | None, staged: list[Staged]) -> Commit:
        load = staged[0].spec.identity.load
        together = staged[0].spec.publish is PublishMode.TOGETHER
        ids = frozenset(each.spec.identity.app_id for each in staged)
        rows = frozenset[Row]().union(*(each.rows for each in staged))
        colleagues = [each for each in self._staged.values() if each.spec.identity.load == load]
        colleagues = [each for each in colleagues if together and each.spec.identity.app_id not in ids]
        mode = staged[0].spec.mode
        parts = EVERYWHERE if isinstance(mode, Overwrite) else frozenset(row[0] for row in rows)
        parts = frozenset() if isinstance(mode, Append) else parts
        return Commit(
            ", ".join(ids),
            Write(parts, frozenset().union(*(each.rows for each in colleagues)), puts=rows),
            None if self.copied else max(self._finish(each) for each in staged),
            parts,
            policy=policy if parts else None,
            read=min(each.read for each in staged),
            writers=ids,
            allies=frozenset(each.spec.identity.app_id for each in colleagues),
            load=load,
            began=None if together else staged[0].began,
        )

    def _finish(self, staged: Staged) -> tuple[int, str]:
        entry = Path(self.log.table, staged.path, version_path(1))
        return entry.stat().st_mtime_ns, staged.spec.identity.app_id

    def _rows(self, version: int) -> frozenset[Row]:
        there = QueryBuilder().register("t", DeltaTable(self.log.table, version=version))
        found = pa.table(there.execute("SELECT month, id FROM t").read_all()).to_pylist()
        return frozenset((row["month"], row["id"]) for row in found)


# -- the histories -----------------------------------------------------------------------------------------------------


@attrs.frozen
class History:
    """A history, with the rows that it leaves and how its writers end, under each policy.

    :param play: does it, and says how the writers ended.
    :param ends: by policy.
    """

    number: str
    play: Callable[[World], list[str]]
    ends: Mapping[Policy, str]


HISTORIES: list[History] = []


def history(number: str, last: str, first: str | None = None, fail: str | None = None) -> Callable[[Any], Any]:
    """Take a history into the table.

    :param last: what ``last_writer_wins`` makes of it, such as ``10 11 | g``: g green, sa set aside, su superseded, r red.
    :param first: the same of ``first_writer_wins``. Default: as ``last``.
    :param fail: the same of ``fail``. Default: as ``last``.
    """

    def take(play: Callable[[World], list[str]]) -> Callable[[World], list[str]]:
        HISTORIES.append(History(number, play, {LAST: last, FIRST: first or last, FAIL: fail or last}))
        return play

    return take


@history("1", "10 11 | g")
def nobody_else(world: World) -> list[str]:
    return [world.publish(world.a())]


@history("2", "10 11 | g", "3 20 | sa", "3 20 | r")
def another_load_has_replaced_a_part_and_finished_earlier(world: World) -> list[str]:
    a = world.a()
    world.b({"p1": [20]}, 9)
    return [world.publish(a)]


@history("3", "10 11 | g")
def another_load_has_replaced_a_part_before_the_writer_began_and_after_its_load_did(world: World) -> list[str]:
    world.begin("first of the load")
    world.b({"p1": [20]}, 9)
    return [world.publish(world.a())]


@history("4", "20 21 | su", "20 21 | sa", "20 21 | r")
def another_load_has_replaced_all_of_it_and_finished_later(world: World) -> list[str]:
    a = world.a()
    world.b({"p1": [20], "p2": [21]}, 11)
    return [world.publish(a)]


@history("5", "110 111 | g", "3 20 | sa", "3 20 | r")
def another_load_replaces_a_part_before_the_task_publishes(world: World) -> list[str]:
    return [world.own(world.begin(), then=lambda: world.b({"p1": [20]}, 11))]


@history("6", "3 20 | r", "3 20 | sa", "3 20 | r")
def another_load_has_replaced_a_part_before_a_reconciliation(world: World) -> list[str]:
    world.a()
    world.b({"p1": [20]}, 11)
    return world.reconcile("a")


@history("7", "110 111 | g", "1 2 3 20 | sa", "1 2 3 20 | r")
def rows_are_appended_before_the_task_publishes(world: World) -> list[str]:
    return [world.own(world.begin(), then=lambda: world.append({"p1": [20]}, 11))]


@history("8", "1 2 3 20 | r", "1 2 3 20 | sa", "1 2 3 20 | r")
def rows_were_appended_before_a_reconciliation(world: World) -> list[str]:
    world.a()
    world.append({"p1": [20]}, 11)
    return world.reconcile("a")


@history("9", "10 11 20 | g")
def rows_were_appended_elsewhere(world: World) -> list[str]:
    a = world.a()
    world.append({"p3": [20]}, 11)
    return [world.publish(a)]


@history("10", "20 21 | su", "20 21 | sa", "20 21 | r")
def two_other_loads_have_replaced_all_of_it(world: World) -> list[str]:
    a = world.a()
    world.b({"p1": [20]}, 11)
    world.b({"p2": [21]}, 11.5, THIRD)
    return [world.publish(a)]


@history("11", "20 21 30 | su", "20 21 30 | sa", "20 21 30 | r")
def all_of_it_was_replaced_and_rows_were_appended_since(world: World) -> list[str]:
    a = world.a()
    world.b({"p1": [20], "p2": [21]}, 11)
    world.append({"p1": [30]}, 12)
    return [world.publish(a)]


@history("12", "1 2 3 | r", "1 2 3 | sa", "1 2 3 | r")
def a_restore_has_taken_back_what_replaced_all_of_it(world: World) -> list[str]:
    world.a()
    world.b({"p1": [20], "p2": [21]}, 11)
    world.restored(1)
    return world.reconcile("a")


@history("12, elsewhere", "20 21 | r", "20 21 | sa", "20 21 | r")
def a_restore_has_taken_back_other_rows_since_all_of_it_was_replaced(world: World) -> list[str]:
    world.a()
    world.b({"p1": [20], "p2": [21]}, 11)
    world.append({"p3": [30]}, 11.5)
    world.restored(2)
    return world.reconcile("a")


@history("13", "20 | r", "20 | sa", "20 | r")
def deltalake_has_overwritten_the_table_and_does_not_say_whether_by_partition(world: World) -> list[str]:
    world.a({"p9": [10]})
    write_deltalake(world.log.table, pa.table({"id": [20], "month": ["p1"]}), mode="overwrite")
    replaced = Commit("deltalake", Write(EVERYWHERE, puts=rows_of({"p1": [20]})), may_replace=EVERYWHERE)
    world.landed(11)
    world.look(None, replaced)
    return world.reconcile("a")


@history("14", "10 11 | g")
def files_were_compacted_and_sorted(world: World) -> list[str]:
    world.append({"p1": [4]}, 8)
    a = world.a()
    DeltaTable(world.log.table).optimize.compact()
    world.moved()
    DeltaTable(world.log.table).optimize.z_order(["id"])
    world.moved()
    return [world.publish(a)]


@history("15", "2 3 | r", "2 3 | sa", "2 3 | r")
def a_row_was_deleted_by_a_vector(world: World) -> list[str]:
    world.a()
    (there,) = (add for add in live(world.log) if add["partitionValues"]["month"] == "p1")
    delete_rows(world.log, there, [0])
    world.landed(11)
    world.look(None, Commit("DELETE", Write(changes=lambda row: row if row[1] != 1 else None)))
    return world.reconcile("a")


@history("16", "3 20 | g g", "3 10 | g sa", "3 10 | g r")
def two_writers_of_a_load_with_one_slot(world: World) -> list[str]:
    return [world.run("a", {"p1": [10]}), world.run("b", {"p1": [20]}, 11)]


@history("17", "3 20 | g g", "3 10 | g sa", "3 10 | g r")
def two_writers_of_a_load_at_once_the_last_to_finish_lands_last(world: World) -> list[str]:
    both = world.stage(world.begin("a"), {"p1": [10]}, 10), world.stage(world.begin("b"), {"p1": [20]}, 11)
    return [world.publish(buffer) for buffer in both]


@history("18", "3 20 | g su", "3 20 | g sa", "3 20 | g r")
def two_writers_of_a_load_at_once_the_last_to_finish_lands_first(world: World) -> list[str]:
    both = world.stage(world.begin("b"), {"p1": [20]}, 11), world.stage(world.begin("a"), {"p1": [10]}, 10)
    return [world.publish(buffer) for buffer in both]


@history("19", "3 21 | g g g su g", "3 21 | g sa g su g", "3 21 | g r g su g")
def the_second_writer_is_cleared_alone(world: World) -> list[str]:
    ends = [*two_writers_of_a_load_with_one_slot(world), world.run("b", {"p1": [21]}, 12, life="1")]
    return [*ends, *world.reconcile("a", "b")]


@history("20, one slot", "3 21 | g g g g", "3 11 | g sa g sa", "3 11 | g r g r")
def the_run_is_cleared_and_there_is_one_slot(world: World, **again: Any) -> list[str]:
    again = again or {"life": "1"}
    ends = two_writers_of_a_load_with_one_slot(world)
    return [*ends, world.run("a", {"p1": [11]}, 12, **again), world.run("b", {"p1": [21]}, 13, **again)]


@history("20, two slots", "3 21 | g g g g", "3 11 | g sa g sa", "3 11 | g r g r")
def the_run_is_cleared_and_there_are_two_slots(world: World) -> list[str]:
    ends = two_writers_of_a_load_with_one_slot(world)
    a = world.stage(world.begin("a", life="1"), {"p1": [11]}, 12)
    b = world.stage(world.begin("b", life="1"), {"p1": [21]}, 13)
    return [*ends, world.publish(a), world.publish(b)]


@history("21", "3 21 | g g g g", "3 11 | g sa g sa", "3 11 | g r g r")
def the_run_is_deleted_and_made_again(world: World) -> list[str]:
    return the_run_is_cleared_and_there_is_one_slot(world, life="made again", run="r again")


@history("22", "3 21 | g g g", "3 21 | g r g", "3 21 | g r g")
def the_list_grows_when_the_log_of_its_beginning_is_gone(world: World) -> list[str]:
    ends = [world.run("a", {"p1": [10]})]
    world.log = cleaned_up(world.log)
    return [*ends, world.run("new", {"p1": [20]}, 11), world.run("new", {"p1": [21]}, 12, life="1")]


@history("23", "30 21 | g g g g", "10 21 | g g g sa", "10 21 | g g g r")
def a_writer_begins_for_the_first_time_after_another_was_cleared(world: World) -> list[str]:
    ends = [world.run("w1", {"p1": [10]}), world.run("w2", {"p2": [20]}, 11)]
    return [*ends, world.run("w2", {"p2": [21]}, 12, life="1"), world.run("w3", {"p1": [30]}, 13, life="1")]


@history("24", "110 111 | g")
def a_writer_begins_after_others_have_replaced_what_a_shared_scan_has_rows_for(world: World) -> list[str]:
    scan = world.scan(10)
    world.b({"p1": [20]}, 11)
    world.engine.rows = {None: ANEW}
    return [world.own(world.begin(), scan)]


@history("24, nobody else", "10 11 | g")
def a_writer_takes_the_rows_of_a_shared_scan(world: World) -> list[str]:
    scan = world.scan(10)
    return [world.own(world.begin(), scan)]


@history("25", "1 2 3 10 30 | g g")
def a_writer_computes_its_rows_from_what_another_of_its_load_has_appended(world: World) -> list[str]:
    ends = [world.run("a", {"p1": [10]}, mode=Append())]
    return [*ends, world.publish(world.stage(world.begin("w", mode=Append()), {"p2": [30]}, 11, reads=True))]


@history("26", "110 111 | g", "3 20 | sa", "3 20 | r")
def a_retry_finds_its_rows_staged_hours_ago(world: World) -> list[str]:
    spec = world.begin()
    world.stage(spec, A)
    world.b({"p1": [20]}, 11)
    world.engine.rows = {None: ANEW}
    return [world.own(attrs.evolve(spec, attempt="the retry"))]


@history("27", "11 110 | g g g g")
def a_writer_that_is_published_together_is_cleared_after_its_rows_were_compacted(world: World) -> list[str]:
    together = {"publish": PublishMode.TOGETHER}
    world.stage(world.begin("a", **together), {"p1": [10]}), world.stage(world.begin("b", **together), {"p2": [11]})
    ends = world.reconcile("a", "b", **together)
    world.append({"p1": [5]}, 11)
    DeltaTable(world.log.table).optimize.compact()
    world.moved()
    world.stage(world.begin("a", life="1", **together), {"p1": [110]}, 12)
    return [*ends, *world.reconcile("a", "b", **together)]


@history("28", "10 11 | g g", "3 20 | sa sa", "3 20 | r r")
def another_load_has_replaced_a_part_between_two_writers_that_are_published_together(world: World) -> list[str]:
    together = {"publish": PublishMode.TOGETHER}
    world.stage(world.begin("a", **together), {"p1": [10]})
    world.b({"p1": [20]}, 11)
    world.stage(world.begin("b", **together), {"p2": [11]}, 12)
    return world.reconcile("a", "b", **together)


@history("30", "20 21 | su", "20 21 | sa", "20 21 | r")
def the_table_was_copied_and_all_of_it_had_been_replaced(world: World, rows: Rows = {"p1": [20], "p2": [21]}) -> list[str]:
    world.a()
    world.b(rows, 9)
    for path in Path(world.log.table).rglob("*.json"):
        os.utime(path, (at(13).timestamp(), at(13).timestamp()))
    world.copied = True
    return world.reconcile("a")


@history("30, a part", "3 20 | r", "3 20 | sa", "3 20 | r")
def the_table_was_copied_and_a_part_had_been_replaced(world: World) -> list[str]:
    return the_table_was_copied_and_all_of_it_had_been_replaced(world, {"p1": [20]})


@history("31", "11 20 | g g", "10 11 | g sa", "10 11 | g r")
def two_dead_writers_of_a_load_in_one_reconciliation(world: World) -> list[str]:
    world.stage(world.begin("b"), {"p1": [20]}, 10.1), world.a()
    return world.reconcile("a", "b")


@history("32", "10 20 | g")
def the_table_was_refreshed_before_an_append_is_reconciled(world: World) -> list[str]:
    world.stage(world.begin(mode=Append()), {"p1": [10]})
    world.b({"p1": [20]}, 11, mode=Overwrite())
    return world.reconcile("a")


@pytest.fixture
def world(request: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, engine: FakeEngine) -> World:
    engine.rows = {None: A}
    log = make_table(tmp_path / "Tables" / "trips", **{"delta.enableDeletionVectors": "true"})
    world = World(log, LAST, engine, monkeypatch)
    world.look(None, Commit("CREATE TABLE"))
    world.append({"p1": [1, 2], "p2": [3]}, 6)
    return world


@pytest.mark.parametrize("policy", [LAST, FIRST, FAIL])
@pytest.mark.parametrize("history", [pytest.param(each, id=f"{each.number} {each.play.__name__}") for each in HISTORIES])
def test_a_history(history: History, policy: Policy, world: World) -> None:
    world.policy = policy
    ends = history.play(world)
    left = sorted(row for _, row in world.order.states[-1])
    rows, _, told = history.ends[policy].partition(" | ")
    assert (left, ends) == (sorted(map(int, rows.split())), told.split())
