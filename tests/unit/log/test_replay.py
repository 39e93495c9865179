"""Raw replay: which files are live, exactly as they were added."""

from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import LogGapError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import of_kind, version_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.replay import Checkpoint, LiveFiles, LogFiles, read_checkpoint
from airflow_provider_onelake.storage.stores import ObjectInfo
from tests.support.stores import through
from tests.support.tables import append_files, foreign_append, foreign_commit, make_table
from tests.support.vectors import delete_rows, deletion_vector, ids_without_deleted

UUID = "80a083e8-7026-4e79-81be-64bd76c43a11"


def listed(*names: str) -> LogFiles:
    return LogFiles.of(ObjectInfo(f"_delta_log/{name}", 1, datetime.now(UTC)) for name in names)


def everything(log: DeltaLog, until: int) -> dict[str, dict[str, Any]]:
    return {add["path"]: add for add in log.live_files(lambda _: True, until)}


def with_checkpoint(log: DeltaLog, *, drop_until: int) -> DeltaLog:
    DeltaTable(log.table).create_checkpoint()
    for version in range(drop_until + 1):
        Path(log.table, version_path(version)).unlink()
    return through(log.store, log)


# -- what a listing holds ------------------------------------------------------------------------------------------


def test_a_listing_sorts_entries_and_the_latest_complete_checkpoint() -> None:
    files = listed(
        f"{3:020d}.json", f"{4:020d}.json", f"{2:020d}.checkpoint.parquet", f"{3:020d}.checkpoint.parquet", "x.crc"
    )
    assert files.versions == (3, 4)
    assert files.checkpoint == Checkpoint(3, (f"_delta_log/{3:020d}.checkpoint.parquet",))
    assert files.latest == 4


def test_a_checkpoint_in_parts_counts_only_with_all_of_its_parts() -> None:
    parts = [f"{5:020d}.checkpoint.{part:010d}.{3:010d}.parquet" for part in (1, 2, 3)]
    assert listed(*parts[:2]).checkpoint is None
    found = listed(*reversed(parts)).checkpoint
    assert found == Checkpoint(5, tuple(f"_delta_log/{part}" for part in parts))


def test_a_checkpoint_alone_proves_its_version() -> None:
    assert listed(f"{5:020d}.checkpoint.parquet").latest == 5
    assert listed().latest == -1


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_v2_checkpoint_is_refused_where_no_later_classic_one_stands_in(kind: str) -> None:
    v2 = f"{5:020d}.checkpoint.{UUID}.{kind}"
    for others in ([], [f"{4:020d}.checkpoint.parquet"]):
        with pytest.raises(UnsupportedFeatureError, match="version 5 is of the v2 kind"):
            listed(v2, *others)
    found = listed(v2, f"{6:020d}.checkpoint.parquet").checkpoint
    assert found is not None
    assert found.version == 6


# -- live files ----------------------------------------------------------------------------------------------------


def test_live_files_are_those_added_and_not_removed_up_to_the_version(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    foreign_append(log, {"2019-02": [2]})
    first = next(iter(everything(log, 1).values()))
    foreign_commit(log, [{"remove": {"path": first["path"], "dataChange": True, "deletionTimestamp": 1}}])
    assert len(everything(log, 1)) == 1
    assert len(everything(log, 2)) == 2
    assert list(everything(log, 3)) == [path for path in everything(log, 2) if path != first["path"]]


def test_live_files_are_only_those_asked_for(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1], None: [2]})
    found = list(log.live_files(lambda add: add["partitionValues"]["month"] is None, 1))
    assert [add["partitionValues"] for add in found] == [{"month": None}]


def test_a_commit_that_gives_a_file_another_vector_leaves_it_live_once(tmp_path: Path) -> None:
    log = make_table(tmp_path, **{"delta.enableDeletionVectors": "true"})
    foreign_append(log, {"2019-01": [1, 2, 3]})
    (before,) = everything(log, 1).values()
    left = delete_rows(log, before, [1])
    again = delete_rows(log, left, [0, 1])
    assert ids_without_deleted(tmp_path) == [3]
    assert list(log.live_files(lambda _: True, 3)) == [again]


def test_the_order_inside_a_commit_does_not_matter() -> None:
    add = {"path": "a", "partitionValues": {}, "size": 1}
    with_vector = {**add, "deletionVector": deletion_vector([0])}
    for actions in (
        [{"remove": add}, {"add": with_vector}],
        [{"add": with_vector}, {"remove": add}],
    ):
        files = LiveFiles(lambda _: True)
        files.load([add])
        files.apply(Commit(2, actions))  # type: ignore[arg-type]
        assert list(files) == [with_vector]


