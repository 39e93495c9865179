"""What differs between two versions, from the log alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.commit.delete import delete
from airflow_provider_onelake.commit.transaction import Transactions
from airflow_provider_onelake.exceptions import InvalidReadError, InvalidWriteError, LogGapError, ReadRefusedError
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.difference import Counts, Difference
from tests.support.changes import asker
from tests.support.data_files import opened, two_months
from tests.support.shadows import compact
from tests.support.tables import change_metadata, foreign_append, foreign_commit, live, local_log, newest
from tests.support.vectors import delete_rows


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return two_months(tmp_path / "t")


def compared(log: DeltaLog, before: Any, after: Any = None, where: str | None = None) -> Difference:
    return opened(log).compare(before, after, where)


def test_files_and_rows_that_came_and_went(log: DeltaLog) -> None:
    foreign_append(log, {"2019-03": [6]})
    delete(Transactions(log), "month = '2019-01'", asker("d"))
    found = compared(log, 1)
    assert (found.before, found.after, found.rows_before, found.rows_after) == (1, 4, 2, 3)
    assert (found.counts.files_added, found.counts.files_removed) == (2, 1)
    assert (found.counts.rows_added, found.counts.rows_removed) == (3, 2)
    assert list(found.partitions) == ["month=2019-01", "month=2019-02", "month=2019-03"]
    assert (found.partitions["month=2019-01"].rows_added, found.partitions["month=2019-01"].rows_removed) == (0, 2)
    assert found.operations == {"WRITE": 2, "DELETE": 1}
    assert found.definition == ()
    # The file that came and went in between is in neither version.
    back = compared(log, 4, 1)
    assert (back.counts.rows_added, back.counts.rows_removed) == (2, 3)
    assert back.counts.bytes_added == found.counts.bytes_removed
    assert json.loads(json.dumps(found.to_json()))["counts"]["rows_added"] == 3


def test_one_partition_alone(log: DeltaLog) -> None:
    found = compared(log, 1, 2, "month = '2019-02'")
    assert (found.counts.rows_added, found.rows_before, found.rows_after) == (2, 0, 2)
    with pytest.raises(InvalidWriteError, match="no partition column"):
        compared(log, 1, 2, "id = 3")


def test_rows_that_deletion_vectors_hide_and_show(log: DeltaLog) -> None:
    delete_rows(log, live(log)[0], [0])
    found = compared(log, 2)
    assert found.counts == Counts(files_changed=1, rows_removed=1)
    assert compared(log, 3, 2).counts == Counts(files_changed=1, rows_added=1)


def test_a_compaction_leaves_the_rows_as_they_are(log: DeltaLog) -> None:
    for row in range(6, 10):
        foreign_append(log, {"2019-01": [row]})
    compact(log)
    foreign_append(log, {"2019-01": [10]})
    found = compared(log, 6)
    assert (found.files_packed, found.files_packed_into) == (6, 1)
    assert found.counts == Counts(files_added=1, rows_added=1, bytes_added=found.counts.bytes_added)
    assert compared(log, 8, 6).files_packed == 1
    # From a version in the middle of what was packed, the new file has rows that were not there.
    later = compared(log, 4)
    assert (later.files_packed, later.counts.rows_removed, later.counts.rows_added) == (0, 5, 8)


def test_a_compaction_of_several_partitions_leaves_the_rows_of_each_as_they_are(log: DeltaLog) -> None:
    for row in range(6, 10):
        foreign_append(log, {"2019-01": [row], "2019-02": [row]})
    foreign_append(log, {"2019-02": [10]})
    compact(log)
    alone = compared(log, 6, None, "month = '2019-01'")
    assert (alone.files_packed, alone.files_packed_into, alone.counts) == (6, 1, Counts())
    # Of the other partition, a file came after the first version.
    both = compared(log, 6)
    assert (both.files_packed, both.files_packed_into, list(both.partitions)) == (6, 1, ["month=2019-02"])


def test_a_compaction_that_spells_its_partition_otherwise_leaves_the_rows_as_they_are(log: DeltaLog) -> None:
    foreign_append(log, {None: [6]})
    foreign_append(log, {None: [7]})
    old = [file for file in live(log) if file["partitionValues"]["month"] is None]
    gone = [{"remove": {**file, "deletionTimestamp": 1, "dataChange": False}} for file in old]
    come = {"add": {**old[0], "path": "packed.parquet", "partitionValues": {"month": ""}, "dataChange": False}}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "OPTIMIZE"}}, *gone, come])
    assert (compared(log, 4).files_packed, compared(log, 4).counts) == (2, Counts())


def test_rows_that_no_statistics_count_are_an_unknown_number(log: DeltaLog) -> None:
    add = {key: value for key, value in live(log)[0].items() if key != "stats"}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1}}, {"add": {**add, "path": "x.parquet", "dataChange": True}}])
    found = compared(log, 2)
    assert (found.counts.rows_added, found.counts.files_added, found.rows_after) == (None, 1, None)
    assert found.operations == {"unknown": 1}


def test_what_differs_in_the_definition(log: DeltaLog) -> None:
    schema = json.loads(newest(log).metadata["schemaString"])
    schema["fields"][0]["type"] = "integer"
    schema["fields"].append({"name": "fare", "type": "double", "nullable": True, "metadata": {}})
    configuration = {"delta.appendOnly": "true", "mine": "1"}
    change_metadata(log, schemaString=json.dumps(schema), configuration=configuration, description="trips")
    protocol = {"minReaderVersion": 1, "minWriterVersion": 3}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "UPGRADE"}}, {"protocol": protocol}])
    assert compared(log, 2).definition == (
        "column id is INT, not BIGINT",
        "column fare (DOUBLE) is new",
        "the property delta.appendOnly is true",
        "the property mine is 1",
        "its protocol has checkConstraints",
        "its comment is another",
    )
    back = compared(log, 4, 2).definition
    assert "column fare (DOUBLE) is gone" in back
    assert "the property mine is unset (was 1)" in back
    assert "its protocol no longer has checkConstraints" in back


def test_columns_are_told_by_their_physical_names(log: DeltaLog) -> None:
    schema = json.loads(newest(log).metadata["schemaString"])
    for number, field in enumerate(schema["fields"], start=1):
        field["metadata"] = {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": field["name"]}
    mapped = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1}}, {"protocol": protocol}])
    change_metadata(log, schemaString=json.dumps(schema), configuration=mapped)
    schema["fields"][1]["name"] = "period"
    schema["fields"][0]["nullable"] = False
    change_metadata(log, schemaString=json.dumps(schema), partitionColumns=["period"])
    found = compared(log, 2).definition
    assert found[:2] == ("column id is never NULL", "column month is called period")
    schema["fields"][0]["metadata"]["delta.columnMapping.physicalName"] = "another"
    change_metadata(log, schemaString=json.dumps(schema), partitionColumns=["period"])
    assert compared(log, 5).definition == ("column id (BIGINT) is new", "column id (BIGINT) is gone")


def test_a_table_with_other_partitions_is_compared_as_a_whole(log: DeltaLog) -> None:
    change_metadata(log, partitionColumns=[], id="another")
    foreign_append(log, {None: [7]})
    found = compared(log, 2)
    assert found.partitions == {}
    assert found.definition == ("the table was replaced by another", "it is partitioned by nothing, not by month")


def test_a_log_that_was_cleaned_up_leaves_out_what_it_no_longer_says(log: DeltaLog) -> None:
    from deltalake import DeltaTable

    foreign_append(log, {"x": [7]})
    DeltaTable(log.table, version=1).create_checkpoint()
    DeltaTable(log.table).create_checkpoint()
    for version in (0, 2):
        log.store.delete(version_path(version))
    again = local_log(Path(log.table))
    found = compared(again, 1)
    assert found.operations is None
    assert found.counts.rows_added == 4
    with pytest.raises(LogGapError):
        compared(again, 0)


@pytest.mark.parametrize(
    ("point", "error", "why"),
    [
        (9, ReadRefusedError, "no version 9"),
        ("yesterday", InvalidReadError, "a time with its zone"),
        (True, InvalidReadError, "a whole number"),
        ("1999-01-01T00:00:00+00:00", LogGapError, "does not reach back"),
    ],
)
def test_a_version_that_is_none(log: DeltaLog, point: Any, error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        compared(log, point)


def test_a_time_says_a_version(log: DeltaLog) -> None:
    assert compared(log, 1, "2999-01-01T00:00:00+00:00").after == 2
