"""The health operator: what it tells, and when it is red."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.operators.health import OneLakeHealthOperator
from tests.support.contexts import connect, context_of
from tests.support.tables import foreign_append, make_table


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "trips")
    for number in range(4):
        foreign_append(log, {"2019-01": [number]})
    return log


def begun(**terms: Any) -> tuple[OneLakeHealthOperator, Any]:
    task = OneLakeHealthOperator(task_id="health", table="Tables/trips", **terms)
    return task, context_of(task)


def test_it_tells_what_it_found_and_what_to_do(log: DeltaLog, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        task, context = begun()
        found = task.execute(context)
    assert (found["version"], found["files"], found["to_compact"]) == (4, 4, 4)
    assert [finding["severity"] for finding in found["findings"]] == ["warning"]
    assert context["ti"].pushed["health"] == json.loads(json.dumps(found))
    (told,) = (record for record in caplog.records if "worth rewriting" in record.message)
    assert (told.levelno, "Compact the table" in told.message) == (logging.WARNING, True)


def test_a_lost_file_is_red_and_what_was_found_is_in_xcom(log: DeltaLog) -> None:
    file = next(iter(log.live_files(lambda _: True, 4)))
    log.store.delete(file["path"])
    task, context = begun()
    with pytest.raises(AirflowFailException, match=r"1 file of the newest version is not in the store, it") as failed:
        task.execute(context)
    assert "Bring them back" in str(failed.value)
    assert [finding["severity"] for finding in context["ti"].pushed["health"]["findings"]] == ["error", "warning"]


@pytest.mark.parametrize("fail_on", ["error", ["errors"]])
def test_a_severity_that_is_none_is_refused_where_the_dag_is_parsed(fail_on: Any) -> None:
    with pytest.raises(InvalidWriteError, match="a list of error, warning, note"):
        begun(fail_on=fail_on)
