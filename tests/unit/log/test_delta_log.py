"""The log read forward: snapshots, commits since a version, gaps, cost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import CorruptLogError, LogGapError, ObjectNotFoundError
from airflow_provider_onelake.log import delta_log
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.replay import LAST_CHECKPOINT
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.storage.stores import ObjectInfo, ObjectStore, Store
from tests.support.clocks import HeldClock
from tests.support.stores import Counted, InRounds, OffsetBlind, PassingOn, Unlisted, through
from tests.support.tables import SCHEMA, commit_of, foreign_append, foreign_commit, local_log, make_table
from tests.support.v2_checkpoints import write_v2_checkpoint


def with_versions(path: Path, newest: int) -> DeltaLog:
    """A table with a commit for every version; each carries a txn of its own and one that all share."""
    log = make_table(path)
    for version in range(1, newest + 1):
        txns = [{"appId": app, "version": version, "lastUpdated": 1} for app in ("all", f"only-{version}")]
        log.store.create(version_path(version), b"".join(json.dumps({"txn": txn}).encode() + b"\n" for txn in txns))
    return log


def remove_entries(path: Path, until: int) -> None:
    for version in range(until + 1):
        (path / version_path(version)).unlink()


def same(one: Snapshot | None, other: Snapshot | None) -> bool:
    assert one is not None
    assert other is not None
    # A checkpoint leaves out what is null, and it may write a missing map as an empty one.
    return (one.version, one.table_id, one.txns, one.configuration) == (
        other.version,
        other.table_id,
        other.txns,
        other.configuration,
    ) and one.partitioning == other.partitioning


def test_where_there_is_no_table_there_is_no_snapshot(tmp_path: Path) -> None:
    assert local_log(tmp_path).snapshot_or_none() is None


def test_a_table_that_appears_later_is_found(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    assert log.snapshot_or_none() is None
    make_table(tmp_path)
    assert log.snapshot_or_none() is not None


def test_a_snapshot_has_the_newest_protocol_metadata_and_txns(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 3)
    first = log.snapshot()
    changed = {**first.metadata, "configuration": {"delta.appendOnly": "true"}}
    protocol = {"minReaderVersion": 1, "minWriterVersion": 4}
    foreign_commit(log, [{"metaData": changed}, {"protocol": protocol}])
    for reader in (log, through(log.store, log)):
        snapshot = reader.snapshot()
        assert snapshot.version == 4
        assert snapshot.append_only
        assert snapshot.protocol == protocol
        assert snapshot.txns == {"all": 3, "only-1": 1, "only-2": 2, "only-3": 3}


@pytest.mark.parametrize("old", [False, True], ids=["probed while young", "listed when old"])
def test_a_snapshot_asked_for_again_takes_in_what_others_committed(tmp_path: Path, old: bool) -> None:
    writer, clock = with_versions(tmp_path, 2), HeldClock()
    log = through(Counted(writer.store), writer, clock)
    log.snapshot()
    for _ in range(3):
        foreign_append(writer, {"2019-01": [1]})
    clock.forward(minutes=2 if old else 0)
    snapshot = log.snapshot()
    assert snapshot.version == 5
    assert same(snapshot, through(writer.store, writer).snapshot())


def test_a_young_snapshot_is_brought_up_to_date_without_a_listing(tmp_path: Path) -> None:
    writer = with_versions(tmp_path, 5)
    store = Counted(writer.store)
    log = through(store, writer, HeldClock())
    log.snapshot()
    store.calls.clear()
    foreign_append(writer, {"2019-01": [1]})
    log.snapshot()
    assert dict(store.calls) == {"get": 2}


def test_the_cost_of_commits_since_a_version_is_that_of_the_new_commits_only(tmp_path: Path) -> None:
    costs = {}
    for length in (10, 300):
        writer = with_versions(tmp_path / str(length), length)
        for new in (0, 3, 7):
            store = Counted(writer.store)
            found = through(store, writer).commits_since(length - new)
            assert [commit.version for commit in found] == list(range(length - new + 1, length + 1))
            costs[length, new] = (store.calls["get"], store.calls["list"])
    for new in (0, 3, 7):
        assert costs[300, new] == costs[10, new] == (new + 1, 1)


def test_commits_since_are_every_version_in_order_and_none_twice(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 12)
    assert [commit.version for commit in log.commits_since(-1)] == list(range(13))
    assert [commit.version for commit in log.commits_since(11)] == [12]
    assert log.commits_since(12) == []
    foreign_append(log, {"2019-01": [1]})
    assert [commit.version for commit in log.commits_since(12)] == [13]


def test_a_version_that_is_not_there_yet_is_a_wait_not_a_gap(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 2)
    assert log.commits_since(2) == []
    assert log.commits_since(9) == []
    assert log.commit(3) is None


def test_a_missing_version_with_a_later_one_is_a_log_gap_not_a_wait(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 5)
    (tmp_path / version_path(3)).unlink()
    for since in (0, 1, 2):
        with pytest.raises(LogGapError, match="Version 3"):
            through(log.store, log).commits_since(since)
    with pytest.raises(LogGapError, match="Version 3"):
        through(log.store, log).snapshot()
    assert [commit.version for commit in through(log.store, log).commits_since(3)] == [4, 5]


def test_a_gap_met_at_the_first_load_says_that_a_later_version_exists(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 5)
    (tmp_path / version_path(3)).unlink()
    with pytest.raises(LogGapError, match=r"Version 3 of .* is missing from its log, though version 5 exists"):
        through(log.store, log).snapshot()


def test_a_missing_version_behind_a_checkpoint_is_a_log_gap_not_a_wait(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 5)
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 5)
    with pytest.raises(LogGapError, match="Version 3"):
        through(log.store, log).commits_since(2)
    assert through(log.store, log).commits_since(5) == []


def test_an_old_snapshot_meets_the_gap_too(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 2), HeldClock()
    log = through(writer.store, writer, clock)
    log.snapshot()
    with_two_more = through(writer.store, writer)
    foreign_append(with_two_more, {"2019-01": [1]})
    foreign_append(with_two_more, {"2019-01": [2]})
    (tmp_path / version_path(3)).unlink()
    clock.forward(minutes=2)
    with pytest.raises(LogGapError, match="Version 3"):
        log.snapshot()


def test_a_version_that_a_listing_missed_while_it_was_being_put_is_no_gap(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 5), HeldClock()
    late = Unlisted(writer.store, version_path(4))
    snapshot = through(late, writer).snapshot()
    assert snapshot.version == 5
    old = through(late, writer, clock)
    old.commits_since(3)
    assert [commit.version for commit in old.commits_since(2)] == [3, 4, 5]
    grown = through(Unlisted(writer.store, version_path(6)), writer, clock)
    grown.snapshot()
    foreign_append(writer, {"2019-01": [1]})
    foreign_append(writer, {"2019-01": [2]})
    clock.forward(minutes=2)
    snapshot = grown.snapshot()
    assert snapshot.version == 7


def test_a_commit_that_lands_between_probe_and_listing_is_seen_and_is_no_gap(tmp_path: Path) -> None:
    writer = with_versions(tmp_path, 2)

    class LandsBeforeTheListing(Unlisted):
        def list(self, prefix: str, start_after: str | None = None) -> Any:
            foreign_append(writer, {"2019-01": [1]})
            foreign_append(writer, {"2019-01": [2]})
            return super().list(prefix, start_after)

    found = through(LandsBeforeTheListing(writer.store, version_path(3)), writer).commits_since(0)
    assert [commit.version for commit in found] == list(range(1, len(found) + 1))
    assert len(found) >= 2


def test_a_table_dropped_and_made_again_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 5), HeldClock()
    log = through(writer.store, writer, clock)
    before = log.snapshot()
    remove_entries(tmp_path, 5)
    create_table(through(writer.store, writer), SCHEMA, ["month"])
    clock.forward(minutes=2)
    after = log.snapshot()
    assert before is not None
    assert after is not None
    assert after.version == 0
    assert after.table_id != before.table_id
    assert after.txns == {}


def made_again(path: Path, newest: int) -> DeltaLog:
    """The table, dropped and made again with as many versions, partitioned otherwise."""
    shutil.rmtree(path / "_delta_log")
    new = local_log(path)
    create_table(new, SCHEMA, [])
    for _ in range(newest):
        foreign_commit(new, [{"txn": {"appId": "new", "version": 1, "lastUpdated": 1}}])
    return new


@pytest.mark.parametrize("newest", [3, 4, 7], ids=["of the old version", "longer", "far longer"])
@pytest.mark.parametrize("after", ["a doubt", "two minutes", "polls"])
@pytest.mark.parametrize("at_once", [1, 64])
def test_a_table_made_again_up_to_the_old_version_is_not_taken_for_the_old_one(
    tmp_path: Path, newest: int, after: str, at_once: int
) -> None:
    writer, clock = with_versions(tmp_path, 3), HeldClock()
    log = through(InRounds(writer.store, concurrency=at_once), writer, clock)
    before = log.snapshot()
    assert log.commit(2) is not None
    new = made_again(tmp_path, newest).snapshot()
    if after == "a doubt":
        log.doubt()
    elif after == "two minutes":
        clock.forward(minutes=2)
    else:
        for _ in range(12):
            clock.forward(seconds=6)
            log.snapshot()
    assert before is not None
    assert log.snapshot() == new != before


@pytest.mark.parametrize("newest", [3, 4, 7], ids=["of the old version", "as long", "longer"])
@pytest.mark.parametrize("at_once", [1, 64])
def test_what_was_put_into_a_table_that_was_made_again_since_does_not_count(
    tmp_path: Path, newest: int, at_once: int
) -> None:
    writer = with_versions(tmp_path, 3)
    log = through(InRounds(writer.store, concurrency=at_once), writer)
    log.snapshot()
    entry = writer.store.get(version_path(3))
    log.put(4, entry)
    new = made_again(tmp_path, newest).snapshot()
    log.doubt()
    assert log.snapshot() == new
    # The commits that were kept are the old table's.
    found = commit_of(log, 2)
    assert found.txns == {"new": 1}


def test_a_table_dropped_while_its_snapshot_is_young_is_gone_once_it_is_doubted(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 3)
    log.snapshot()
    remove_entries(tmp_path, 3)
    log.doubt()
    assert log.snapshot_or_none() is None


def test_making_sure_costs_one_request_and_only_where_it_is_asked_for_or_a_minute_has_passed(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 3), HeldClock()
    store = Counted(writer.store)
    log = through(store, writer, clock)
    log.snapshot()
    costs = []
    for doubted, seconds in ((False, 0), (True, 0), (False, 50), (False, 20), (False, 20)):
        store.calls.clear()
        clock.forward(seconds=seconds)
        if doubted:
            log.doubt()
        log.snapshot()
        costs.append(dict(store.calls))
    assert costs == [{"get": 1}, {"get": 2}, {"get": 1}, {"get": 2}, {"get": 1}]


def test_entries_are_read_side_by_side_where_the_store_takes_several_requests(tmp_path: Path) -> None:
    writer = with_versions(tmp_path, 3)
    rounds = InRounds(writer.store, 1, 1, 4)
    assert through(rounds, writer).snapshot() == writer.snapshot()
    assert rounds.seen()[2] == [f"get {version_path(version)}" for version in range(4)]


def test_a_version_that_is_expected_is_forgotten_with_its_table(tmp_path: Path) -> None:
    writer = with_versions(tmp_path, 3)
    store = Counted(InRounds(writer.store))
    log = through(store, writer)
    log.snapshot()
    log.put(50, b"{}")
    made_again(tmp_path, 0)
    log.doubt()
    log.snapshot()
    store.calls.clear()
    log.snapshot()
    assert dict(store.calls) == {"get": 1}


def test_a_table_that_appears_is_stood_on_at_once(tmp_path: Path) -> None:
    writer = local_log(tmp_path)
    store = Counted(writer.store)
    log = through(store, writer, HeldClock())
    assert log.snapshot_or_none() is None
    make_table(tmp_path)
    assert log.snapshot_or_none() is not None
    store.calls.clear()
    log.doubt()
    log.snapshot()
    assert dict(store.calls) == {"get": 2}


@pytest.mark.parametrize("newest", [1, 3])
def test_a_snapshot_of_a_checkpoint_alone_is_read_anew_where_it_is_doubted(tmp_path: Path, newest: int) -> None:
    old = with_versions(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 3)
    log = through(old.store, old)
    before = log.snapshot()
    log.doubt()
    assert same(log.snapshot(), before)
    new = made_again(tmp_path, newest).snapshot()
    log.doubt()
    assert log.snapshot() == new


def test_a_clean_up_behind_the_newest_version_is_no_reason_to_load_the_table_again(tmp_path: Path) -> None:
    writer = with_versions(tmp_path, 3)
    log = through(writer.store, writer)
    log.snapshot()
    foreign_append(writer, {"2019-01": [1]})
    log.doubt()
    log.snapshot()
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 3)
    log.doubt()
    assert (log.snapshot().version, log.loads) == (4, 1)


@pytest.mark.parametrize(("most", "again"), [(1, 2), (1 << 20, 0)])
def test_entries_are_kept_up_to_a_size_and_read_again_beyond_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, again: int
) -> None:
    monkeypatch.setattr(delta_log, "_KEPT_BYTES", most)
    writer = with_versions(tmp_path, 3)
    store = Counted(writer.store)
    log = through(store, writer)
    first = log.commits_between(-1, 3)
    store.calls.clear()
    assert log.commits_between(0, 3) == first[1:]
    assert store.calls["get"] == again
    assert same(log.snapshot(), writer.snapshot())


def test_a_snapshot_of_a_checkpoint_knows_the_entry_of_its_version(tmp_path: Path) -> None:
    old = with_versions(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 2)
    store = Counted(old.store)
    log = through(store, old)
    log.snapshot()
    store.calls.clear()
    log.doubt()
    before = log.snapshot()
    assert dict(store.calls) == {"get": 2}
    new = made_again(tmp_path, 3).snapshot()
    log.doubt()
    assert log.snapshot() == new != before


def test_a_table_dropped_is_gone(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 5), HeldClock()
    log = through(writer.store, writer, clock)
    log.snapshot()
    remove_entries(tmp_path, 5)
    clock.forward(minutes=2)
    assert log.snapshot_or_none() is None


def test_a_checkpoint_with_the_earlier_log_removed_gives_the_same_snapshot_txns_and_live_files(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 4)
    foreign_append(log, {"2019-01": [1, 2], None: [3], "x y/ü:%": [4]})
    foreign_append(log, {"2019-02": [5]})
    before = through(log.store, log).snapshot()
    files = {add["path"]: add for add in log.live_files(lambda _: True, 6)}
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 6)
    log = through(log.store, log)
    assert same(log.snapshot(), before)
    assert before.txns["all"] == 4
    found = {add["path"]: add for add in log.live_files(lambda _: True, 6)}
    assert found == {path: {**add, "dataChange": False} for path, add in files.items()}
    assert len(found) == 4
    # And it goes on from there.
    foreign_append(log, {"2019-03": [6]})
    again = through(log.store, log)
    snapshot = again.snapshot()
    assert snapshot.version == 7
    assert len(again.live_files(lambda _: True, 7)) == 5


def test_an_old_snapshot_whose_next_versions_were_cleaned_up_begins_again_at_the_checkpoint(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 3), HeldClock()
    log = through(writer.store, writer, clock)
    log.snapshot()
    for _ in range(4):
        foreign_append(writer, {"2019-01": [1]})
    DeltaTable(str(tmp_path)).create_checkpoint()
    foreign_append(writer, {"2019-01": [2]})
    remove_entries(tmp_path, 7)
    clock.forward(days=40)
    snapshot = log.snapshot()
    assert snapshot.version == 8
    assert snapshot.txns["only-3"] == 3


@pytest.mark.parametrize("hint", [b"", b"{", b"[]", b'{"size": 3}', b'{"version": "x"}', b'{"version": 1}'])
def test_a_hint_that_is_damaged_or_old_leads_to_the_newest_snapshot_all_the_same(tmp_path: Path, hint: bytes) -> None:
    log = with_versions(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    foreign_append(log, {"2019-01": [1]})
    before = log.snapshot()
    log.store.put(LAST_CHECKPOINT, hint)
    assert same(through(log.store, log).snapshot(), before)


def test_a_hint_at_a_checkpoint_that_is_gone_falls_back_to_the_entries(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    before = log.snapshot()
    next((tmp_path / "_delta_log").glob("*.checkpoint.parquet")).unlink()
    assert same(through(log.store, log).snapshot(), before)


def test_a_hint_at_a_checkpoint_that_is_gone_falls_back_to_an_earlier_one(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 3)
    DeltaTable(str(tmp_path)).create_checkpoint()
    foreign_append(log, {"2019-01": [1]})
    before = through(log.store, log).snapshot()
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 3)
    (tmp_path / f"_delta_log/{4:020d}.checkpoint.parquet").unlink()
    assert same(through(log.store, log).snapshot(), before)


def test_the_hint_spares_listing_and_reading_what_the_checkpoint_sums_up(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 20)
    DeltaTable(str(tmp_path)).create_checkpoint()
    foreign_append(log, {"2019-01": [1]})
    store = Counted(log.store)
    snapshot = through(store, log).snapshot()
    assert snapshot.version == 21
    # The hint, the checkpoint, the one version after it.
    assert dict(store.calls) == {"get": 3, "list": 1}


def test_a_hint_that_is_newer_than_the_version_asked_for_costs_no_listing(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    for row in range(3):
        foreign_append(log, {"2019-01": [row]})
    DeltaTable(str(tmp_path)).create_checkpoint()
    store = Counted(log.store)
    assert len(through(store, log).live_files(lambda add: True, until=2)) == 2
    assert store.calls["list"] == 1


def test_a_damaged_entry_is_named(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 3)
    log.store.put(version_path(2), b'{"add":')
    with pytest.raises(CorruptLogError, match=f"Version 2 of {tmp_path}"):
        through(log.store, log).snapshot()


def test_a_log_without_protocol_or_metadata_is_no_table(tmp_path: Path) -> None:
    log = local_log(tmp_path)
    log.store.create(version_path(0), b'{"commitInfo":{}}\n')
    with pytest.raises(CorruptLogError, match="no protocol or no metaData"):
        log.snapshot()


def test_what_is_neither_entry_nor_checkpoint_is_passed_over(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 3)
    for name in ("00000000000000000002.crc", "00000000000000000007.json.tmp", ".00000000000000000009.json.x", "a.json"):
        log.store.put(f"_delta_log/{name}", b"?")
    log.store.put("_delta_log/_commits/00000000000000000009.0a.json", b"?")
    snapshot = through(log.store, log).snapshot()
    assert snapshot.version == 3
    assert through(log.store, log).commits_since(3) == []


def test_a_list_from_an_offset_without_rows_is_never_taken_for_no_newer_version(tmp_path: Path) -> None:
    writer, clock = with_versions(tmp_path, 5), HeldClock()
    known = through(OffsetBlind(writer.store), writer, clock)
    known.snapshot()
    DeltaTable(writer.table).create_checkpoint()
    foreign_append(writer, {"2019-01": [1]})
    foreign_append(writer, {"2019-01": [2]})
    clock.forward(minutes=2)
    for log in (known, through(OffsetBlind(writer.store), writer)):
        snapshot = log.snapshot()
        assert snapshot.version == 7
        assert log.newest_listed() == 7
        assert log.versions_after(5) == (6, 7)
        assert len(log.live_files(lambda _: True, 6)) == 1
    (tmp_path / version_path(6)).unlink()
    with pytest.raises(LogGapError, match="Version 6"):
        through(OffsetBlind(writer.store), writer).commits_since(5)


# -- what it costs to open -------------------------------------------------------------------------------------------


class Listed(Counted):
    """Counts what its listings hand out, too."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        for info in super().list(prefix, start_after):
            self.calls["listed"] += 1
            yield info