def test_a_remove_of_the_file_without_its_vector_removes_another_logical_file() -> None:
    add = {"path": "a", "partitionValues": {}, "size": 1}
    with_vector = {**add, "deletionVector": deletion_vector([0])}
    files = LiveFiles(lambda _: True)
    files.load([with_vector])
    files.apply(Commit(2, [{"remove": add}]))
    assert list(files) == [with_vector]


# -- checkpoints ---------------------------------------------------------------------------------------------------


def test_rule_16_a_file_read_from_a_classic_checkpoint_is_the_add_of_the_log_verbatim(tmp_path: Path) -> None:
    log = make_table(tmp_path, **{"delta.enableDeletionVectors": "true"})
    actions = append_files(log.store, "", {"2019-01": [1, 2, 3], None: [4], "x y/ü:%": [5]})
    adds = of_kind(actions, "add")
    adds[0]["tags"] = {"VORDER": "true", "INSERTION_TIME": "17"}
    foreign_commit(log, actions)
    marked = delete_rows(log, adds[0], [1])
    expected = {add["path"]: {**add, "dataChange": False} for add in (marked, *adds[1:])}
    log = with_checkpoint(log, drop_until=2)
    assert everything(log, 2) == expected
    assert expected[marked["path"]]["deletionVector"]["cardinality"] == 1
    assert ids_without_deleted(tmp_path) == [1, 3, 4, 5]


def test_files_are_replayed_on_from_a_checkpoint(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    (first,) = everything(log, 1)
    log = with_checkpoint(log, drop_until=1)
    foreign_append(log, {"2019-02": [2]})
    foreign_commit(log, [{"remove": {"path": first, "dataChange": True, "deletionTimestamp": 1}}])
    assert [add["partitionValues"]["month"] for add in everything(log, 3).values()] == ["2019-02"]


def test_a_version_before_the_checkpoint_whose_entries_are_gone_is_a_log_gap(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    foreign_append(log, {"2019-01": [1]})
    foreign_append(log, {"2019-01": [2]})
    log = with_checkpoint(log, drop_until=2)
    with pytest.raises(LogGapError, match="Version 0"):
        log.live_files(lambda _: True, 1)


def test_a_checkpoint_in_parts_is_read_part_by_part(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    names = [f"_delta_log/{7:020d}.checkpoint.{part:010d}.{2:010d}.parquet" for part in (1, 2)]
    for name, path in zip(names, "ab", strict=True):
        body = {"path": path, "partitionValues": [("month", None)], "size": 1, "tags": None}
        kind = pa.struct(
            {"path": pa.string(), "partitionValues": pa.map_(pa.string(), pa.string()), "size": pa.int64()}
            | {"tags": pa.map_(pa.string(), pa.string())}
        )
        txn = pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()})
        txns = [None, {"appId": path, "version": 2, "lastUpdated": None}]
        table = pa.table({"add": pa.array([body, None], kind), "txn": pa.array(txns, txn)})
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        log.store.put(name, buffer.getvalue())
    checkpoint = Checkpoint(7, tuple(names))
    assert list(read_checkpoint(log.store, checkpoint, ["add", "txn", "metaData"])) == [
        (kind, body)
        for path in "ab"
        for kind, body in (
            ("add", {"path": path, "partitionValues": {"month": None}, "size": 1, "dataChange": False}),
            ("txn", {"appId": path, "version": 2}),
        )
    ]


def test_what_only_readers_of_checkpoints_need_is_left_out(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    kind = pa.struct(
        {
            "path": pa.string(),
            "stats": pa.string(),
            "stats_parsed": pa.struct({"numRecords": pa.int64()}),
            "partitionValues_parsed": pa.struct({"month": pa.string()}),
        }
    )
    body = {"path": "a", "stats": "{}", "stats_parsed": {"numRecords": 1}, "partitionValues_parsed": {"month": "x"}}
    buffer = io.BytesIO()
    pq.write_table(pa.table({"add": pa.array([body], kind)}), buffer)
    log.store.put("_delta_log/c.parquet", buffer.getvalue())
    found = list(read_checkpoint(log.store, Checkpoint(1, ("_delta_log/c.parquet",)), ["add"]))
    assert found == [("add", {"path": "a", "stats": "{}", "dataChange": False})]
