"""The restore operator: what it refuses early, what it tells, and that a retry does nothing twice."""

from __future__ import annotations

import json
import logging
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable

from airflow_provider_onelake.exceptions import InvalidWriteError, StoreUnavailableError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.operators.restore import OneLakeRestoreOperator
from tests.support.contexts import connect, context_of
from tests.support.tables import cleaned_up, foreign_append, ids, landed_at, make_table, newest
from tests.support.versions import needs_airflow

NOON = datetime(2019, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "t")
    for version in range(1, 4):
        foreign_append(log, {"x": [version]})
    for version in range(4):
        landed_at(log, version, NOON + timedelta(hours=version))
    return log


def run(clears: int = 0, **terms: Any) -> dict[str, Any]:
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", **terms)
    return task.execute(context_of(task, clears=clears))


def test_the_result_says_what_was_undone(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    result = run(version="1", commit_message="bad prices")
    assert ids(Path(log.table)) == [1]
    assert (result["status"], result["version"], result["restored_to"], result["undone"]) == ("restored", 4, 1, [2, 3])
    assert (result["files_restored"], result["files_removed"], result["rows_removed"]) == (0, 2, 2)
    assert result["table"] == log.table
    assert json.loads(json.dumps(result)) == result
    said = "version 4 is as version 1, which undoes versions 2 to 3: 0 files (0 rows) came back, 2 (2 rows) went"
    assert result["summary"] == said
    assert said in caplog.text
    (last,) = DeltaTable(log.table).history(1)
    assert last["operation"] == "RESTORE"
    assert last["userMetadata"].startswith("taxi.restore, run ")
    assert last["userMetadata"].endswith(": back to version 1. Message: bad prices")


@pytest.mark.parametrize(
    "timestamp",
    [NOON + timedelta(hours=2.5), "2019-01-31T14:30:00+00:00", "2019-01-31 15:30:00+01:00"],
)
def test_a_time_names_the_version_of_then(log: DeltaLog, timestamp: Any) -> None:
    assert run(timestamp=timestamp, version="")["restored_to"] == 2
    assert ids(Path(log.table)) == [1, 2]


def test_a_retry_does_nothing_and_a_clear_restores_again(log: DeltaLog) -> None:
    run(version=1)
    foreign_append(log, {"x": [9]})
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", version=1)
    retried = task.execute(context_of(task, try_number=2))
    assert (retried["status"], retried["version"]) == ("already_restored", 4)
    assert ids(Path(log.table)) == [1, 9]
    cleared = task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    assert (cleared["status"], cleared["version"]) == ("restored", 6)
    assert ids(Path(log.table)) == [1]


@pytest.mark.parametrize("versions", [2, 3, 5])
@needs_airflow("3.3", "a store for what a task keeps")
def test_a_retry_leaves_a_table_made_again_alone(log: DeltaLog, monkeypatch: pytest.MonkeyPatch, versions: int) -> None:
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", version=1, on_newer_commit="undo")
    with monkeypatch.context() as broken:
        broken.setattr("airflow_provider_onelake.steps.restore.restore", _no_answer)
        with pytest.raises(StoreUnavailableError):
            task.execute(context_of(task))
    shutil.rmtree(log.table)
    again = make_table(Path(log.table))
    for version in range(1, versions + 1):
        foreign_append(again, {"x": [version + 100]})
    with pytest.raises(AirflowFailException, match="was dropped and made again"):
        task.execute(context_of(task, try_number=2))
    assert newest(again).version == versions


def test_what_is_corrected_before_anything_came_into_the_table_counts(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", version=1)
    fails_once(task, monkeypatch, put=False)
    task.version = 2
    retried = task.execute(context_of(task, try_number=2))
    assert (retried["status"], retried["restored_to"]) == ("restored", 2)
    assert ids(Path(log.table)) == [1, 2]


def test_what_is_corrected_after_the_first_try_came_into_the_table_is_done_by_a_clear(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", version=1)
    fails_once(task, monkeypatch, put=True)
    task.version, task.timestamp = None, NOON + timedelta(hours=2)
    with pytest.raises(AirflowFailException, match=r"was asked for something else then.*clear the task"):
        task.execute(context_of(task, try_number=2))
    assert ids(Path(log.table)) == [1]
    cleared = task.execute(context_of(task, try_number=3, max_tries=2, clears=1))
    assert (cleared["status"], cleared["restored_to"]) == ("restored", 2)
    assert ids(Path(log.table)) == [1, 2]
    assert task.execute(context_of(task, try_number=4, max_tries=2, clears=1))["status"] == "already_restored"


def test_a_table_that_is_corrected_between_two_tries_counts(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", version=1)
    fails_once(task, monkeypatch, put=False)
    other = make_table(Path(log.table).parent / "u")
    for version in range(1, 6):
        foreign_append(other, {"x": [version]})
    task.table = "Tables/u"
    assert task.execute(context_of(task, try_number=2))["status"] == "restored"
    assert (ids(Path(other.table)), ids(Path(log.table))) == ([1], [1, 2, 3])


def test_a_retry_needs_no_log_of_the_time_that_it_went_back_to(log: DeltaLog) -> None:
    task = OneLakeRestoreOperator(task_id="restore", table="Tables/t", timestamp=NOON + timedelta(hours=1))
    task.execute(context_of(task))
    cleaned_up(log, *range(2))
    assert task.execute(context_of(task, try_number=2))["status"] == "already_restored"


def fails_once(task: OneLakeRestoreOperator, monkeypatch: pytest.MonkeyPatch, *, put: bool) -> None:
    """The first try gets no answer, after its commit or before."""

    def restore_and_fail(*args: Any, **terms: Any) -> Any:
        if put:
            restore(*args, **terms)
        return _no_answer()

    with monkeypatch.context() as broken:
        broken.setattr("airflow_provider_onelake.steps.restore.restore", restore_and_fail)
        with pytest.raises(StoreUnavailableError):
            task.execute(context_of(task))


def _no_answer(*_: Any, **__: Any) -> Any:
    raise StoreUnavailableError("no answer")


@pytest.mark.parametrize(
    "terms",
    [
        {},
        {"version": 1, "timestamp": NOON},
        {"version": -1},
        {"version": "one"},
        {"version": True},
        {"version": 1.9},
        {"timestamp": "yesterday"},
        {"version": 1, "on_newer_commit": "win"},
        {"version": 1, "commit_message": "x" * 1001},
    ],
)
def test_what_is_wrong_is_refused_in_the_dag_file(terms: dict[str, Any]) -> None:
    with pytest.raises(InvalidWriteError):
        OneLakeRestoreOperator(task_id="restore", table="Tables/t", **terms)


@pytest.mark.parametrize("terms", [{"version": 7}, {"timestamp": NOON - timedelta(hours=1)}])
def test_a_version_that_is_not_there_is_not_retried(log: DeltaLog, terms: dict[str, Any]) -> None:
    with pytest.raises(AirflowFailException, match=r"RestoreRefusedError: .*Nothing was changed"):
        run(**terms)
    assert newest(log).version == 3
