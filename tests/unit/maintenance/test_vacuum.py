"""What a vacuum may delete is worked out without Spark."""

from __future__ import annotations

import io
import json
import os
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.buffers.buffer import Buffer, read_buffer, twin
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.exceptions import (
    BufferLostError,
    SparkJobError,
    SparkJobTimeoutError,
    SparkQueryError,
    SparkUnavailableError,
    VacuumAtWorkError,
    VacuumRefusedError,
)
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, dump_actions, version_path
from airflow_provider_onelake.log.commits import FORMAT, STAGED
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.maintenance.pinned_versions import pin_version, pinned_versions, release_version
from airflow_provider_onelake.maintenance.vacuum import (
    INVENTORY,
    VacuumPlan,
    VacuumTerms,
    carry_out,
    check_clock,
    forget,
    plan,
)
from airflow_provider_onelake.storage.clock import milliseconds
from airflow_provider_onelake.storage.stores import ObjectInfo
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.ages import grow_old
from tests.support.changes import ChangeByHand, change_of
from tests.support.clocks import HeldClock
from tests.support.stores import PassingOn, through
from tests.support.tables import (
    append_files,
    begun,
    change_metadata,
    cleaned_up,
    commit_of,
    foreign_append,
    foreign_commit,
    ids,
    landed_at,
    make_table,
    stage,
    writer_spec,
)

SHORT = VacuumTerms(allow_retention_below_seven_days=True)
RETENTION = "delta.deletedFileRetentionDuration"


@pytest.fixture
def hasty(tmp_path: Path) -> DeltaLog:
    """A table that keeps deleted files for an hour. With zero, nothing could be published (protocol: young)."""
    return make_table(tmp_path / "t", **{RETENTION: "interval 1 hours"})


def data(log: DeltaLog, version: int, kind: str = "add") -> list[dict[str, Any]]:
    commit = commit_of(log, version)
    return commit.adds if kind == "add" else commit.removes


def removal(log: DeltaLog, version: int, days_ago: float, **more: Any) -> int:
    """Remove the files that a version added, as if it had been some days ago."""
    instant = datetime.now(UTC) - timedelta(days=days_ago)
    removes = [
        {"remove": {"path": add["path"], "deletionTimestamp": milliseconds(instant), "dataChange": True, **more}}
        for add in data(log, version)
    ]
    gone = foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, *removes])
    os.utime(Path(log.table, version_path(gone)), (instant.timestamp(), instant.timestamp()))
    return gone


def names(todo: VacuumPlan) -> set[str]:
    return {info.path for info in todo.candidates}


def paths(log: DeltaLog, version: int) -> set[str]:
    return {add["path"] for add in data(log, version)}


def published(log: DeltaLog, writer: str = "w", rows: list[int] | None = None) -> Buffer:
    buffer = stage(log, writer_spec(writer), {"2019-01": rows or [1]})
    Committer(log).publish([buffer])
    return buffer


def of_buffer(buffer: Buffer) -> set[str]:
    return {f"{buffer.path}/{add['path']}" for add in buffer.adds}


def test_what_was_removed_before_the_retention_goes_and_what_was_removed_since_stays(log: DeltaLog) -> None:
    first, second, third = (foreign_append(log, {"2019-01": [n]}) for n in range(3))
    removal(log, first, days_ago=8)
    removal(log, second, days_ago=6)
    grow_old(log, "month=2019-01", days=30)
    todo = plan(log)
    assert names(todo) == paths(log, first)
    assert todo.bytes == sum(add["size"] for add in data(log, first))
    assert ids(Path(log.table)) == [third - 1]


@pytest.mark.parametrize("time", ["2019-01-01", 10**17, [7]])
def test_a_removal_whose_time_cannot_be_read_is_spared(log: DeltaLog, time: Any) -> None:
    first = foreign_append(log, {"2019-01": [1]})
    removal(log, first, days_ago=8, deletionTimestamp=time)
    grow_old(log, "month=2019-01", days=30)
    assert names(plan(log)) == set()


def test_a_removal_without_a_time_is_as_old_as_can_be(log: DeltaLog) -> None:
    """Delta takes it for zero."""
    version = foreign_append(log, {"2019-01": [1]})
    foreign_commit(log, [{"remove": {"path": next(iter(paths(log, version))), "dataChange": True}}])
    grow_old(log, "month=2019-01")
    assert names(plan(log)) == paths(log, version)


