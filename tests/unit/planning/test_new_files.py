"""A plan of new files: each file once, over runs, retries, clears and kills (protocol: one ledger, retired)."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.claims import Start, begin, claims
from airflow_provider_onelake.buffers.identity import RETIRED, Load, ledger_id
from airflow_provider_onelake.choices import OnChanged, OnRerun
from airflow_provider_onelake.exceptions import (
    ConflictError,
    ObjectExistsError,
    OneLakeError,
    PlanError,
    ZombieWriterError,
)
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.planning.ledger import Ledger
from airflow_provider_onelake.planning.new_files import AssignedFiles, NewFiles, PlanRequest, plan_new
from airflow_provider_onelake.planning.record import DIRECTORY
from airflow_provider_onelake.reading.spark_files import SourceFile, digest_of, without_local_prefix
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.writes.orphans import orphans
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.changes import asker
from tests.support.restores import time_of
from tests.support.stores import Counted, KilledError, PassingOn, through
from tests.support.tables import (
    Stage,
    change_metadata,
    finish,
    foreign_append,
    foreign_commit,
    ids,
    local_log,
    make_table,
    newest,
    prepare,
    writer_spec,
)

EPOCH = 1_546_300_800 * 10**9


class Mortal(PassingOn):
    """A store whose caller dies at one of its requests, before or after it took effect."""

    left = -1
    after = False

    def _count(self, act: Callable[[], Any]) -> Any:
        self.left -= 1
        if self.left != 0:
            return act()
        if self.after:
            act()
        raise KilledError

    def get(self, path: str) -> bytes:
        return self._count(lambda: self.inner.get(path))

    def create(self, path: str, data: bytes) -> None:
        self._count(lambda: self.inner.create(path, data))

    def put(self, path: str, data: bytes) -> None:
        self._count(lambda: self.inner.put(path, data))


class DiesAtTheLog(Mortal):
    """A store whose caller dies before it commits to the table."""

    def create(self, path: str, data: bytes) -> None:
        if path.startswith("_delta_log/"):
            raise KilledError
        self.inner.create(path, data)


@attrs.define
class World:
    """A directory in which files arrive, and runs that load them into one table. A file's row is its only content.

    :param spelled: what the source's paths begin with.
    :param root: the lakehouse's address.
    """

    path: Path
    on_changed: OnChanged = OnChanged.REFUSE
    max_files: int | None = None
    writers: int | None = 2
    spelled: str = ""
    root: str = ""
    ids: int = 0
    task_starts: dict[tuple[str, str], str] = attrs.field(factory=dict)
    staged: list[Buffer] = attrs.field(factory=list)

    @property
    def table(self) -> Path:
        return self.path / "table"

    @property
    def source(self) -> Path:
        return self.path / "in"

    def put(self, name: str) -> int:
        """Write a file with a new row; returns the row."""
        self.ids += 1
        self.source.mkdir(exist_ok=True)
        (self.source / name).write_text(str(self.ids))
        time = EPOCH + self.ids * 10**9
        os.utime(self.source / name, ns=(time, time))
        return self.ids

    def rows(self) -> dict[str, int]:
        return {file.name: int(file.read_text()) for file in sorted(self.source.iterdir())}

    def files(self) -> list[SourceFile]:
        found = [(file, file.stat()) for file in sorted(self.source.iterdir())]
        return [SourceFile(f"{self.spelled}{file}", info.st_size, info.st_mtime_ns) for file, info in found]

    def log(self, mortal: Mortal | None = None) -> DeltaLog:
        log = local_log(self.table)
        if mortal is None:
            return log
        mortal.inner = log.store
        return through(mortal, log)

    def plan(self, run: str, mortal: Mortal | None = None, **asked: Any) -> NewFiles:
        load = Load("test", "taxi", "load", run)
        given: dict[str, Any] = {
            "ledger": "test/taxi/load.plan",
            "named": False,
            "load": load,
            "plan": f"{load.id}/load.plan",
            "writers": self.writers,
            "on_changed": self.on_changed,
            "max_files": self.max_files,
            **asked,
        }
        return plan_new(Committer(self.log(mortal)), PlanRequest(**given), self.files(), self.root)

    def write(self, run: str, given: AssignedFiles, mortal: Mortal | None = None, **terms: Any) -> None:
        """Do what a writer's task does: claim, stage if need be, look at the files before and after, publish."""
        log, identity = self.log(mortal), Load("test", "taxi", "load", run).writer(given.writer)
        task_start = Start(
            id=self.task_start(run, given), task=f"load.write[{given.writer}]", run_id=run, chain=f"{run}{given}"
        )
        spec = writer_spec(
            given.writer,
            identity.load,
            generation=begin(log, identity, task_start).generation,
            fingerprint=given.planned["digest"],
            planned=given.planned,
            **terms,
        )
        decision = prepare(log, spec)
        if isinstance(decision, Skip):
            return
        if isinstance(decision, Stage):
            self.check(given)
            rows = [int(Path(without_local_prefix(file.path)).read_text()) for file in given.files]
            decision = finish(log, decision, spec, {"2019-01": rows})
            self.staged.append(decision)
        self.check(given)
        Committer(log).publish([decision])

    def check(self, given: AssignedFiles) -> None:
        there = {without_local_prefix(file.path): file for file in self.files()}
        wanted = [(file, there.get(without_local_prefix(file.path))) for file in given.files]
        found = (attrs.evolve(now, path=file.path) for file, now in wanted if now is not None)
        if digest_of(found) != given.planned["digest"]:
            raise OneLakeError("a file is not as it was planned")

    def task_start(self, run: str, given: AssignedFiles) -> str:
        return self.task_starts.setdefault((run, given.writer), str(uuid.uuid4()))

    def clear(self, run: str) -> None:
        self.task_starts = {key: task_start for key, task_start in self.task_starts.items() if key[0] != run}

    def load(self, run: str, **asked: Any) -> NewFiles:
        plan = self.plan(run, **asked)
        for given in plan.writers:
            self.write(run, given)
        return plan

    def ids_in_table(self) -> list[int]:
        return ids(self.table)