def test_opening_a_long_log_with_a_checkpoint_costs_what_opening_a_short_one_does(tmp_path: Path) -> None:
    costs = []
    for length in (25, 400):
        writer = with_versions(tmp_path / str(length), length)
        DeltaTable(writer.table).create_checkpoint()
        for _ in range(3):
            foreign_append(writer, {"2019-01": [1]})
        store = Listed(writer.store)
        log = through(store, writer)
        assert log.snapshot_or_none() is not None
        opened = dict(store.calls)
        assert len(log.live_files(lambda _: True, length + 3)) == 3
        costs.append((opened, dict(store.calls)))
    assert costs[0] == costs[1]
    # The hint, the checkpoint, and three entries; listed are these, and the entry of the checkpoint's version.
    assert costs[0][0] == {"get": 5, "list": 1, "listed": 6}


@pytest.mark.parametrize("hinted", [2, 5, 8, 99])
def test_a_hint_that_is_out_of_date_is_no_proof_and_leads_to_the_newest_version_all_the_same(
    tmp_path: Path, hinted: int
) -> None:
    log = with_versions(tmp_path, 10)
    for version in (5, 8):
        DeltaTable(str(tmp_path), version=version).create_checkpoint()
    remove_entries(tmp_path, 7)
    (tmp_path / LAST_CHECKPOINT).write_text(json.dumps({"version": hinted, "size": 1}))
    reader = through(log.store, log)
    snapshot = reader.snapshot()
    assert (snapshot.version, snapshot.txns["all"], snapshot.txns["only-3"]) == (10, 10, 3)
    assert len(reader.live_files(lambda _: True, 9)) == 0