@pytest.mark.parametrize(("days_ago", "goes"), [(3, False), (8, True)])
def test_the_changes_of_a_young_commit_stay_though_a_round_wrote_them_long_before(
    log: DeltaLog, days_ago: int, goes: bool
) -> None:
    path = "staged/change-1/round/_change_data/cdc-0.parquet"
    log.store.put(path, b"changes")
    grow_old(log, path, days=10)
    cdc = {"path": path, "partitionValues": {"month": "2019-01"}, "size": 7, "dataChange": False}
    version = foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, {"cdc": cdc}])
    landed_at(log, version, datetime.now(UTC) - timedelta(days=days_ago))
    assert names(plan(log)) == ({path} if goes else set())


def test_a_young_file_stays_though_no_commit_names_it(log: DeltaLog) -> None:
    append_files(log.store, "", {"2019-01": [1]})
    assert names(plan(log)) == set()


def test_an_old_file_that_no_commit_names_goes_unless_lite(log: DeltaLog) -> None:
    (action,) = append_files(log.store, "", {"2019-01": [1]})[1:]
    version = foreign_append(log, {"2019-02": [1]})
    removal(log, version, days_ago=8)
    grow_old(log, "month=2019-01")
    grow_old(log, "month=2019-02")
    assert names(plan(log)) == {action["add"]["path"], *paths(log, version)}
    assert names(plan(log, VacuumTerms(lite=True))) == paths(log, version)


