"""The operators of statements: what they refuse early, what they tell, and that a retry deletes nothing twice."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators import statements
from airflow_provider_onelake.statements.delete import delete
from tests.support.changes import ChangeByHand
from tests.support.contexts import connect, context_of
from tests.support.engines import use_engine
from tests.support.tables import commit_of, foreign_append, ids, make_table, newest


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "t")
    for number, month in enumerate(("x", "y", "x")):
        foreign_append(log, {month: [number]})
    return log


def deletes(where: str = "month = 'x'", **terms: Any) -> statements.OneLakeDeleteOperator:
    return statements.OneLakeDeleteOperator(task_id="delete", table="Tables/t", where=where, **terms)


def test_the_result_says_what_went(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    task = deletes(commit_message="GDPR 17")
    result = task.execute(context_of(task))
    assert ids(Path(log.table)) == [1]
    assert (result["status"], result["version"], result["rows_deleted"], result["files_removed"]) == ("done", 4, 2, 2)
    assert (result["table"], result["lost_races"]) == (log.table, 0)
    assert json.loads(json.dumps(result)) == result
    assert result["summary"] == "version 4 is without 2 rows in 2 files"
    assert result["summary"] in caplog.text
    (last,) = DeltaTable(log.table).history(1)
    assert last["operation"] == "DELETE"
    assert last["userMetadata"].startswith("taxi.delete, run ")
    assert last["userMetadata"].endswith(": DELETE WHERE month = 'x'. Message: GDPR 17")


def test_a_truncate_takes_all_and_then_has_nothing_to_do(log: DeltaLog) -> None:
    task = statements.OneLakeTruncateOperator(task_id="truncate", table="Tables/t")
    assert task.execute(context_of(task))["rows_deleted"] == 3
    cleared = task.execute(context_of(task, clears=1, try_number=2, max_tries=1))
    assert (cleared["status"], cleared["version"], cleared["rows_deleted"]) == ("nothing_to_do", None, 0)
    assert cleared["summary"] == "no row of the table matches; nothing to do"
    # The start before it is in the table, so no older one can come any more; a retry follows one that may.
    assert newest(log).version == 4
    retried = task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    assert retried["status"] == "nothing_to_do"
    commit = commit_of(log, newest(log).version)
    assert (commit.version, commit.operation, commit.adds, commit.removes) == (5, "TRUNCATE", [], [])
    assert [app_id.partition("/")[0] for app_id in commit.txns] == ["onelake-statement"]


def test_a_retry_deletes_nothing_and_a_clear_deletes_again(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    task = deletes()

    def delete_and_fail(*args: Any, **terms: Any) -> Any:
        delete(*args, **terms)
        raise StoreUnavailableError("no answer")

    with monkeypatch.context() as broken:
        broken.setattr("airflow_provider_onelake.steps.statement.delete", delete_and_fail)
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


def test_a_predicate_that_is_corrected_between_two_tries_needs_a_clear(log: DeltaLog) -> None:
    task = deletes()
    task.execute(context_of(task))
    task.where = "month = 'y'"
    with pytest.raises(AirflowFailException, match="was asked for something else"):
        task.execute(context_of(task, try_number=2))
    assert task.execute(context_of(task, clears=1, try_number=3, max_tries=2))["status"] == "done"
    assert ids(Path(log.table)) == []


@pytest.mark.parametrize("where", ["", "  ", None, True, ["month = 'x'"]])
def test_no_predicate_is_refused_in_the_dag_file(where: Any) -> None:
    with pytest.raises(InvalidWriteError, match="use OneLakeTruncateOperator"):
        deletes(where)


@pytest.mark.parametrize("table", [None, 5, " "])
def test_what_names_no_table_is_refused_in_the_dag_file(log: DeltaLog, table: Any) -> None:
    with pytest.raises(InvalidWriteError, match=f"table={table!r} must be an address"):
        statements.OneLakeDeleteOperator(task_id="delete", table=table, where="month = 'x'")
    with pytest.raises(InvalidWriteError, match=f"table={table!r} must be an address"):
        statements.OneLakeTruncateOperator(task_id="truncate", table=table)
    task = deletes()
    task.table = table
    with pytest.raises(AirflowFailException, match="AddressError"):
        task.execute(context_of(task))


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("", "use OneLakeTruncateOperator"),
        ("month = '{{ ds }}'", "still holds a template"),
        ("id IN (SELECT 3)", "has a subquery"),
    ],
)
def test_what_is_wrong_once_it_is_rendered_deletes_nothing(log: DeltaLog, where: str, why: str) -> None:
    task = deletes("month = '{{ params.month }}'")
    task.where = where
    with pytest.raises(AirflowFailException, match=why):
        task.execute(context_of(task))
    assert newest(log).version == 3


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> ChangeByHand:
    return use_engine(monkeypatch, ChangeByHand())


def updates(**terms: Any) -> statements.OneLakeUpdateOperator:
    given = {"set": {"id": "id + 1000"}, "where": "id % 3 = 0", **terms}
    return statements.OneLakeUpdateOperator(task_id="update", table="Tables/t", **given)


def test_rows_are_deleted_by_spark_where_whole_files_cannot_be(log: DeltaLog, engine: ChangeByHand) -> None:
    foreign_append(log, {"x": [3, 4], "y": [6]})
    task = deletes("id % 3 = 0", covers="month = 'x'", commit_message="GDPR 17")
    result = task.execute(context_of(task))
    assert (result["status"], result["version"], result["rows_deleted"], result["rounds"]) == ("done", 5, 2, 1)
    assert result["summary"] == "version 5 deleted 2 rows, in one round of Spark"
    assert json.loads(json.dumps(result)) == result
    assert ids(Path(log.table)) == [1, 2, 4, 6]
    (job,) = engine.jobs
    assert (job.where, job.label, job.table_uri) == ("id % 3 = 0", "DELETE of task delete", f"file://{log.table}")
    (last,) = DeltaTable(log.table).history(1)
    assert last["userMetadata"].endswith(": DELETE WHERE (id % 3 = 0) AND (month = 'x'). Message: GDPR 17")
    closed = json.loads(next(Path(log.table).glob("staged/change-*/*/_closed.json")).read_text())
    assert closed == {"version": 5}


def test_an_update_says_what_it_did_and_a_clear_skips_it_by_default(log: DeltaLog, engine: ChangeByHand) -> None:
    task = updates()
    result = task.execute(context_of(task))
    assert (result["status"], result["rows_updated"], result["rounds"], result["lost_races"]) == ("done", 1, 1, 0)
    assert ids(Path(log.table)) == [1, 2, 1000]
    cleared = task.execute(context_of(task, clears=1, try_number=2, max_tries=1))
    assert (cleared["status"], cleared["version"], cleared["rows_updated"]) == ("already_done", 4, 1)
    assert cleared["summary"] == "an earlier try or start updated 1 row in version 4"
    foreign_append(log, {"x": [9]})
    with pytest.raises(AirflowFailException, match="on_rerun='again'"):
        task.execute(context_of(task, clears=2, try_number=3, max_tries=2))
    again = updates(on_rerun="again")
    assert again.execute(context_of(again, clears=3, try_number=4, max_tries=3))["status"] == "done"
    assert ids(Path(log.table)) == [1, 2, 1000, 1009]


def test_a_task_stopped_while_spark_works_publishes_nothing(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    task = updates()
    use_engine(monkeypatch, ChangeByHand(after=lambda job: task.on_kill()))
    with pytest.raises(AirflowException, match="was stopped"):
        task.execute(context_of(task))
    assert newest(log).version == 3


@pytest.mark.parametrize(
    ("terms", "why"),
    [
        ({"set": {}}, "by column"),
        ({"set": "id = 3"}, "by column"),
        ({"commit_message": "x" * 1001}, "1001 characters"),
        ({"where": ""}, "an expression"),
        ({"set": {"id": "(SELECT 1)"}}, "subquery"),
        ({"where": "rand() < 1"}, "changes from run to run"),
        ({"covers": 3}, "covers=3"),
        ({"isolation": "write_serializable"}, "isolation is gone"),
        ({"on_rerun": "append"}, "one of skip, again"),
        ({"max_rounds": 0}, "at least 1"),
    ],
)
def test_a_wrong_update_is_refused_in_the_dag_file(terms: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidWriteError, match=why):
        updates(**terms)