# -- a clean-up between listing and reading ----------------------------------------------------------------------------


class CleanedUp(PassingOn):
    """Answers a listing, and then lets a clean-up be done before the next request, as long as there are any."""

    def __init__(self, inner: Store, *clean_ups: Callable[[], object]) -> None:
        super().__init__(inner)
        self.clean_ups = list(clean_ups)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        listed = [*super().list(prefix, start_after)]
        if self.clean_ups:
            self.clean_ups.pop(0)()
        return iter(listed)


def cleaned_up_to(path: Path, version: int) -> Callable[[], None]:
    """A clean-up that leaves a checkpoint of a version, and nothing older."""

    def clean_up() -> None:
        DeltaTable(str(path), version=version).create_checkpoint()
        for file in (path / "_delta_log").iterdir():
            if file.name[:20].isdecimal() and int(file.name[:20]) < version:
                file.unlink()

    return clean_up


@pytest.mark.parametrize("eager", [1, 3], ids=["once", "three times"])
def test_a_log_that_is_cleaned_up_while_it_is_read_is_begun_anew_at_the_newer_checkpoint(
    tmp_path: Path, eager: int
) -> None:
    for door in ("snapshot", "snapshot_at", "live_files"):
        path = tmp_path / door
        log = make_table(path)
        for row in range(9):
            foreign_append(log, {"2019-01": [row]})
        store = CleanedUp(log.store, *(cleaned_up_to(path, version) for version in range(3, 3 + eager)))
        reader = through(store, log)
        if door == "live_files":
            assert len(reader.live_files(lambda _: True, 9)) == 9
        else:
            assert (reader.snapshot() if door == "snapshot" else reader.snapshot_at(9)).version == 9
        assert not store.clean_ups


