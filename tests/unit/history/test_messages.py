"""How far a task has come, by the messages of commits that stand in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.history.messages import newest_told
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from tests.support.changes import asker
from tests.support.stores import Counted, through
from tests.support.tables import foreign_append, foreign_commit, local_log, newest


def tell(log: DeltaLog, number: int) -> None:
    foreign_append(log, {"x": [number]}, userMetadata=f"dag.task, run x: MERGE. Message: up to {number}")


def told(log: DeltaLog) -> str | None:
    found = newest_told(log, r"up to (\d+)")
    return found and found[1]


def test_the_newest_counts_and_nothing_before_it_is_read(log: DeltaLog) -> None:
    for number in range(5):
        tell(log, number)
    foreign_append(log, {"x": [9]})
    counted = Counted(log.store)
    later = through(counted, log)
    later.snapshot()
    before = counted.calls["get"]
    assert told(later) == "4"
    assert counted.calls["get"] - before <= 2


def test_a_table_that_says_nothing_and_no_table(log: DeltaLog) -> None:
    assert told(log) is None
    log.store.delete(version_path(0))
    assert told(local_log(Path(log.table))) is None


def test_what_a_restore_took_back_is_not_told(log: DeltaLog) -> None:
    for number in range(1, 5):
        tell(log, number)
    restore(Transactions(log), 2, newest(log), asker("one"), on_newer_commit=OnNewerCommit.FAIL)
    assert told(log) == "2"
    foreign_append(log, {"x": [9]})
    restore(Transactions(log), 4, newest(log), asker("two"), on_newer_commit=OnNewerCommit.FAIL)
    assert told(log) == "4"
    tell(log, 7)
    assert told(log) == "7"


def test_a_restore_to_a_time_may_have_taken_it_back(log: DeltaLog) -> None:
    tell(log, 1)
    info = {"timestamp": 1, "operation": "RESTORE", "operationParameters": {"timestamp": "2019-01-01"}}
    foreign_commit(log, [{"commitInfo": info}])
    with pytest.raises(LogGapError, match=r"Version 2 of .* does not say to which version"):
        told(log)


def test_a_table_that_was_replaced_has_forgotten_it(log: DeltaLog) -> None:
    tell(log, 1)
    info = {"timestamp": 1, "operation": "CREATE OR REPLACE TABLE AS SELECT"}
    foreign_commit(log, [{"commitInfo": info}, {"metaData": {**newest(log).metadata, "id": "another"}}])
    assert told(log) is None


def test_a_log_that_was_cleaned_up_is_no_answer(log: DeltaLog) -> None:
    from deltalake import DeltaTable

    tell(log, 1)
    foreign_append(log, {"x": [9]})
    DeltaTable(log.table).create_checkpoint()
    for version in (0, 1):
        log.store.delete(version_path(version))
    again = local_log(Path(log.table))
    with pytest.raises(LogGapError, match=re.escape("since version 2 says 'up to (\\\\d+)'")):
        told(again)
    tell(again, 3)
    assert told(again) == "3"
