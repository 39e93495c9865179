"""MERGE by spark-submit: a source that is staged once, a round for each look at the table, errors as by Spark Connect."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable, write_deltalake

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.submit.engine import SubmitEngine
from tests.support.contexts import connect as connect_lakehouse
from tests.support.contexts import context_of
from tests.support.engines import overtake, use_engine

OPS = "SELECT id, concat('new ', id) AS v, '2019-02' AS month, if(id % 2 = 0, 'd', 'u') AS op FROM range(2, 6)"
WHEN = [
    "MATCHED AND source.op = 'd' THEN DELETE",
    "MATCHED THEN UPDATE SET target.v = source.v",
    "NOT MATCHED THEN INSERT (id, v, month) VALUES (source.id, source.v, source.month)",
]


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    connect_lakehouse(monkeypatch, OneLakeHook, lakehouse=str(tmp_path / "lake"), namespace="test")
    path = tmp_path / "lake" / "Tables" / "ours"
    path.mkdir(parents=True)
    append(path, [0, 1, 2, 3], "2019-01")
    return path


def append(path: Path, ids: list[int], month: str) -> None:
    rows = pa.table({"id": ids, "v": [f"old {row}" for row in ids], "month": [month] * len(ids)})
    write_deltalake(str(path), rows, mode="append", partition_by=["month"])


def rows(path: Path) -> list[tuple[Any, ...]]:
    found = DeltaTable(str(path)).to_pyarrow_table(columns=["id", "v", "month"]).to_pylist()
    return sorted(tuple(row.values()) for row in found)


@pytest.mark.parametrize(
    ("brought", "counts", "fourth"),
    [
        pytest.param([], [1, 2, 1, 1], (4, "new 4", "2019-02"), id="alone"),
        # The row 4 came with the other's append, so it is deleted and not inserted.
        pytest.param([4, 9], [2, 1, 1, 2], (9, "old 9", "2019-01"), id="overtaken", marks=pytest.mark.nightly),
    ],
)
def test_a_merge_looks_again_at_what_others_brought(
    local: Callable[..., SubmitEngine],
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    brought: list[int],
    counts: list[int],
    fourth: tuple[Any, ...],
) -> None:
    engine = use_engine(monkeypatch, local())
    if brought:
        overtake(monkeypatch, engine, "change", lambda: append(table, brought, "2019-01"))
    terms: dict[str, Any] = {"mode": Merge(keys=["id"], when=WHEN), "tuning": Tuning(preflight=False)}
    task = OneLakeWriteOperator(task_id="merge", table="Tables/ours", source=SqlSource(OPS), **terms)
    done = task.execute(context_of(task))
    assert done["status"] == "published"
    assert [done[what] for what in ("rounds", "rows_inserted", "rows_updated", "rows_deleted")] == counts
    others = [(0, "old 0", "2019-01"), (1, "old 1", "2019-01"), (3, "new 3", "2019-01"), (5, "new 5", "2019-02")]
    assert rows(table) == sorted([*others, fourth])


@pytest.mark.nightly
def test_a_source_with_a_key_twice_is_refused_by_the_driver(
    local: Callable[..., SubmitEngine], table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_engine(monkeypatch, local())
    before = rows(table)
    twice = SqlSource("SELECT 3L AS id, 'a' AS v, '2019-01' AS month UNION ALL SELECT 3L, 'b', '2019-01'")
    task = OneLakeWriteOperator(
        task_id="merge", table="Tables/ours", source=twice, mode=Merge(keys=["id"]), tuning=Tuning(preflight=False)
    )
    with pytest.raises(AirflowFailException, match=r"ConstraintViolatedError.*\(3\).*The table is unchanged"):
        task.execute(context_of(task))
    assert rows(table) == before