def test_a_log_that_is_cleaned_up_a_fourth_time_is_a_gap(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    for row in range(15):
        foreign_append(log, {"2019-01": [row]})
    # Each beginning without a hint lists once, and looks once more when it has met a gap.
    clean_ups = [cleaned_up_to(tmp_path, version) for version in range(3, 15)]
    with pytest.raises(LogGapError):
        through(CleanedUp(Hintless(log.store), *clean_ups), log).snapshot()


class Hintless(PassingOn):
    """A store without a hint at the last checkpoint, so that each beginning lists the whole log."""

    def get(self, path: str) -> bytes:
        if path == LAST_CHECKPOINT:
            raise ObjectNotFoundError("There is none.")
        return super().get(path)


def test_an_old_snapshot_whose_next_version_goes_after_the_listing_begins_at_the_checkpoint(tmp_path: Path) -> None:
    writer, clock = make_table(tmp_path), HeldClock()
    store = CleanedUp(writer.store)
    log = through(store, writer, clock)
    log.snapshot()
    for row in range(5):
        foreign_append(writer, {"2019-01": [row]})
    clock.forward(minutes=2)
    store.clean_ups = [cleaned_up_to(tmp_path, 4)]
    assert log.snapshot().version == 5


# -- what a checkpoint keeps and what it does not ----------------------------------------------------------------------

STAMPED = {"delta.enableInCommitTimestamps": "true"}
TRACKED = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["domainMetadata", "rowTracking", "inCommitTimestamp"],
}


