"""The problems of ``df.write.mode("overwrite")`` on plain files: each is a test that it is none here.

One of them is Spark's side to refuse: tests/integration/spark/test_stage.py,
``test_columns_that_do_not_fit_are_refused_before_a_row_is_written``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import Merge, Mode
from airflow_provider_onelake.operators.optimize import OneLakeOptimizeOperator
from airflow_provider_onelake.operators.restore import OneLakeRestoreOperator
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.base import StageJob, StageResult
from airflow_provider_onelake.storage import stores
from tests.support.contexts import connect, context_of
from tests.support.engines import use_engine
from tests.support.sql_by_hand import SqlByHand, files_of, table_rows
from tests.support.stores import LoserHeld
from tests.support.tables import foreign_append, make_table, newest

OLD = [(1, "x"), (2, "x"), (3, "y")]
NEW = [(4, "x"), (5, "z")]


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeltaLog:
    """Version 3 has the old rows, in a file each."""
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path))
    use_engine(monkeypatch, SqlByHand())
    log = make_table(tmp_path / "Tables" / "t")
    for row, month in OLD:
        foreign_append(log, {month: [row]})
    return log


def write(mode: str | Mode = "overwrite", **terms: Any) -> OneLakeWriteOperator:
    query = " UNION ALL ".join(f"SELECT {row} AS id, '{month}' AS month" for row, month in NEW)
    return OneLakeWriteOperator(
        task_id="write", table="Tables/t", source=SqlSource(query), mode=mode, tuning=Tuning(preflight=False), **terms
    )


def test_a_job_that_dies_half_way_leaves_the_old_rows(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    class Dies(SqlByHand):
        def stage(self, job: StageJob) -> StageResult:
            files_of(Path(str(job.buffer_uri).removeprefix("file://")), NEW[:1], ["month"])
            raise SparkJobError("the driver is gone")

    task = write()
    with monkeypatch.context() as dying:
        use_engine(dying, Dies())
        with pytest.raises(SparkJobError):
            task.execute(context_of(task))
    assert (table_rows(Path(log.table)), newest(log).version) == (OLD, 3)
    again = write()
    again.execute(context_of(again, try_number=2))
    assert table_rows(Path(log.table)) == NEW


def test_a_reader_sees_the_old_rows_or_the_new_ones(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    from deltalake import DeltaTable

    table = OneLakeHook().table("Tables/t")
    began, opened, seen = table.read(["id"]), stores.open_store, []
    slow = DeltaTable(log.table)

    def look() -> None:
        seen.append(table_rows(Path(log.table)))

    with monkeypatch.context() as held:
        held.setattr(stores, "open_store", lambda *which: LoserHeld(opened(*which), look))
        task = write()
        task.execute(context_of(task))
    assert seen == [OLD]
    assert table_rows(Path(log.table)) == NEW
    # Whoever has begun to read goes on with the old rows, as nobody deletes their files under them.
    with began as rows:
        assert sorted(row for batch in rows for row in batch.column("id").to_pylist()) == [1, 2, 3]
    assert sorted(slow.to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]


def test_small_files_become_one_and_the_rows_stay(log: DeltaLog) -> None:
    task = OneLakeOptimizeOperator(task_id="optimize", table="Tables/t", min_files=2)
    done = task.execute(context_of(task))
    assert (done["files_before"], done["files_after"]) == (2, 1)
    assert done["summary"].endswith(", in 1 partition")
    assert table_rows(Path(log.table)) == OLD


def test_rows_are_updated_by_their_keys_and_the_others_stay(log: DeltaLog) -> None:
    foreign_append(log, {"y": [4]})
    task = write(Merge(keys=["id"]))
    done = task.execute(context_of(task))
    assert (done["rows_updated"], done["rows_inserted"]) == (1, 1)
    assert table_rows(Path(log.table)) == [*OLD, *NEW]


def test_the_old_rows_come_back(log: DeltaLog) -> None:
    task = write()
    task.execute(context_of(task))
    back = OneLakeRestoreOperator(task_id="back", table="Tables/t", version=3)
    assert back.execute(context_of(back))["restored_to"] == 3
    assert table_rows(Path(log.table)) == OLD
