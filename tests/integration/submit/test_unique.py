"""Keys that must be unique, by spark-submit: each comparison is a driver of its own, and none gets another's result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowFailException
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.checks import unique
from airflow_provider_onelake.engines.submit.engine import SubmitEngine
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from tests.support.contexts import connect as connect_lakehouse
from tests.support.contexts import context_of
from tests.support.engines import overtake, use_engine


def test_what_others_bring_is_compared_by_another_driver(
    local: Callable[..., SubmitEngine], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect_lakehouse(monkeypatch, OneLakeHook, lakehouse=str(tmp_path / "lake"), namespace="test")
    path = tmp_path / "lake" / "Tables" / "ours"
    path.mkdir(parents=True)

    def append(*ids: int) -> None:
        write_deltalake(str(path), pa.table({"id": ids}), mode="append")

    append(1, 9)
    engine = use_engine(monkeypatch, local())
    overtake(monkeypatch, engine, "audit", lambda: append(3, 7))
    task = OneLakeWriteOperator(
        task_id="write",
        table="Tables/ours",
        source=SqlSource("SELECT id FROM VALUES (3L), (4L) AS t(id)"),
        checks={"once": unique("id")},
        preflight=False,
    )
    said = "1 shares it with a row of the table, in 1 file of version 1 that came after version 0"
    with pytest.raises(AirflowFailException, match=said):
        task.execute(context_of(task))
    assert sorted(DeltaTable(str(path)).to_pyarrow_table().column("id").to_pylist()) == [1, 3, 7, 9]
