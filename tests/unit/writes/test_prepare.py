"""What a writer does before it asks Spark for anything: its key, its rerun, a buffer to reuse."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.claims import Start, begin
from airflow_provider_onelake.buffers.layout import CLOSED, WriterDirectory
from airflow_provider_onelake.buffers.markers import check_not_set_aside, read_marker, set_aside, write_marker
from airflow_provider_onelake.buffers.spec import WriteSpec
from airflow_provider_onelake.choices import OnRerun, Policy, PublishMode
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Add, version_path
from airflow_provider_onelake.log.commits import FORMAT
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import ReplaceWhere
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support import tables
from tests.support.restores import restored_by_time, take_back
from tests.support.stores import Counted, through
from tests.support.tables import Stage, prepare
from tests.support.vectors import delete_rows

WHERE = {"mode": ReplaceWhere("month = '2019-01'")}
OVERWRITE_ONCE: dict[str, Any] = {**tables.OVERWRITE, "on_rerun": OnRerun.SKIP}


def check_refused(log: DeltaLog, why: str, **terms: Any) -> None:
    with pytest.raises(errors.RerunRefusedError, match=why):
        prepare(log, tables.writer_spec(**terms))


def published(log: DeltaLog, *, rows: dict[str | None, list[int]] | None = None, **terms: Any) -> Buffer:
    buffer = tables.stage(log, tables.writer_spec(**terms), {"2019-01": [1]} if rows is None else rows)
    Committer(log).publish([buffer])
    return buffer


def staged_files(log: DeltaLog) -> list[Path]:
    """All files but the claims: a writer's key is claimed before its terms are held against the table."""
    found = Path(log.table).rglob("staged/**/*")
    return [path for path in found if path.is_file() and not path.name.startswith("_claim-")]


def test_without_a_table_there_is_nothing_to_stage_for(tmp_path: Path) -> None:
    with pytest.raises(errors.TableNotFoundError, match="no Delta table"):
        prepare(tables.local_log(tmp_path), tables.writer_spec())


def test_a_table_feature_off_the_list_is_refused_and_nothing_is_staged(log: DeltaLog) -> None:
    tables.change_metadata(log, configuration={"delta.columnMapping.mode": "name"})
    with pytest.raises(errors.UnsupportedFeatureError, match="columnMapping"):
        prepare(log, tables.writer_spec())
    assert staged_files(log) == []


APPEND_ONLY = {"delta.appendOnly": "true"}
KEEPS_NOTHING = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
NOT_KEPT = r"sets delta.deletedFileRetentionDuration=interval 0 hours, so a VACUUM"
NO_PARTITION_COLUMN = "'id' is no partition column"


@pytest.mark.parametrize(
    ("by", "properties", "terms", "why"),
    [
        pytest.param(("month",), APPEND_ONLY, WHERE, "append-only", id="append-only, replace_where"),
        pytest.param(("month",), APPEND_ONLY, tables.OVERWRITE, "append-only", id="append-only, overwrite"),
        pytest.param(("month",), KEEPS_NOTHING, {}, NOT_KEPT, id="no deleted file is kept, append"),
        pytest.param(("month",), KEEPS_NOTHING, tables.OVERWRITE, NOT_KEPT, id="no deleted file is kept, overwrite"),
        pytest.param((), {}, tables.OVERWRITE, "no partition columns", id="not partitioned"),
        pytest.param(("month",), {}, {"mode": ReplaceWhere("id = 1")}, NO_PARTITION_COLUMN, id="replace_where"),
        pytest.param(("month",), {}, {"expected_partitions": "id = 1"}, NO_PARTITION_COLUMN, id="expected_partitions"),
    ],
)
def test_what_no_such_table_takes(
    tmp_path: Path, by: tuple[str, ...], properties: dict[str, str], terms: dict[str, Any], why: str
) -> None:
    log = tables.make_table(tmp_path / "t", partition_by=by, **properties)
    with pytest.raises(errors.InvalidWriteError, match=why):
        prepare(log, tables.writer_spec(**terms))
    assert staged_files(log) == []
    if properties != KEEPS_NOTHING:
        assert isinstance(prepare(log, tables.writer_spec()), Stage)