def test_files_to_which_a_link_leads_are_left_out_with_a_note(log: DeltaLog, tmp_path: Path) -> None:
    """They may be live files of another table, or of this one by another name."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "live.parquet").write_bytes(b"x")
    Path(log.table, "aside").symlink_to(tmp_path / "other")
    Path(log.table, "file.parquet").symlink_to(tmp_path / "other" / "live.parquet")
    (action,) = append_files(log.store, "", {"2019-01": [1]})[1:]
    Path(log.table, "inside").symlink_to("month=2019-01")
    grow_old(log)
    grow_old(log, "aside")
    todo = plan(log)
    assert names(todo) == {action["add"]["path"]}
    (note,) = todo.notes
    assert note.startswith("aside/live.parquet and 2 others are spared: symbolic links lead there")


@pytest.mark.parametrize("root", ["..", "%2E%2E", "{table}/..", "file://{table}/.."])
def test_a_path_in_the_log_that_leads_outside_deletes_nothing_there(log: DeltaLog, tmp_path: Path, root: str) -> None:
    version = foreign_append(log, {"2019-01": [1]})
    other = tmp_path / "other" / "live.parquet"
    other.parent.mkdir()
    other.write_bytes(b"x")
    grow_old(log, "../other")
    path = f"{root.format(table=log.table)}/other/live.parquet"
    removed = {"path": path, "deletionTimestamp": 1, "dataChange": True}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "DELETE"}}, {"remove": removed}])
    removal(log, version, days_ago=8)
    grow_old(log, "month=2019-01")
    for lite in (False, True):
        assert names(plan(log, VacuumTerms(lite=lite))) == paths(log, version)


def test_objects_that_stand_for_directories_stay(log: DeltaLog) -> None:
    directories = ["month=2019-01", "month=2019-02", "price=1.5", "staged", "staged/w-1", "v1.5"]
    listed = [ObjectInfo(path, 0, datetime(2019, 1, 1, tzinfo=UTC)) for path in directories]
    files = ["month=2019-01/a.parquet", "month=2019-01/.hidden/b.parquet", "v1.5/c.parquet", "empty.parquet"]
    listed += [ObjectInfo(path, 0 if path == "empty.parquet" else 7, listed[0].modified) for path in files]

    class WithDirectories(PassingOn):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            yield from super().list(prefix, start_after)
            yield from listed if not prefix else []

    assert names(plan(through(WithDirectories(log.store), log))) == {
        "month=2019-01/a.parquet",
        "v1.5/c.parquet",
        "empty.parquet",
    }


def test_tombstones_of_a_checkpoint_count_where_the_log_before_it_is_gone(log: DeltaLog) -> None:

    old, young = foreign_append(log, {"2019-01": [1]}), foreign_append(log, {"2019-01": [2]})
    removal(log, old, days_ago=8)
    gone = removal(log, young, days_ago=1)
    expected, kept = paths(log, old), paths(log, young)
    cleaned_up(log, *range(gone + 1))
    grow_old(log, "month=2019-01", days=30)
    todo = plan(DeltaLog(log.store, log.table))
    assert names(todo) == expected
    assert not names(todo) & kept


def test_a_commit_between_the_listing_and_the_snapshot_is_seen(log: DeltaLog) -> None:
    """What it removes was read by somebody a moment ago."""
    version = foreign_append(log, {"2019-01": [1]})
    grow_old(log, "month=2019-01", days=30)

    class Late(PassingOn):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            listed = list(super().list(prefix, start_after))
            if prefix == "":
                removal(log, version, days_ago=0)
            return iter(listed)

    assert names(plan(through(Late(log.store), log))) == set()


def test_a_buffer_published_while_the_vacuum_looks_is_the_tables(hasty: DeltaLog) -> None:
    """Whatever the listing shows as closed is in the snapshot, as that is the younger."""
    buffer = stage(hasty, writer_spec(), {"2019-01": [1]})

    class Meanwhile(PassingOn):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            if prefix == "":
                assert Committer(hasty).publish([buffer]).status is PublishStatus.PUBLISHED
            return super().list(prefix, start_after)

    clock = HeldClock()
    clock.forward(hours=2)
    assert names(plan(through(Meanwhile(hasty.store), hasty, clock), SHORT)) == set()


@pytest.mark.parametrize("ahead", [timedelta(minutes=61), timedelta(days=30)])
def test_a_worker_whose_clock_is_far_ahead_of_the_stores_is_refused(log: DeltaLog, ahead: timedelta) -> None:
    clock = HeldClock(datetime.now(UTC) + ahead)
    with pytest.raises(VacuumRefusedError, match="clock is ahead of its store's") as refused:
        check_clock(through(log.store, log, clock), "attempt")
    (put,) = re.findall(r"a new object is of ([^,]+),", str(refused.value))
    assert clock.now().isoformat() in str(refused.value)
    assert abs(datetime.fromisoformat(put) + ahead - clock.now()) < timedelta(minutes=1)
    assert list(log.store.list("_vacuum")) == []


@pytest.mark.parametrize("apart", [timedelta(minutes=59), timedelta(days=-30)])
def test_a_clock_that_is_a_little_ahead_or_behind_takes_nothing_too_early(log: DeltaLog, apart: timedelta) -> None:
    check_clock(through(log.store, log, HeldClock(datetime.now(UTC) + apart)), "attempt")
    assert list(log.store.list("_vacuum")) == []


def test_a_removal_counts_by_its_own_time_though_its_entry_is_a_little_older(log: DeltaLog) -> None:
    """The store's clock and the writer's differ; the checkpoint has forgotten the tombstone, the entry has not."""
    from deltalake import DeltaTable

    version = foreign_append(log, {"2019-01": [1]})
    gone = removal(log, version, days_ago=13.99)
    DeltaTable(log.table).create_checkpoint()
    grow_old(log, "month=2019-01", days=30)
    grow_old(log, version_path(gone), days=14.01)
    assert names(plan(log, VacuumTerms(keep_days=14))) == set()


@pytest.mark.parametrize(
    "path",
    [
        "_delta_log/00000000000000000099.checkpoint.parquet",
        "staged/w/a/_closed.json",
        "_vacuum/a.parquet",
        "_temporary/0/part.parquet",
        ".hidden/part.parquet",
        "month=2019-01/.part.crc",
        "month=2019-01/_SUCCESS",
        "a/_delta_log/00000000000000000000.json",
    ],
)
def test_hidden_names_stay_on_every_level(log: DeltaLog, path: str) -> None:
    log.store.put(path, b"x")
    grow_old(log)
    assert names(plan(log)) == set()


@pytest.mark.parametrize("path", ["_change_data/month=1/cdc.parquet", "a/b c/100%/x", "README.md"])
def test_names_that_vacuum_looks_at(log: DeltaLog, path: str) -> None:
    log.store.put(path, b"x")
    grow_old(log)
    assert names(plan(log)) == {path}


def test_a_partition_column_may_begin_with_an_underscore(tmp_path: Path) -> None:
    schema = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("_m", "string"))
            ],
        }
    )
    log = make_table(tmp_path / "t", schema, ("_m",))
    log.store.put("_m=1/part.parquet", b"x")
    log.store.put("_n=1/part.parquet", b"x")
    grow_old(log)
    assert names(plan(log)) == {"_m=1/part.parquet"}


def test_the_metadata_of_a_table_that_iceberg_reads_stays(tmp_path: Path) -> None:
    for formats, expected in (("iceberg", set[str]()), ("", {"metadata/v1.metadata.json"})):
        log = make_table(tmp_path / f"t{formats}")
        change_metadata(log, configuration={"delta.universalFormat.enabledFormats": formats})
        log.store.put("metadata/v1.metadata.json", b"x")
        grow_old(log)
        assert names(plan(log)) == expected


@pytest.mark.parametrize("spelling", ["file://{table}/{path}", "file:{table}/{path}", "{table}/{path}"])
def test_a_live_file_is_known_by_its_absolute_path(log: DeltaLog, spelling: str) -> None:
    actions = append_files(log.store, "", {"a b": [1]})
    actions[1]["add"]["path"] = spelling.format(table=log.table, path=actions[1]["add"]["path"])
    foreign_commit(log, actions)
    grow_old(log)
    assert names(plan(log)) == set()


def test_a_live_file_is_known_by_a_path_that_was_not_encoded(log: DeltaLog) -> None:
    actions = append_files(log.store, "", {"a%20b": [1]})
    name = next(info.path for info in log.store.list("month=a%20b"))
    actions[1]["add"]["path"] = name
    foreign_commit(log, actions)
    grow_old(log)
    assert names(plan(log)) == set()


# -- retention ------------------------------------------------------------------------------------------------------


def test_less_than_seven_days_are_refused_unless_asked_for_in_so_many_words(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{RETENTION: "interval 6 days"})
    with pytest.raises(VacuumRefusedError, match=r"6 days only .*allow_retention_below_seven_days=True"):
        plan(log)
    assert plan(log, SHORT).retention_days == 6


def test_a_longer_property_is_honoured(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{RETENTION: "interval 30 days"})
    log.store.put("old", b"x")
    grow_old(log, days=20)
    assert names(plan(log)) == set()
    grow_old(log, "old", days=31)
    assert names(plan(log)) == {"old"}


def test_keep_days_spares_for_longer_than_the_property_and_never_for_shorter(log: DeltaLog) -> None:
    version = foreign_append(log, {"2019-01": [1]})
    removal(log, version, days_ago=10)
    grow_old(log, "month=2019-01", days=30)
    assert names(plan(log)) == paths(log, version)
    todo = plan(log, VacuumTerms(keep_days=14))
    assert (names(todo), todo.held_by) == (set(), "keep_days=14")
    assert names(plan(log, VacuumTerms(keep_days=1))) == paths(log, version)


def test_keep_days_beyond_the_log_is_refused(log: DeltaLog) -> None:
    """Nobody knows what was removed in a log that is gone, and a checkpoint forgets after the retention."""
    from deltalake import DeltaTable

    version = foreign_append(log, {"2019-01": [1]})
    gone = removal(log, version, days_ago=10)
    DeltaTable(log.table).create_checkpoint()
    for entry in range(gone):
        log.store.delete(version_path(entry))
    fresh = DeltaLog(log.store, log.table)
    with pytest.raises(
        VacuumRefusedError, match=rf"\(keep_days=14\), but the log before version {gone} was .*ask for fewer days"
    ):
        plan(fresh, VacuumTerms(keep_days=14))
    assert plan(fresh, VacuumTerms(keep_days=9)).held_by == "keep_days=9"


def test_keep_days_beyond_a_log_that_is_cleaned_up_while_the_vacuum_looks_is_refused(log: DeltaLog) -> None:
    from deltalake import DeltaTable

    version = foreign_append(log, {"2019-01": [1]})
    gone = removal(log, version, days_ago=10)
    grow_old(log, "month=2019-01", days=30)
    last = foreign_append(log, {"2019-01": [2]})
    DeltaTable(log.table).create_checkpoint()
    assert not names(plan(DeltaLog(log.store, log.table), VacuumTerms(keep_days=14)))

    class CleanedUp(PassingOn):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            listed = list(super().list(prefix, start_after))
            if prefix == "":
                for entry in range(gone + 1):
                    log.store.delete(version_path(entry))
            return iter(listed)

    with pytest.raises(VacuumRefusedError, match=rf"\(keep_days=14\), but the log before version {last} was "):
        plan(through(CleanedUp(log.store), log), VacuumTerms(keep_days=14))


# -- buffers and compactions ----------------------------------------------------------------------------------------


def test_a_buffer_in_flight_survives_a_retention_that_is_over(tmp_path: Path) -> None:
    hasty = make_table(tmp_path / "t", **{RETENTION: "interval 1 minutes"})
    buffer = stage(hasty, writer_spec(), {"2019-01": [1], "a b": [2]})
    task = begun(hasty, writer_spec("open"))
    append_files(hasty.store, task.path, {"2019-01": [99]})
    grow_old(hasty, days=3)
    todo = plan(hasty, SHORT)
    assert names(todo) == set()
    assert {staged.path for staged in todo.in_flight} == {buffer.path, task.path}
    assert {staged.owner for staged in todo.in_flight} == {"writer w", "writer open"}


def test_what_was_in_the_table_when_the_oldest_buffer_in_flight_began_stays(hasty: DeltaLog) -> None:
    """Its writer may be reading that."""
    before, after = foreign_append(hasty, {"2019-01": [1]}), foreign_append(hasty, {"2019-01": [2]})
    grow_old(hasty, days=4)
    buffer = stage(hasty, writer_spec(), {"2019-01": [3]})
    grow_old(hasty, buffer.path, days=2)
    removal(hasty, before, days_ago=3)
    removal(hasty, after, days_ago=1)
    todo = plan(hasty, SHORT)
    assert names(todo) == paths(hasty, before)
    assert f"writer w is in flight in {buffer.path}" in (todo.held_by or "")


def test_a_buffer_that_was_set_aside_goes(hasty: DeltaLog) -> None:
    buffer = stage(hasty, writer_spec(), {"2019-01": [1]})
    write_marker(hasty.store, buffer.path, {"reason": "set aside"})
    grow_old(hasty, days=3)
    assert names(plan(hasty, SHORT)) == of_buffer(buffer)


def test_an_abandoned_buffer_goes_after_the_retention_and_is_reported(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    grow_old(log, days=6)
    assert plan(log).abandoned == ()
    grow_old(log, days=8)
    todo = plan(log)
    assert names(todo) == of_buffer(buffer)
    assert [staged.path for staged in todo.abandoned] == [buffer.path]
    clean_up(log, todo.abandoned_after)
    assert names(plan(log)) == of_buffer(buffer)
    assert names(plan(log, VacuumTerms(lite=True))) == set()


def test_a_buffer_that_may_still_be_published_is_not_abandoned(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", **{RETENTION: "interval 30 days"})
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    grow_old(log, days=14)
    todo = plan(log)
    assert ([staged.path for staged in todo.in_flight], todo.abandoned_after) == ([buffer.path], timedelta(days=15))
    clean_up(log, todo.abandoned_after)
    assert Committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    late = stage(log, writer_spec("late"), {"2019-01": [2]})
    grow_old(log, late.path, days=16)
    assert [staged.path for staged in plan(log).abandoned] == [late.path]


def without_log_before(log: DeltaLog, version: int) -> DeltaLog:
    from deltalake import DeltaTable

    DeltaTable(log.table).create_checkpoint()
    for entry in range(version):
        log.store.delete(version_path(entry))
    return DeltaLog(log.store, log.table)


def test_a_slow_writer_of_the_past_refuses_nothing_where_the_log_does_not_reach_as_far(log: DeltaLog) -> None:
    slow = published(log, "slow")
    grow_old(log, slow.path, days=10)
    grow_old(log, f"{slow.path}/{version_path(0)}", days=20)
    appended = foreign_append(log, {"2019-01": [2]})
    log.store.put("old", b"x")
    grow_old(log, "old", days=11)
    todo = plan(without_log_before(log, appended))
    assert names(todo) == {"old"}
    assert "the longest writer took 10 days" in (todo.held_by or "")
    [note] = todo.notes
    assert note.startswith(f"the longest writer took 10 days, 0:00:00, but the log before version {appended} was")


def test_a_writer_in_flight_since_before_the_log_is_named_by_the_refusal(log: DeltaLog) -> None:
    task = begun(log, writer_spec("open"))
    grow_old(log, task.path, days=9)
    append_files(log.store, task.path, {"2019-01": [99]})
    appended = foreign_append(log, {"2019-01": [2]})
    with pytest.raises(
        VacuumRefusedError, match=rf"writer open is in flight in {task.path} .*version {appended} was .*clear"
    ):
        plan(without_log_before(log, appended))


def test_writers_that_take_long_are_not_taken_for_abandoned(hasty: DeltaLog) -> None:
    slow = published(hasty, "slow")
    grow_old(hasty, slow.path, days=10)
    grow_old(hasty, f"{slow.path}/{version_path(0)}", days=19)
    buffer = stage(hasty, writer_spec(), {"2019-01": [2]})
    grow_old(hasty, buffer.path, days=8)
    hasty.store.put("old", b"x")
    grow_old(hasty, "old", days=8.5)
    todo = plan(hasty, SHORT)
    assert [staged.path for staged in todo.in_flight] == [buffer.path]
    assert (todo.abandoned, names(todo)) == ((), set())
    assert "the longest writer took 9 days" in (todo.held_by or "")
    assert todo.abandoned_after > timedelta(days=8.9)


def shadow(log: DeltaLog, name: str = "upkeep") -> str:
    path = f"staged/compaction-1a2b/{name}"
    info = {STAGED: {"format": FORMAT, "compaction": {"name": name, "attempt": "a"}}}
    log.store.create(f"{path}/{version_path(0)}", dump_actions([{"commitInfo": info}]))
    append_files(log.store, path, {"2019-01": [1]})
    return path


def test_a_compaction_in_flight_is_spared_and_an_abandoned_one_goes(hasty: DeltaLog) -> None:
    path = shadow(hasty)
    grow_old(hasty, days=3)
    todo = plan(hasty, SHORT)
    assert [(staged.path, staged.owner) for staged in todo.in_flight] == [(path, "compaction upkeep")]
    assert names(todo) == set()
    grow_old(hasty, days=8)
    todo = plan(hasty, SHORT)
    assert [staged.path for staged in todo.abandoned] == [path]
    assert len(names(todo)) == 1


def test_a_table_of_somebody_else_below_staged_is_spared_and_reported(hasty: DeltaLog) -> None:
    hasty.store.create(f"staged/people/own/{version_path(0)}", dump_actions([{"metaData": {"id": "x"}}]))
    hasty.store.put("staged/people/own/part.parquet", b"x")
    grow_old(hasty, days=30)
    todo = plan(hasty, SHORT)
    assert names(todo) == set()
    assert todo.notes == ("staged/people/own is spared: no buffer of this format (wanted 2)",)


# -- kept versions --------------------------------------------------------------------------------------------------


def test_a_kept_version_is_spared_by_every_vacuum_until_it_is_released(hasty: DeltaLog) -> None:
    first, second = foreign_append(hasty, {"2019-01": [1]}), foreign_append(hasty, {"2019-01": [2]})
    pin_version(hasty, first, "dag.task")
    removal(hasty, first, days_ago=5)
    removal(hasty, second, days_ago=5)
    grow_old(hasty, "month=2019-01", days=30)
    for terms in (SHORT, VacuumTerms(lite=True, allow_retention_below_seven_days=True)):
        todo = plan(hasty, terms)
        assert names(todo) == paths(hasty, second)
        assert [pinned.version for pinned in todo.pinned] == [first]
        assert todo.spared_files == 1
        assert todo.spared_bytes == data(hasty, first)[0]["size"]
    release_version(hasty, first)
    assert names(plan(hasty, SHORT)) == paths(hasty, first) | paths(hasty, second)


def test_a_version_that_a_task_holds_is_not_released(hasty: DeltaLog) -> None:
    version = foreign_append(hasty, {"2019-01": [1]})
    removal(hasty, version, days_ago=5)
    grow_old(hasty, "month=2019-01", days=30)
    pin_version(hasty, version, "people")
    pin_version(hasty, version, "restore", holder="r1")
    terms = attrs.evolve(SHORT, release_versions=(version,))
    for _ in range(2):
        todo = plan(hasty, terms)
        assert names(todo) == set()
        # A version with two records is spared once, and told once.
        assert [(pinned.version, pinned.by) for pinned in todo.pinned] == [(version, "restore")]
        release_version(hasty, version)
    assert names(plan(hasty, SHORT)) == set()


def test_a_dry_run_can_keep_and_release_without_a_record(hasty: DeltaLog) -> None:
    version = foreign_append(hasty, {"2019-01": [1]})
    removal(hasty, version, days_ago=5)
    grow_old(hasty, "month=2019-01", days=30)
    terms = VacuumTerms(keep_versions=(version,), allow_retention_below_seven_days=True)
    assert names(plan(hasty, terms)) == set()
    assert names(plan(hasty, SHORT)) == paths(hasty, version)
    pin_version(hasty, version, "dag.task")
    terms = VacuumTerms(release_versions=(version,), allow_retention_below_seven_days=True)
    assert names(plan(hasty, terms)) == paths(hasty, version)


def test_a_kept_version_whose_files_are_gone_is_reported(hasty: DeltaLog) -> None:
    version = foreign_append(hasty, {"2019-01": [1]})
    pin_version(hasty, version, "dag.task")
    removal(hasty, version, days_ago=5)
    (path,) = paths(hasty, version)
    hasty.store.delete(path)
    assert "can no longer be read: 1 of its files are gone, such as " + path in plan(hasty, SHORT).notes[0]


def test_a_kept_version_whose_log_is_gone_stops_the_vacuum(hasty: DeltaLog) -> None:
    version = foreign_append(hasty, {"2019-01": [1]})
    pin_version(hasty, version, "dag.task")
    from deltalake import DeltaTable

    foreign_append(hasty, {"2019-01": [2]})
    DeltaTable(hasty.table).create_checkpoint()
    for entry in range(version + 1):
        hasty.store.delete(version_path(entry))
    with pytest.raises(VacuumRefusedError, match=r"log is gone.*release_versions"):
        plan(DeltaLog(hasty.store, hasty.table), SHORT)


# -- carrying out ---------------------------------------------------------------------------------------------------


def test_the_inventory_holds_the_candidates_and_is_gone_afterwards(log: DeltaLog) -> None:
    for name in ("a b/100%", "left"):
        log.store.put(name, b"xyz")
    grow_old(log)
    todo = plan(log)
    seen: list[dict[str, Any]] = []

    def spark(path: str) -> None:
        assert names(plan(log)) == {"a b/100%", "left"}
        seen.extend(pq.read_table(io.BytesIO(log.store.get(path))).to_pylist())
        log.store.delete("a b/100%")

    outcome = carry_out(log, todo, "attempt", spark)
    assert [(row["path"], row["length"], row["isDir"]) for row in seen] == [("a b/100%", 3, False), ("left", 3, False)]
    assert [row["modificationTime"] for row in seen] == [milliseconds(info.modified) for info in todo.candidates]
    assert ([info.path for info in outcome.deleted], outcome.bytes) == (["a b/100%"], 3)
    assert [info.path for info in outcome.left] == ["left"]
    assert list(log.store.list(INVENTORY)) == []


def test_the_inventory_goes_when_spark_refuses_and_old_ones_with_it(log: DeltaLog) -> None:
    log.store.put("x", b"x")
    for name in ("killed", "at-work"):
        log.store.put(f"{INVENTORY}/{name}.parquet", b"x")
    grow_old(log)
    grow_old(log, f"{INVENTORY}/at-work.parquet", days=0.5)

    def spark(path: str) -> None:
        raise SparkQueryError("Spark refused the query")

    with pytest.raises(SparkQueryError):
        carry_out(log, plan(log), "attempt", spark)
    assert [info.path for info in log.store.list(INVENTORY)] == [f"{INVENTORY}/at-work.parquet"]
    assert names(plan(log)) == {"x"}


@pytest.mark.parametrize("error", [SparkUnavailableError, SparkJobError, SparkJobTimeoutError, KeyboardInterrupt])
def test_the_inventory_stays_where_spark_may_go_on_without_its_task(
    hasty: DeltaLog, error: type[BaseException]
) -> None:
    version = foreign_append(hasty, {"2019-01": [1]})
    removal(hasty, version, days_ago=5)
    grow_old(hasty, "month=2019-01", days=30)
    todo = plan(hasty, SHORT)

    def spark(path: str) -> None:
        raise error("the connection was lost")

    with pytest.raises(error):
        carry_out(hasty, todo, "attempt", spark)
    with pytest.raises(VacuumAtWorkError, match=rf"has lost Spark: delete {INVENTORY}/attempt\.parquet"):
        pin_version(hasty, version, "dag.task")
    # Spark goes on with what it has read.
    for info in todo.candidates:
        hasty.store.delete(info.path)
    with pytest.raises(VacuumRefusedError, match="1 of its files are gone"):
        pin_version(hasty, version, "dag.task")
    assert pinned_versions(hasty) == []
    forget(hasty, "attempt")
    assert list(hasty.store.list(INVENTORY)) == []


def test_a_version_that_is_pinned_after_the_plan_is_spared(hasty: DeltaLog) -> None:
    first, second = foreign_append(hasty, {"2019-01": [1]}), foreign_append(hasty, {"2019-01": [2]})
    removal(hasty, first, days_ago=5)
    removal(hasty, second, days_ago=5)
    grow_old(hasty, "month=2019-01", days=30)
    todo = plan(hasty, SHORT)
    assert names(todo) == paths(hasty, first) | paths(hasty, second)
    pin_version(hasty, first, "dag.task")

    def spark(path: str) -> None:
        for row in pq.read_table(io.BytesIO(hasty.store.get(path))).to_pylist():
            hasty.store.delete(row["path"])

    assert {info.path for info in carry_out(hasty, todo, "attempt", spark).deleted} == paths(hasty, second)
    assert {info.path for info in hasty.store.list("month=2019-01")} == paths(hasty, first)
    # Nothing is left to delete, so Spark is not asked.
    pin_version(hasty, first, "dag.other", holder="other")
    gone = attrs.evolve(todo, candidates=tuple(info for info in todo.candidates if info.path in paths(hasty, first)))
    assert carry_out(hasty, gone, "attempt", lambda path: pytest.fail("Spark was asked")).deleted == ()


def test_a_version_that_a_vacuum_is_deleting_cannot_be_pinned(hasty: DeltaLog) -> None:
    first, second = foreign_append(hasty, {"2019-01": [1]}), foreign_append(hasty, {"2019-01": [2]})
    third = removal(hasty, first, days_ago=5)
    grow_old(hasty, "month=2019-01", days=30)
    todo = plan(hasty, SHORT)

    def spark(path: str) -> None:
        with pytest.raises(
            VacuumAtWorkError, match=f"Version {second} .* a vacuum is deleting 1 of its .* delete {path}"
        ):
            pin_version(hasty, second, "dag.task")
        assert pinned_versions(hasty) == []
        pin_version(hasty, third, "dag.task")

    carry_out(hasty, todo, "attempt", spark)
    assert [pinned.version for pinned in pinned_versions(hasty)] == [third]


def test_a_buffer_that_is_spared_is_still_complete(hasty: DeltaLog) -> None:
    buffer = stage(hasty, writer_spec(), {"2019-01": [1]})
    grow_old(hasty, days=3)
    todo = plan(hasty, SHORT)
    for info in todo.candidates:
        hasty.store.delete(info.path)
    assert read_buffer(hasty.store, buffer.path).rows == 1
    assert not any(LOG_DIRECTORY in name for name in names(todo))


def test_old_changes_of_a_statement_go_and_a_statement_at_work_is_spared(hasty: DeltaLog) -> None:
    foreign_append(hasty, {"2019-01": [1, 2, 3]})
    left: list[str] = []

    def while_spark_works(job: Any) -> None:
        shadow = Path(job.shadow_uri.removeprefix("file://"))
        (shadow / "_change_data").mkdir()
        (shadow / "_change_data" / "cdc-0.parquet").write_bytes(b"changes")
        (shadow / "nobody.parquet").write_bytes(b"of a try of Spark's that failed")
        left.append(str(shadow.relative_to(hasty.table)))
        grow_old(hasty)
        late = shadow / "_delta_log" / "late"
        late.write_bytes(b"")
        found = plan(hasty, SHORT)
        assert [staged.owner for staged in found.in_flight] == ["statement test/dag/change"]
        assert [info.path for info in found.candidates if info.path.startswith(left[0])] == []

    with pytest.raises(BufferLostError, match="older than half of the retention"):
        change_of(hasty, ChangeByHand(after=while_spark_works)).carry_out()
    grow_old(hasty)
    found = plan(hasty, SHORT)
    assert found.in_flight == ()
    gone = {info.path for info in found.candidates}
    assert {f"{left[0]}/_change_data/cdc-0.parquet", f"{left[0]}/nobody.parquet"} <= gone
    assert not any(path.startswith("month=") for path in gone)


def test_partition_columns_that_are_null_are_none(log: DeltaLog) -> None:
    metadata = {**log.snapshot().metadata, "partitionColumns": None}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "X"}}, {"metaData": metadata}])
    assert names(plan(log)) == set()
    assert twin(log.snapshot(), "id", "", {}, 0, {})[-1]["metaData"]["partitionColumns"] == []
