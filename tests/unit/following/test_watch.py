"""Following a log: every commit, in order, none skipped; or what a table holds: rows by statistics, and how fresh they are."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import (
    InvalidWriteError,
    LogGapError,
    MissingStatisticsError,
    ZombieWriterError,
)
from airflow_provider_onelake.following import watch as watching
from airflow_provider_onelake.following.watch import (
    LIST_EVERY,
    Awaited,
    Freshness,
    LogWatch,
    RowsHeld,
    describe,
    watch_for,
)
from airflow_provider_onelake.log.actions import row_count, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.retire import retire
from tests.support.stores import OffsetBlind, through
from tests.support.tables import (
    LOAD,
    append_files,
    commit_of,
    foreign_append,
    foreign_commit,
    landed_at,
    local_log,
    make_table,
    newest,
    stage,
    writer_spec,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
NEVER = Awaited(operation="none of these")


def publish(path: Path, writer: str, months: dict[str | None, list[int]], **terms: Any) -> int:
    log = local_log(path)
    version = Committer(log).publish([stage(log, writer_spec(writer, **terms), months)]).version
    assert version is not None
    return version


@settings(max_examples=25, deadline=None)
@given(bursts=st.lists(st.integers(0, 4), max_size=8), after=st.integers(-1, 3))
def test_no_commit_is_skipped_whenever_one_looks(
    tmp_path_factory: pytest.TempPathFactory, bursts: list[int], after: int
) -> None:
    path = tmp_path_factory.mktemp("table")
    log = make_table(path)
    for _ in range(3):
        foreign_append(log, {"2019-01": [1]})
    watch = LogWatch(local_log(path), NEVER, after=after)
    seen = []
    for burst in bursts:
        for _ in range(burst):
            foreign_append(log, {"2019-01": [1]})
        seen += [commit.version for commit in watch.poll()]
    assert seen == list(range(after + 1, 3 + sum(bursts) + 1))[: len(seen)]
    assert not bursts or len(seen) == 3 + sum(bursts) - after


def test_a_gap_is_found_where_the_store_lists_nothing_from_an_offset(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(through(OffsetBlind(log.store), log), NEVER, after=-1)
    watch.poll()
    for _ in range(2):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / version_path(1)).unlink()
    for _ in range(19):
        assert watch.poll() == []
    with pytest.raises(LogGapError, match="Version 1"):
        watch.poll()


def test_by_default_it_begins_at_the_version_of_now(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    watch = LogWatch(local_log(tmp_path), NEVER)
    assert watch.poll() == []
    assert watch.cursor == 1


def test_a_table_that_does_not_exist_is_waited_for(tmp_path: Path) -> None:
    watch = LogWatch(local_log(tmp_path), Awaited(version=1))
    assert (watch.poll(), watch.met) == ([], None)
    log = make_table(tmp_path)
    watch.poll()
    foreign_append(log, {"2019-01": [1]})
    assert [commit.version for commit in watch.poll()] == [1]
    assert watch.met is not None


@pytest.mark.parametrize(("version", "met"), [(0, True), (1, True), (2, False)])
def test_a_version_that_is_there_already_counts(tmp_path: Path, version: int, met: bool) -> None:
    foreign_append(make_table(tmp_path), {"2019-01": [1]})
    watch = LogWatch(local_log(tmp_path), Awaited(version=version))
    watch.poll()
    assert (watch.met is not None) is met


def test_writers_count_whether_they_committed_before_or_after(tmp_path: Path) -> None:
    make_table(tmp_path)
    publish(tmp_path, "a", {"2019-01": [1]})
    app_ids = [LOAD.writer(key).app_id for key in ("a", "b")]
    watch = LogWatch(local_log(tmp_path), Awaited(writers=dict.fromkeys(app_ids, 1)))
    watch.poll()
    assert (watch.met, watch.pending) == (None, {app_ids[1]: 1})
    version = publish(tmp_path, "b", {"2019-01": [2]})
    watch.poll()
    assert watch.met is not None
    assert (watch.met["version"], watch.met["writers"]) == (version, ["b"])


def test_an_older_generation_of_a_writer_does_not_count(tmp_path: Path) -> None:
    make_table(tmp_path)
    app_id = LOAD.writer("a").app_id
    early, late = (LogWatch(local_log(tmp_path), Awaited(writers={app_id: 2})) for _ in range(2))
    early.poll()
    publish(tmp_path, "a", {"2019-01": [1]}, mode=OverwritePartitions())
    for watch in (early, late):
        watch.poll()
        assert watch.met is None
    publish(tmp_path, "a", {"2019-01": [1]}, mode=OverwritePartitions(), generation=2)
    for watch in (early, late):
        watch.poll()
        assert watch.met is not None


@pytest.mark.parametrize("late", [False, True])
def test_nobody_waits_for_a_writer_whose_files_another_run_has_taken_over(tmp_path: Path, late: bool) -> None:
    log = make_table(tmp_path)
    app_id = LOAD.writer("a").app_id
    watch = LogWatch(local_log(tmp_path), Awaited(writers={app_id: 1}))
    if late:
        watch.poll()
    retire(Transactions(log), {app_id: None}, "a plan")
    with pytest.raises(ZombieWriterError, match="taken over by another run"):
        watch.poll()
    assert watch.met is None


def test_all_the_writers_are_waited_for(tmp_path: Path) -> None:
    make_table(tmp_path)
    app_ids = [LOAD.writer(key).app_id for key in ("a", "b")]
    watch = LogWatch(local_log(tmp_path), Awaited(writers=dict.fromkeys(app_ids, 1)))
    watch.poll()
    for key, met in (("a", False), ("b", True)):
        publish(tmp_path, key, {"2019-01": [1]})
        watch.poll()
        assert (watch.met is not None) is met


def test_a_partition_counts_when_rows_are_added_to_it(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), Awaited(partition="month = '2019-02'"), after=-1)
    foreign_append(log, {"2019-01": [1]})
    watch.poll()
    assert watch.met is None
    foreign_append(log, {"2019-02": [1], "2019-03": [2]})
    foreign_append(log, {"2019-02": [1]})
    assert [commit.version for commit in watch.poll()] == [2]
    assert watch.met is not None
    assert watch.met["version"] == 2


def test_a_sensor_passes_over_a_partition_of_which_nobody_knows_what_it_is(tmp_path: Path) -> None:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("day", "date"))]
    log = make_table(tmp_path, json.dumps({"type": "struct", "fields": fields}), ["day"])
    watch = LogWatch(local_log(tmp_path), Awaited(partition="day >= '2019-01-31'"), after=0)
    rows = watch_for(local_log(tmp_path), Awaited(rows_at_least=1, partition="day >= '2019-01-31'"))
    for spelling, met in (("20190131", False), ("-0044-03-15", False), ("+10000-01-01", True)):
        stats = json.dumps({"numRecords": 1})
        add = {"path": spelling, "partitionValues": {"day": spelling}, "size": 1, "dataChange": True, "stats": stats}
        foreign_commit(log, [{"commitInfo": {"operation": "WRITE"}}, {"add": add}])
        assert len(watch.poll()) == 1
        rows.poll()
        assert (watch.met is not None, rows.met is not None) == (met, met)


def test_compaction_adds_no_rows_to_a_partition(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-02": [1]})
    watch = LogWatch(local_log(tmp_path), Awaited(partition="month = '2019-02'"))
    watch.poll()
    add = {"path": "month=2019-02/x", "partitionValues": {"month": "2019-02"}, "size": 1, "dataChange": False}
    foreign_commit(log, [{"commitInfo": {"operation": "OPTIMIZE"}}, {"add": add}])
    assert [commit.version for commit in watch.poll()] == [2]
    assert watch.met is None


def test_an_operation_counts_by_its_name(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), Awaited(operation="OPTIMIZE"))
    watch.poll()
    foreign_append(log, {"2019-01": [1]})
    foreign_commit(log, [{"commitInfo": {"operation": "OPTIMIZE"}}])
    watch.poll()
    assert watch.met is not None
    assert watch.met["version"] == 2


def test_a_gap_in_the_log_is_an_error_not_a_wait(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    for _ in range(3):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / "_delta_log" / f"{2:020d}.json").unlink()
    watch = LogWatch(local_log(tmp_path), NEVER, after=1)
    with pytest.raises(LogGapError):
        watch.poll()


def clean_up(log: DeltaLog) -> None:
    """Leave a checkpoint of the newest version, and no entry before it."""
    version = newest(log).version
    DeltaTable(log.table).create_checkpoint()
    for gone in range(version):
        Path(log.table, version_path(gone)).unlink()


@pytest.mark.parametrize("awaited", [Awaited(version=2), Awaited(writers={LOAD.writer("a").app_id: 1})], ids=str)
def test_what_stays_is_found_where_the_log_was_cleaned_up_between_two_looks(tmp_path: Path, awaited: Awaited) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), awaited)
    watch.poll()
    publish(tmp_path, "a", {"2019-01": [1]})
    foreign_append(log, {"2019-01": [2]})
    foreign_append(log, {"2019-01": [3]})
    clean_up(log)
    for _ in range(LIST_EVERY):
        watch.poll()
    assert watch.met == {"version": 2 if awaited.version else 3}


def test_what_stays_is_waited_for_on_where_the_log_was_cleaned_up_without_it(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), Awaited(writers={LOAD.writer("a").app_id: 1}))
    watch.poll()
    foreign_append(log, {"2019-01": [2]})
    foreign_append(log, {"2019-01": [3]})
    clean_up(log)
    for _ in range(LIST_EVERY):
        watch.poll()
    assert watch.met is None
    version = publish(tmp_path, "a", {"2019-01": [1]})
    watch.poll()
    assert watch.met is not None
    assert watch.met["version"] == version


def test_a_damaged_log_is_an_error_also_for_what_stays(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), Awaited(version=9))
    watch.poll()
    for _ in range(2):
        foreign_append(log, {"2019-01": [1]})
    (tmp_path / "_delta_log" / f"{1:020d}.json").unlink()
    for _ in range(LIST_EVERY - 1):
        watch.poll()
    with pytest.raises(LogGapError):
        watch.poll()


def test_rows_are_counted_where_the_log_was_cleaned_up_between_two_looks(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    looking = reader(tmp_path)
    held = RowsHeld(looking, 3, None)
    assert held.look() is None
    foreign_append(log, {"2019-01": [2]})
    foreign_append(log, {"2019-01": [3]})
    clean_up(log)
    assert isinstance(looking.clock, Clock)
    looking.clock.time += timedelta(days=1)
    assert held.look() == {"version": 3, "rows": 3}


def test_a_commit_from_before_another_partitioning_adds_no_rows_to_a_partition_of_now(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), Awaited(partition="year IS NULL"), after=0)
    foreign_append(log, {"2019-01": [1]})
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("year", "string"))]
    schema = json.dumps({"type": "struct", "fields": fields})
    metadata = {**newest(log).metadata, "id": "another", "schemaString": schema, "partitionColumns": ["year"]}
    removes = [{"remove": {"path": add["path"], "dataChange": True}} for add in commit_of(log, 1).adds]
    foreign_commit(log, [{"commitInfo": {"operation": "REPLACE TABLE"}}, {"metaData": metadata}, *removes])
    assert len(watch.poll()) == 2
    assert watch.met is None


def test_its_cost_does_not_grow_with_the_log(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    for _ in range(30):
        foreign_append(log, {"2019-01": [1]})
    reader = local_log(tmp_path)
    calls: list[str] = []
    inner = reader.store

    class Counting:
        def __getattr__(self, name: str) -> Any:
            calls.append(name)
            return getattr(inner, name)

    reader.store = Counting()  # type: ignore[assignment]
    watch = LogWatch(reader, NEVER, after=30)
    watch.poll()
    calls.clear()
    for _ in range(10):
        watch.poll()
    assert calls == ["get"] * 10


def test_a_commit_is_described_in_plain_json(tmp_path: Path) -> None:
    import json

    make_table(tmp_path)
    version = publish(tmp_path, "a", {"2019-01": [1, 2], None: [3]})
    commit = commit_of(local_log(tmp_path), version)
    described = describe(commit)
    assert json.loads(json.dumps(described)) == described
    assert (described["rows_added"], described["writers"], described["data_change"]) == (3, ["a"], True)
    assert {"month": None} in described["partitions_added"]
    assert described["partitions_complete"]


def test_a_description_has_the_columns_names_and_says_where_it_leaves_partitions_out(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    version = foreign_append(log, {f"{year}-01": [1] for year in range(1900, 1951)})
    commit = commit_of(log, version)
    described = describe(commit, {"month": "Month of pickup"})
    assert len(described["partitions_added"]) == 50
    assert described["partitions_added"][0] == {"Month of pickup": "1900-01"}
    assert not described["partitions_complete"]


def test_a_description_is_short_whatever_a_commit_says_and_tells_that_it_was_cut(tmp_path: Path) -> None:
    import json

    make_table(tmp_path)
    whole = commit_of(local_log(tmp_path), publish(tmp_path, "a", {"2019-01": [1]}))
    assert not describe(whole)["cut"]
    long = "x" * 20 * 2**20
    txns = [{"txn": {"appId": f"{number}{long[:2000]}", "version": number}} for number in range(100)]
    for said in (long, [long] * 1_000, {long: {long: [{long: long}]}}):
        strange = [{"commitInfo": {"operation": long, "userMetadata": said}}, *txns]
        described = describe(Commit(1, strange))
        assert described["cut"]
        assert len(json.dumps(described)) < 150_000
        assert (len(described["txns"]), len(described["operation"])) == (50, 1_000)


def made_again(path: Path, ids: int = 1) -> DeltaLog:
    """Drop a table, and make another one with some commits."""
    shutil.rmtree(path)
    log = make_table(path)
    foreign_append(log, {"2019-02": [0]}, operation="MERGE")
    for number in range(1, ids):
        foreign_append(log, {"2019-03": [number]})
    return log


def table_of_five(path: Path) -> DeltaLog:
    log = make_table(path)
    for number in range(5):
        foreign_append(log, {"2019-01": [number]})
    return log


@pytest.mark.parametrize("commits", [1, 5, 8])
@pytest.mark.parametrize("awaited", [Awaited(operation="MERGE"), Awaited(partition="month = '2019-02'")], ids=str)
def test_a_table_that_was_made_again_is_followed_from_its_first_version(
    tmp_path: Path, awaited: Awaited, commits: int
) -> None:
    path = tmp_path / "t"
    table_of_five(path)
    watch = LogWatch(local_log(path), awaited)
    watch.poll()
    made_again(path, commits)
    for _ in range(LIST_EVERY):
        watch.poll()
    assert watch.met is not None
    assert watch.met["version"] == 1


def test_no_commit_counts_up_to_a_version_that_is_yet_to_come(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    watch = LogWatch(local_log(tmp_path), Awaited(operation="MERGE"), after=2)
    for version in (1, 2, 3):
        foreign_append(log, {"2019-01": [1]}, operation="MERGE")
        for _ in range(LIST_EVERY):
            watch.poll()
        assert (watch.met is not None) is (version == 3)


def test_what_was_made_again_between_two_processes_is_known_by_its_digest(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of_five(path)
    first = LogWatch(local_log(path), Awaited(operation="MERGE"))
    first.poll()
    made_again(path, 7)
    second = watch_for(local_log(path), first.awaited, first.cursor, first.digest)
    second.poll()
    assert second.met is not None


def test_writers_of_a_table_that_was_made_again_count(tmp_path: Path) -> None:
    path = tmp_path / "t"
    table_of_five(path)
    app_ids = [LOAD.writer(key).app_id for key in ("a", "b")]
    watch = LogWatch(local_log(path), Awaited(writers=dict.fromkeys(app_ids, 1)))
    publish(path, "a", {"2019-01": [1]})
    watch.poll()
    made_again(path)
    publish(path, "b", {"2019-01": [1]})
    for _ in range(LIST_EVERY):
        watch.poll()
    assert (watch.met, watch.pending) == (None, {app_ids[0]: 1})
    publish(path, "a", {"2019-01": [1]})
    watch.poll()
    assert watch.met is not None


def test_a_table_that_is_away_for_a_while_is_followed_on(tmp_path: Path) -> None:
    path = tmp_path / "t"
    log = table_of_five(path)
    foreign_append(log, {"2019-01": [1]}, operation="MERGE")
    watch = LogWatch(local_log(path), Awaited(operation="MERGE"))
    watch.poll()
    path.rename(tmp_path / "away")
    for _ in range(2 * LIST_EVERY):
        assert watch.poll() == []
    (tmp_path / "away").rename(path)
    for _ in range(LIST_EVERY):
        assert watch.poll() == []
    foreign_append(log, {"2019-01": [1]}, operation="MERGE")
    assert [commit.version for commit in watch.poll()] == [7]
    assert watch.met is not None


class Clock:
    def __init__(self) -> None:
        self.time = NOW

    def now(self) -> datetime:
        return self.time

    def sleep(self, seconds: float) -> None:
        raise AssertionError


def milliseconds(ago: timedelta) -> int:
    return int((NOW - ago).timestamp() * 1000)


def reader(path: Path) -> DeltaLog:
    log = local_log(path)
    log.clock = Clock()
    return log


def test_a_table_that_does_not_exist_has_no_rows_and_is_not_fresh(tmp_path: Path) -> None:
    assert RowsHeld(local_log(tmp_path), 0, None).look() is None
    assert Freshness(local_log(tmp_path), timedelta(days=1)).look() is None


def test_rows_are_counted_where_the_predicate_holds(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    january = RowsHeld(local_log(tmp_path), 4, "month = '2019-01'")
    assert january.look() is None
    assert RowsHeld(local_log(tmp_path), 3, None).look() == {"version": 1, "rows": 3}
    foreign_append(log, {"2019-02": [4, 5]})
    assert january.look() is None
    foreign_append(log, {"2019-01": [6, 7]})
    assert january.look() == {"version": 3, "rows": 4}


def test_without_a_new_version_no_file_is_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[str] = []

    def counting(add: Any) -> int | None:
        counted.append(add["path"])
        return row_count(add)

    monkeypatch.setattr(watching, "row_count", counting)
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3]})
    held = RowsHeld(local_log(tmp_path), 5, None)
    for _ in range(3):
        assert held.look() is None
    assert len(counted) == len(set(counted)) == 2
    foreign_append(log, {"2019-03": [4, 5]})
    assert held.look() == {"version": 2, "rows": 5}
    assert len(counted) == 2 + 3


def test_removed_rows_and_rows_in_a_deletion_vector_do_not_count(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2, 3]})
    held = RowsHeld(local_log(tmp_path), 3, "month = '2019-01'")
    assert held.look() == {"version": 1, "rows": 3}
    commit = commit_of(log, 1)
    add = commit.adds[0]
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "sizeInBytes": 1, "cardinality": 2}
    foreign_commit(
        log,
        [
            {"commitInfo": {"operation": "DELETE"}},
            {"remove": {"path": add["path"], "dataChange": True}},
            {"add": {**add, "deletionVector": vector}},
        ],
    )
    assert held.look() is None
    assert RowsHeld(local_log(tmp_path), 1, "month = '2019-01'").look() == {"version": 2, "rows": 1}
    foreign_append(log, {"2019-01": [4, 5]})
    assert held.look() == {"version": 3, "rows": 3}


def test_files_without_statistics_are_said_unless_the_others_have_enough(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1, 2]})
    actions = append_files(log.store, "", {"2019-01": [3]})
    del actions[-1]["add"]["stats"]
    foreign_commit(log, actions)
    assert RowsHeld(local_log(tmp_path), 2, None).look() == {"version": 2, "rows": 2}
    with pytest.raises(MissingStatisticsError, match=r"1 of 2 files of .* where month = '2019-01' in version 2"):
        RowsHeld(local_log(tmp_path), 3, "month = '2019-01'").look()


def test_a_predicate_on_no_partition_column_is_refused(tmp_path: Path) -> None:
    make_table(tmp_path)
    with pytest.raises(InvalidWriteError):
        RowsHeld(local_log(tmp_path), 3, "id = 1").look()


def append_at(log: DeltaLog, ago: timedelta, **info: Any) -> None:
    foreign_append(log, {"2019-01": [1]}, timestamp=milliseconds(ago), **info)


def test_a_table_is_as_fresh_as_its_newest_change_of_rows(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    append_at(log, timedelta(hours=3))
    info = {"operation": "OPTIMIZE", "timestamp": milliseconds(timedelta(minutes=1))}
    add = {"path": "month=2019-01/x", "partitionValues": {"month": "2019-01"}, "size": 1, "dataChange": False}
    foreign_commit(log, [{"commitInfo": info}, {"add": add}])
    assert Freshness(reader(tmp_path), timedelta(hours=4)).look() == {
        "version": 1,
        "time": (NOW - timedelta(hours=3)).isoformat(),
    }
    stale = Freshness(reader(tmp_path), timedelta(hours=2))
    assert stale.look() is None
    append_at(log, timedelta(hours=1))
    found = stale.look()
    assert found is not None
    assert found["version"] == 3


def test_what_was_fresh_grows_old(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    append_at(log, timedelta(minutes=1))
    seen = reader(tmp_path)
    fresh = Freshness(seen, timedelta(minutes=5))
    assert fresh.look() is not None
    assert fresh.look() is not None
    seen.clock.time = NOW + timedelta(minutes=5)  # type: ignore[attr-defined]
    assert fresh.look() is None


def test_an_in_commit_timestamp_is_the_time_that_counts(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    append_at(log, timedelta(days=9), inCommitTimestamp=milliseconds(timedelta(minutes=1)))
    assert Freshness(reader(tmp_path), timedelta(minutes=5)).look() is not None


def fresh_append_below(path: Path, *above: dict[str, Any], landed: timedelta = timedelta(0)) -> DeltaLog:
    """A table with rows of a minute ago, and commits above whose engines' clocks are two hours behind."""
    log = make_table(path)
    append_at(log, timedelta(minutes=1))
    for info in above:
        said = {"timestamp": milliseconds(timedelta(hours=2)), **info}
        if info.get("operation") == "OPTIMIZE":
            foreign_commit(log, [{"commitInfo": said}])
        else:
            foreign_append(log, {"2019-01": [1]}, **said)
    for version in range(2 + len(above)):
        landed_at(log, version, NOW - landed)
    return log


@pytest.mark.parametrize("operation", ["OPTIMIZE", "WRITE"])
def test_fresh_rows_are_found_below_a_commit_of_an_engine_whose_clock_is_behind(tmp_path: Path, operation: str) -> None:
    fresh_append_below(tmp_path, {"operation": operation}, {"operation": operation})
    fresh = Freshness(reader(tmp_path), timedelta(hours=1))
    for _ in range(2):
        found = fresh.look()
        assert found is not None
        assert found["version"] == 1


def test_what_came_to_the_store_before_the_period_is_not_looked_at(tmp_path: Path) -> None:
    append_at(fresh_append_below(tmp_path, landed=timedelta(hours=2)), timedelta(hours=2))
    landed_at(local_log(tmp_path), 2, NOW - timedelta(hours=2))
    assert Freshness(reader(tmp_path), timedelta(hours=1)).look() is None


def test_in_commit_timestamps_only_grow(tmp_path: Path) -> None:
    fresh_append_below(tmp_path, {"inCommitTimestamp": milliseconds(timedelta(hours=2))})
    assert Freshness(reader(tmp_path), timedelta(hours=1)).look() is None
