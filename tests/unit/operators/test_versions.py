"""The operators that keep a version for the tasks between them."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.exceptions import InvalidReadError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions
from airflow_provider_onelake.operators.versions import OneLakeKeepVersionOperator, OneLakeReleaseVersionOperator
from tests.support.contexts import connect, context_of
from tests.support.tables import foreign_append, make_table


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    log = make_table(tmp_path / "Tables" / "t")
    foreign_append(log, {"x": [1]})
    return log


def keeps(**terms: Any) -> OneLakeKeepVersionOperator:
    return OneLakeKeepVersionOperator(task_id="keep", table="Tables/t", **terms)


def releases(kept: Any) -> OneLakeReleaseVersionOperator:
    return OneLakeReleaseVersionOperator(task_id="release", kept=kept)


def test_a_version_is_kept_between_the_two(log: DeltaLog) -> None:
    task = keeps()
    kept = task.execute(context_of(task))
    assert (kept["table"], kept["version"]) == (log.table, 1)
    assert json.loads(json.dumps(kept)) == kept
    (pinned,) = pinned_versions(log)
    assert pinned.by.startswith("taxi.keep, run ")
    foreign_append(log, {"x": [2]})
    retried = task.execute(context_of(task, try_number=2))
    assert retried["version"] == 1
    cleared = task.execute(context_of(task, clears=1, try_number=3, max_tries=2))
    assert (cleared["version"], [pinned.version for pinned in pinned_versions(log)]) == (2, [2])
    with pytest.raises(AirflowFailException, match="A newer start of this task keeps version 2"):
        task.execute(context_of(task))
    assert [pinned.version for pinned in pinned_versions(log)] == [2]
    release = releases(cleared)
    assert release.execute(context_of(release)) == {"table": log.table, "version": 2}
    assert pinned_versions(log) == []
    assert release.execute(context_of(release)) == {"table": log.table, "version": None}


def test_a_version_or_a_time_can_be_asked_for(log: DeltaLog) -> None:
    task = keeps(version="{{ params.version }}")
    task.version = "0"
    assert task.execute(context_of(task))["version"] == 0
    task.version = " "
    assert task.execute(context_of(task, try_number=2))["version"] == 1
    task = keeps(timestamp="2999-01-01T00:00:00+00:00")
    assert task.execute(context_of(task, try_number=3))["version"] == 1
    task.version, task.timestamp = "x", None
    with pytest.raises(AirflowFailException, match="number of a version"):
        task.execute(context_of(task))
    task.version = 9
    with pytest.raises(AirflowFailException, match="no version 9"):
        task.execute(context_of(task, try_number=4))


def test_what_is_wrong_is_refused_in_the_dag_file() -> None:
    with pytest.raises(InvalidReadError, match="above 0"):
        keeps(keep_for=timedelta())
    with pytest.raises(InvalidReadError, match="not both"):
        keeps(version=1, timestamp="2019-01-01T00:00:00+00:00")


def test_nothing_is_let_go_of_where_nothing_was_kept(log: DeltaLog) -> None:
    release = releases(None)
    assert release.execute(context_of(release)) == {"table": None, "version": None}
    release.kept = {"version": 1}
    with pytest.raises(AirflowFailException, match="is no result of OneLakeKeepVersionOperator"):
        release.execute(context_of(release))
