"""Checkpoints keep a table fast that only we commit to.

Cleaning up the log never takes what a reader of a retained version needs, wherever it is interrupted.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path

import attrs
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import (
    LogGapError,
    ObjectNotFoundError,
    StoreUnavailableError,
    TablePropertyError,
    VacuumAtWorkError,
    VacuumRefusedError,
)
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.checkpoints import CLEAN_UPS, CleanedUp, checkpointer, clean_up_log
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.replay import LAST_CHECKPOINT
from airflow_provider_onelake.maintenance.pinned_versions import oldest_pinned, pin_version
from airflow_provider_onelake.storage.stores import ObjectInfo, Part, Store
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support.ages import grow_old
from tests.support.clocks import HeldClock
from tests.support.stores import PassingOn, through
from tests.support.tables import foreign_append, ids, make_table, stage, table_of_another_engine, writer_spec
from tests.support.v2_checkpoints import write_v2_checkpoint

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
RETENTION = {"delta.logRetentionDuration": "interval 10 days"}


def checkpoints(path: Path) -> list[int]:
    return sorted(int(file.name[:20]) for file in (path / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_checkpoint_is_written_at_every_interval_and_not_at_version_0(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    write = checkpointer(str(tmp_path), interval=3, log=log)
    snapshot = log.snapshot()
    write(snapshot, 0)
    for _ in range(7):
        write(snapshot, foreign_append(log, {"2019-01": [1]}))
    assert checkpoints(tmp_path) == [3, 6]


def test_the_tables_own_interval_goes_before_ours(tmp_path: Path) -> None:
    log = make_table(tmp_path, **{"delta.checkpointInterval": "2"})
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=1, log=log))
    for number in range(3):
        committer.publish([stage(log, writer_spec(f"w{number}"), {"2019-01": [number]})])
    assert checkpoints(tmp_path) == [2]


def test_what_was_published_is_recognised_and_read_behind_a_checkpoint_without_the_earlier_log(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=2, log=log))
    first = stage(log, writer_spec("a"), {"2019-01": [1]})
    committer.publish([first])
    committer.publish([stage(log, writer_spec("b"), {"2019-01": [2], None: [3]})])
    assert checkpoints(tmp_path) == [2]
    for version in range(3):
        (tmp_path / version_path(version)).unlink()
    log = through(log.store, log)
    (tmp_path / first.path / "_closed.json").unlink()
    assert Committer(log).publish([first]).status is PublishStatus.ALREADY
    committer = Committer(log)
    assert committer.publish([stage(log, writer_spec("c"), {"2019-02": [4]})]).version == 3
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_checkpoint_that_fails_does_not_undo_the_commit_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_table(tmp_path)
    committer = Committer(log, after_commit=checkpointer(str(tmp_path / "elsewhere"), interval=1, log=log))
    assert committer.publish([stage(log, writer_spec(), {"2019-01": [1]})]).status is PublishStatus.PUBLISHED
    assert ids(tmp_path) == [1]
    assert "version 1 is committed; what follows a commit failed" in caplog.text


@pytest.mark.parametrize("text", ["soon", "0", "-1"])
def test_an_interval_that_is_none_is_said_and_ours_is_used(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = table_of_another_engine(tmp_path, **{"delta.checkpointInterval": text})
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=1, log=log))
    committer.publish([stage(log, writer_spec(), {"2019-01": [1]})])
    assert checkpoints(tmp_path) == [1]
    assert "which is no number of versions" in caplog.text


def entries(path: Path) -> list[int]:
    return sorted(int(file.name[:20]) for file in (path / "_delta_log").glob("*[0-9].json"))


def old_log(path: Path, days: int, **properties: str) -> DeltaLog:
    log = table_of_another_engine(path, **properties)
    for version in (1, 2):
        foreign_append(log, {"2019-01": [version]})
    DeltaTable(str(path)).create_checkpoint()
    for file in (path / "_delta_log").iterdir():
        os.utime(file, times=(file.stat().st_mtime - days * 86_400,) * 2)
    return log


@pytest.mark.parametrize(
    ("days", "kept", "left"), [(29, None, [0, 1, 2, 3]), (31, None, [2, 3]), (31, 1, [0, 1, 2, 3])]
)
def test_after_a_checkpoint_the_log_is_cleaned_up_as_far_as_it_is_old(
    tmp_path: Path, days: int, kept: int | None, left: list[int]
) -> None:
    log = old_log(tmp_path, days)
    if kept is not None:
        pin_version(log, kept, "a test")
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=3, log=log, keep_from=oldest_pinned))
    assert committer.publish([stage(log, writer_spec(), {"2019-01": [3]})]).version == 3
    assert checkpoints(tmp_path) == [2, 3]
    assert entries(tmp_path) == left
    assert ids(tmp_path) == [1, 2, 3]


def test_a_log_is_as_old_as_its_store_says_whatever_the_committers_clock_says(tmp_path: Path) -> None:
    log = old_log(tmp_path, 2)
    ahead = through(log.store, log, HeldClock(datetime.now(UTC) + timedelta(days=60)))
    checkpointer(str(tmp_path), interval=3, log=ahead)(log.snapshot(), foreign_append(log, {"2019-01": [3]}))
    assert (checkpoints(tmp_path), entries(tmp_path)) == ([2, 3], [0, 1, 2, 3])


def test_no_clean_up_without_a_checkpoint(tmp_path: Path) -> None:
    log = old_log(tmp_path, 31)
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=4, log=log))
    committer.publish([stage(log, writer_spec(), {"2019-01": [3]})])
    assert entries(tmp_path) == [0, 1, 2, 3]


def test_a_clean_up_that_fails_does_not_undo_the_commit_nor_the_checkpoint_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = old_log(tmp_path, 31, **{"delta.logRetentionDuration": "interval 1 month"})
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=3, log=log))
    assert committer.publish([stage(log, writer_spec(), {"2019-01": [3]})]).status is PublishStatus.PUBLISHED
    assert (checkpoints(tmp_path), entries(tmp_path)) == ([2, 3], [0, 1, 2, 3])
    assert "the log was not cleaned up: 'interval 1 month' is no interval" in caplog.text


def make_log(path: Path, newest: int, checkpoints: tuple[int, ...] = (), **properties: str) -> DeltaLog:
    """A table with one file a version, each version a day younger than the one before; the newest is of now."""
    log = table_of_another_engine(path, **(properties or RETENTION))
    for version in range(1, newest + 1):
        foreign_append(log, {"2019-01": [version]})
        if version in checkpoints:
            DeltaTable(str(path)).create_checkpoint()
    aged(path, newest)
    return through(log.store, log)


def aged(path: Path, newest: int) -> None:
    for file in (path / "_delta_log").iterdir():
        if file.name[:20].isdecimal():
            # An hour more than whole days, so that nothing hangs on the very instant.
            age = timedelta(days=newest - int(file.name[:20]), hours=1)
            os.utime(file, times=((NOW - age).timestamp(),) * 2)


def clean(log: DeltaLog, keep_from: int | None = None, now: datetime = NOW) -> CleanedUp:
    snapshot = log.snapshot()
    return clean_up_log(log.store, snapshot, now, lambda: keep_from)


def left(path: Path) -> list[str]:
    return sorted(file.name.lstrip("0") or "0" for file in (path / "_delta_log").iterdir() if file.is_file())


def files_at(log: DeltaLog, version: int) -> set[str]:
    return {add["path"] for add in through(log.store, log).live_files(lambda _: True, version)}


def test_what_only_expired_versions_need_goes_and_the_checkpoint_that_retained_ones_need_stays(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (5, 8, 15))
    before = {version: files_at(log, version) for version in range(8, 21)}
    done = clean(log)
    # Versions up to 10 are ten days old; 8 is the newest checkpoint among them.
    assert done.oldest == 8
    assert left(tmp_path) == sorted(
        ["8.checkpoint.parquet", "15.checkpoint.parquet", "_last_checkpoint", *(f"{v}.json" for v in range(8, 21))]
    )
    assert {version: files_at(log, version) for version in range(8, 21)} == before
    assert [DeltaTable(str(tmp_path), version=v).version() for v in (8, 11, 20)] == [8, 11, 20]
    with pytest.raises(LogGapError):
        files_at(log, 7)


def test_a_clean_up_has_nothing_to_do_twice(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (8,))
    assert clean(log).deleted
    assert clean(log) == CleanedUp(8, ())


@pytest.mark.parametrize(
    ("checkpoints", "properties"),
    [
        pytest.param((), RETENTION, id="no checkpoint"),
        pytest.param((11, 15), RETENTION, id="no checkpoint that is old enough"),
        pytest.param((8,), {}, id="thirty days by default"),
        pytest.param((8,), {**RETENTION, "delta.enableExpiredLogCleanup": "FALSE"}, id="switched off"),
    ],
)
def test_nothing_goes_where_something_may_still_be_needed(
    tmp_path: Path, checkpoints: tuple[int, ...], properties: dict[str, str]
) -> None:
    log = make_log(tmp_path, 20, checkpoints, **(properties or {"delta.x": "y"}))
    before = left(tmp_path)
    assert clean(log) == CleanedUp(None, ())
    assert left(tmp_path) == before


@pytest.mark.parametrize(("keep_from", "oldest"), [(None, 8), (9, 8), (8, 8), (7, 5), (5, 5), (4, None), (15, 8)])
def test_a_version_that_somebody_asked_to_keep_stays_readable(
    tmp_path: Path, keep_from: int | None, oldest: int | None
) -> None:
    log = make_log(tmp_path, 20, (5, 8))
    expected = files_at(log, keep_from or 20)
    assert clean(log, keep_from).oldest == oldest
    assert files_at(log, keep_from or 20) == expected


def test_of_a_clean_up_and_somebody_who_asks_to_keep_a_version_one_sees_the_other(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (5, 8))

    def keep(match: str, error: type[Exception] = VacuumAtWorkError) -> None:
        with pytest.raises(error, match=match):
            pin_version(through(log.store, log), 6, "a test")
        assert oldest_pinned(log) is None

    def keep_from() -> int | None:
        keep("a committer is deleting the log of old versions")
        found = oldest_pinned(log)
        keep("a committer is deleting the log of old versions")
        return found

    assert clean_up_log(log.store, log.snapshot(), NOW, keep_from).oldest == 8
    assert list(log.store.list(CLEAN_UPS)) == []
    keep("its log is gone", VacuumRefusedError)


def test_a_version_whose_log_goes_while_it_is_recorded_is_not_kept(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (5, 8))

    class CleanedUpMeanwhile(PassingOn):
        """The clean-up has asked for kept versions just before the record is there, and ends before anybody looks."""

        def create(self, path: str, data: bytes) -> None:
            assert clean(log).oldest == 8
            super().create(path, data)

    with pytest.raises(VacuumRefusedError, match="its log is gone"):
        pin_version(through(CleanedUpMeanwhile(log.store), log), 6, "a test")
    assert oldest_pinned(log) is None


def test_the_note_of_a_clean_up_that_was_killed_counts_for_a_day(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (5, 8))

    def killed() -> int | None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clean_up_log(log.store, log.snapshot(), NOW, killed)
    (note,) = log.store.list(CLEAN_UPS)
    with pytest.raises(VacuumAtWorkError, match=rf"one was killed: delete {note.path}\."):
        pin_version(log, 6, "a test")
    # What it would not have deleted can be kept.
    pin_version(log, 8, "a test")
    grow_old(log, CLEAN_UPS, days=1.1)
    pin_version(log, 6, "a test")
    assert clean_up_log(log.store, log.snapshot(), log.clock.now(), lambda: oldest_pinned(log)).oldest == 5
    assert list(log.store.list(CLEAN_UPS)) == []


def test_a_log_is_never_cleaned_up_within_a_day_so_that_no_version_is_put_twice(tmp_path: Path) -> None:
    log = make_log(tmp_path, 6, (2, 4, 6), **{"delta.logRetentionDuration": "interval 0 seconds"})
    # Version 4 is two days old, 6 an hour.
    assert clean(log).oldest == 4
    assert clean(log, now=NOW + timedelta(days=1)).oldest == 6


def test_a_checkpoint_without_its_own_entry_or_that_cannot_be_read_is_no_reason_to_delete(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (4, 6, 8))
    log.snapshot()
    (tmp_path / "_delta_log" / f"{8:020d}.checkpoint.parquet").write_bytes(b"PAR1 half")
    os.utime(tmp_path / "_delta_log" / f"{8:020d}.checkpoint.parquet", times=(1, 1))
    (tmp_path / version_path(6)).unlink()
    assert clean_up_log(log.store, log.snapshot(), NOW).oldest == 4  # type: ignore[arg-type]


def test_an_entry_that_is_younger_than_later_ones_keeps_all_that_follow(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (2, 8))
    os.utime(tmp_path / version_path(4), times=(NOW.timestamp(),) * 2)
    assert clean(log).oldest == 2


def test_everything_of_an_old_version_goes_and_nothing_else(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20, (8,))
    directory = tmp_path / "_delta_log"
    number = f"{3:020d}"
    part = f"{number}.checkpoint.{1:010d}.{2:010d}.parquet"
    old = [f"{number}.crc", f".{number}.json.crc", f"{number}.{5:020d}.compacted.json", part, f".{part}.crc"]
    kept = ["_last_checkpoint", "notes.txt", f"{number}.json.tmp", f"{8:020d}.crc", f"{9:020d}.crc"]
    for name in (*old, *kept):
        (directory / name).touch()
    (directory / "_last_checkpoint").write_text('{"version":8}')
    clean(log)
    assert not [name for name in old if (directory / name).exists()]
    assert all((directory / name).exists() for name in kept)


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_sidecars_go_with_their_checkpoints_and_only_when_they_are_old(tmp_path: Path, kind: str) -> None:
    log = make_log(tmp_path, 20)
    old = write_v2_checkpoint(tmp_path, kind, 2, version=5)
    needed = write_v2_checkpoint(tmp_path, kind, 2, version=9) + write_v2_checkpoint(tmp_path, kind, 1, version=20)
    aged(tmp_path, 20)
    orphan, fresh = (tmp_path / "_delta_log" / "_sidecars" / name for name in ("orphan.parquet", "fresh.parquet"))
    for path in (orphan, fresh):
        path.touch()
    for path in (*old, *needed, orphan):
        os.utime(path, times=((NOW - timedelta(days=2)).timestamp(),) * 2)
    os.utime(fresh, times=(NOW.timestamp(),) * 2)
    expected = files_at(log, 9), files_at(log, 20)
    assert clean(through(log.store, log)).oldest == 9
    assert not any(path.exists() for path in (*old, orphan))
    assert all(path.exists() for path in (*needed, fresh))
    assert (files_at(log, 9), files_at(log, 20)) == expected


def test_a_checkpoint_that_lacks_a_sidecar_is_no_reason_to_delete_and_others_sidecars_stay(tmp_path: Path) -> None:
    log = make_log(tmp_path, 20)
    lost = write_v2_checkpoint(tmp_path, "json", 2, version=9)[0]
    lost.unlink()
    assert clean(log) == CleanedUp(None, ())


@pytest.mark.parametrize("text", ["soon", "interval 1 month"])
def test_a_retention_that_cannot_be_read_is_said_and_nothing_goes(tmp_path: Path, text: str) -> None:
    log = make_log(tmp_path, 20, (8,), **{"delta.logRetentionDuration": text})
    before = left(tmp_path)
    with pytest.raises(TablePropertyError, match=text):
        clean(log)
    assert left(tmp_path) == before


# -- any log, any interruption ---------------------------------------------------------------------------------------

VERSIONS = 9


class MemoryStore:
    """Objects with times, in a dictionary."""

    concurrency = 1

    def __init__(self, objects: dict[str, tuple[bytes, datetime]]) -> None:
        self.objects = objects

    def get(self, path: str) -> bytes:
        return self._found(path)[0]

    def get_range(self, path: str, start: int, end: int) -> Part:
        data, modified = self._found(path)
        return Part(data[start:end], modified.isoformat())

    def head(self, path: str) -> ObjectInfo:
        data, modified = self._found(path)
        return ObjectInfo(path, len(data), modified)

    def create(self, path: str, data: bytes) -> None:
        raise AssertionError(path)

    def put(self, path: str, data: bytes) -> None:
        assert path.startswith(f"{CLEAN_UPS}/")
        self.objects[path] = (data, NOW)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for path in sorted(self.objects):
            if path.startswith(f"{prefix}/") and (start_after is None or path > start_after):
                yield self.head(path)

    def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    def _found(self, path: str) -> tuple[bytes, datetime]:
        if path not in self.objects:
            raise ObjectNotFoundError(path)
        return self.objects[path]


class Interrupted(PassingOn):
    """Dies at a delete."""

    def __init__(self, inner: Store, after: int) -> None:
        super().__init__(inner)
        self.left = after

    def delete(self, path: str) -> None:
        if not self.left:
            raise StoreUnavailableError(path)
        self.left -= 1
        self.inner.delete(path)


@attrs.frozen
class Full:
    """Objects of a log with a checkpoint of every kind at every version."""

    entries: dict[str, bytes]
    checkpoints: dict[tuple[int, str], dict[str, bytes]]
    files: list[set[str]]


@cache
def full_log() -> Full:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory)
        log = make_log(path, VERSIONS)

        def objects() -> dict[str, bytes]:
            return {str(f.relative_to(path)): f.read_bytes() for f in (path / "_delta_log").rglob("*") if f.is_file()}

        entries = objects()
        files = [files_at(log, version) for version in range(VERSIONS + 1)]
        checkpoints = {}
        for version in range(VERSIONS + 1):
            for kind in ("classic", "json", "parquet"):
                before = objects()
                write_v2_checkpoint(path, kind, 0 if kind == "classic" else 2, version=version)
                checkpoints[version, kind] = {k: v for k, v in objects().items() if k not in before}
                for name in checkpoints[version, kind]:
                    (path / name).unlink()
        return Full(entries, checkpoints, files)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_any_log_stays_readable_wherever_its_clean_up_is_interrupted(data: st.DataObject) -> None:
    full = full_log()
    chosen = data.draw(st.sets(st.sampled_from(sorted(full.checkpoints)), max_size=5), label="checkpoints")
    days = data.draw(st.lists(st.integers(0, 20), min_size=VERSIONS + 1, max_size=VERSIONS + 1), label="ages")
    if data.draw(st.booleans(), label="in order"):
        days.sort(reverse=True)
    objects = {}
    for path, content in full.entries.items():
        age = timedelta(days=days[int(path[11:31])], hours=1)
        objects[path] = (content, NOW - age)
    for key in chosen:
        objects |= {path: (content, NOW - timedelta(days=3)) for path, content in full.checkpoints[key].items()}
    if chosen and data.draw(st.booleans(), label="hint"):
        hinted = data.draw(st.sampled_from(sorted(chosen)), label="which")
        objects[LAST_CHECKPOINT] = (b'{"version":%d}' % hinted[0], NOW)
    keep_from = data.draw(st.none() | st.integers(0, VERSIONS), label="keep from")

    store = MemoryStore(objects)
    log = DeltaLog(store, "trips")
    snapshot = log.snapshot()
    # What a reader within the retention may ask for: time travel to ten days ago needs the last commit before.
    old = 0
    while old <= VERSIONS and days[old] >= 10:
        old += 1
    promised = range(max(min(old - 1, keep_from if keep_from is not None else VERSIONS), 0), VERSIONS + 1)

    def check() -> None:
        fresh = DeltaLog(store, "trips").snapshot()
        assert (fresh.version, fresh.metadata["id"]) == (VERSIONS, snapshot.metadata["id"])
        for version in promised:
            reader = DeltaLog(store, "trips")
            assert {add["path"] for add in reader.live_files(lambda _: True, version)} == full.files[version]

    for deletes in data.draw(st.lists(st.integers(0, 8), max_size=3), label="interruptions"):
        try:
            clean_up_log(Interrupted(store, deletes), snapshot, NOW, lambda: keep_from)
        except StoreUnavailableError:
            check()
    clean_up_log(store, snapshot, NOW, lambda: keep_from)
    check()
    assert clean_up_log(store, snapshot, NOW, lambda: keep_from).deleted == ()
