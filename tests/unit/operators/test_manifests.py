"""The operator that writes symlink manifests."""

from __future__ import annotations

from pathlib import Path

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.manifests import OneLakeManifestOperator
from tests.support.contexts import connect, context_of
from tests.support.tables import foreign_append, make_table


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> OneLakeManifestOperator:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    return OneLakeManifestOperator(task_id="manifests", table="Tables/trips")


def test_it_writes_the_manifests_and_says_where_they_are(task: OneLakeManifestOperator, tmp_path: Path) -> None:
    path = tmp_path / "Tables/trips"
    foreign_append(make_table(path), {"01": [1], "02": [2]})
    found = task.execute(context_of(task))
    said = {"table": str(path), "version": 1, "files": 2, "manifests": 2, "deleted": 0}
    assert found == {**said, "directory": f"file:{path}/_symlink_format_manifest/"}
    (line,) = (path / "_symlink_format_manifest/month=01/manifest").read_text().splitlines()
    assert Path(line.removeprefix("file:")).is_file()


def test_what_would_lie_fails_the_task_for_good(task: OneLakeManifestOperator, tmp_path: Path) -> None:
    make_table(tmp_path / "Tables/trips", **{"delta.columnMapping.mode": "name"})
    with pytest.raises(AirflowFailException, match="column mapping"):
        task.execute(context_of(task))
