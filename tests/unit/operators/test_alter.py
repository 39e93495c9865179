"""OneLakeAlterOperator: what it refuses early, what it tells, and when it asks Spark."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import InvalidWriteError, TablePropertyError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.alter import OneLakeAlterOperator
from tests.support.alters import AlterByHand
from tests.support.contexts import connect, context_of
from tests.support.engines import use_engine
from tests.support.tables import foreign_append, make_table, newest


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "t")
    foreign_append(log, {"x": [1, 2]})
    return log


@pytest.fixture(autouse=True)
def engine(monkeypatch: pytest.MonkeyPatch) -> AlterByHand:
    return use_engine(monkeypatch, AlterByHand(lambda row: row < 100))


def alters(**terms: Any) -> OneLakeAlterOperator:
    return OneLakeAlterOperator(task_id="alter", table="Tables/t", **terms)


def test_the_result_says_what_was_changed(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    task = alters(column_comments={"id": "x"}, table_comment="trips", commit_message="ticket 17")
    result = task.execute(context_of(task))
    assert (result["status"], result["version"], result["rounds"], result["lost_races"]) == ("done", 2, 1, 0)
    assert result["changes"] == ["SET TBLPROPERTIES ('comment' = 'trips')", "ALTER COLUMN `id` COMMENT 'x'"]
    assert (result["features"], result["table"]) == ([], log.table)
    assert result["summary"].startswith("version 2: SET TBLPROPERTIES")
    assert result["summary"] in caplog.text
    assert json.loads(json.dumps(result)) == result
    (last,) = DeltaTable(log.table).history(1)
    assert last["userMetadata"].startswith("taxi.alter, run ")
    assert last["userMetadata"].endswith("Message: ticket 17")


def test_a_retry_and_a_clear_change_nothing_more(log: DeltaLog, engine: AlterByHand) -> None:
    task = alters(table_comment="trips")
    task.execute(context_of(task))
    again = task.execute(context_of(task, try_number=2))
    assert (again["status"], again["version"]) == ("already_done", 2)
    assert again["summary"] == "an earlier try did it in version 2: SET TBLPROPERTIES ('comment' = 'trips')"
    cleared = task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    assert cleared["summary"] == "the table is as it was asked for; nothing to do"
    assert (cleared["version"], len(engine.jobs)) == (None, 1)


def test_rows_that_violate_a_check_fail_the_task_for_good(log: DeltaLog, engine: AlterByHand) -> None:
    foreign_append(log, {"x": [100]})
    task = alters(add_checks={"low": "id < 100"})
    with pytest.raises(AirflowFailException, match=r"ConstraintViolatedError: 1 rows violate"):
        task.execute(context_of(task))
    assert newest(log).version == 2


def test_a_task_stopped_while_spark_looks_changes_nothing(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    task = alters(add_checks={"low": "id < 100"})
    use_engine(monkeypatch, AlterByHand(after=lambda job: task.on_kill()))
    with pytest.raises(AirflowException, match="was stopped"):
        task.execute(context_of(task))
    assert newest(log).version == 1


@pytest.mark.parametrize(
    ("terms", "error", "why"),
    [
        ({}, InvalidWriteError, "Nothing is to be altered: give one of rename_columns"),
        ({"rename_columns": ["id"]}, InvalidWriteError, "a dict"),
        ({"drop_columns": "id"}, InvalidWriteError, "a list of names"),
        ({"set_properties": {"delta.nope": "1"}}, TablePropertyError, "does not know it"),
        ({"set_properties": {"{{ ds }}": "1"}}, InvalidWriteError, "still holds a template"),
        ({"table_comment": "x", "max_rounds": 0}, InvalidWriteError, "at least 1"),
        ({"table_comment": "x", "commit_message": "x" * 1001}, InvalidWriteError, "1001 characters"),
    ],
)
def test_what_is_wrong_is_refused_in_the_dag_file(terms: dict[str, Any], error: type[Exception], why: str) -> None:
    with pytest.raises(error, match=why):
        alters(**terms)