def test_a_zombie_of_an_older_generation_is_fenced_off_by_what_is_in_the_table(log: DeltaLog) -> None:
    buffer = published(log, generation=2)
    for mark in Path(log.table, tables.LOAD.writer("w").directory).glob("_claim-*"):
        mark.unlink()
    with pytest.raises(errors.ZombieWriterError, match="Generation 2 of writer 'w'"):
        prepare(log, tables.writer_spec(generation=1))
    assert WriterDirectory.read(log.store, tables.LOAD.writer("w").directory).buffers == [buffer.path]


@pytest.mark.parametrize("terms", [{}, {"on_rerun": OnRerun.APPEND}, tables.OVERWRITE, WHERE])
def test_a_retry_of_what_was_published_is_skipped_whatever_on_rerun_says(log: DeltaLog, terms: dict[str, Any]) -> None:
    published(log, **terms)
    assert prepare(log, tables.writer_spec(**terms)) == Skip(1, "already in version 1: an earlier attempt published it")


@pytest.mark.parametrize("terms", [{"fingerprint": ""}, {}], ids=["fingerprint unknown", "version unknown"])
def test_a_retry_of_what_was_published_is_skipped_by_its_txn_alone(log: DeltaLog, terms: dict[str, Any]) -> None:
    buffer = published(log, **terms)
    if not terms:
        Path(log.table, buffer.path, CLOSED).unlink()
        log = tables.cleaned_up(log)
    skipped = prepare(log, tables.writer_spec(**terms))
    assert isinstance(skipped, Skip)
    assert skipped.version == (1 if terms else None)


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        pytest.param({}, Skip, id="append skips"),
        pytest.param({"on_rerun": OnRerun.APPEND}, Stage, id="append again"),
        pytest.param(tables.OVERWRITE, Stage, id="overwrite replaces"),
        pytest.param({**tables.OVERWRITE, "on_rerun": OnRerun.SKIP}, Skip, id="overwrite skips when told"),
        pytest.param(WHERE, Stage, id="replace_where replaces"),
    ],
)
def test_a_deliberate_rerun_does_what_on_rerun_says(log: DeltaLog, terms: dict[str, Any], expected: type) -> None:
    published(log, **terms)
    assert isinstance(prepare(log, tables.writer_spec(generation=2, **terms)), expected)


def left_out(log: DeltaLog) -> None:
    """An overwrite of two months that a policy leaves out."""
    buffer = tables.stage(log, tables.writer_spec(**OVERWRITE_ONCE), {"2019-01": [1], "2019-02": [2]})
    tables.foreign_append(log, {"2019-01": [7]})
    Committer(through(log.store, log)).publish([buffer], Policy.FIRST_WRITER_WINS)


@pytest.mark.parametrize("fingerprint", ["same", "another"])
def test_a_clear_writes_rows_that_a_policy_left_out(log: DeltaLog, fingerprint: str) -> None:
    """As the error advises that says so: they are not in the table."""
    left_out(log)
    assert tables.ids(Path(log.table)) == [7]
    cleared = tables.writer_spec(generation=2, fingerprint=fingerprint, **OVERWRITE_ONCE)
    again = tables.stage(through(log.store, log), cleared, {"2019-01": [1], "2019-02": [2]})
    assert Committer(through(log.store, log)).publish([again]).status is PublishStatus.PUBLISHED
    assert tables.ids(Path(log.table)) == [1, 2]
    assert isinstance(prepare(through(log.store, log), attrs.evolve(cleared, generation=3)), Skip)


@pytest.mark.parametrize("marker", ["written", "lost in a crash"])
def test_a_clear_writes_rows_left_out_also_where_the_log_is_gone(log: DeltaLog, marker: str) -> None:
    left_out(log)
    tables.foreign_append(log, {"2019-03": [8]})
    tables.cleaned_up(log, *range(3))
    if marker != "written":
        for path in Path(log.table, tables.LOAD.writer("w").directory).glob("*/_closed.json"):
            path.unlink()
        check_refused(tables.local_log(Path(log.table)), "so it cannot be skipped", generation=2, **OVERWRITE_ONCE)
        return
    cleared = tables.writer_spec(generation=2, **OVERWRITE_ONCE)
    assert isinstance(prepare(tables.local_log(Path(log.table)), cleared), Stage)


