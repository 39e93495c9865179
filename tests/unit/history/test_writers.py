"""What a writer appended before is taken back only where it is known and whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import OnRerun
from airflow_provider_onelake.exceptions import RerunRefusedError
from airflow_provider_onelake.history.writers import WriterHistory
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.writes.publish import Committer
from tests.support.tables import LOAD, cleaned_up, foreign_commit, local_log, stage, writer_spec
from tests.support.vectors import delete_rows

WRITER = LOAD.writer("w")


@pytest.fixture
def published(log: DeltaLog) -> Buffer:
    buffer = stage(log, writer_spec(), {"2019-01": [1], "2019-02": [2, 3]})
    Committer(log).publish([buffer])
    return buffer


def taken_back(log: DeltaLog) -> list[str]:
    return sorted(file["path"] for file in history(local_log(Path(log.table))).files_to_take_back())


def history(log: DeltaLog) -> WriterHistory:
    return WriterHistory(log, WRITER, log.snapshot())


def test_what_a_generation_appended_is_taken_back_file_by_file(log: DeltaLog, published: Buffer) -> None:
    assert taken_back(log) == sorted(f"{published.path}/{add['path']}" for add in published.adds)


def test_what_a_rerun_published_after_the_snapshot_is_not_in_it(log: DeltaLog, published: Buffer) -> None:
    before = history(log)
    Committer(log).publish([stage(log, writer_spec(generation=2, on_rerun=OnRerun.APPEND), {"2019-01": [4]})])
    assert before.find(2) is None
    there = before.still_there()
    assert there is not None
    assert (there.version, there.record.generation) == (1, 1)


@pytest.mark.parametrize("operation", ["CREATE OR REPLACE TABLE", "REPLACE TABLE AS SELECT"])
def test_of_a_generation_without_rows_nothing_is_replaced(log: DeltaLog, operation: str) -> None:
    Committer(log).publish([stage(log, writer_spec(), {})])
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": operation}}])
    assert taken_back(log) == []


@pytest.mark.parametrize("operation", ["RESTORE", "CLONE"])
def test_behind_a_generation_without_rows_a_restore_counts(log: DeltaLog, operation: str) -> None:
    Committer(log).publish([stage(log, writer_spec(), {})])
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": operation}}])
    with pytest.raises(RerunRefusedError, match=f"{operation} in version 2 took its rows back"):
        taken_back(log)


def test_where_a_file_is_gone_nothing_is_taken_back(log: DeltaLog, published: Buffer) -> None:
    DeltaTable(log.table).delete("month = '2019-02'")
    with pytest.raises(RerunRefusedError, match=r"month=2019-02/.* of version 1 is gone"):
        taken_back(log)


def test_a_file_of_which_rows_were_deleted_is_not_taken_back(log: DeltaLog, published: Buffer) -> None:
    snapshot = log.snapshot()
    [file] = log.live_files(lambda add: add["partitionValues"]["month"] == "2019-02", snapshot.version)
    delete_rows(log, file, [0])
    with pytest.raises(RerunRefusedError, match="were deleted or updated since"):
        taken_back(log)


def test_where_the_log_is_gone_the_row_count_says_whether_all_files_are_there(log: DeltaLog, published: Buffer) -> None:
    DeltaTable(log.table).delete("id = 17")  # touches nothing of it
    cleaned_up(log)
    assert len(taken_back(log)) == 2


def test_where_the_log_is_gone_and_rows_are_missing_nothing_is_taken_back(log: DeltaLog, published: Buffer) -> None:
    DeltaTable(log.table).delete("month = '2019-02'")
    cleaned_up(log)
    with pytest.raises(RerunRefusedError, match="version 1 was cleaned up, and not all of its 3 rows are live"):
        taken_back(log)
