"""A shared scan: what it writes for each writer, and when a writer adopts it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.buffers import layout
from airflow_provider_onelake.buffers import scan as scans
from airflow_provider_onelake.buffers.buffer import Buffer, read_buffer
from airflow_provider_onelake.buffers.markers import read_marker, set_aside
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.features import ALLOWED
from airflow_provider_onelake.maintenance.clean_up import StagedState, clean_up, survey
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.vacuum import VacuumTerms, plan
from airflow_provider_onelake.modes import Overwrite, ReplaceWhere
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY
from airflow_provider_onelake.writes.conflicts import overtaken_by
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support import tables
from tests.support.clocks import HeldClock
from tests.support.stores import PassingOn
from tests.support.tables import Stage, prepare

ROWS: Mapping[str, Mapping[str | None, list[int]]] = {"a": {"2019-01": [1, 2], "2019-02": [3]}, "b": {"2019-01": [4]}}
WHO = {key: tables.LOAD.writer(key) for key in ("a", "b", "c")}
SHARES = [scans.ScanShare(identity=WHO[key], where=f"id = '{key}'", fingerprint=f"of {key}") for key in WHO]


def spec(key: str, **terms: Any) -> Any:
    return tables.writer_spec(key, **{"fingerprint": f"of {key}", **terms})


def append(log: DeltaLog, scan: scans.Scan, rows: Mapping[str, Mapping[str | None, list[int]]] = ROWS) -> None:
    actions: list[Any] = []
    for key, months in rows.items():
        name = layout.share_name(tables.LOAD.writer(key).directory)
        info, *adds = tables.append_files(log.store, f"{scan.path}/onelake_writer={name}", months, userMetadata="{}")
        for each in adds:
            add = each["add"]
            add["path"] = f"onelake_writer={name}/{add['path']}"
            add["partitionValues"] = {"onelake_writer": name, **add["partitionValues"]}
        actions += [info, *adds] if not actions else adds
    if actions:
        log.store.create(f"{scan.path}/{version_path(1)}", dump_actions(actions))


def scanned(log: DeltaLog, name: str = "deed", **rows: Any) -> scans.Scan:
    scan = scans.open_scan(log, name, "load.scan", SHARES, tables.newest(log))
    append(log, scan, rows or ROWS)
    scans.offer(log, scan, SHARES)
    return scan


def take(log: DeltaLog, spec: Any, scan: scans.Scan) -> Skip | Buffer | Stage:
    """What a writer does to which its run names a scan."""
    return prepare(log, spec, footers=True, scan=scan.path)


def adopted(log: DeltaLog, spec: Any, scan: scans.Scan) -> Buffer:
    buffer = take(log, spec, scan)
    assert isinstance(buffer, Buffer)
    return buffer


class Dying(PassingOn):
    """The worker dies once it has put one object."""

    def __init__(self, store: Any, last: str) -> None:
        super().__init__(store)
        self._last = last

    def create(self, path: str, data: bytes) -> None:
        super().create(path, data)
        if path == self._last:
            raise errors.StoreUnavailableError("The worker died.")


def test_each_writer_adopts_its_own_rows_and_publishes_them(log: DeltaLog, tmp_path: Path) -> None:
    scan = scanned(log)
    for key in ("a", "b", "c"):
        buffer = adopted(log, spec(key), scan)
        assert buffer.path == layout.share_path(scan.path, tables.LOAD.writer(key).directory)
        assert buffer.rows == sum(map(len, ROWS.get(key, {}).values()))
        assert all(set(add["partitionValues"]) == {"month"} for add in buffer.adds)
        assert Committer(log).publish([buffer]).status is PublishStatus.PUBLISHED
    assert tables.ids(tmp_path / "t") == [1, 2, 3, 4]


def test_a_write_is_as_old_as_the_scan_whose_rows_it_adopts(log: DeltaLog) -> None:
    """Whoever finished between the scan and the adoption finished later."""
    tables.foreign_append(log, {"2019-01": [100]})
    scan = scanned(log)
    ended = landed(log, f"{scan.path}/{version_path(1)}", timedelta(hours=-2))
    buffer = adopted(log, spec("a", **tables.OVERWRITE), scan)
    assert (buffer.read_version, buffer.finished) == (scan.read_version, ended)
    other = tables.stage(log, tables.writer_spec("z", tables.EARLIER_LOAD, **tables.OVERWRITE), {"2019-01": [9]})
    Committer(log).publish([tables.finished_at(log, other, ended + timedelta(hours=1))])
    with pytest.raises(errors.OutOfDateError, match=r"version 2 \(z of .*, and finished later"):
        Committer(log).publish([buffer])


def landed(log: DeltaLog, path: str, ago: timedelta) -> datetime:
    instant = (datetime.now(UTC) + ago).replace(microsecond=0)
    os.utime(Path(log.table, path), (instant.timestamp(), instant.timestamp()))
    return instant


def append_since(log: DeltaLog, month: str) -> None:
    tables.foreign_append(log, {month: [9]})


def colleague_since(log: DeltaLog, month: str) -> None:
    Committer(log).publish([tables.stage(log, tables.writer_spec("z", **tables.OVERWRITE), {month: [9]})])


TOGETHER = {**tables.OVERWRITE, "publish": "together"}


@pytest.mark.parametrize(
    ("terms", "since", "month", "overtaken"),
    [
        pytest.param({}, append_since, "2019-01", False, id="an-append"),
        pytest.param(tables.OVERWRITE, append_since, "2019-01", True, id="by-rows-in-a-partition-of-it"),
        pytest.param(tables.OVERWRITE, append_since, "2019-03", False, id="by-rows-elsewhere"),
        pytest.param({"mode": Overwrite()}, append_since, "2019-03", True, id="where-it-replaces-all"),
        pytest.param({"mode": ReplaceWhere("month < '2019-03'")}, append_since, "2019-02", True, id="in-its-range"),
        pytest.param(tables.OVERWRITE, colleague_since, "2019-01", True, id="by-another-of-its-load"),
        pytest.param(TOGETHER, colleague_since, "2019-01", False, id="by-a-colleague"),
    ],
)
def test_rows_of_a_scan_are_overtaken_by_a_commit_that_is_in_conflict_with_them(
    log: DeltaLog, terms: dict[str, Any], since: Callable[[DeltaLog, str], None], month: str, overtaken: bool
) -> None:
    scan = scanned(log)
    since(log, month)
    taken = scans.adopt(log, spec("a", **terms), tables.newest(log), scan.path)
    assert taken is not None
    why = overtaken_by(log, taken, tables.newest(log))
    assert (why is not None) is overtaken
    assert why is None or why.endswith(f") put 1 row into month={month}")
    assert isinstance(take(log, spec("a", **terms), scan), Stage) is overtaken
    assert (read_marker(log.store, taken.path) is not None) is overtaken


def test_rows_of_a_scan_that_replace_are_not_used_where_the_log_does_not_say_what_came_since(log: DeltaLog) -> None:
    scan = scanned(log)
    for month in ("2019-03", "2019-04"):
        tables.foreign_append(log, {month: [9]})
    tables.newest(log)
    log.store.delete(version_path(scan.read_version + 1))
    fresh = DeltaLog(log.store, log.table)
    replacing = scans.adopt(log, spec("a", **tables.OVERWRITE), tables.newest(log), scan.path)
    adding = adopted(log, spec("b"), scan)
    assert replacing is not None
    assert "no longer in its log" in str(overtaken_by(fresh, replacing, tables.newest(log)))
    assert overtaken_by(fresh, adding, tables.newest(log)) is None


def test_a_retry_of_a_scan_finds_it(log: DeltaLog) -> None:
    first = scans.open_scan(log, "deed", "load.scan", SHARES, tables.newest(log))
    assert scans.completed_by(log, first) is None
    append(log, first)
    tables.foreign_append(log, {"2019-03": [9]})
    again = scans.open_scan(log, "deed", "load.scan", SHARES, tables.newest(log))
    assert again == first
    assert scans.completed_by(log, again) is not None
    assert scans.open_scan(log, "cleared", "load.scan", SHARES, tables.newest(log)).path != first.path


def cut_short(log: DeltaLog, scan: scans.Scan) -> None:
    """Its log is another one than was offered."""
    entry = f"{scan.path}/{version_path(1)}"
    log.store.put(entry, b"\n".join(log.store.get(entry).splitlines()[:2]))


def nothing(*_: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("change", "terms"),
    [
        pytest.param(nothing, {"fingerprint": "a file came"}, id="another source"),
        pytest.param(nothing, {"fingerprint": ""}, id="no fingerprint"),
        pytest.param(nothing, {"generation": 2}, id="cleared"),
        pytest.param(lambda log, _: tables.change_metadata(log, id="another"), {}, id="a table made again"),
        pytest.param(
            lambda log, _: tables.change_metadata(log, configuration={"delta.constraints.a": "id < 3"}),
            {},
            id="a CHECK",
        ),
        pytest.param(cut_short, {}, id="another log"),
        pytest.param(
            lambda log, scan: set_aside(log.store, adopted(log, spec("a"), scan).path, "a person"), {}, id="set aside"
        ),
    ],
)
def test_what_is_staged_anew(
    log: DeltaLog, change: Callable[[DeltaLog, scans.Scan], Any], terms: dict[str, Any]
) -> None:
    scan = scanned(log)
    change(log, scan)
    assert isinstance(take(log, spec("a", **terms), scan), Stage)


def test_an_old_scan_and_another_than_the_run_names_are_not_adopted(log: DeltaLog) -> None:
    scan = scanned(log)
    later = DeltaLog(log.store, log.table, clock=HeldClock(log.clock.now() + scans.ADOPTABLE))
    assert isinstance(take(later, spec("a"), scan), Stage)
    again = scans.open_scan(log, "cleared", "load.scan", SHARES, tables.newest(log))
    assert isinstance(take(log, spec("a"), again), Stage)


def test_rows_that_were_taken_out_of_a_scan_are_staged_anew(log: DeltaLog) -> None:
    scan = scanned(log)
    lost = next(info for info in log.store.list(layout.share_path(scan.path, tables.LOAD.writer("a").directory)))
    log.store.delete(lost.path)
    assert isinstance(take(log, spec("a"), scan), Stage)
    assert isinstance(take(log, spec("b"), scan), Buffer)


@pytest.mark.parametrize("version", [0, 1])
def test_a_writer_that_died_while_it_adopted_goes_on_in_its_retry(log: DeltaLog, version: int) -> None:
    scan = scanned(log)
    share = layout.share_path(scan.path, tables.LOAD.writer("a").directory)

    first = spec("a")
    with pytest.raises(errors.StoreUnavailableError):
        take(DeltaLog(Dying(log.store, f"{share}/{version_path(version)}"), log.table), first, scan)
    retried = adopted(log, spec("a"), scan)
    assert retried.path == share
    assert retried.spec.attempt == first.attempt
    assert retried.rows == 3


def test_files_come_into_one_buffer_only(log: DeltaLog) -> None:
    scan = scanned(log)
    first = adopted(log, spec("a"), scan)
    note = layout.pointer_path(tables.LOAD.writer("a").directory, scan.path)
    pointer = json.loads(log.store.get(note))
    # Even if the note says that the rerun may have them.
    log.store.put(note, json.dumps({**pointer, "generation": 2}).encode())
    assert isinstance(take(log, spec("a", generation=2, on_rerun="append"), scan), Stage)
    assert read_buffer(log.store, first.path).spec.generation == 1


def test_a_rerun_takes_back_what_was_adopted(log: DeltaLog, tmp_path: Path) -> None:
    scan = scanned(log)
    for key in ("a", "b"):
        buffer = adopted(log, spec(key), scan)
        Committer(log).publish([buffer])
    again = spec("a", generation=2, on_rerun="replace")
    task = prepare(log, again)
    assert isinstance(task, Stage)
    Committer(log).publish([tables.finish(log, task, again, {"2019-01": [7]})])
    assert tables.ids(tmp_path / "t") == [4, 7]


def test_a_scan_without_any_rows_is_complete(log: DeltaLog) -> None:
    scan = scans.open_scan(log, "deed", "load.scan", SHARES, tables.newest(log))
    scans.complete(log, scan)
    assert scans.offer(log, scan, SHARES) == {"a": (0, 0), "b": (0, 0), "c": (0, 0)}
    buffer = adopted(log, spec("a"), scan)
    assert buffer.files == 0


def in_anothers_directory(entry: bytes) -> bytes:
    a, b = (layout.share_name(tables.LOAD.writer(key).directory) for key in "ab")
    return entry.replace(f'"onelake_writer":"{a}"'.encode(), f'"onelake_writer":"{b}"'.encode())


CDC: Any = {"cdc": {"path": "_change_data/c.parquet", "partitionValues": {}, "size": 1, "dataChange": False}}


@pytest.mark.parametrize(
    ("rows", "spoil", "error", "why"),
    [
        pytest.param({}, None, errors.BufferIncompleteError, "Spark has not written it", id="nobody has written it"),
        pytest.param({"x": {"m": [9]}}, bytes, errors.BufferInvalidError, "other writers", id="rows of a stranger"),
        pytest.param({}, in_anothers_directory, errors.BufferInvalidError, "another directory", id="of another writer"),
        pytest.param(
            {}, lambda entry: entry + dump_actions([CDC]), errors.BufferInvalidError, "no ordinary append", id="a feed"
        ),
    ],
)
def test_what_is_offered_to_nobody(
    log: DeltaLog, rows: Any, spoil: Callable[[bytes], bytes] | None, error: type[Exception], why: str
) -> None:
    scan = scans.open_scan(log, "deed", "load.scan", SHARES, tables.newest(log))
    if spoil is not None:
        append(log, scan, {**ROWS, **rows})
        entry = f"{scan.path}/{version_path(1)}"
        log.store.put(entry, spoil(log.store.get(entry)))
    with pytest.raises(error, match=why):
        scans.offer(log, scan, SHARES)
    assert isinstance(take(log, spec("a"), scan), Stage)


@pytest.mark.parametrize("terms", [tables.OVERWRITE, {"on_rerun": "append"}, {"publish": "together"}])
def test_a_buffer_that_a_try_on_other_terms_has_opened_is_closed(log: DeltaLog, terms: dict[str, Any]) -> None:
    scan = scanned(log)
    share = layout.share_path(scan.path, tables.LOAD.writer("a").directory)
    opened: list[Any] = []

    class Zombie(PassingOn):
        """Lets a try on other terms open its buffer just before ours is opened, and go on after it."""

        def create(self, path: str, data: bytes) -> None:
            if path == f"{share}/{version_path(0)}" and not opened:
                opened.append(path)
                with pytest.raises(errors.StoreUnavailableError):
                    take(DeltaLog(Dying(log.store, f"{share}/{version_path(0)}"), log.table), spec("a", **terms), scan)
            super().create(path, data)

    assert isinstance(take(DeltaLog(Zombie(log.store), log.table), spec("a"), scan), Stage)
    assert read_marker(log.store, share) is not None
    assert isinstance(take(log, spec("a", **terms), scan), Stage)


def test_paths_tell_whose_they_are() -> None:
    share = layout.share_path("staged/scan-0f", "staged/w-1")
    assert layout.writer_directory(f"{share}/month=1/x.parquet") == "staged/w-1"
    assert layout.attempt_directory(f"{share}/month=1/x.parquet") == share
    assert layout.attempt_directory("staged/scan-0f/_delta_log/0.json") == "staged/scan-0f"
    assert layout.writer_directory("staged/w-1/a/onelake_writer=x/y") == "staged/w-1"
    assert layout.writer_directory("data/x/onelake_writer=w-2/y") == "data/x"


def test_what_may_be_adopted_is_in_flight_and_is_nobodys_after_that(log: DeltaLog) -> None:
    scan = scanned(log)
    take(log, spec("a"), scan)

    def states(silence: timedelta) -> dict[str, StagedState]:
        found = survey(log, tables.newest(log), log.store.list(STAGED_DIRECTORY), silence)
        return {staged.path: staged.state for staged in found}

    shares = {key: layout.share_path(scan.path, tables.LOAD.writer(key).directory) for key in "ab"}
    young = states(timedelta(days=7))
    assert young == {
        shares["a"]: StagedState.IN_FLIGHT,
        shares["b"]: StagedState.IN_FLIGHT,
        scan.path: StagedState.CLOSED,
    }
    assert states(timedelta(microseconds=1)) == {shares["a"]: StagedState.ABANDONED, scan.path: StagedState.CLOSED}
    assert tables.LOAD.id in writers_in_flight(log, tables.newest(log)).loads


def test_a_scan_that_died_is_abandoned(log: DeltaLog) -> None:
    scan = scans.open_scan(log, "deed", "load.scan", SHARES, tables.newest(log))
    staged = survey(log, tables.newest(log), log.store.list(STAGED_DIRECTORY), timedelta(microseconds=1))
    (found,) = staged
    assert (found.path, found.state, found.owner) == (scan.path, StagedState.ABANDONED, "shared scan load.scan")
    later = DeltaLog(log.store, log.table, clock=HeldClock(log.clock.now() + timedelta(days=30)))
    assert [each.path for each in clean_up(later, timedelta(days=7))] == [scan.path]
    assert list(log.store.list(scan.path)) == []


def test_a_vacuum_spares_what_may_be_adopted_and_what_was_published(log: DeltaLog, tmp_path: Path) -> None:
    scan = scanned(log)
    buffer = adopted(log, spec("a"), scan)
    Committer(log).publish([buffer])
    files = {info.path for info in log.store.list(STAGED_DIRECTORY) if info.path.endswith(".parquet")}
    later = DeltaLog(log.store, log.table, clock=HeldClock(log.clock.now() + timedelta(days=8)))

    def candidates(**terms: Any) -> set[str]:
        return {info.path for info in plan(later, VacuumTerms(**terms)).candidates} & files

    assert candidates(abandoned_after=timedelta(days=20)) == set()
    mine = {path for path in files if layout.writer_directory(path) == tables.LOAD.writer("a").directory}
    assert candidates() == files - mine


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        pytest.param({"delta.columnMapping.mode": "name"}, "column mapping", id="mapping"),
        pytest.param({"delta.randomizeFilePrefixes": "true"}, "randomizeFilePrefixes", id="prefixes"),
    ],
)
def test_tables_of_other_files_are_not_shared(tmp_path: Path, properties: dict[str, str], why: str) -> None:
    log = tables.make_table(tmp_path / "t")
    assert scans.why_not_shared(tables.newest(log)) is None
    tables.change_metadata(log, configuration=properties)
    assert why in str(scans.why_not_shared(tables.newest(tables.local_log(tmp_path / "t"))))


def test_each_feature_that_a_table_may_have_is_looked_at() -> None:
    """A feature that is allowed from now on is proven to change no file, or named among those that may."""
    proven = {"allowColumnDefaults", "appendOnly", "changeDataFeed", "checkConstraints", "deletionVectors"}
    proven |= {"domainMetadata", "generatedColumns", "inCommitTimestamp", "invariants", "timestampNtz", "v2Checkpoint"}
    by_mode = {"columnMapping"}
    assert scans.TOUCHED | proven | by_mode | {"vacuumProtocolCheck"} == ALLOWED


@pytest.mark.parametrize("feature", sorted(scans.TOUCHED))
def test_a_table_with_a_feature_that_may_change_its_files_is_not_shared(tmp_path: Path, feature: str) -> None:
    log = tables.make_table(tmp_path / "t")
    snapshot = tables.newest(log)
    protocol: Any = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [], "writerFeatures": [feature]}
    assert feature in str(scans.why_not_shared(attrs.evolve(snapshot, protocol=protocol)))


def test_a_table_with_a_column_of_that_name_is_not_shared(log: DeltaLog) -> None:
    schema = json.loads(tables.newest(log).metadata["schemaString"])
    schema["fields"].append({"name": "OneLake_Writer", "type": "string", "nullable": True, "metadata": {}})
    tables.change_metadata(log, schemaString=json.dumps(schema))
    assert "a column" in str(scans.why_not_shared(tables.newest(log)))