def test_a_retry_does_not_write_what_a_policy_left_out_and_does_not_call_it_published(log: DeltaLog) -> None:
    left_out(log)
    retried = prepare(through(log.store, log), tables.writer_spec(**OVERWRITE_ONCE))
    assert retried == Skip(2, "its rows were left out in version 2, by an earlier attempt")


def test_skip_says_loudly_in_which_version_the_rows_are(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [9]})
    published(log)
    skip = prepare(log, tables.writer_spec(generation=2))
    assert isinstance(skip, Skip)
    assert (skip.version, skip.reason.partition(".")[0]) == (2, "already in version 2, with the same source and code")
    assert "on_rerun='append' adds the rows again" in skip.reason
    mark = Path(log.table, tables.LOAD.writer("w").directory, "_skipped-2.json")
    assert json.loads(mark.read_text())["version"] == 2


def test_a_copied_table_remembers_what_was_written_to_the_original(log: DeltaLog, tmp_path: Path) -> None:
    published(log)
    shutil.copytree(log.table, tmp_path / "copy")
    copy = tables.local_log(tmp_path / "copy")
    skipped = prepare(copy, tables.writer_spec(generation=2))
    assert isinstance(skipped, Skip)
    assert skipped.version == 1
    # And is a table of its own: what is written to it is not written to the original.
    Committer(copy).publish([tables.stage(copy, tables.writer_spec("other"), {"2019-01": [2]})])
    assert (tables.ids(Path(copy.table)), tables.ids(Path(log.table))) == ([1, 2], [1])
    assert isinstance(prepare(log, tables.writer_spec("other")), Stage)


@pytest.mark.parametrize(
    ("generation", "first", "then"), [(1, "same", "another"), (2, "same", "another"), (2, "same", ""), (2, "", "")]
)
def test_to_skip_other_or_unknown_work_is_an_error(log: DeltaLog, generation: int, first: str, then: str) -> None:
    published(log, fingerprint=first)
    with pytest.raises(errors.RerunRefusedError, match="from another source, code or mode") as refused:
        prepare(log, tables.writer_spec(generation=generation, fingerprint=then))
    assert re.search(r"on_rerun='append' adds .* overwrite_partitions and replace_where", str(refused.value))
    assert ("and clear the task; on_rerun=" in str(refused.value)) is (generation == 1)


def test_a_retry_of_other_work_that_a_clear_does_over_says_so(log: DeltaLog) -> None:
    published(log, **tables.OVERWRITE)
    with pytest.raises(errors.RerunRefusedError, match="clear the task, as on_rerun='replace' has"):
        prepare(log, tables.writer_spec(fingerprint="another", **tables.OVERWRITE))


def test_a_function_that_an_earlier_release_loaded_is_skipped(log: DeltaLog) -> None:
    published(log, fingerprint="by the old rule")
    function: dict[str, Any] = {"source": "function", "fingerprint": "by the rule of now"}
    for generation in (1, 2):
        assert isinstance(prepare(log, tables.writer_spec(generation=generation, **function)), Skip)
    published(log, generation=3, on_rerun=OnRerun.APPEND, **function)
    assert isinstance(prepare(log, tables.writer_spec(generation=4, **function)), Skip)
    with pytest.raises(errors.RerunRefusedError, match="from another source, code or mode"):
        prepare(log, tables.writer_spec(generation=4, **{**function, "fingerprint": "of other code"}))


REPLACES = [f"{verb} TABLE{how}" for verb in ("CREATE OR REPLACE", "REPLACE") for how in ("", " AS SELECT")]


@pytest.mark.parametrize("operation", ["RESTORE", "CLONE", *REPLACES])
def test_skip_is_refused_where_the_commit_was_undone(log: DeltaLog, operation: str) -> None:
    published(log)
    (add,) = log.live_files(lambda _: True, 1)
    undo(log, operation, gone=[add])
    check_refused(log, f"{operation} in version 2 took its rows back", generation=2)


def undo(
    log: DeltaLog, operation: str = "RESTORE", *, gone: Sequence[Add] = (), back: Sequence[Add] = (), **told: object
) -> None:
    removes = [{"remove": {**file, "dataChange": True, "deletionTimestamp": 1}} for file in gone]
    adds = [{"add": {**file, "dataChange": True}} for file in back]
    info = {"timestamp": 1, "operation": operation, "operationParameters": told}
    tables.foreign_commit(log, [{"commitInfo": info}, *removes, *adds])


