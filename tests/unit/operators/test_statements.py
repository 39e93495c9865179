"""The operators that delete rows: what they refuse early, what they tell, and that a retry deletes nothing twice."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.commit.delete import delete
from airflow_provider_onelake.exceptions import InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.statements import OneLakeDeleteOperator, OneLakeTruncateOperator
from tests.support.contexts import connect, context_of
from tests.support.tables import foreign_append, ids, make_table, newest


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "t")
    for number, month in enumerate(("x", "y", "x")):
        foreign_append(log, {month: [number]})
    return log


def deletes(where: str = "month = 'x'", **terms: Any) -> OneLakeDeleteOperator:
    return OneLakeDeleteOperator(task_id="delete", table="Tables/t", where=where, **terms)


def test_the_result_says_what_went(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    task = deletes()
    result = task.execute(context_of(task))
    assert ids(Path(log.table)) == [1]
    assert (result["status"], result["version"], result["rows_deleted"], result["files_removed"]) == ("done", 4, 2, 2)
    assert (result["table"], result["lost_races"]) == (log.table, 0)
    assert json.loads(json.dumps(result)) == result
    assert result["summary"] == "version 4 is without 2 rows in 2 files"
    assert result["summary"] in caplog.text


def test_a_truncate_takes_all_and_then_has_nothing_to_do(log: DeltaLog) -> None:
    task = OneLakeTruncateOperator(task_id="truncate", table="Tables/t")
    assert task.execute(context_of(task))["rows_deleted"] == 3
    cleared = task.execute(context_of(task, clears=1, try_number=2, max_tries=1))
    assert (cleared["status"], cleared["version"], cleared["rows_deleted"]) == ("nothing_to_do", None, 0)
    assert cleared["summary"] == "no row of the table matches; nothing to do"
    assert newest(log).version == 4


def test_the_history_says_who_deleted_and_why(log: DeltaLog) -> None:
    task = deletes(commit_message="GDPR 17")
    task.execute(context_of(task))
    (last,) = DeltaTable(log.table).history(1)
    assert last["operation"] == "DELETE"
    assert last["userMetadata"].startswith("taxi.delete, run ")
    assert last["userMetadata"].endswith(": DELETE WHERE month = 'x'. Message: GDPR 17")
    with pytest.raises(InvalidWriteError, match="1001 characters"):
        deletes(commit_message="x" * 1001)


def test_a_retry_deletes_nothing_and_a_clear_deletes_again(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    task = deletes()

    def delete_and_fail(*args: Any, **terms: Any) -> Any:
        delete(*args, **terms)
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr("airflow_provider_onelake.work.statement.delete", delete_and_fail)
        with pytest.raises(StoreUnavailableError):
            task.execute(context_of(task))
    foreign_append(log, {"x": [9]})
    retried = task.execute(context_of(task, try_number=2))
    assert (retried["status"], retried["version"], retried["rows_deleted"]) == ("already_done", 4, 2)
    assert retried["summary"] == "an earlier try deleted 2 rows in 2 files in version 4"
    assert ids(Path(log.table)) == [1, 9]
    cleared = task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    assert (cleared["status"], cleared["version"]) == ("done", 6)
    assert ids(Path(log.table)) == [1]


def test_a_predicate_that_is_corrected_between_two_tries_counts(log: DeltaLog) -> None:
    task = deletes()
    task.execute(context_of(task))
    task.where = "month = 'y'"
    assert task.execute(context_of(task, try_number=2))["status"] == "done"
    assert ids(Path(log.table)) == []


@pytest.mark.parametrize("where", ["", "  ", None, True, ["month = 'x'"]])
def test_no_predicate_is_refused_in_the_dag_file(where: Any) -> None:
    with pytest.raises(InvalidWriteError, match="use OneLakeTruncateOperator"):
        deletes(where)


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "use OneLakeTruncateOperator"),
        ("month = '{{ ds }}'", "still holds a template"),
        ("id = 3", "'id' is no partition column"),
    ],
)
def test_what_is_wrong_once_it_is_rendered_deletes_nothing(log: DeltaLog, where: str, why: str) -> None:
    task = deletes("month = '{{ params.month }}'")
    task.where = where
    with pytest.raises(AirflowFailException, match=why):
        task.execute(context_of(task))
    assert newest(log).version == 3