def of_files(writers: Sequence[AssignedFiles]) -> list[tuple[str, tuple[SourceFile, ...]]]:
    """The files of each writer, whatever versions of the table its plan has looked at."""
    return [(given.writer, given.files) for given in writers]


@pytest.fixture
def world(tmp_path: Path) -> World:
    make_table(tmp_path / "table")
    world = World(tmp_path)
    for name in ("a", "b", "c"):
        world.put(name)
    return world


@pytest.fixture(params=[False, True], ids=["entries", "checkpoints"])
def _ledger_of_entries_or_checkpoints(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plan reads what each entry of the ledger says, or what a checkpoint says of all."""
    if request.param:
        monkeypatch.setattr("airflow_provider_onelake.planning.ledger.CHECKPOINT_EVERY", 1)


# -- one run after the other ---------------------------------------------------------------------------------------


def test_each_run_loads_what_has_come_since_and_one_without_new_files_has_no_writers(world: World) -> None:
    first = world.load("1")
    assert (first.new, len(first.writers), first.loaded) == (3, 2, 0)
    assert world.load("2").writers == ()
    world.put("d")
    third = world.load("3")
    assert [file.path for given in third.writers for file in given.files] == [str(world.source / "d")]
    assert third.to_json() == {
        "planned": 1,
        "new": 1,
        "loaded": 3,
        "left_for_next_run": 0,
        "left_to_others": {},
        "taken_over": 0,
        "changed": 0,
    }
    assert world.ids_in_table() == [1, 2, 3, 4]


def test_a_clear_finds_the_files_that_the_run_has_and_no_more(world: World) -> None:
    first = world.load("1")
    world.put("d")
    world.clear("1")
    again = world.load("1")
    assert (again.writers, again.new, again.left_for_next_run) == (first.writers, 0, 1)
    assert world.ids_in_table() == [1, 2, 3]
    assert world.load("2").new == 1


def test_a_clear_after_the_files_were_moved_away_is_skipped(world: World) -> None:
    first = world.load("1")
    for file in world.source.iterdir():
        file.unlink()
    world.clear("1")
    assert world.load("1").writers == first.writers
    assert world.ids_in_table() == [1, 2, 3]
    assert world.load("2").writers == ()


def test_a_run_takes_the_oldest_files_up_to_its_limit(world: World) -> None:
    world.put("0")  # By its name the first, and the last to come.
    world.max_files = 3
    first = world.load("1")
    assert (first.new, first.left_for_next_run) == (3, 1)
    assert world.ids_in_table() == [1, 2, 3]
    assert world.load("2").new == 1


def test_a_file_of_a_run_that_has_not_published_is_left_to_it(world: World) -> None:
    world.plan("1")
    world.put("d")
    second = world.load("2")
    assert (second.new, dict(second.left_to_others)) == (1, {"1": 3})
    world.load("1")
    assert world.ids_in_table() == [1, 2, 3, 4]


def before_the_first_put(monkeypatch: pytest.MonkeyPatch, directory: str, act: Callable[[], Any]) -> None:
    """Let another in just before the first object is created below a directory."""
    put, left = ObjectStore.create, [act]

    def raced(store: ObjectStore, path: str, data: bytes) -> None:
        if path.startswith(directory) and left:
            left.pop()()
        put(store, path, data)

    monkeypatch.setattr(ObjectStore, "create", raced)


def test_of_two_plans_at_the_same_time_one_gets_each_file(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before_the_first_put(monkeypatch, "_plans/", lambda: world.plan("2"))
    first = world.plan("1")
    assert (first.writers, dict(first.left_to_others)) == ((), {"2": 3})


def test_dags_that_share_a_ledger_load_each_file_once(world: World) -> None:
    world.load("1", ledger="trips", named=True)
    assert world.plan("2", ledger="trips", named=True).loaded == 3
    assert world.plan("2", ledger="other trips", named=True).new == 3


def test_a_local_source_that_is_spelled_in_another_way_has_the_same_files(world: World) -> None:
    world.load("1")  # As an earlier release has it in the ledger: as the source spells it.
    world.root = f"file://{world.path}"
    for run, world.spelled in enumerate(("file://", "", "file:", "file://localhost")):
        world.put(f"d{run}")
        assert world.load(str(run + 2)).new == 1
    assert world.ids_in_table() == sorted(world.rows().values())


def test_a_plan_of_another_name_does_not_load_the_files_again_unasked(world: World) -> None:
    world.load("1")
    with pytest.raises(PlanError, match=r"in/a, .* were given to writers .* by the plan 'test/taxi/load.plan', and th"):
        world.plan("2", ledger="test/taxi_v2/load.plan")
    assert world.plan("2", ledger="test/taxi_v2/load.plan", named=True).new == 3


# -- changed files -------------------------------------------------------------------------------------------------


def test_a_file_that_changed_is_named_before_anything_is_planned(world: World) -> None:
    world.load("1")
    world.put("b")
    said = r"1 file has changed since it was loaded .*in/b\. Nothing was planned\. on_changed='load_again'"
    with pytest.raises(PlanError, match=said):
        world.plan("2")
    assert world.load("2", on_changed=OnChanged.LOAD_AGAIN).changed == 1
    assert world.ids_in_table() == [1, 2, 3, 4]
    assert world.load("3").writers == ()


def test_a_change_that_is_ignored_is_never_asked_about_again(world: World) -> None:
    world.load("1")
    world.put("b")
    assert world.load("2", on_changed=OnChanged.IGNORE).writers == ()
    assert (world.load("3").loaded, world.ids_in_table()) == (3, [1, 2, 3])
    world.put("b")
    with pytest.raises(PlanError, match="1 file has changed"):
        world.plan("4")


@pytest.mark.usefixtures("_ledger_of_entries_or_checkpoints")
def test_a_file_whose_change_is_ignored_is_loaded_once_a_restore_took_its_rows_back(world: World) -> None:
    world.load("1")
    world.put("a")
    world.load("2", on_changed=OnChanged.IGNORE)
    restore(world, 0)
    third = world.load("3")
    assert (third.writers, third.loaded, dict(third.left_to_others)) == ((), 0, {"1": 3})
    assert world.load("4", take_over=["1"]).taken_over == 3
    assert world.ids_in_table() == sorted(world.rows().values())
    world.put("a")
    with pytest.raises(PlanError, match="1 file has changed"):
        world.plan("5")


def test_a_file_that_changed_before_it_was_loaded_is_planned_anew_by_a_clear(world: World) -> None:
    first = world.plan("1")
    world.write("1", first.writers[0])
    changed = first.writers[1].files[0]
    world.put(Path(changed.path).name)
    with pytest.raises(OneLakeError, match="not as it was planned"):
        world.write("1", first.writers[1])
    world.clear("1")
    again = world.load("1")
    assert of_files(again.writers[:1]) == of_files(first.writers[:1])
    keys, load = {given.writer for given in again.writers}, Load("test", "taxi", "load", "1")
    assert orphans(world.log(), load, keys, {"load"}, newest(world.log())) == []
    assert again.writers[1].writer not in {given.writer for given in first.writers}
    assert sorted(world.ids_in_table()) == sorted(world.rows().values())


def test_a_run_whose_only_writer_is_planned_anew_gets_no_other_files(world: World) -> None:
    world.writers, world.max_files = 1, 2
    first = world.plan("1")
    assert [Path(file.path).name for file in first.writers[0].files] == ["a", "b"]
    world.put("a")  # It is newer than c now.
    again = world.load("1")
    assert {Path(file.path).name for given in again.writers for file in given.files} == {"a", "b"}
    assert (again.new, again.left_for_next_run) == (2, 1)
    assert world.load("2").new == 1
    assert world.ids_in_table() == sorted(world.rows().values())


def test_a_file_that_is_as_it_was_loaded_before_is_not_loaded_again(world: World) -> None:
    world.load("1")
    before = (world.source / "b").stat().st_mtime_ns
    world.put("b")
    world.plan("2", on_changed=OnChanged.LOAD_AGAIN)
    # Somebody puts the file back, and the run that was to load its other version never ends.
    (world.source / "b").write_text("2")
    os.utime(world.source / "b", ns=(before, before))
    third = world.load("3", on_changed=OnChanged.LOAD_AGAIN, take_over=["2"])
    assert (third.writers, third.loaded, world.ids_in_table()) == ((), 3, [1, 2, 3])


# -- runs that never end -------------------------------------------------------------------------------------------


def test_a_run_that_is_taken_over_never_publishes(world: World) -> None:
    first = world.plan("1")
    world.write("1", first.writers[0])
    mortal = DiesAtTheLog(world.log().store)
    with pytest.raises(KilledError):
        world.write("1", first.writers[1], mortal)
    second = world.load("2", take_over=["1"])
    assert (second.taken_over, dict(second.left_to_others)) == (len(first.writers[1].files), {})
    rows = sorted(world.rows().values())
    assert world.ids_in_table() == rows
    # Its staged rows, its retry and its clear, none of which reaches Spark.
    retired = world.staged[1].spec.identity
    claimed = claims(world.log().store, retired)
    with pytest.raises(ZombieWriterError):
        Committer(world.log()).publish([world.staged[1]])
    for on_rerun in OnRerun:
        with pytest.raises(ZombieWriterError, match="were taken over by another run"):
            world.write("1", first.writers[1], on_rerun=on_rerun)
        world.clear("1")
    assert claims(world.log().store, retired) == claimed
    # Of the run that was taken over, nobody calls all rows published.
    named = [given.writer for given in first.writers]
    report = reconcile(Committer(world.log()), Load("test", "taxi", "load", "1"), named)
    assert [outcome.status for outcome in report.outcomes] == ["already_published", "retired"]
    assert not report.missing
    with pytest.raises(ZombieWriterError, match="were taken over by another run"):
        report.raise_for_failures()
    assert of_files(world.plan("1").writers) == of_files(first.writers[:1])
    assert world.ids_in_table() == rows


def test_a_writer_that_publishes_first_keeps_its_files(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    first = world.plan("1")
    before_the_first_put(monkeypatch, "_delta_log/", lambda: world.write("1", first.writers[0]))
    second = world.plan("2", take_over=["1"])
    assert [given.files for given in second.writers] == [first.writers[1].files]


def test_without_a_table_nobody_can_be_kept_from_publishing(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.put("a")
    world.plan("1")
    with pytest.raises(PlanError, match=r"There is no table at .* yet, so writer '.*a' of taxi.load, run 1 cannot"):
        world.plan("2", take_over=["1"])


# -- what the table's log says -------------------------------------------------------------------------------------


def test_the_log_says_what_was_loaded_and_misses_a_ledger_that_is_deleted(world: World) -> None:
    plan = world.load("1")
    snapshot = newest(world.log())
    assert snapshot.txns[ledger_id("test/taxi/load.plan")] == 1
    commit = world.log().commit(snapshot.version)
    assert commit is not None
    assert commit.writers[0].planned == plan.writers[1].planned
    (entry,) = (world.table / plan.path).iterdir()
    content = entry.read_bytes()
    entry.unlink()
    with pytest.raises(PlanError, match=r"00000000.json.gz of the table is missing.*give the plan another `ledger`"):
        world.plan("2")
    entry.write_bytes(content[:-9])
    with pytest.raises(PlanError, match="is damaged"):
        world.plan("2")
    entry.write_bytes(content)
    assert world.plan("2").loaded == 3


def test_the_log_counts_the_entries_though_their_writers_publish_in_another_order(world: World) -> None:
    world.writers = 1
    first = world.plan("1")
    world.put("d")
    world.load("2")
    world.write("1", first.writers[0])
    assert newest(world.log()).txns[ledger_id("test/taxi/load.plan")] == 2


def test_an_entry_that_is_missing_between_others_is_named(world: World) -> None:
    for run in ("1", "2"):
        plan = world.load(run)
        world.put(run)
    world.plan("3")
    (world.table / plan.path / "00000000.json.gz").unlink()
    with pytest.raises(PlanError, match=r"00000000\.json\.gz of the table is missing"):
        world.plan("4")


def test_a_table_that_was_made_again_has_none_of_the_files(world: World) -> None:
    world.load("1")
    world.put("d")
    for entry in (world.table / "_delta_log").iterdir():
        entry.unlink()
    make_table(world.table)
    with pytest.raises(PlanError, match="was replaced, or dropped and made again"):
        world.plan("2")


def test_a_table_whose_log_forgets_its_writers_is_refused(tmp_path: Path) -> None:
    kept = {"delta.setTransactionRetentionDuration": "interval 30 days"}
    change_metadata(make_table(tmp_path / "table"), configuration=kept)
    world = World(tmp_path)
    world.put("a")
    with pytest.raises(PlanError, match=r"sets delta\.setTransactionRetentionDuration, so its log forgets"):
        world.plan("1")


def test_a_plan_notes_how_far_it_has_looked_for_a_restore(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("airflow_provider_onelake.planning.new_files._LOOK_AGAIN", 2)
    plan = world.load("1")
    for _ in range(3):
        foreign_append(world.log(), {"2019-02": [9]})
        world.plan("2")
    assert len(list((world.table / plan.path).iterdir())) == 2
    assert Ledger.read(world.log().store, "test/taxi/load.plan", "").version == newest(world.log()).version - 2


def test_rows_that_a_restore_took_back_are_left_until_somebody_says_so(world: World) -> None:
    from airflow_provider_onelake.commit.loop import Transactions
    from airflow_provider_onelake.maintenance.restore import OnNewerCommit, restore

    world.load("1")
    world.put("d")
    world.load("2")
    log = world.log()
    before = newest(log).version - 1
    restore(Transactions(log), before, newest(log), asker("r"), on_newer_commit=OnNewerCommit.UNDO)
    assert world.ids_in_table() == [1, 2, 3]
    third = world.load("3")
    assert (third.writers, third.loaded, dict(third.left_to_others)) == ((), 3, {"2": 1})
    # It was noted, so the next plan does not look for it again.
    assert dict(world.load("4").left_to_others) == {"2": 1}
    assert world.load("5", take_over=["2"]).taken_over == 1
    assert world.ids_in_table() == [1, 2, 3, 4]


def test_a_table_that_was_replaced_has_no_rows_of_the_files_whatever_came_before(world: World) -> None:
    world.load("1")
    DeltaTable(str(world.table)).delete()
    info = {"timestamp": 1, "operation": "CREATE OR REPLACE TABLE"}
    foreign_commit(world.log(), [{"commitInfo": info}, {"metaData": dict(newest(world.log()).metadata)}])
    assert dict(world.load("2").left_to_others) == {"1": 3}


def test_rows_of_a_run_that_was_taken_over_are_loaded_once_a_restore_brings_them_back(world: World) -> None:
    rows = sorted(world.rows().values())
    world.load("1")
    loaded = newest(world.log()).version
    DeltaTable(str(world.table)).restore(0)
    assert world.load("2", take_over=["1"]).taken_over == len(rows)
    DeltaTable(str(world.table)).restore(loaded)
    assert world.ids_in_table() == rows
    for run in ("3", "4"):
        third = world.load(run, take_over=["2"])
        assert (third.writers, third.loaded, third.taken_over) == ((), len(rows), 0)
    assert world.ids_in_table() == rows


@pytest.mark.parametrize("run", ["2", "3"])
def test_a_writer_that_waits_with_files_whose_rows_a_restore_brings_back_never_publishes(
    world: World, run: str
) -> None:
    world.writers = 1
    world.load("1")
    loaded = newest(world.log()).version
    DeltaTable(str(world.table)).restore(0)
    world.put("d")
    rows = sorted(world.rows().values())
    waiting = world.plan("2", take_over=["1"])
    DeltaTable(str(world.table)).restore(loaded)
    planned = world.load(run)
    assert (planned.loaded, planned.new, dict(planned.left_to_others)) == (len(rows) - 1, 1, {})
    assert world.ids_in_table() == rows
    with pytest.raises(ZombieWriterError, match="taken over by another run"):
        world.write("2", waiting.writers[0])
    assert world.ids_in_table() == rows


@pytest.mark.parametrize("begun", [False, True], ids=["not begun", "staged"])
def test_so_it_is_where_no_plan_has_looked_since_until_the_plan_is_cleared(world: World, *, begun: bool) -> None:
    world.writers = 1
    world.load("1")
    loaded = newest(world.log()).version
    restore(world, 0)
    world.put("d")
    rows = sorted(world.rows().values())
    waiting = world.plan("2", take_over=["1"])
    if begun:
        with pytest.raises(KilledError):
            world.write("2", waiting.writers[0], DiesAtTheLog(world.log().store))
    restore(world, loaded)
    for _ in range(2):
        with pytest.raises(ConflictError, match=r"RESTORE in version 4 may have brought back .* clear the plan"):
            world.write("2", waiting.writers[0])
        assert world.ids_in_table() == rows[:-1]
    world.clear("2")
    assert world.load("2").new == 1
    assert world.ids_in_table() == rows


def test_a_restore_that_brings_nothing_back_or_came_before_the_plan_is_no_reason(world: World) -> None:
    world.load("1")
    loaded = newest(world.log()).version
    restore(world, 0)
    restore(world, loaded)
    world.put("d")
    waiting = world.plan("2")
    restore(world, 0)
    for given in waiting.writers:
        world.write("2", given)
    assert world.ids_in_table() == [world.rows()["d"]]


def test_rows_of_an_older_generation_are_loaded_once_a_restore_brings_them_back(world: World) -> None:
    world.writers = 1
    plan, rows = world.load("1"), sorted(world.rows().values())
    loaded = newest(world.log()).version
    DeltaTable(str(world.table)).restore(0)
    world.clear("1")
    world.write("1", plan.writers[0], on_rerun=OnRerun.APPEND)
    DeltaTable(str(world.table)).restore(loaded)
    beside = world.load("2")
    assert (beside.loaded, dict(beside.left_to_others)) == (len(rows), {})
    assert world.load("3", take_over=["1"]).loaded == len(rows)
    assert world.ids_in_table() == rows


def test_a_plan_looks_again_where_a_restore_brings_rows_back_before_they_are_taken_over(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = sorted(world.rows().values())
    world.load("1")
    loaded = newest(world.log()).version
    DeltaTable(str(world.table)).restore(0)
    before_the_first_put(monkeypatch, "_delta_log/", lambda: DeltaTable(str(world.table)).restore(loaded))
    second = world.load("2", take_over=["1"])
    assert (second.taken_over, second.loaded) == (0, len(rows))
    assert world.ids_in_table() == rows


def compact(world: World) -> int:
    """Have another engine compact the table; returns the version."""
    DeltaTable(str(world.table)).optimize.compact()
    return newest(world.log()).version


def restore(world: World, version: int) -> None:
    """Have another engine take the table back."""
    DeltaTable(str(world.table)).restore(version)


def clean_up(world: World, version: int) -> None:
    """Delete the log before a version, which gets a checkpoint, as another engine does."""
    DeltaTable(str(world.table), version=version).create_checkpoint()
    for entry in (world.table / "_delta_log").glob("*.json"):
        if int(entry.name[:20]) < version:
            entry.unlink()


def restore_that_left_old_rows_alone(world: World) -> None:
    good = newest(world.log()).version
    foreign_append(world.log(), {"2019-02": [99]})
    restore(world, good)


@pytest.mark.parametrize("how", ["compacted", "deleted"])
def test_a_restore_that_left_rows_alone_after_the_log_was_cleaned_up_took_none_back(world: World, how: str) -> None:
    first = newest(world.log()).version + 1
    world.load("1")
    if how == "compacted":
        compact(world)
    else:
        DeltaTable(str(world.table)).delete()
    rows = world.ids_in_table()
    # Of the two writers' commits one is there, and then none.
    for version in (first + 1, newest(world.log()).version):
        clean_up(world, version)
        rows.append(world.put(f"d{version}"))
        world.load(f"2-{version}")
        restore_that_left_old_rows_alone(world)
        third = world.load(f"3-{version}")
        assert (third.loaded, dict(third.left_to_others)) == (len(world.rows()), {})
        assert world.load(f"4-{version}", take_over=["1"]).writers == ()
    assert world.ids_in_table() == rows


def test_what_a_plan_has_seen_of_a_restore_holds_after_the_log_was_cleaned_up(world: World) -> None:
    before = newest(world.log()).version
    world.load("1")
    compact(world)
    restore(world, before)
    assert dict(world.load("2").left_to_others) == {"1": 3}
    row = world.put("d")
    world.load("3")
    clean_up(world, newest(world.log()).version)
    restore_that_left_old_rows_alone(world)
    third = world.load("4")
    assert (third.loaded, dict(third.left_to_others)) == (1, {"1": 3})
    assert world.load("5", take_over=["1"]).taken_over == 3
    assert world.ids_in_table() == [1, 2, 3, row]


@pytest.mark.parametrize("compacted", [False, True])
def test_a_restore_to_before_the_rows_counts_though_the_log_was_cleaned_up(world: World, compacted: bool) -> None:
    before = newest(world.log()).version
    world.load("1")
    if compacted:
        compact(world)
    world.put("d")
    world.load("2")
    restore(world, before)
    DeltaTable(str(world.table)).create_checkpoint()
    # The log has less than what was published, but the RESTORE and what came since a plan looked.
    for version in (before + 1, before + 2):
        (world.table / version_path(version)).unlink()
    assert dict(world.load("3").left_to_others) == {"1": 3, "2": 1}
    assert world.load("4", take_over=["1", "2"]).taken_over == 4
    assert world.ids_in_table() == [1, 2, 3, 4]


def test_rows_that_a_restore_took_back_and_one_may_have_brought_back_compacted_are_not_loaded_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    before = newest(world.log()).version
    world.load("1")
    compacted = compact(world)
    restore(world, before)
    assert dict(world.load("2").left_to_others) == {"1": 3}
    clean_up(world, compacted)
    restore(world, compacted)
    third = world.load("3", take_over=["1"])
    assert (third.writers, third.loaded) == ((), 3)
    assert "nobody knows whether RESTORE in version" in caplog.text
    assert world.ids_in_table() == [1, 2, 3]


def test_a_restore_to_before_the_last_plan_leaves_what_was_noted_of_compacted_rows(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.load("1")
    compacted = compact(world)
    rows = world.ids_in_table()
    world.put("d")
    world.load("2")
    world.put("e")
    world.plan("3")
    clean_up(world, compacted)
    restore(world, compacted)
    caplog.clear()
    fourth = world.plan("4")
    assert (fourth.loaded, dict(fourth.left_to_others)) == (3, {"2": 1, "3": 1})
    assert (caplog.text, world.ids_in_table()) == ("", rows)


def test_a_restore_that_undid_one_brings_rows_back_though_the_log_was_cleaned_up(world: World) -> None:
    before = newest(world.log()).version
    world.load("1")
    compacted = compact(world)
    foreign_append(world.log(), {"2019-02": [9]})
    world.put("d")
    world.load("2")
    newest_load = newest(world.log()).version
    restore(world, before)
    restore(world, newest_load)
    DeltaTable(str(world.table)).create_checkpoint()
    for version in (before + 1, compacted):
        (world.table / version_path(version)).unlink()
    third = world.load("3", take_over=["1", "2"])
    assert (third.writers, third.loaded) == ((), 4)
    assert world.ids_in_table() == [1, 2, 3, 4, 9]


def restore_by_time(world: World, version: int) -> None:
    """Have another engine take the table back to a time: Spark and deltalake do not log the version then."""
    told = {"version": None, "timestamp": time_of(world.log(), version)}
    restore(world, version)
    entry = world.table / version_path(newest(world.log()).version)
    actions = [json.loads(line) for line in entry.read_text().splitlines()]
    for action in actions:
        if "commitInfo" in action:
            action["commitInfo"]["operationParameters"] = told
    entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def forget(world: World) -> None:
    """Delete the log up to the version that the last plan has noted."""
    noted = Ledger.read(world.log().store, "test/taxi/load.plan", "").version
    DeltaTable(str(world.table)).create_checkpoint()
    for version in range(noted + 1):
        (world.table / version_path(version)).unlink()


def test_a_restore_to_a_time_may_bring_back_what_another_took(world: World) -> None:
    world.load("1")
    compact(world)
    world.put("d")
    world.load("2")
    good = newest(world.log()).version
    restore(world, 0)
    restore_by_time(world, good)
    forget(world)
    third = world.load("3")
    assert (third.loaded, dict(third.left_to_others)) == (4, {})
    world.load("4", take_over=["1", "2"])
    assert world.ids_in_table() == sorted(world.rows().values())


def test_a_newer_generation_than_the_one_taken_back_was_there_when_a_plan_looked(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    def append_again() -> None:
        world.clear("1")
        for given in world.plan("1").writers:
            world.write("1", given, on_rerun=OnRerun.APPEND)

    world.load("1")
    restore(world, 0)
    world.load("2")
    append_again()
    compact(world)
    for number, name in enumerate("def"):
        world.put(name)
        world.load(f"3-{number}")
    good = newest(world.log()).version
    append_again()
    restore(world, good)
    forget(world)
    caplog.clear()
    fourth = world.load("4")
    assert (fourth.loaded, dict(fourth.left_to_others)) == (6, {})
    # What was noted was of the first generation.
    assert "nobody knows whether RESTORE in version" in caplog.text
    world.load("5", take_over=["1"])
    assert world.ids_in_table() == sorted(world.rows().values())


def test_a_writer_retired_since_a_plan_looked_had_its_rows_then(world: World) -> None:
    class DiesAtTheLedger(PassingOn):
        def create(self, path: str, data: bytes) -> None:
            if path.startswith(DIRECTORY):
                raise KilledError
            self.inner.create(path, data)

    world.load("1")
    compact(world)
    world.put("d")
    world.load("2")
    good = newest(world.log()).version
    restore(world, 0)
    with pytest.raises(KilledError):
        world.plan("3", DiesAtTheLedger(world.log().store), take_over=["1"])
    restore(world, good)
    forget(world)
    assert world.load("4").writers == ()
    assert world.ids_in_table() == sorted(world.rows().values())


def test_a_writer_that_died_before_it_marked_its_buffer_has_its_rows_back_after_it_was_retired(world: World) -> None:
    class DiesBehindTheLog(PassingOn):
        dead = False

        def create(self, path: str, data: bytes) -> None:
            self.check()
            self.inner.create(path, data)
            self.dead = path.startswith("_delta_log/")

        def put(self, path: str, data: bytes) -> None:
            self.check()
            self.inner.put(path, data)

        def check(self) -> None:
            if self.dead:
                raise KilledError

    given = world.plan("1").writers
    for one in given:
        with pytest.raises(KilledError):
            world.write("1", one, DiesBehindTheLog(world.log().store))
    good = newest(world.log()).version
    restore(world, 0)
    world.load("2", take_over=["1"])
    restore(world, good)
    third = world.load("3")
    assert (third.loaded, dict(third.left_to_others)) == (3, {})


@pytest.mark.usefixtures("_ledger_of_entries_or_checkpoints")
def test_rows_that_stand_for_a_file_whose_change_is_ignored_do_so_again_when_a_restore_brings_them_back(
    world: World,
) -> None:
    world.load("1")
    good, rows = newest(world.log()).version, world.ids_in_table()
    world.put("a")
    world.load("2", on_changed=OnChanged.IGNORE)
    restore(world, 0)
    world.load("3", take_over=["1"])
    restore(world, good)
    fourth = world.load("4")
    assert (fourth.loaded, dict(fourth.left_to_others)) == (3, {})
    world.load("5", take_over=["3"])
    assert world.ids_in_table() == rows


def test_a_retired_writer_that_never_published_has_no_rows_that_a_restore_brings_back(world: World) -> None:
    world.plan("1")
    world.load("2", take_over=["1"])
    compacted = compact(world)
    restore(world, 0)
    assert dict(world.load("3").left_to_others) == {"2": 3}
    clean_up(world, compacted)
    foreign_append(world.log(), {"2019-02": [9]})
    restore(world, compacted)
    world.load("4")
    back = Ledger.read(world.log().store, "test/taxi/load.plan", "").back
    assert (back, world.ids_in_table()) == (frozenset(), [1, 2, 3])


def test_compacted_rows_of_a_retired_writer_count_as_loaded_after_the_log_was_cleaned_up(world: World) -> None:
    world.load("1")
    loaded = newest(world.log()).version
    restore(world, 0)
    world.load("2", take_over=["1"])
    restore(world, loaded)
    assert world.load("3").loaded == 3
    compact(world)
    row = world.put("d")
    world.load("4")
    clean_up(world, newest(world.log()).version)
    restore_that_left_old_rows_alone(world)
    assert world.load("5", take_over=["2"]).loaded == 4
    assert world.ids_in_table() == [1, 2, 3, row]


# -- many ----------------------------------------------------------------------------------------------------------


def test_a_plan_of_many_files_asks_the_store_no_more_than_one_of_few() -> None:
    def requests(count: int) -> list[dict[str, int]]:
        store = Counted(ObjectStore(MemoryStore(), "memory"))
        log = DeltaLog(store, "memory")
        asked: list[dict[str, int]] = []
        for run in range(2):
            store.calls.clear()
            load = Load("test", "taxi", "load", str(run))
            files = [SourceFile(f"/in/day={n % 30}/{n:08d}.json", n % 97, n) for n in range((run + 1) * count)]
            terms = PlanRequest(ledger="l", named=False, load=load, plan=load.id, by="day", writers=4)
            plan = plan_new(Committer(log), terms, files, "")
            assert sum(len(given.files) for given in plan.writers) == count
            asked.append(dict(store.calls))
        return asked

    assert requests(10_000) == requests(60)


# -- ten runs with kills -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_over_ten_runs_with_kills_each_file_is_loaded_once(tmp_path: Path, seed: int) -> None:
    make_table(tmp_path / "table")
    random = Random(seed)
    world = World(tmp_path, OnChanged.LOAD_AGAIN, max_files=4)

    def arrive() -> None:
        for _ in range(random.randint(0, 2)):
            world.put(f"{random.choice('abc')}{world.ids}")
        if world.ids and random.random() < 0.4:
            world.put(random.choice(list(world.rows())))

    def at_risk(act: Callable[[Mortal], Any]) -> Any:
        """Act, and die at some request, or do not; then try once more, or do not."""
        for _ in range(2):
            mortal = Mortal(world.log().store)
            mortal.left, mortal.after = random.randint(1, 60), random.random() < 0.5
            try:
                return act(mortal)
            except KilledError:
                if random.random() < 0.4:
                    return None
            except (OneLakeError, ObjectExistsError):
                return None
        return None

    def run(name: str) -> None:
        take_over = random.sample(runs, min(len(runs), 2)) if random.random() < 0.4 else []
        plan = at_risk(lambda mortal: world.plan(name, mortal, take_over=take_over))
        for given in plan.writers if plan is not None else ():
            arrive()
            at_risk(lambda mortal, given=given: world.write(name, given, mortal))
        if world.staged and random.random() < 0.5:
            zombie = random.choice(world.staged)
            at_risk(lambda mortal: Committer(world.log(mortal)).publish([zombie]))

    runs: list[str] = []
    world.put("a")
    for number in range(10):
        arrive()
        run(str(number))
        runs.append(str(number))
        if random.random() < 0.4:
            again = random.choice(runs)
            world.clear(again)
            run(again)
    world.max_files = None
    world.load("last", take_over=runs)
    for zombie in world.staged:
        try:
            Committer(world.log()).publish([zombie])
        except OneLakeError:
            continue
    last = world.load("after that")
    assert (last.writers, dict(last.left_to_others), last.loaded) == ((), {}, len(world.rows()))
    found = world.ids_in_table()
    assert len(set(found)) == len(found)
    assert set(world.rows().values()) <= set(found)
    assert any(version == RETIRED for version in newest(world.log()).txns.values())