def of_version(log: DeltaLog, version: int) -> list[Add]:
    return list(log.live_files(lambda _: True, version))


def test_a_restore_that_leaves_the_rows_or_brings_them_back_does_not_matter(log: DeltaLog) -> None:
    published(log)
    tables.foreign_append(log, {"2019-02": [9]})
    DeltaTable(log.table).restore(1)
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)
    DeltaTable(log.table).restore(0)
    check_refused(newest_log(log), "RESTORE in version 4 took its rows back", generation=2)
    DeltaTable(log.table).restore(2)
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)


def test_a_restore_to_before_and_after_a_compaction_does_not_matter(log: DeltaLog) -> None:
    published(log)
    tables.foreign_append(log, {"2019-01": [9]})
    DeltaTable(log.table).optimize.compact()
    for version in (2, 3):
        DeltaTable(log.table).restore(version)
        assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)
    DeltaTable(log.table).delete("id = 1")
    less = tables.newest(log).version
    DeltaTable(log.table).restore(3)
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)
    # What the DELETE took is gone again, and nothing else.
    DeltaTable(log.table).restore(less)
    check_refused(newest_log(log), r"rows were changed or deleted by DELETE in version 6", generation=2)


@pytest.mark.parametrize("told", [{}, {"timestamp": "noon"}], ids=["nothing", "no time"])
def test_where_a_restore_does_not_say_which_version_it_brought_back_skip_is_refused(log: DeltaLog, told: Any) -> None:
    published(log, rows={"2019-01": [1], "2019-02": [2]})
    undo(log, gone=of_version(log, 1)[:1], **told)
    check_refused(log, "took its rows back, or may have: its commit does not say which", generation=2)
    DeltaTable(log.table).restore(1)
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)


def test_a_restore_by_time_is_found_by_its_time(log: DeltaLog) -> None:
    published(log)
    tables.foreign_append(log, {"2019-02": [9]})
    restored_by_time(log, 1)
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)
    restored_by_time(log, 0)
    check_refused(newest_log(log), "RESTORE in version 4 took its rows back, so", generation=2)
    restored_by_time(log, 2)
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)


def test_rows_of_a_file_that_has_a_deletion_vector_are_there_as_before_it_was_brought_back(log: DeltaLog) -> None:
    published(log, rows={"2019-01": [1, 2, 3]})
    (whole,) = of_version(log, 1)
    delete_rows(log, whole, [0])
    for version in (1, 2):
        assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)
        take_back(newest_log(log), version, f"to {version}")
    assert isinstance(prepare(newest_log(log), tables.writer_spec(generation=2)), Skip)
    history = WriterHistory(newest_log(log), tables.LOAD.writer("w"), tables.newest(log))
    assert history.newest is not None
    assert history.since(history.newest).rows == 2


def newest_log(log: DeltaLog) -> DeltaLog:
    fresh = tables.local_log(Path(log.table))
    fresh.snapshot()
    return fresh


def test_skip_is_refused_where_all_rows_were_taken_out(log: DeltaLog) -> None:
    published(log)
    DeltaTable(log.table).delete()
    # A retry asks for nothing new.
    assert isinstance(prepare(log, tables.writer_spec()), Skip)
    check_refused(log, r"were changed or deleted by DELETE in version 2, so it cannot", generation=2)


def test_rows_that_were_compacted_are_there(log: DeltaLog) -> None:
    published(log)
    tables.foreign_append(log, {"2019-01": [9]})
    DeltaTable(log.table).optimize.compact()
    assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)
    DeltaTable(log.table).delete()
    check_refused(log, "deleted by DELETE in version 4", generation=3)


def test_what_another_release_published_is_refused_and_says_so(log: DeltaLog) -> None:
    published(log)
    entry = version_path(1)
    ours, theirs = (f'"staged":{{"format":{number}'.encode() for number in (FORMAT, 1))
    log.store.put(entry, log.store.get(entry).replace(ours, theirs))
    log.store.delete(next(info.path for info in log.store.list("staged") if info.path.endswith(CLOSED)))
    found = DeltaLog(log.store, log.table)
    assert found.commit(1).writers == ()  # type: ignore[union-attr]
    check_refused(found, "published in format 1 by another release of this package", generation=2)