def with_domains_and_stamps(path: Path) -> DeltaLog:
    log = make_table(path)
    snapshot = log.snapshot()
    configuration = {"metaData": {**snapshot.metadata, "configuration": STAMPED}}
    mark = {"domain": "delta.rowTracking", "configuration": '{"rowIdHighWaterMark":9}', "removed": False}
    gone = {"domain": "mine", "configuration": "{}", "removed": False}
    foreign_commit(
        log,
        [{"commitInfo": {"inCommitTimestamp": 1000, "timestamp": 1}}, {"protocol": TRACKED}, configuration]
        + [{"domainMetadata": domain} for domain in (mark, gone)],
    )
    foreign_commit(
        log,
        [{"commitInfo": {"inCommitTimestamp": 2000, "timestamp": 1}}, {"domainMetadata": {**gone, "removed": True}}],
    )
    return log


@pytest.mark.parametrize("kind", ["deltalake", "json", "parquet"])
def test_domains_and_the_stamp_are_the_same_read_from_a_checkpoint(tmp_path: Path, kind: str) -> None:
    log = with_domains_and_stamps(tmp_path)
    before = through(log.store, log).snapshot()
    assert (before.in_commit_timestamp, before.row_id_high_water_mark) == (2000, 9)
    assert before.domains.keys() == {"delta.rowTracking"}
    if kind == "deltalake":
        DeltaTable(str(tmp_path)).create_checkpoint()
    else:
        write_v2_checkpoint(tmp_path, kind)
    remove_entries(tmp_path, 1)
    after = through(log.store, log).snapshot()
    assert (after.in_commit_timestamp, after.domains, after.protocol) == (
        before.in_commit_timestamp,
        before.domains,
        before.protocol,
    )


