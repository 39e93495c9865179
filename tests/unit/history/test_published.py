"""What became of rows after they were published, as a reconciliation and a rerun tell it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.choices import OnRerun
from airflow_provider_onelake.exceptions import RerunRefusedError, RowsRestoredAwayError
from airflow_provider_onelake.history import published as followed
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.writes.orphans import orphans
from airflow_provider_onelake.writes.reconcile import reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support import tables
from tests.support.commits import committer, statuses
from tests.support.stores import Counted, through
from tests.support.tables import prepare

OTHER = attrs.evolve(tables.LOAD, dag="another")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """A table with 1 and 2 in p1, and 3 in p2."""
    log = tables.make_table(tmp_path / "t")
    tables.foreign_append(log, {"p1": [1, 2], "p2": [3]})
    return log


def settle(log: DeltaLog, *writers: str) -> Report:
    return reconcile(committer(log), tables.LOAD, list(writers))


def test_rows_that_an_update_brought_into_another_partition_are_followed(log: DeltaLog) -> None:
    before = tables.foreign_append(log, {"p3": [7]})
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).update({"month": "'p2'"}, predicate="id = 10")
    (outcome,) = settle(log, "w").outcomes
    assert outcome.status == "deleted"
    assert outcome.aftermath == ("some of its rows were changed or deleted by UPDATE in version 4",)
    DeltaTable(log.table).restore(before)
    with pytest.raises(RowsRestoredAwayError):
        settle(log, "w").raise_for_failures()


def test_rows_that_a_restore_took_back_are_not_called_published(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).restore(1)
    report = settle(log, "w")
    assert statuses(report) == {"w": "restored_away"}
    with pytest.raises(
        RowsRestoredAwayError, match=r"'w' .* in version 2 .* and RESTORE in version 3 took its rows back"
    ):
        report.raise_for_failures()
    DeltaTable(log.table).restore(2)
    assert statuses(settle(log, "w")) == {"w": "already_published"}


@pytest.mark.parametrize(
    ("statement", "status", "story"),
    [
        pytest.param(
            lambda table: table.delete("id = 10"), "deleted", "its rows were changed or deleted by DELETE", id="delete"
        ),
        pytest.param(
            lambda table: table.update({"id": "99"}, predicate="id = 10"),
            "deleted",
            "some of its rows were changed or deleted by UPDATE",
            id="update",
        ),
        pytest.param(lambda table: table.optimize.compact(), "already_published", None, id="compaction"),
        pytest.param(
            lambda table: write_deltalake(table, pa.table({"id": [7], "month": ["p1"]}), mode="overwrite"),
            "superseded",
            "its rows were replaced by WRITE",
            id="foreign overwrite",
        ),
        pytest.param(
            lambda table: overwrite(table, "month = 'p1'"),
            "superseded",
            "its rows were replaced by WRITE",
            id="foreign overwrite by a partition column",
        ),
    ],
)
def test_their_fate(log: DeltaLog, statement: Callable[[DeltaTable], object], status: str, story: str | None) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10]})])
    statement(DeltaTable(log.table))
    report = settle(log, "w")
    report.raise_for_failures()
    (outcome,) = report.outcomes
    assert outcome.status == status
    assert outcome.aftermath == (() if story is None else (f"{story} in version 3",))


def overwrite(table: DeltaTable, predicate: str) -> None:
    write_deltalake(table, pa.table({"id": [12], "month": ["p1"]}), mode="overwrite", predicate=predicate)


def test_reconcile_does_not_advise_to_add_rows_that_an_older_generation_has_in_the_table(log: DeltaLog) -> None:
    """Somebody appended twice by mistake, and a RESTORE repaired it."""
    before = tables.newest(log).version
    for generation in (1, 2):
        terms = {"generation": generation, "on_rerun": OnRerun.APPEND}
        committer(log).publish([tables.stage(through(log.store, log), tables.writer_spec(**terms), {"p1": [10]})])
    DeltaTable(log.table).restore(before + 1)
    with pytest.raises(RowsRestoredAwayError, match=rf"in version {before + 1} is in the table, and on_rerun="):
        settle(log, "w").raise_for_failures()
    DeltaTable(log.table).restore(before)
    with pytest.raises(RowsRestoredAwayError, match="clear the writer with on_rerun='append'"):
        settle(log, "w").raise_for_failures()
    DeltaTable(log.table).restore(before + 1)
    with pytest.raises(RerunRefusedError, match=rf"what it published in version {before + 1} is in the table"):
        prepare(through(log.store, log), tables.writer_spec(generation=3))


def test_a_remove_that_spells_a_path_otherwise_takes_no_rows(log: DeltaLog) -> None:
    """Spark leaves letters beyond ASCII as they are, and deltalake does not: the file stays live for every engine."""
    spec = tables.writer_spec()
    task = tables.begun(log, spec)
    actions: Any = tables.append_files(log.store, task.path, {"\u00e9": [10]}, **tables.of_attempt(spec.attempt))
    for action in actions:
        if "add" in action:
            action["add"]["path"] = unquote(action["add"]["path"])
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    committer(log).publish([tables.complete(log, task.path)])
    DeltaTable(log.table).delete("id = 10")
    assert 10 in tables.table_ids(log)
    report = settle(log, "w")
    report.raise_for_failures()
    assert statuses(report) == {"w": "already_published"}
    assert isinstance(prepare(through(log.store, log), tables.writer_spec(generation=2)), Skip)
    assert [orphan.identity.key for orphan in orphans(log, tables.LOAD, set(), {"load"}, tables.newest(log))] == ["w"]


def test_an_overwrite_by_a_data_column_may_have_left_rows_alone_in_new_files(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10, 12]})])
    overwrite(DeltaTable(log.table), "id = 12")
    (outcome,) = settle(log, "w").outcomes
    assert outcome.status == "deleted"
    assert outcome.aftermath == ("some or all of its rows were replaced by WRITE in version 3",)


def test_a_compaction_is_followed_however_it_spells_the_partition(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {None: [10]})])
    published = tables.commit_of(log, 2)
    info, add = tables.append_files(log.store, "", {"": [10]}, operation="OPTIMIZE")
    add["add"]["dataChange"] = False
    moved = {**published.adds[0], "dataChange": False, "deletionTimestamp": 1}
    tables.foreign_commit(log, [info, {"remove": moved}, add])
    remove = {"remove": {**add["add"], "dataChange": True}}
    tables.foreign_commit(log, [{"commitInfo": {"operation": "DELETE"}}, remove])
    (outcome,) = settle(log, "w").outcomes
    assert outcome.status == "deleted"
    assert outcome.aftermath == ("its rows were changed or deleted by DELETE in version 4",)


def test_where_the_log_was_cleaned_up_rows_that_are_not_where_they_were_are_told(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10, 11], "p2": [12]})])
    DeltaTable(log.table).delete("id = 12")
    tables.cleaned_up(log, *range(3))
    (outcome,) = settle(log, "w").outcomes
    assert outcome.status == "already_published"
    assert outcome.aftermath == ("2 of its 3 rows are where they were; where the others are, nobody knows",)


def test_rows_that_are_replaced_after_a_compaction_moved_them_are_followed(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).optimize.compact()
    committer(log).publish([tables.stage(log, tables.writer_spec("x", OTHER, **tables.OVERWRITE), {"p1": [20]})])
    (outcome,) = settle(log, "w").outcomes
    assert (outcome.status, outcome.aftermath) == (
        "superseded",
        ("its rows were replaced by x of another.load, run 2019-01-01T00:00:00+00:00 in version 4",),
    )


def fate(log: DeltaLog) -> followed.Aftermath:
    history = WriterHistory(log, tables.LOAD.writer("w"), log.snapshot())
    assert history.newest is not None
    return history.since(history.newest)


def test_rows_that_are_not_where_they_were_are_followed_through_however_many_commits(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10]})])
    DeltaTable(log.table).restore(1)
    for number in range(4):
        tables.foreign_append(log, {"p3": [number]})
    told = fate(through(log.store, log))
    assert told.fate is followed.Fate.RESTORED_AWAY
    monkeypatch.setattr(followed, "MOST_FOLLOWED", 2)
    assert fate(through(log.store, log)) == told


def test_rows_where_they_were_cost_no_request(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(followed, "MOST_FOLLOWED", 2)
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10, 11, 12]})])
    costs = []
    for _ in range(2):
        for number in range(5):
            tables.foreign_append(log, {"p3": [number]})
        DeltaTable(log.table).create_checkpoint()
        counted = Counted(log.store)
        assert fate(through(counted, log)) == followed.Aftermath(followed.Fate.LIVE, rows=3)
        costs.append(counted.calls)
    assert costs[0] == costs[1]


def test_a_table_that_is_replaced_takes_no_rows_that_were_gone_before(log: DeltaLog) -> None:
    committer(log).publish([tables.stage(log, tables.writer_spec(), {"p1": [10]})])
    committer(log).publish([tables.stage(log, tables.writer_spec("x", OTHER, **tables.OVERWRITE), {"p1": [20]})])
    removes = [{"remove": {**add, "deletionTimestamp": 1}} for add in log.live_files(lambda _: True, 3)]
    info = {"commitInfo": {"timestamp": 1, "operation": "CREATE OR REPLACE TABLE"}}
    tables.foreign_commit(log, [info, *removes])
    (outcome,) = settle(log, "w").outcomes
    assert outcome.status == "superseded"