def test_where_the_log_since_was_cleaned_up_live_files_tell(log: DeltaLog) -> None:
    # A RESTORE before the commit does not matter.
    undo(log)
    published(log)
    assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)
    tables.foreign_append(log, {"2019-01": [9]})
    assert isinstance(prepare(tables.cleaned_up(log), tables.writer_spec(generation=2)), Skip)


def test_where_the_log_since_was_cleaned_up_and_no_file_is_live_skip_is_refused(log: DeltaLog) -> None:
    published(log)
    (add,) = log.live_files(lambda _: True, 1)
    info = {"commitInfo": {"timestamp": 1, "operation": "RESTORE"}}
    gone = {"remove": {"path": add["path"], "dataChange": True, "deletionTimestamp": 1}}
    tables.foreign_commit(log, [info, gone])
    check_refused(tables.cleaned_up(log), "none of its files is live", generation=2)


def where(log: DeltaLog, generation: int = 1) -> tuple[int, str] | None:
    """The version and the buffer by which a generation was published."""
    found = WriterHistory(log, tables.LOAD.writer("w"), tables.newest(log)).find(generation)
    return found and (found.version, found.record.buffer)


def test_the_marker_says_where_rows_were_published_without_reading_the_log(log: DeltaLog) -> None:
    buffer = published(log)
    for number in range(20):
        tables.foreign_append(log, {"2019-01": [number]})
    store, snapshot = Counted(log.store), tables.newest(log)
    found = WriterHistory(through(store, log), tables.LOAD.writer("w"), snapshot).newest
    assert found is not None
    assert (found.version, found.record.buffer, store.calls["get"]) == (1, buffer.path, 1)


def test_the_log_says_it_where_the_marker_is_missing(log: DeltaLog) -> None:
    buffer = published(log)
    tables.foreign_append(log, {"2019-01": [9]})
    Path(log.table, buffer.path, CLOSED).unlink()
    assert where(through(log.store, log)) == (1, buffer.path)


def test_the_marker_says_it_where_the_buffers_own_log_was_deleted(log: DeltaLog) -> None:
    buffer = published(log)
    for entry in Path(log.table, buffer.path, LOG_DIRECTORY).iterdir():
        entry.unlink()
    log = tables.cleaned_up(log)
    assert where(log) == (1, buffer.path)
    assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)


def test_a_marker_of_a_table_that_was_dropped_says_nothing_of_the_table_made_in_its_place(log: DeltaLog) -> None:
    tables.foreign_append(log, {"2019-01": [9]})
    old = published(log, attempt="a")
    shutil.rmtree(Path(log.table, LOG_DIRECTORY))
    log = tables.make_table(Path(log.table))
    new = published(log, attempt="b")
    assert [marker["version"] for path in (old.path, new.path) if (marker := read_marker(log.store, path))] == [2, 1]
    assert where(log) == (1, new.path)


def test_a_marker_of_a_table_that_was_replaced_still_says_where_the_rows_came(log: DeltaLog) -> None:
    """CREATE OR REPLACE gives the table another id, and its log goes on."""
    buffer = published(log)
    tables.change_metadata(log, id="another")
    assert tables.newest(log).table_id != buffer.table_id
    assert where(log) == (1, buffer.path)


