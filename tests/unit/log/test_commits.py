"""One version as a value."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.commits import FORMAT, Commit, PublishedWriter
from tests.support.tables import SCHEMA, foreign_commit, make_table

FINISHED = datetime(2019, 2, 1, 3, 4, 5, 678901, UTC)
WRITER = PublishedWriter(
    app_id="onelake/test/taxi/load/r/w",
    writer="w",
    generation=2,
    buffer="staged/w-1/a",
    finished=FINISHED,
    rows=3,
    fingerprint="f",
)
METADATA = {"id": "x", "schemaString": SCHEMA, "partitionColumns": ["month"], "configuration": {}}
PROTOCOL = {"minReaderVersion": 1, "minWriterVersion": 2}
INFO: dict[str, Any] = {"timestamp": 1_549_000_000_123, "operation": "WRITE"}


def commit(*actions: dict[str, Any], **info: Any) -> Commit:
    return Commit.parse(5, dump_actions([{"commitInfo": {**INFO, **info}}, *actions]), "trips")


def add(path: str = "a", rows: int = 3, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {"month": "2019-01"}, "size": 1, "dataChange": True}
    return {"add": {**body, "stats": f'{{"numRecords": {rows}}}', **fields}}


def remove(path: str = "b", rows: int = 2, **fields: Any) -> dict[str, Any]:
    body = {"path": path, "partitionValues": {"month": None}, "dataChange": True, "deletionTimestamp": 1}
    return {"remove": {**body, "stats": f'{{"numRecords": {rows}}}', **fields}}


def test_a_commit_says_version_time_operation_txns_partitions_rows_and_user_metadata() -> None:
    found = commit(
        {"txn": {"appId": "x", "version": 7, "lastUpdated": 1}},
        add("a", 3),
        add("c", 4),
        remove(),
        userMetadata="for Ann",
        txnId="id",
    )
    assert (found.version, found.operation, found.txn_id) == (5, "WRITE", "id")
    assert found.time == datetime(2019, 2, 1, 5, 46, 40, 123000, UTC)
    assert found.txns == {"x": 7}
    assert found.added_partitions == {(("month", "2019-01"),)}
    assert found.removed_partitions == {(("month", None),)}
    assert (found.rows_added, found.rows_removed) == (7, 2)
    assert found.data_change
    assert found.user_metadata == "for Ann"
    assert found.writers == ()
    assert found.finished == found.time


def test_a_commit_of_ours_says_its_writers_and_when_the_last_of_them_finished() -> None:
    later = datetime(2019, 3, 1, tzinfo=UTC)
    records = [WRITER.to_json(), {**WRITER.to_json(), "writer": "v", "finished": later.isoformat()}]
    found = commit(add(), staged={"format": FORMAT, "writers": records})
    assert [writer.writer for writer in found.writers] == ["w", "v"]
    assert found.finished == later


def test_a_writers_record_comes_back_and_fields_of_later_formats_are_passed_over() -> None:
    assert PublishedWriter.from_json({**WRITER.to_json(), "from": "the future"}) == WRITER


@pytest.mark.parametrize(
    "record",
    [
        None,
        "text",
        {"format": FORMAT, "spec": {}},
        [],
        {"writers": []},
        {"format": 1, "writers": []},
        {"format": FORMAT, "writers": None},
        {"format": FORMAT, "writers": "w"},
        {"format": FORMAT, "writers": ["w"]},
        {"format": FORMAT, "writers": [{"writer": "w"}]},
        {"format": FORMAT, "writers": [{**WRITER.to_json(), "finished": "yesterday"}]},
        {"format": FORMAT, "writers": [{**WRITER.to_json(), "finished": "2019-02-01T00:00:00"}]},
        {"format": FORMAT, "writers": [{**WRITER.to_json(), "generation": "2"}]},
        {"format": FORMAT, "writers": [{**WRITER.to_json(), "rows": "many"}]},
        {"format": FORMAT, "writers": [WRITER.to_json()], "replaces": [7]},
    ],
    ids=str,
)
def test_a_foreign_field_of_our_name_makes_no_commit_of_ours(record: Any) -> None:
    found = commit(add(), staged=record)
    assert (found.writers, found.staged) == ((), {})


def test_the_in_commit_timestamp_goes_before_the_writers_own_word() -> None:
    assert commit(inCommitTimestamp=1000).time == datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_a_commit_without_commit_info_has_the_stores_time_and_no_operation() -> None:
    found = Commit(5, [add()], modified=FINISHED)
    assert (found.time, found.operation, found.info) == (FINISHED, "", {})
    assert Commit(5, [add()]).time is None
    assert Commit(5, [add()]).finished is None


@pytest.mark.parametrize(
    ("actions", "changes"),
    [
        pytest.param([add()], True, id="append"),
        pytest.param([remove()], True, id="delete"),
        pytest.param([add(dataChange=False), remove(dataChange=False)], False, id="compaction"),
        pytest.param([], False, id="empty, such as VACUUM START"),
        pytest.param([{"remove": {"path": "b", "deletionTimestamp": 1}}], True, id="a remove that does not say"),
    ],
)
def test_data_change_is_of_rows_not_of_files(actions: list[dict[str, Any]], changes: bool) -> None:
    assert commit(*actions).data_change is changes


@pytest.mark.parametrize("odd", [None, "Append", ["mode", "Append"], 1], ids=repr)
def test_parameters_that_cannot_be_read_are_none(odd: Any) -> None:
    assert commit(add(), operationParameters=odd).parameters == {}


def test_a_commit_landed_when_the_store_says_and_only_without_it_when_its_writer_says(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    version = foreign_commit(log, [{"commitInfo": {"timestamp": 1_549_000_000_123}}])
    os.utime(tmp_path / version_path(version), (FINISHED.timestamp(), FINISHED.timestamp()))
    (found,) = log.commits_since(0)
    assert found.time == datetime(2019, 2, 1, 5, 46, 40, 123000, UTC)
    assert found.landed == log.store.head(version_path(version)).modified != found.time
    assert attrs.evolve(found, modified=found.time).landed == found.time
    assert commit().landed == commit().time


@pytest.mark.parametrize(
    "odd", ["2019-01-01T00:00:00Z", "", 1_549_000_000_123_000, 1e300, float("nan"), [], {}, True], ids=str
)
@pytest.mark.parametrize("field", ["timestamp", "inCommitTimestamp"])
def test_a_time_that_cannot_be_read_gives_way_to_the_stores(odd: Any, field: str) -> None:
    found = attrs.evolve(commit(**{"timestamp": None, field: odd}), modified=FINISHED)
    assert (found.time, found.finished, found.landed) == (FINISHED, FINISHED, FINISHED)


@pytest.mark.parametrize(("stamp", "known"), [("now", None), (None, None), ([], None), ("17", 17), (10**16, 10**16)])
def test_an_in_commit_timestamp_is_any_whole_number_for_the_next_one_must_exceed_it(stamp: Any, known: Any) -> None:
    assert commit(inCommitTimestamp=stamp).in_commit_timestamp == known


def test_an_in_commit_timestamp_that_cannot_be_read_gives_way_to_the_writers_own_word() -> None:
    assert commit(inCommitTimestamp="now").time == commit().time


def test_a_remove_that_does_not_say_where_names_no_partition() -> None:
    assert commit({"remove": {"path": "b", "dataChange": True}}).removed_partitions == frozenset()


def test_a_corrupt_entry_names_version_and_table() -> None:
    with pytest.raises(CorruptLogError, match="Version 5 of trips"):
        Commit.parse(5, b"{", "trips")


@pytest.mark.parametrize("content", [b"", b"\n", b" \n\n"])
def test_an_empty_entry_is_half_written_and_no_commit(content: bytes) -> None:
    with pytest.raises(CorruptLogError, match="Version 5 of trips is empty"):
        Commit.parse(5, content, "trips")
