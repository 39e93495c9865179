"""Reconcile: the last word on a load."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.buffers.buffer import Buffer, open_buffer
from airflow_provider_onelake.buffers.layout import CLOSED
from airflow_provider_onelake.buffers.markers import read_marker, set_aside, write_marker
from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, OnUnexpectedRows, PublishMode
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.stores import ObjectInfo, Store
from airflow_provider_onelake.writes import publish as publishing
from airflow_provider_onelake.writes.publish import Committer, Publication, PublishStatus
from airflow_provider_onelake.writes.reconcile import check_committed, reconcile
from airflow_provider_onelake.writes.report import Report
from tests.support import tables
from tests.support.commits import statuses
from tests.support.stores import LoserHeld, PassingOn, through
from tests.support.tables import Stage, prepare

HERE: dict[str | None, list[int]] = {"2019-01": [10]}
BASE = datetime.now(UTC) - timedelta(hours=5)
EACH_OR_TOGETHER = pytest.mark.parametrize("publish", list(PublishMode))


def settle(log: DeltaLog, *writers: str, store: Store | None = None, **terms: Any) -> Report:
    committer = Committer(through(store or log.store, log))
    return reconcile(committer, tables.LOAD, list(writers), **terms)


def staged(log: DeltaLog, writer: str, number: int, *, hour: float = 0, month: str = "2019-01", **terms: Any) -> Buffer:
    buffer = tables.stage(log, tables.writer_spec(writer, **terms), {month: [number]})
    return tables.finished_at(log, buffer, BASE + timedelta(hours=hour))


def newest(log: DeltaLog) -> int:
    snapshot = through(log.store, log).snapshot()
    return snapshot.version


def test_without_a_table_nobody_left_rows_that_would_make_it(tmp_path: Path) -> None:
    with pytest.raises(errors.TableNotFoundError, match="none of the writers left rows"):
        settle(tables.local_log(tmp_path), "a")


@EACH_OR_TOGETHER
def test_complete_buffers_are_published_each_or_together(log: DeltaLog, publish: PublishMode) -> None:
    for number, key in enumerate("abc"):
        staged(log, key, number)
    report = settle(log, "a", "b", "c", publish=publish)
    assert statuses(report) == dict.fromkeys("abc", "published")
    assert newest(log) == (3 if publish is PublishMode.EACH else 1)
    assert report.version == newest(log)
    assert [outcome.rows_published for outcome in report.outcomes] == [1, 1, 1]
    report.raise_for_failures()
    assert tables.table_ids(log) == [0, 1, 2]


@EACH_OR_TOGETHER
def test_what_a_later_run_staged_is_not_an_earlier_ones(log: DeltaLog, publish: PublishMode) -> None:
    staged(log, "a", 1, generation=7)
    earlier = settle(log, "a", "b", publish=publish, generations={"a": 6, "b": 6})
    assert statuses(earlier) == {"a": "missing", "b": "missing"}
    assert newest(log) == 0
    with pytest.raises(errors.MissingWritersError):
        earlier.raise_for_failures()
    staged(log, "b", 2, generation=7)
    later = settle(log, "a", "b", publish=publish, generations={"a": 7, "b": 7})
    assert statuses(later) == {"a": "published", "b": "published"}
    assert "A later run of load" in str(settle(log, "a", generations={"a": 6}).outcomes[0].error)
    assert tables.table_ids(log) == [1, 2]


@EACH_OR_TOGETHER
def test_called_again_it_publishes_nothing_twice(log: DeltaLog, publish: PublishMode) -> None:
    for number, key in enumerate("ab"):
        staged(log, key, number)
    settle(log, "a", "b", publish=publish)
    before = newest(log)
    again = settle(log, "a", "b", publish=publish)
    assert statuses(again) == dict.fromkeys("ab", "already_published")
    assert [outcome.rows_published for outcome in again.outcomes] == [1, 1]
    assert newest(log) == before
    assert tables.table_ids(log) == [0, 1]


def test_a_writer_named_twice_is_settled_once(log: DeltaLog) -> None:
    staged(log, "a", 1)
    assert len(settle(log, "a", "a").outcomes) == 1
    assert tables.table_ids(log) == [1]


def test_buffers_of_other_runs_are_not_looked_at(log: DeltaLog) -> None:
    other = attrs.evolve(tables.LOAD, run="2019-02-01T00:00:00+00:00")
    tables.stage(log, tables.writer_spec("a", other), {"2019-01": [99]})
    staged(log, "a", 1)
    settle(log, "a")
    assert tables.table_ids(log) == [1]


@EACH_OR_TOGETHER
def test_a_missing_writer_is_named_and_the_others_are_published(log: DeltaLog, publish: PublishMode) -> None:
    staged(log, "a", 1)
    prepare(log, tables.writer_spec("b"))
    report = settle(log, "a", "b", "c", publish=publish, unnamed=["load.write[7] (failed)"])
    assert statuses(report) == {"a": "published", "b": "missing", "c": "missing"}
    assert report.missing == ("b", "c", "load.write[7] (failed)")
    assert tables.table_ids(log) == [1]
    with pytest.raises(errors.MissingWritersError, match=r"3 of 4 .*: b, c, load.write\[7\] \(failed\). Published: a"):
        report.raise_for_failures()


@EACH_OR_TOGETHER
@pytest.mark.parametrize("unnamed", [[], ["load.write[7]"]], ids=["named", "unnamed"])
def test_a_missing_writer_holds_back_where_asked(log: DeltaLog, publish: PublishMode, unnamed: list[str]) -> None:
    nothing = OnMissingWriter.PUBLISH_NOTHING
    staged(log, "a", 1)
    writers = ("a",) if unnamed else ("a", "b")
    report = settle(log, *writers, publish=publish, on_missing_writer=nothing, unnamed=unnamed)
    assert statuses(report)["a"] == "held_back"
    assert tables.table_ids(log) == []
    with pytest.raises(errors.MissingWritersError, match="Published: none"):
        report.raise_for_failures()
    staged(log, "b", 2)
    healed = settle(log, "a", "b", publish=publish, on_missing_writer=nothing)
    healed.raise_for_failures()
    assert tables.table_ids(log) == [1, 2]


def test_a_clear_of_one_writer_of_a_load_that_was_left_out_is_no_half_load(log: DeltaLog) -> None:
    terms = {**tables.OVERWRITE, "publish": PublishMode.TOGETHER}
    both = {"publish": PublishMode.TOGETHER, "on_missing_writer": OnMissingWriter.PUBLISH_NOTHING}
    staged(log, "a", 1, **terms)
    staged(log, "b", 2, month="2019-02", **terms)
    rows = {"2019-01": [20], "2019-02": [21]}
    spec = tables.writer_spec("x", attrs.evolve(tables.LOAD, dag="another"), **tables.OVERWRITE)
    newer = tables.stage(log, spec, rows)
    Committer(through(log.store, log)).publish([tables.finished_at(log, newer, BASE + timedelta(hours=1))])
    assert statuses(settle(log, "a", "b", **both)) == {"a": "superseded", "b": "superseded"}
    staged(log, "a", 3, hour=2, generation=2, **terms)
    report = settle(log, "a", "b", **both)
    assert statuses(report) == {"a": "held_back", "b": "superseded"}
    with pytest.raises(errors.MissingWritersError, match=r"1 of 2 writers .*: b. Published: none"):
        report.raise_for_failures()
    staged(log, "b", 4, hour=2, month="2019-02", generation=2, **terms)
    settle(log, "a", "b", **both).raise_for_failures()
    assert tables.table_ids(log) == [3, 4]


def stage_anew_before_publishing(log: DeltaLog, buffer: Buffer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a retry of other work begin when the reconciliation has looked at what is staged."""
    publish = Committer.publish

    def publishes(self: Committer, *args: Any, **named: Any) -> Any:
        set_aside(log.store, buffer.path, "its writer was staged again")
        return publish(self, *args, **named)

    monkeypatch.setattr(Committer, "publish", publishes)