def test_nobody_says_it_of_another_generation_or_of_a_buffer_set_aside(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    write_marker(log.store, buffer.path, {"reason": "set aside"})
    assert where(log) is None
    published(log, attempt="b")
    assert where(log, generation=2) is None


def with_txn_retention(tmp_path: Path, text: str) -> DeltaLog:
    log = tables.make_table(tmp_path / "kept")
    tables.change_metadata(log, configuration={"delta.setTransactionRetentionDuration": text})
    return log


def of_run(run: str, **terms: Any) -> WriteSpec:
    return tables.writer_spec("w", attrs.evolve(tables.LOAD, run=run), **terms)


def test_where_txns_expire_an_older_run_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = with_txn_retention(tmp_path, "interval 30 days")
    run = (datetime.now(UTC) - timedelta(days=31)).isoformat()
    with pytest.raises(errors.RerunRefusedError, match=r"setTransactionRetentionDuration=interval 30 days"):
        prepare(log, of_run(run))
    assert WriterDirectory.read(log.store, "staged").buffers == []
    # A younger one is warned of.
    assert isinstance(prepare(log, of_run((datetime.now(UTC) - timedelta(days=29)).isoformat())), Stage)
    assert "an expired txn is unknown to every engine" in caplog.text


def test_an_old_run_that_replaces_repeats_nothing_and_where_txns_do_not_expire_it_is_welcome(
    tmp_path: Path, log: DeltaLog
) -> None:
    expiring = with_txn_retention(tmp_path, "interval 30 days")
    assert isinstance(prepare(expiring, of_run("2019-01-01T00:00:00+00:00", **tables.OVERWRITE)), Stage)
    assert isinstance(prepare(log, of_run("2001-01-01T00:00:00+00:00")), Stage)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"fingerprint": "another"}, id="another source or code"),
        pytest.param({"expected_partitions": "month = '2019-01'"}, id="other terms"),
        pytest.param(tables.OVERWRITE, id="another mode"),
        pytest.param({"generation": 2, "on_rerun": OnRerun.APPEND}, id="another generation"),
    ],
)
def test_a_buffer_of_other_work_is_not_reused(log: DeltaLog, changed: dict[str, Any]) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    assert prepare(log, tables.writer_spec()) == buffer
    assert isinstance(prepare(log, tables.writer_spec(**changed)), Stage)


def test_a_buffer_from_other_code_is_set_aside_where_its_writer_is_staged_again(log: DeltaLog) -> None:
    old = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    new = tables.writer_spec(fingerprint="another")
    task = tables.begun(log, new)
    assert "set aside: its writer was staged again" in (read_marker(log.store, old.path) or {})["reason"]
    # The older generation's stays: a rerun that appends again does not make it wrong.
    prepare(log, tables.writer_spec(fingerprint="third", generation=2, on_rerun=OnRerun.APPEND))
    assert read_marker(log.store, task.path) is None


def test_an_attempt_of_other_code_that_is_still_at_work_is_fenced_off(log: DeltaLog) -> None:
    """Its driver may work on for hours, and be complete before what is wanted now."""
    old = tables.writer_spec(fingerprint="old", publish=PublishMode.TOGETHER)
    task = tables.begun(log, old)
    assert isinstance(prepare(log, attrs.evolve(old, attempt="n", fingerprint="new")), Stage)
    buffer = tables.finish(log, task, old, {"2019-01": [666]})
    with pytest.raises(errors.BufferSetAsideError, match=r"source, code or terms are others now.* a retry stages them"):
        check_not_set_aside(log.store, buffer)
    assert Committer(log).publish([buffer]).status.value == "set_aside"


def test_an_attempt_of_the_same_work_or_of_unknown_work_is_not_fenced_off(log: DeltaLog) -> None:
    for fingerprint in ("same", ""):
        spec = tables.writer_spec(f"w{fingerprint}", fingerprint=fingerprint)
        prepare(log, spec)
        prepare(log, attrs.evolve(spec, attempt="later"))
        assert read_marker(log.store, spec.buffer) is None


@pytest.mark.parametrize("now", [{}, {"fingerprint": "new files"}, {"expected_partitions": "month = '2019-01'"}])
def test_an_attempt_that_comes_back_finds_its_own_buffer_of_another_source(log: DeltaLog, now: dict[str, Any]) -> None:
    spec = tables.writer_spec(attempt="a")
    task = tables.begun(log, spec)
    again = attrs.evolve(spec, **now)
    assert prepare(log, again) == task
    buffer = tables.finish(log, task, spec, {"2019-01": [1]})
    assert prepare(log, again) == buffer
    assert read_marker(log.store, buffer.path) is None
    Committer(log).publish([buffer])
    skipped = prepare(log, again)
    assert isinstance(skipped, Skip)
    assert skipped.version == 1


def test_an_attempt_that_comes_back_does_not_evolve_the_table_again(log: DeltaLog) -> None:
    evolved = []

    def evolve(snapshot: Snapshot) -> Snapshot:
        evolved.append(snapshot.version)
        return snapshot

    spec = tables.writer_spec()
    for _ in range(3):
        prepare(log, spec, evolve)
    assert evolved == [0]


