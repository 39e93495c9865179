"""Cleaning up behind writers deletes logs of buffers, and nothing that anybody still needs."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.buffers.layout import CLOSED, try_path
from airflow_provider_onelake.buffers.markers import read_marker, write_marker
from airflow_provider_onelake.exceptions import InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, dump_actions, version_path
from airflow_provider_onelake.log.commits import FORMAT, STAGED
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.clean_up import StagedState, clean_up, survey
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.ages import files, grow_old
from tests.support.shadows import compact
from tests.support.stores import PassingOn, through
from tests.support.tables import Stage, append_files, begun, foreign_append, ids, local_log, prepare, stage, writer_spec

WEEK = timedelta(days=7)


def published(log: DeltaLog, writer: str = "w", rows: list[int] | None = None) -> Buffer:
    buffer = stage(log, writer_spec(writer), {"2019-01": rows or [1]})
    Committer(log).publish([buffer])
    return buffer


def opened(log: DeltaLog, writer: str = "w") -> str:
    task = begun(log, writer_spec(writer))
    append_files(log.store, task.path, {"2019-01": [99]})
    return task.path


def test_the_log_of_a_published_buffer_goes_and_nothing_else_and_the_table_still_reads(log: DeltaLog) -> None:
    buffer = published(log, rows=[1, 2])
    grow_old(log, buffer.path)
    before = files(log)
    (staged,) = clean_up(log, WEEK)
    gone = {version_path(0), version_path(0).replace(".json", ".crc"), version_path(1)}
    assert before - files(log) == {f"{buffer.path}/{name}" for name in gone}
    assert (staged.path, staged.owner, staged.state) == (buffer.path, "writer w", StagedState.CLOSED)
    assert WEEK < staged.age < timedelta(days=9)
    assert ids(Path(log.table)) == [1, 2]
    DeltaTable(log.table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert ids(Path(log.table)) == [1, 2]


def test_a_marker_younger_than_the_age_keeps_the_log_however_old_the_rest_is(log: DeltaLog) -> None:
    buffer = published(log)
    grow_old(log, buffer.path)
    os.utime(Path(log.table, buffer.path, CLOSED))
    before = files(log)
    assert clean_up(log, WEEK) == []
    assert files(log) == before


def test_a_marker_that_was_lost_is_made_up_before_the_log_goes(log: DeltaLog) -> None:
    buffer = published(log)
    foreign_append(log, {"2019-01": [2]})
    marker = read_marker(log.store, buffer.path)
    Path(log.table, buffer.path, CLOSED).unlink()
    grow_old(log, buffer.path)
    clean_up(log, WEEK)
    assert read_marker(log.store, buffer.path) == marker
    assert marker is not None
    assert marker["version"] == 1


def test_a_buffer_whose_writer_is_settled_by_another_gets_no_marker(log: DeltaLog) -> None:
    first = stage(log, writer_spec(attempt="first"), {"2019-01": [1]})
    second = stage(log, writer_spec(attempt="second", fingerprint="other"), {"2019-01": [2]})
    Committer(log).publish([second])
    Path(log.table, second.path, CLOSED).unlink()
    Path(log.table, first.path, CLOSED).unlink(missing_ok=True)
    grow_old(log, "staged")
    found = {staged.path: staged.state for staged in clean_up(log, WEEK)}
    assert found == {first.path: StagedState.CLOSED, second.path: StagedState.CLOSED}
    assert read_marker(log.store, first.path) is None
    assert read_marker(log.store, second.path) is not None


def test_a_buffer_that_an_older_generation_left_open_is_settled_by_a_newer_one(log: DeltaLog) -> None:
    left = stage(log, writer_spec(), {"2019-01": [1]})
    Committer(log).publish([stage(log, writer_spec(generation=2), {"2019-01": [2]})])
    Path(log.table, left.path, CLOSED).unlink(missing_ok=True)
    snapshot = log.snapshot()
    found = {staged.path: staged.state for staged in survey(log, snapshot, log.store.list("staged"), WEEK)}
    assert found[left.path] is StagedState.CLOSED


def test_an_abandoned_open_buffer_is_reported_and_vacuumed(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    published(log, "other", rows=[1])
    path = opened(log)
    grow_old(log, path)
    (staged,) = clean_up(log, WEEK)
    assert (staged.path, staged.owner, staged.state) == (path, "writer w", StagedState.ABANDONED)
    assert f"{path} of writer w was abandoned" in caplog.text
    (left,) = files(log, path)
    assert left.endswith(".parquet")
    taken = DeltaTable(log.table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert [file for file in taken if file.endswith(".parquet")] == [left]
    assert ids(Path(log.table)) == [1]


def test_an_open_buffer_that_still_gets_files_is_not_touched(log: DeltaLog) -> None:
    path = opened(log)
    grow_old(log, path)
    append_files(log.store, path, {"2019-02": [2]})
    before = files(log)
    assert clean_up(log, WEEK) == []
    assert files(log) == before


def test_a_complete_unpublished_buffer_younger_than_the_age_is_not_touched_and_publishes(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    grow_old(log, buffer.path, days=3)
    before = files(log)
    assert clean_up(log, WEEK) == []
    assert files(log) == before
    assert Committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert ids(Path(log.table)) == [1]


def test_a_complete_unpublished_buffer_older_than_the_age_is_abandoned(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec(), {"2019-01": [1]})
    grow_old(log, buffer.path)
    (staged,) = clean_up(log, WEEK)
    assert staged.state is StagedState.ABANDONED
    assert not any(LOG_DIRECTORY in file for file in files(log, buffer.path))
    assert isinstance(prepare(log, writer_spec()), Stage)


def test_a_table_of_somebody_else_below_staged_is_left_alone(log: DeltaLog) -> None:
    entry = dump_actions([{"commitInfo": {"operation": "CREATE TABLE"}}, {"metaData": {"id": "x"}}])
    log.store.create(f"staged/people/own/{version_path(0)}", entry)
    grow_old(log, "staged")
    before = files(log)
    assert clean_up(log, WEEK) == []
    assert files(log) == before


def shadow(log: DeltaLog) -> str:
    path = "staged/compaction-1a2b/attempt"
    info = {STAGED: {"format": FORMAT, "compaction": {"name": "upkeep"}}}
    log.store.create(f"{path}/{version_path(0)}", dump_actions([{"commitInfo": info}]))
    append_files(log.store, path, {"2019-01": [1]})
    return path


def test_the_log_of_an_abandoned_compaction_goes_and_of_one_at_work_stays(log: DeltaLog) -> None:
    path = shadow(log)
    assert clean_up(log, WEEK) == []
    grow_old(log, path)
    (staged,) = clean_up(log, WEEK)
    assert (staged.path, staged.owner, staged.state) == (path, "compaction upkeep", StagedState.ABANDONED)
    assert [name for name in files(log, path) if not name.endswith(".parquet")] == []


def test_the_log_of_a_published_compaction_goes_and_nothing_is_reported_as_abandoned(log: DeltaLog) -> None:
    path = shadow(log)
    write_marker(log.store, path, {"version": 1})
    grow_old(log, path)
    (staged,) = clean_up(log, WEEK)
    assert staged.state is StagedState.CLOSED
    assert f"{path}/{CLOSED}" in files(log, path)


def test_a_published_compaction_without_marker_is_fine(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    for row in range(4):
        foreign_append(log, {"2019-01": [row]})
    assert compact(log).version == 5
    [marker] = Path(log.table, "staged").rglob(CLOSED)
    marker.unlink()
    grow_old(log, "staged")
    (staged,) = clean_up(log, WEEK)
    assert staged.state is StagedState.CLOSED
    assert "abandoned" not in caplog.text
    assert ids(Path(log.table)) == [0, 1, 2, 3]


def test_what_stands_below_staged_is_told_apart(log: DeltaLog) -> None:
    done, waiting, dead = published(log), stage(log, writer_spec("w2"), {"2019-01": [2]}), opened(log, "w3")
    grow_old(log, dead)
    strange, shadow_path = "staged/people/own", shadow(log)
    log.store.put(f"{strange}/{LOG_DIRECTORY}/{1:020d}.json", b"{}")
    snapshot = log.snapshot()
    found = {staged.path: staged for staged in survey(log, snapshot, log.store.list("staged"), WEEK)}
    assert {path: staged.state for path, staged in found.items()} == {
        done.path: StagedState.CLOSED,
        waiting.path: StagedState.IN_FLIGHT,
        dead: StagedState.ABANDONED,
        shadow_path: StagedState.IN_FLIGHT,
        strange: StagedState.STRANGE,
    }
    assert found[waiting.path].owner == "writer w2"
    assert found[strange].owner == "it has a log without a version 0"
    assert found[waiting.path].began is not None
    assert found[waiting.path].ended is not None
    assert found[dead].ended is None


def test_an_interrupted_clean_up_is_carried_on_by_the_next(log: DeltaLog) -> None:
    class Interrupted(PassingOn):
        def delete(self, path: str) -> None:
            if path.endswith(version_path(0)):
                raise StoreUnavailableError("no answer")
            super().delete(path)

    buffer = published(log)
    grow_old(log, buffer.path)
    with pytest.raises(StoreUnavailableError):
        clean_up(through(Interrupted(log.store), log), WEEK)
    assert f"{buffer.path}/{version_path(1)}" not in files(log)
    assert [staged.path for staged in clean_up(log, WEEK)] == [buffer.path]
    assert clean_up(log, WEEK) == []
    assert ids(Path(log.table)) == [1]


@pytest.mark.parametrize("age", [timedelta(0), timedelta(days=-1)])
def test_an_age_of_nothing_is_refused(log: DeltaLog, age: timedelta) -> None:
    with pytest.raises(InvalidWriteError, match="being written"):
        clean_up(log, age)


def test_where_there_is_no_table_there_is_nothing_to_clean_up(tmp_path: Path) -> None:
    assert clean_up(local_log(tmp_path / "none"), WEEK) == []


def test_what_tries_kept_goes_once_it_is_older_than_the_tables_retention(log: DeltaLog) -> None:
    for number in (1, 2, 3):
        log.store.put(try_path("task", number), b"{}")
    grow_old(log, try_path("task", 1))
    grow_old(log, try_path("task", 2), days=2)
    assert clean_up(log, timedelta(days=1)) == []
    assert {path for path in files(log) if "_tries" in path} == {try_path("task", 2), try_path("task", 3)}