TOGETHER = {"publish": PublishMode.TOGETHER}
OR_NOTHING = {**TOGETHER, "on_missing_writer": OnMissingWriter.PUBLISH_NOTHING}


@pytest.mark.parametrize(
    ("terms", "other"), [({}, "published"), (TOGETHER, "published"), (OR_NOTHING, "refused")], ids=str
)
def test_a_writer_set_aside_meanwhile_is_told_of_and_holds_others_back_where_asked(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, terms: dict[str, Any], other: str
) -> None:
    staged(log, "a", 1)
    stage_anew_before_publishing(log, staged(log, "b", 2), monkeypatch)
    report = settle(log, "a", "b", **terms)
    assert statuses(report) == {"a": other, "b": "set_aside"}
    assert tables.table_ids(log) == [1] * (other == "published")
    with pytest.raises(errors.MissingWritersError, match=r"'b' had staged was (set aside|closed) meanwhile"):
        report.raise_for_failures()


def test_a_writer_published_meanwhile_holds_nobody_back(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its marker is read after the snapshot, so only the marker says so."""
    staged(log, "a", 1)
    buffer, read, held = staged(log, "b", 2), publishing.read_marker, [True]

    def reads(store: Store, path: str) -> Any:
        if path == buffer.path and held.pop() if held else False:
            assert Committer(tables.local_log(Path(log.table))).publish([buffer]).status is PublishStatus.PUBLISHED
        return read(store, path)

    monkeypatch.setattr(publishing, "read_marker", reads)
    report = settle(log, "a", "b", **OR_NOTHING)
    assert statuses(report) == {"a": "published", "b": "already_published"}
    assert tables.table_ids(log) == [1, 2]
    report.raise_for_failures()


def test_a_writer_that_lost_its_files_is_missing_and_says_why(log: DeltaLog) -> None:
    buffer = staged(log, "a", 1)
    next(Path(log.table, buffer.path).rglob("*.parquet")).unlink()
    staged(log, "b", 2)
    report = settle(log, "a", "b")
    assert statuses(report) == {"a": "missing", "b": "published"}
    assert "is gone" in (report.outcomes[0].error or "")
    with pytest.raises(errors.MissingWritersError, match=r"is gone.*1 of 2 writers"):
        report.raise_for_failures()
    assert tables.table_ids(log) == [2]


def test_a_buffer_too_old_is_refused_by_name_and_the_others_are_published(log: DeltaLog) -> None:
    buffer = staged(log, "a", 1)
    staged(log, "b", 2)
    file = next(Path(log.table, buffer.path).rglob("*.parquet"))
    instant = (datetime.now(UTC) - timedelta(days=4)).timestamp()
    os.utime(file, (instant, instant))
    report = settle(log, "a", "b")
    assert statuses(report) == {"a": "refused", "b": "published"}
    with pytest.raises(errors.BufferLostError, match="writer 'a'"):
        report.raise_for_failures()
    assert tables.table_ids(log) == [2]


def test_a_writer_whose_only_buffer_was_set_aside_is_missing(log: DeltaLog) -> None:
    buffer = staged(log, "a", 1)
    write_marker(log.store, buffer.path, {"reason": "set aside: it read the table itself"})
    assert statuses(settle(log, "a")) == {"a": "missing"}
    assert tables.table_ids(log) == []


def test_several_failures_are_told_in_one(log: DeltaLog) -> None:
    for key in ("a", "b"):
        terms: Any = {"expected_partitions": "month = '2018-01'", "on_unexpected_rows": OnUnexpectedRows.REFUSE}
        tables.stage(log, tables.writer_spec(key, **terms), HERE)
    with pytest.raises(errors.TerminalError, match=r"Writer 'a' .*Writer 'b'"):
        settle(log, "a", "b").raise_for_failures()
    with pytest.raises(errors.UnexpectedRowsError, match="Writer 'a'"):
        settle(log, "a").raise_for_failures()
    assert tables.table_ids(log) == []


def test_an_empty_writer_is_no_missing_one(log: DeltaLog) -> None:
    tables.stage(log, tables.writer_spec("a"), {})
    report = settle(log, "a")
    assert statuses(report) == {"a": "published"}
    assert report.outcomes[0].rows_published == 0
    report.raise_for_failures()


def test_a_writer_that_skipped_is_in_the_table(log: DeltaLog) -> None:
    buffer = staged(log, "a", 1)
    Committer(log).publish([buffer])
    assert isinstance(prepare(log, tables.writer_spec("a", generation=2)), Skip)
    report = settle(log, "a")
    assert statuses(report) == {"a": "already_published"}
    assert (report.outcomes[0].version, report.outcomes[0].buffer) == (1, buffer.path)


def test_a_rerun_that_is_not_complete_is_missing_though_its_first_generation_is_there(log: DeltaLog) -> None:
    Committer(log).publish([staged(log, "a", 1, **tables.OVERWRITE)])
    prepare(log, tables.writer_spec("a", generation=2, **tables.OVERWRITE))
    report = settle(log, "a")
    assert statuses(report) == {"a": "missing"}
    assert tables.table_ids(log) == [1]


def test_only_the_newest_generation_counts(log: DeltaLog) -> None:
    staged(log, "a", 1, hour=0, generation=1, on_rerun=OnRerun.APPEND)
    staged(log, "a", 2, hour=1, generation=2, on_rerun=OnRerun.APPEND)
    settle(log, "a")
    assert tables.table_ids(log) == [2]


def test_of_two_complete_buffers_of_one_writer_the_first_counts_and_the_other_is_set_aside(log: DeltaLog) -> None:
    second = staged(log, "a", 2, hour=1, fingerprint="")
    first = staged(log, "a", 1, hour=0, fingerprint="")
    report = settle(log, "a")
    assert report.outcomes[0].buffer == first.path
    assert "set aside" in (read_marker(log.store, second.path) or {})["reason"]
    assert tables.table_ids(log) == [1]


def test_rows_of_older_code_that_are_complete_first_are_not_published(log: DeltaLog) -> None:
    old = tables.writer_spec("a", fingerprint="old", publish=PublishMode.TOGETHER)
    new = attrs.evolve(old, attempt="new", fingerprint="new")
    tasks = [prepare(log, spec) for spec in (old, new)]
    for task, spec, number in zip(tasks, (old, new), (666, 1), strict=True):
        assert isinstance(task, Stage)
        tables.finish(log, task, spec, {"2019-01": [number]})
    report = settle(log, "a", publish=PublishMode.TOGETHER)
    assert report.outcomes[0].buffer == new.buffer
    assert tables.table_ids(log) == [1]


def test_where_nobody_can_tell_which_work_is_wanted_neither_is_published(log: DeltaLog) -> None:
    """The older attempt opened its buffer after the newer one had looked for it."""
    spec = tables.writer_spec("a", fingerprint="old", task="load.write[0]")
    new = staged(log, "a", 1, fingerprint="new", task="load.write[0]")
    snapshot = log.snapshot()
    late = open_buffer(log.store, spec, snapshot, log.clock)
    tables.finish(log, late, spec, {"2019-01": [666]})
    report = settle(log, "a")
    with pytest.raises(errors.TerminalError, match=r"'a'.* different work .*clear load\.write\[0\]") as told:
        report.raise_for_failures()
    assert new.path in str(told.value)
    assert late.path in str(told.value)
    assert (statuses(report), tables.table_ids(log)) == ({"a": "refused"}, [])


def test_rivals_of_one_load_settle_in_the_order_in_which_they_finished(log: DeltaLog) -> None:
    for key, hour in (("late", 3), ("early", 1), ("middle", 2)):
        staged(log, key, int(hour), hour=hour, **tables.OVERWRITE)
    report = settle(log, "late", "early", "middle")
    assert tables.table_ids(log) == [3]
    by_writer = {outcome.writer: outcome for outcome in report.outcomes}
    assert [by_writer[key].version for key in ("early", "middle", "late")] == [1, 2, 3]
    assert by_writer["late"].decisions[-1] == (
        "version 2 (middle of taxi.load, run 2019-01-01T00:00:00+00:00) put 1 row into month=2019-01, and is replaced there"
    )


def test_rows_outside_are_set_aside_and_counted(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-04": [7]})
    spec = tables.writer_spec("a", expected_partitions="month = '2019-01'", **tables.OVERWRITE)
    tables.stage(log, spec, {"2019-01": [1], "2019-04": [2, 3]})
    report = settle(log, "a")
    (outcome,) = report.outcomes
    assert (outcome.rows_staged, outcome.rows_published, outcome.rows_unexpected) == (3, 1, 2)
    assert tables.table_ids(log) == [1, 7]


def test_together_a_writer_that_comes_late_joins_its_colleagues(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [1]})
    staged(log, "a", 10, **tables.OVERWRITE)
    settle(log, "a", "b", publish=PublishMode.TOGETHER)
    assert tables.table_ids(log) == [10]
    staged(log, "b", 11, **tables.OVERWRITE)
    report = settle(log, "a", "b", publish=PublishMode.TOGETHER)
    assert statuses(report) == {"a": "already_published", "b": "published"}
    assert tables.table_ids(log) == [10, 11]


def test_together_an_outsider_is_judged_against_the_last_of_them(log: DeltaLog) -> None:
    staged(log, "a", 10, hour=1, **tables.OVERWRITE)
    staged(log, "b", 11, hour=3, **tables.OVERWRITE)
    theirs = tables.writer_spec("theirs", attrs.evolve(tables.LOAD, dag="other"), **tables.OVERWRITE)
    outsider = tables.stage(log, theirs, {"2019-01": [20]})
    outsider = tables.finished_at(log, outsider, BASE + timedelta(hours=2))
    held = LoserHeld(log.store, lambda: Committer(through(log.store, log)).publish([outsider]))
    report = settle(log, "a", "b", store=held, publish=PublishMode.TOGETHER)
    assert held.refused == 1
    for outcome in report.outcomes:
        assert outcome.lost_races == 1
        assert outcome.decisions[-1].startswith("version 1 (theirs of other.load")
        assert outcome.decisions[-1].endswith("and is replaced there")
    assert tables.table_ids(log) == [10, 11]


@EACH_OR_TOGETHER
def test_a_writer_that_publishes_itself_is_published_once(log: DeltaLog, publish: PublishMode) -> None:
    a, _ = staged(log, "a", 1), staged(log, "b", 2)
    held = LoserHeld(log.store, lambda: Committer(through(log.store, log)).publish([a]))
    report = settle(log, "a", "b", store=held, publish=publish)
    assert held.refused == 1
    assert statuses(report) == {"a": "already_published", "b": "published"}
    assert tables.table_ids(log) == [1, 2]


@EACH_OR_TOGETHER
def test_two_reconciliations_at_once_publish_every_row_once(log: DeltaLog, publish: PublishMode) -> None:
    for number, key in enumerate("ab"):
        staged(log, key, number, **tables.OVERWRITE)
    rival: Callable[[], object] = lambda: settle(log, "a", "b", publish=publish)  # noqa: E731
    held = LoserHeld(log.store, rival)
    report = settle(log, "a", "b", store=held, publish=publish)
    assert held.refused == 1
    first = "already_published" if publish is PublishMode.TOGETHER else "superseded"
    assert statuses(report) == {"a": first, "b": "already_published"}
    assert tables.table_ids(log) == ([0, 1] if publish is PublishMode.TOGETHER else [1])


def publish_one(log: DeltaLog) -> Publication:
    return Committer(log).publish([tables.stage(log, tables.writer_spec("a"), {"2019-01": [1, 2], "2019-02": [3]})])


def rewritten(log: DeltaLog, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> DeltaLog:
    """The table as if version 1 said something else."""
    commit = tables.commit_of(through(log.store, log), 1)
    log.store.put(version_path(1), dump_actions(change(commit.actions)))
    return through(log.store, log)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda actions: [*actions, actions[-1]], "a file is in it twice"),
        (lambda actions: actions[:-1], "it has 1 files instead of 2"),
        (lambda actions: actions[:-1], "2 rows of writer 'a' instead of 3"),
        (
            lambda actions: [*actions[:-1], {"add": {**actions[-1]["add"], "stats": '{"numRecords": 5}'}}],
            "7 rows of writer 'a' instead of 3",
        ),
    ],
)
def test_a_commit_that_says_something_else_is_an_error(log: DeltaLog, change: Any, problem: str) -> None:
    publication = publish_one(log)
    with pytest.raises(errors.ReconciliationMismatchError, match=problem):
        check_committed(rewritten(log, change), publication)


def test_a_commit_that_is_gone_is_an_error(log: DeltaLog) -> None:
    publication = publish_one(log)
    Path(log.table, version_path(1)).unlink()
    with pytest.raises(errors.ReconciliationMismatchError, match="is gone right after"):
        check_committed(through(log.store, log), publication)


def test_reconcile_reads_back_what_it_committed(log: DeltaLog) -> None:
    class Drops(PassingOn):
        """A store that keeps only a part of what it is given."""

        def create(self, path: str, data: bytes) -> None:
            if path == version_path(1):
                data = b"".join(data.splitlines(keepends=True)[:-1])
            super().create(path, data)

    staged(log, "a", 1)
    report = settle(log, "a", store=Drops(log.store))
    assert statuses(report) == {"a": "published"}
    assert "is not what was staged" in str(report.outcomes[0].error)
    with pytest.raises(errors.ReconciliationMismatchError, match=r"Version 1 .* is not what was staged"):
        report.raise_for_failures()


def test_the_report_is_json_with_every_decision(log: DeltaLog) -> None:
    early = staged(log, "early", 1, **tables.OVERWRITE)
    Committer(log).publish([staged(log, "late", 2, hour=1, **tables.OVERWRITE)])
    report = json.loads(json.dumps(settle(log, "early", "late", "gone").to_json()))
    assert (report["load"], report["table"], report["version"]) == (tables.LOAD.id, log.table, 2)
    assert report["missing"] == ["gone"]
    assert [writer["status"] for writer in report["writers"]] == ["superseded", "already_published", "missing"]
    (first, _, _) = report["writers"]
    assert first["buffer"] == early.path
    assert first["decisions"][-1].startswith("all of it is superseded, 1 row in month=2019-01: version 1 (late of taxi")


def test_a_rerun_that_left_nothing_is_missing_and_what_was_published_before_is_named(log: DeltaLog) -> None:
    Committer(log).publish([tables.stage(log, tables.writer_spec("a"), HERE)])
    # The rerun claims its key, and is refused for its other source before it stages.
    with pytest.raises(errors.RerunRefusedError):
        prepare(log, tables.writer_spec("a", generation=2, fingerprint="another"))
    report = settle(log, "a")
    assert report.missing == ("a",)
    with pytest.raises(errors.MissingWritersError, match=r"What a published before, .* 1, is still in the table"):
        report.raise_for_failures()


@pytest.mark.parametrize("by", ["a colleague", "a restore"])
def test_what_a_missing_rerun_published_before_is_not_said_to_be_there_where_it_is_gone(log: DeltaLog, by: str) -> None:
    Committer(log).publish([tables.stage(log, tables.writer_spec("a", **tables.OVERWRITE), HERE)])
    if by == "a restore":
        DeltaTable(log.table).restore(0)
    prepare(log, tables.writer_spec("a", generation=2, **tables.OVERWRITE))
    if by == "a colleague":
        tables.stage(log, tables.writer_spec("b", **tables.OVERWRITE), HERE)
    report = settle(log, "a", "b")
    (outcome, _) = report.outcomes
    assert (outcome.status, outcome.version) == ("missing", None)
    assert ("took its rows back" if by == "a restore" else "its rows were replaced") in outcome.aftermath[0]
    with pytest.raises(errors.MissingWritersError) as raised:
        report.raise_for_failures()
    assert "is still in the table" not in str(raised.value)


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
@pytest.mark.parametrize("is_published", [True, False])
def test_a_damaged_marker_leaves_it_to_the_txn(log: DeltaLog, content: bytes, is_published: bool) -> None:
    buffer = staged(log, "a", 1)
    if is_published:
        Committer(log).publish([buffer])
    log.store.put(f"{buffer.path}/{CLOSED}", content)
    report = settle(log, "a")
    assert statuses(report) == {"a": "already_published" if is_published else "missing"}
    assert tables.table_ids(log) == [1] * is_published


@pytest.mark.parametrize("version", [0, 1])
def test_a_damaged_buffer_is_a_missing_writer_with_the_reason(log: DeltaLog, version: int) -> None:
    buffer = staged(log, "a", 1)
    log.store.put(f"{buffer.path}/{version_path(version)}", b'{"add":')
    staged(log, "b", 2)
    report = settle(log, "a", "b")
    assert statuses(report) == {"a": "missing", "b": "published"}
    assert f"Version {version} of the buffer {buffer.path} is not JSON" in str(report.outcomes[0].error)


class Busy(PassingOn):
    """Takes several requests at once, and remembers how many were under way."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.concurrency = 4
        self.changed = threading.Condition()
        self.under_way: Counter[str] = Counter()
        self.most: Counter[str] = Counter()

    @contextmanager
    def counted(self, what: str) -> Iterator[None]:
        with self.changed:
            self.under_way[what] += 1
            self.most[what] = max(self.most[what], self.under_way[what])
            self.changed.notify_all()
            if what != "log":
                # The first ones wait for each other: whoever asks for less at once than the store takes waits in vain.
                self.changed.wait_for(lambda: self.most[what] >= self.concurrency, timeout=10)
        yield
        with self.changed:
            self.under_way[what] -= 1

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        with self.counted("list" if prefix.startswith("staged/") else "log"):
            return super().list(prefix, start_after)

    def put(self, path: str, data: bytes) -> None:
        with self.counted("put"):
            super().put(path, data)


def test_a_store_that_takes_several_requests_gets_them_at_once_and_the_report_is_the_same(tmp_path: Path) -> None:
    keys = [f"w{number}" for number in range(9)]
    reports = []
    for name in ("one by one", "at once"):
        log = tables.make_table(tmp_path / name)
        for number, key in enumerate(keys[:-1]):
            staged(log, key, number, hour=-number)
        staged(log, "w3", 99, attempt="again", fingerprint="other")
        store = Busy(log.store) if name == "at once" else log.store
        reports.append(reconcile(Committer(through(store, log)), tables.LOAD, keys, publish=PublishMode.TOGETHER))
        assert tables.table_ids(log) == [0, 1, 2, 4, 5, 6, 7, 99]
    first, second = ([(o.writer, o.status, o.version, o.rows_staged) for o in report.outcomes] for report in reports)
    assert first == second
    assert reports[0].missing == reports[1].missing
    assert isinstance(store, Busy)
    assert store.most == {"list": 4, "put": 4, "log": 1}