def test_an_attempt_that_comes_back_to_a_buffer_set_aside_is_told(log: DeltaLog) -> None:
    spec = tables.writer_spec()
    prepare(log, spec)
    set_aside(log.store, spec.buffer, "another is wanted")
    with pytest.raises(errors.BufferSetAsideError, match="another is wanted"):
        prepare(log, spec)


def test_an_unknown_fingerprint_equals_nothing_but_the_attempt_itself(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(fingerprint="", attempt="a-1"), {"2019-01": [1]})
    assert isinstance(prepare(log, tables.writer_spec(fingerprint="", attempt="a-2")), Stage)
    assert prepare(log, tables.writer_spec(fingerprint="", attempt="a-1")) == buffer


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(lambda log, path: write_marker(log.store, path, {"reason": "set aside"}), id="closed"),
        pytest.param(lambda log, path: next(Path(log.table, path).rglob("*.parquet")).unlink(), id="a file is lost"),
        pytest.param(lambda log, path: log.store.delete(f"{path}/{version_path(1)}"), id="not complete"),
        pytest.param(lambda log, path: log.store.put(f"{path}/{version_path(0)}", b'{"add":'), id="damaged"),
        pytest.param(lambda log, path: log.store.put(f"{path}/{version_path(1)}", b'{"add":'), id="damaged files"),
    ],
)
def test_a_spoilt_buffer_is_not_reused_and_stops_nobody(log: DeltaLog, spoil: Callable[[DeltaLog, str], None]) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    spoil(log, buffer.path)
    assert tables.begun(log, tables.writer_spec()).path != buffer.path


def test_a_buffer_too_old_to_be_published_is_staged_again(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    file = next(Path(log.table, buffer.path).rglob("*.parquet"))
    instant = (datetime.now(UTC) - timedelta(days=4)).timestamp()
    os.utime(file, (instant, instant))
    assert isinstance(prepare(log, tables.writer_spec()), Stage)
    assert "too old" in (read_marker(log.store, buffer.path) or {})["reason"]


def test_a_buffer_that_no_longer_fits_is_staged_again(log: DeltaLog) -> None:
    tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    tables.change_metadata(log, configuration={"delta.constraints.positive": "id > 0"})
    task = tables.begun(log, tables.writer_spec())
    assert task.read_version == 1
    tables.finish(log, task, tables.writer_spec(attempt=task.path.rsplit("/", 1)[-1]), {"2019-01": [1]})
    tables.change_metadata(log, id="another table")
    assert isinstance(prepare(log, tables.writer_spec()), Stage)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"task": 7, "app_id": "x"}', b"\xff"])
def test_of_a_damaged_claim_the_number_counts(log: DeltaLog, content: bytes) -> None:
    spec = tables.writer_spec()
    log.store.put(f"{spec.identity.directory}/_claim-1.json", content)
    task_start = Start(id="d", task=spec.task, run_id="r", chain="c")
    assert begin(log, spec.identity, task_start).generation == 2
    assert isinstance(prepare(log, attrs.evolve(spec, generation=2)), Stage)


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_the_txn_tells_what_a_damaged_marker_does_not(log: DeltaLog, content: bytes) -> None:
    buffer = published(log)
    log.store.put(f"{buffer.path}/{CLOSED}", content)
    assert where(log) == (1, buffer.path)
    assert isinstance(prepare(log, tables.writer_spec()), Skip)
    assert tables.ids(Path(log.table)) == [1]


@pytest.mark.parametrize("content", [b"", b"{", b"[]"])
def test_an_unpublished_buffer_with_a_damaged_marker_is_staged_again(log: DeltaLog, content: bytes) -> None:
    buffer = tables.stage(log, tables.writer_spec(), {"2019-01": [1]})
    log.store.put(f"{buffer.path}/{CLOSED}", content)
    with pytest.raises(errors.BufferSetAsideError, match="its marker is damaged"):
        prepare(log, buffer.spec)
    again = published(log)
    assert again.path != buffer.path
    assert tables.ids(Path(log.table)) == [1]


def test_a_marker_of_another_writer_says_nothing_of_this_one(log: DeltaLog) -> None:
    buffer = published(log)
    marker = Path(log.table, buffer.path, CLOSED)
    marker.write_text(
        marker.read_text().replace("onelake/test/", "onelake/tesu/").replace('"version": 1', '"version": 7')
    )
    assert where(log) == (1, buffer.path)


