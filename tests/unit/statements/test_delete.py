"""DELETE by partition columns and TRUNCATE: whatever others do meanwhile, version N + 1 is the statement on version N."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.statements.delete import Deleted, delete
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.writes.publish import Committer
from tests.support import tables
from tests.support.changes import asker
from tests.support.commits import AT_ONCE
from tests.support.restores import take_back
from tests.support.shadows import compact
from tests.support.stores import LoserHeld, through
from tests.support.vectors import delete_rows, ids_without_deleted

APP = "onelake-delete/test/one"
JANUARY = "month = '2019-01'"


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return tables.three_versions(tmp_path / "t")


def run(log: DeltaLog, where: str | None = JANUARY, *, app_id: str = APP, backoff: Backoff = AT_ONCE) -> Deleted:
    transactions = Transactions(log, backoff=backoff)
    return delete(transactions, where, asker(app_id))


def table(log: DeltaLog) -> Path:
    return Path(log.table)


def test_a_delete_takes_the_partitions_that_it_names_and_a_truncate_all(log: DeltaLog) -> None:
    done = run(log)
    assert (done.status, done.version, done.rows_deleted, done.files_removed) == (StatementStatus.DONE, 4, 3, 3)
    assert tables.ids(table(log)) == [5, 15, 25]
    all_ = run(log, None, app_id="another")
    assert (all_.version, all_.rows_deleted, all_.files_removed) == (5, 3, 3)
    assert tables.ids(table(log)) == []
    assert tables.ids(table(log), 3) == [0, 5, 10, 15, 20, 25]


@pytest.mark.parametrize(
    ("where", "operation", "parameters"),
    [(JANUARY, "DELETE", {"predicate": json.dumps([JANUARY])}), (None, "TRUNCATE", {})],
)
def test_the_entry_is_delta_s_own(log: DeltaLog, where: str | None, operation: str, parameters: Any) -> None:
    before = {file["path"]: file for file in tables.live(log)}
    done = run(log, where)
    commit = tables.last(log)
    info = commit.info
    assert (info["operation"], info["readVersion"], info["isBlindAppend"]) == (operation, 3, False)
    assert info["operationParameters"] == parameters
    assert info["operationMetrics"] == {
        "numRemovedFiles": str(done.files_removed),
        "numRemovedBytes": str(done.bytes_removed),
        "numDeletedRows": str(done.rows_deleted),
    }
    assert info["userMetadata"].startswith(f"me: {operation}")
    assert (commit.data_change, commit.adds) == (True, [])
    assert commit.txns == {asker(APP).app_id: 1}
    for gone in commit.removes:
        same = ("path", "partitionValues", "size", "stats")
        assert {key: gone[key] for key in same} == {key: before[gone["path"]][key] for key in same}  # type: ignore[literal-required]


def test_an_old_process_deletes_nothing_after_a_newer_start_had_nothing_to_do(log: DeltaLog) -> None:
    def start(name: str, where: str, log: DeltaLog) -> Deleted:
        return delete(Transactions(log, backoff=AT_ONCE), where, asker(f"{APP}/{name}/{where}", APP, name))

    before = tables.newest(log).version, tables.ids(table(log))
    told: list[Deleted] = []
    # The newer start is asked for another month; its month is loaded afterwards.
    held = LoserHeld(log.store, lambda: told.append(start("second", "month = 'never'", through(log.store, log))))
    with pytest.raises(errors.ZombieWriterError, match="A newer start"):
        start("first", JANUARY, through(held, log))
    assert told == [Deleted(status=StatementStatus.NOTHING_TO_DO)]
    assert (tables.newest(log).version, tables.ids(table(log))) == (before[0] + 1, before[1])
    assert start("second", "month = 'never'", log).status is StatementStatus.NOTHING_TO_DO


def test_an_older_try_of_the_same_start_deletes_nothing_of_what_came_since(log: DeltaLog) -> None:
    def attempt(where: str, log: DeltaLog, *, retried: bool = True) -> Deleted:
        # The statement was corrected between the tries.
        return delete(Transactions(log, backoff=AT_ONCE), where, asker(f"{APP}/{where}", APP, retried=retried))

    held = LoserHeld(log.store, lambda: attempt("month = 'never'", through(log.store, log)))
    with pytest.raises(errors.RerunRefusedError, match="was asked for something else"):
        attempt(JANUARY, through(held, log), retried=False)
    # Which of the two is wanted only a clear can say.
    with pytest.raises(errors.RerunRefusedError, match="was asked for something else"):
        attempt(JANUARY, log)
    assert tables.ids(table(log)) == [0, 5, 10, 15, 20, 25]


def test_deletion_vectors_go_with_their_files_and_hidden_rows_do_not_count(log: DeltaLog) -> None:
    tables.foreign_append(log, {"x": [30, 31, 32]})
    left = delete_rows(log, tables.live(log)[-1], [0])
    done = run(log, "month = 'x'")
    assert (done.files_removed, done.rows_deleted) == (1, 2)
    [gone] = tables.last(log).removes
    assert gone["deletionVector"] == left["deletionVector"]
    assert ids_without_deleted(table(log)) == [0, 5, 10, 15, 20, 25]


def test_rows_that_no_statistics_count_are_an_unknown_number(log: DeltaLog) -> None:
    add = {key: value for key, value in tables.live(log)[0].items() if key != "stats"}
    info = {"timestamp": 1, "operation": "WRITE"}
    tables.foreign_commit(log, [{"commitInfo": info}, {"add": {**add, "dataChange": True}}])
    done = run(log, None)
    assert (done.rows_deleted, done.files_removed) == (None, 6)
    assert "numDeletedRows" not in tables.last(log).info["operationMetrics"]


def test_nothing_that_matches_is_no_commit(log: DeltaLog) -> None:
    assert run(log, "month = 'never'") == Deleted(status=StatementStatus.NOTHING_TO_DO)
    assert tables.newest(log).version == 3


def test_rising_timestamps_and_row_ids_are_kept(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t")
    names = ["appendOnly", "domainMetadata", "rowTracking", "inCommitTimestamp"]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": names}
    metadata = {**tables.newest(log).metadata, "configuration": {"delta.enableInCommitTimestamps": "true"}}
    info = {"inCommitTimestamp": 4_000_000_000_000, "timestamp": 1, "operation": "UPGRADE"}
    tables.foreign_commit(log, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": metadata}])
    staged = tables.stage(log, tables.writer_spec("w"), {"x": [1, 2], "y": [3]})
    Committer(tables.local_log(table(log))).publish([staged])
    [before] = [file for file in tables.live(log) if file["partitionValues"] == {"month": "x"}]
    run(log, "month = 'x'")
    [gone] = tables.last(log).removes
    assert (gone["baseRowId"], gone["defaultRowCommitVersion"]) == (before["baseRowId"], 2)
    assert tables.newest(log).row_id_high_water_mark == 2
    assert tables.newest(log).in_commit_timestamp == 4_000_000_000_002


def test_rows_that_are_appended_while_it_works_go_too(log: DeltaLog) -> None:
    store = LoserHeld(log.store, lambda: tables.foreign_append(log, {"2019-01": [30], "x": [31]}))
    done = run(through(store, log))
    assert (done.version, done.rows_deleted, done.lost_races, store.refused) == (5, 4, 1, 1)
    assert tables.ids(table(log)) == [5, 15, 25, 31]


def test_what_others_removed_or_compacted_meanwhile_is_removed_as_it_stands(log: DeltaLog) -> None:
    winners = (lambda: compact(log), lambda: run(log, "month = '2019 02'", app_id="another"))
    done = run(through(LoserHeld(log.store, *winners), log), None)
    assert (done.version, done.files_removed, done.lost_races) == (6, 1, 2)
    assert tables.ids(table(log)) == []


def test_rows_that_are_deleted_by_a_vector_meanwhile_do_not_come_back(log: DeltaLog) -> None:
    tables.foreign_append(log, {"x": [30, 31]})
    store = LoserHeld(log.store, lambda: delete_rows(log, tables.live(log)[-1], [0]))
    done = run(through(store, log), "month = 'x'")
    assert (done.files_removed, done.rows_deleted) == (1, 1)
    assert ids_without_deleted(table(log)) == [0, 5, 10, 15, 20, 25]


def test_a_buffer_in_flight_lands_after_it(log: DeltaLog) -> None:
    buffer = tables.stage(log, tables.writer_spec("w"), {"2019-01": [30]})
    run(log)
    Committer(tables.local_log(table(log))).publish([buffer])
    assert tables.ids(table(log)) == [5, 15, 25, 30]


def test_a_column_that_is_renamed_meanwhile_is_judged_by_its_new_name(tmp_path: Path) -> None:
    schema = json.loads(tables.SCHEMA)
    for number, field in enumerate(schema["fields"]):
        field["metadata"] = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": field["name"]}
    log = tables.make_table(tmp_path / "t")
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    mapped = {**tables.newest(log).metadata, "schemaString": json.dumps(schema)}
    mapped["configuration"] = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    info = {"timestamp": 1, "operation": "SET TBLPROPERTIES"}
    tables.foreign_commit(log, [{"commitInfo": info}, {"protocol": protocol}, {"metaData": mapped}])
    tables.foreign_append(log, {"2019-01": [1]})

    def rename() -> None:
        renamed = json.loads(json.dumps(schema))
        renamed["fields"][1]["name"] = "period"
        tables.change_metadata(log, schemaString=json.dumps(renamed), partitionColumns=["period"])

    store = LoserHeld(log.store, rename)
    with pytest.raises(errors.InvalidWriteError, match="'month' is no partition column"):
        run(through(store, log))
    assert len(tables.live(log)) == 1


def test_a_retry_after_the_commit_takes_nothing_that_came_then(log: DeltaLog) -> None:
    first = run(log)
    tables.foreign_append(log, {"2019-01": [30]})
    again = run(log)
    assert (again.status, again.version, again.rows_deleted, again.files_removed, again.bytes_removed) == (
        StatementStatus.ALREADY,
        4,
        3,
        3,
        first.bytes_removed,
    )
    assert tables.ids(table(log)) == [5, 15, 25, 30]


def test_a_restore_that_left_the_delete_as_it_was_does_not_count(log: DeltaLog) -> None:
    run(log)
    tables.foreign_append(log, {"x": [30]})
    take_back(log, 4)
    take_back(log, 3, "two")
    take_back(log, 4, "three")
    assert (run(log).status, tables.newest(log).version) == (StatementStatus.ALREADY, 8)


def test_a_table_that_is_made_again_meanwhile_is_left_alone(log: DeltaLog) -> None:
    def made_again() -> None:
        shutil.rmtree(table(log))
        again = tables.make_table(table(log))
        for number in range(4):
            tables.foreign_append(again, {"2019-01": [100 + number]})

    with pytest.raises(errors.StatementRefusedError, match="made again"):
        run(through(LoserHeld(log.store, made_again), log))
    assert tables.ids(table(log)) == [100, 101, 102, 103]


@pytest.mark.parametrize("where", ["id = 3", "month = '2019-01' AND id = 3", "month LIKE '2019%'", "month = 2019"])
def test_a_predicate_that_whole_files_cannot_answer(log: DeltaLog, where: str) -> None:
    with pytest.raises(errors.InvalidWriteError, match="Nothing was changed"):
        run(log, where)
    assert tables.newest(log).version == 3


def test_an_append_only_table_is_refused_unless_nothing_matches(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t", **{"delta.appendOnly": "true"})
    tables.foreign_append(log, {"2019-01": [1]})
    for where in (JANUARY, None):
        with pytest.raises(errors.StatementRefusedError, match=r"append-only .*unset the property"):
            run(log, where)
    assert tables.ids(table(log)) == [1]


def test_files_outside_of_the_table_and_unknown_features(log: DeltaLog) -> None:
    add = {**tables.live(log)[0], "path": "file:/elsewhere/part-0.parquet", "dataChange": True}
    tables.foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, {"add": add}])
    with pytest.raises(errors.UnsupportedFeatureError, match="absolute path"):
        delete(Transactions(log), None, asker(APP))
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["catalogManaged"]}
    protocol["writerFeatures"] = ["catalogManaged"]
    tables.foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "UPGRADE"}}, {"protocol": protocol}])
    with pytest.raises(errors.UnsupportedFeatureError, match="catalogManaged"):
        delete(Transactions(log), None, asker(APP))
    assert log.newest_listed() == 5


_STEPS = st.sampled_from(["append", "append", "delete", "compact", "back"])
_HISTORIES = st.lists(st.tuples(_STEPS, st.integers(0, 2)), max_size=3)


@settings(max_examples=10, deadline=None)
@given(_HISTORIES, _HISTORIES, st.sampled_from([None, "month = 'm0'", "month <> 'm1'"]))
def test_the_version_is_the_statement_on_the_version_before(
    tmp_path_factory: pytest.TempPathFactory, before: Any, meanwhile: Any, where: str | None
) -> None:
    log = tables.make_table(tmp_path_factory.mktemp("t"))
    numbers: Iterator[int] = iter(range(100))
    month: dict[int, str] = {}

    def step(kind: str, which: int) -> None:
        number = next(numbers)
        if kind == "append":
            month[number] = f"m{which}"
            tables.foreign_append(log, {f"m{which}": [number]})
        elif kind == "delete":
            run(log, f"month = 'm{which}'", app_id=f"step {number}")
        elif kind == "compact" and tables.live(log):
            compact(log)
        elif kind == "back":
            take_back(log, which % (tables.newest(log).version + 1), f"step {number}")

    tables.foreign_append(log, {"m0": [1000], "m1": [1001], "m2": [1002]})
    month.update({1000: "m0", 1001: "m1", 1002: "m2"})
    for each in before:
        step(*each)
    done = run(through(LoserHeld(log.store, *(lambda each=each: step(*each) for each in meanwhile)), log), where)  # type: ignore[misc]
    if done.version is not None:
        gone = {None: {"m0", "m1", "m2"}, "month = 'm0'": {"m0"}, "month <> 'm1'": {"m0", "m2"}}[where]
        earlier = tables.ids(table(log), done.version - 1)
        assert tables.ids(table(log), done.version) == [row for row in earlier if month[row] not in gone]
        assert done.rows_deleted == len(earlier) - len(tables.ids(table(log), done.version)) > 0