def test_a_stamp_whose_entry_is_gone_is_an_error_only_when_it_is_needed(tmp_path: Path) -> None:
    log = with_domains_and_stamps(tmp_path)
    DeltaTable(str(tmp_path)).create_checkpoint()
    remove_entries(tmp_path, 2)
    log = through(log.store, log)
    snapshot = log.snapshot()
    with pytest.raises(LogGapError, match="of version 2 is lost"):
        _ = snapshot.in_commit_timestamp
    foreign_commit(log, [{"commitInfo": {"inCommitTimestamp": 3000}}])
    for reader in (log, through(log.store, log)):
        snapshot = reader.snapshot()
        assert snapshot.in_commit_timestamp == 3000


# -- the time of a commit ----------------------------------------------------------------------------------------------


def test_a_commit_that_does_not_tell_its_time_counts_at_the_stores_and_only_then_is_the_store_asked(
    tmp_path: Path,
) -> None:
    writer = with_versions(tmp_path, 2)
    foreign_append(writer, {"2019-01": [1]})
    store = Counted(writer.store)
    log = through(store, writer)
    silent, telling = log.commits_between(1, 3)
    assert telling.time == telling.finished == datetime(1970, 1, 1, 0, 0, 0, 1000, UTC)
    assert store.calls["head"] == 0
    written = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    os.utime(tmp_path / version_path(2), times=(written.timestamp(),) * 2)
    assert silent.time == silent.finished == written
    assert silent.time == written
    assert store.calls["head"] == 1


def test_a_commit_whose_entry_is_gone_meanwhile_has_no_time(tmp_path: Path) -> None:
    log = with_versions(tmp_path, 2)
    (silent,) = log.commits_between(1, 2)
    (tmp_path / version_path(2)).unlink()
    assert silent.time is None


def test_the_newest_version_is_listed_from_the_last_checkpoint_on_unless_its_hint_leads_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = make_table(tmp_path)
    for _ in range(4):
        foreign_append(log, {"2019-01": [1]})
    listed: list[str | None] = []
    list_all = ObjectStore.list

    def listing(self: ObjectStore, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        listed.append(start_after)
        return list_all(self, prefix, start_after)

    monkeypatch.setattr(ObjectStore, "list", listing)
    hint = tmp_path / "_delta_log" / "_last_checkpoint"
    for text, found in (
        ("", [None]),
        ('{"version": 3}', [version_path(2)]),
        ('{"version": 9}', [version_path(8), None]),
    ):
        listed.clear()
        hint.write_text(text)
        assert log.newest_listed() == 4
        assert listed == found
    assert local_log(tmp_path / "none").newest_listed() == -1