@pytest.mark.parametrize("on_rerun", [OnRerun.APPEND, OnRerun.REPLACE])
def test_a_generation_skipped_once_is_published_by_an_attempt_of_other_terms(log: DeltaLog, on_rerun: OnRerun) -> None:
    """Its first attempt found its rows and died; the author has mended the DAG since."""
    published(log)
    assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)
    spec = tables.writer_spec(generation=2, fingerprint="mended", on_rerun=on_rerun)
    tables.stage(log, spec, {"2019-01": [7]})
    (outcome,) = reconcile(Committer(log), tables.LOAD, ["w"], publish=PublishMode.TOGETHER).outcomes
    assert outcome.status == "published"
    assert tables.ids(Path(log.table)) == ([1, 7] if on_rerun is OnRerun.APPEND else [7])


@pytest.mark.parametrize("predicate", ["id >= 0", "month LIKE '2%'", "month = '2019-01' AND id >= 0"])
def test_a_rerun_is_not_skipped_where_an_overwrite_may_have_taken_rows(log: DeltaLog, predicate: str) -> None:
    published(log)
    rows = pa.table({"id": [99], "month": ["2019-01"]})
    write_deltalake(log.table, rows, mode="overwrite", predicate=predicate)
    assert tables.ids(Path(log.table)) == [99]
    check_refused(log, r"its rows were replaced by WRITE .* nobody knows which", generation=2)


@pytest.mark.parametrize("then", ["nothing", "compacted", "restored"])
@pytest.mark.parametrize(
    ("deleted", "skipped"),
    [("id <= 4", False), ("id >= 5", True), ("id = 2 OR id = 4", True)],
    ids=["all", "none", "one"],
)
@pytest.mark.parametrize("by", ["delete", "merge", "merge without metrics"])
def test_a_clear_is_not_skipped_where_files_of_others_may_hold_none_of_its_rows(
    log: DeltaLog, deleted: str, skipped: bool, by: str, then: str
) -> None:
    """Its rows and those of another writer are compacted into one file, and a statement deletes some of these rows."""
    Committer(log).publish([tables.stage(log, tables.writer_spec(), {"2019-01": [1, 2, 3]})])
    Committer(log).publish([tables.stage(log, tables.writer_spec("y"), {"2019-01": [4, 5, 6]})])
    table = DeltaTable(log.table)
    table.optimize.compact()
    if by == "delete":
        table.delete(deleted)
    else:
        table.merge(pa.table({"id": [0]}), "s.id = 0", source_alias="s", target_alias="t").when_matched_delete(
            predicate=deleted.replace("id", "t.id")
        ).execute()
    if by == "merge without metrics":
        path = Path(log.table, version_path(DeltaTable(log.table).version()))
        path.write_text(path.read_text().replace("num_target_rows_deleted", "deleted_rows"))
    if then == "compacted":
        write_deltalake(log.table, pa.table({"id": [7], "month": ["2019-01"]}), mode="append")
        DeltaTable(log.table).optimize.compact()
    if then == "restored":
        version = tables.newest(log).version
        DeltaTable(log.table).delete()
        DeltaTable(log.table).restore(version)
    if skipped and by != "merge without metrics":
        assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)
    else:
        check_refused(log, r"some or all of its rows were changed or deleted by", generation=2)


def test_a_clear_is_skipped_where_the_rows_of_one_partition_are_left_whole(log: DeltaLog) -> None:
    Committer(log).publish([tables.stage(log, tables.writer_spec(), {"2019-01": [1], "2019-02": [2]})])
    Committer(log).publish([tables.stage(log, tables.writer_spec("y"), {"2019-01": [4], "2019-02": [5]})])
    table = DeltaTable(log.table)
    table.optimize.compact()
    write_deltalake(table, pa.table({"id": [9], "month": ["2019-01"]}), mode="overwrite", predicate="month = '2019-01'")
    assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)
    DeltaTable(log.table).update({"id": "id + 1"}, predicate="month = '2019-02'")
    assert isinstance(prepare(log, tables.writer_spec(generation=2)), Skip)
