"""An engine is one class and one line in the registry: this one needs no Spark, and nothing else knows of it."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from airflow.sdk import DAG
from deltalake import DeltaTable

from airflow_provider_onelake.decorators.write import onelake_write_task
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.spark import ENGINES, engine_for
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark import base
from tests.support.contexts import connect, context_of

ROWS = pa.table({"id": pa.array([1, 2, 3], pa.int64())})
SCHEMA = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}


class ArrowEngine(base.Engine):
    """Stages the rows of a table in memory, whatever the query."""

    def __init__(self, host: str) -> None:
        self.name = host

    @classmethod
    def of(cls, connection: Any, around: base.EngineContext) -> ArrowEngine:
        return cls(connection.host)

    def analyze(self, job: base.StageJob) -> str:
        return json.dumps(SCHEMA)

    def stage(self, job: base.StageJob) -> base.StageResult:
        assert job.buffer_uri is not None
        buffer = Path(job.buffer_uri.removeprefix("file://"))
        pq.write_table(ROWS, buffer / "part-0.parquet")
        said = json.dumps({"onelake": {"attempt": job.attempt, "reads_target": False}})
        now = int(datetime.now(UTC).timestamp() * 1000)
        actions: list[dict[str, Any]] = [
            {"commitInfo": {"timestamp": now, "operation": "WRITE", "isBlindAppend": True, "userMetadata": said}},
            {
                "add": {
                    "path": "part-0.parquet",
                    "partitionValues": {},
                    "size": (buffer / "part-0.parquet").stat().st_size,
                    "modificationTime": now,
                    "dataChange": True,
                    "stats": json.dumps({"numRecords": ROWS.num_rows}),
                }
            },
        ]
        entry = buffer / "_delta_log" / f"{1:020d}.json"
        entry.write_text("".join(f"{json.dumps(action)}\n" for action in actions))
        return base.StageResult(engine=self.name, reads_target=False)

    def optimize(self, job: base.OptimizeJob) -> base.SparkResult:
        raise NotImplementedError

    def vacuum(self, job: base.VacuumJob) -> base.SparkResult:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path), namespace="test")
    monkeypatch.setitem(ENGINES, "arrow", f"{__name__}:ArrowEngine")
    monkeypatch.setenv("AIRFLOW_CONN_A", json.dumps({"conn_type": "arrow", "host": "here"}))


def test_a_connection_of_its_type_chooses_it() -> None:
    engine = engine_for("a", timeout=1)
    assert isinstance(engine, ArrowEngine)
    assert engine.name == "here"


def test_a_writer_stages_by_it_and_publishes(tmp_path: Path) -> None:
    given = {"task_id": "write", "table": "Tables/trips", "writer": "w", "source": SqlSource("SELECT 1")}
    write = OneLakeWriteOperator(**given, spark_conn_id="a")  # type: ignore[arg-type]
    done = write.execute(context_of(write))
    assert (done["status"], done["version"], done["rows_published"]) == ("published", 0, 3)
    table = DeltaTable(str(tmp_path / "Tables" / "trips")).to_pyarrow_table()
    assert sorted(table.column("id").to_pylist()) == [1, 2, 3]


def test_its_jobs_die_with_the_task_unless_it_says_otherwise() -> None:
    given = {"task_id": "write", "table": "Tables/trips", "writer": "w", "source": SqlSource("SELECT 1")}
    write = OneLakeWriteOperator(**given, spark_conn_id="a")  # type: ignore[arg-type]
    context = context_of(write)
    write.execute(context)
    assert write.execute(context)["status"] == "skipped"
    engine = engine_for("a")
    assert not engine.outlives_the_task
    assert engine.left_at_work("file:///t", "owner", base.StageJob.doing) == []
    engine.wait_for("file:///t", "a1", base.StageJob.doing)
    engine.kill("file:///t", "a1", base.StageJob.doing)


def test_a_function_is_not_for_it_unless_it_says_so() -> None:
    @onelake_write_task(table="Tables/trips", spark_conn_id="a")
    def rows(spark: Any) -> Any:
        raise AssertionError("It is not called.")

    with DAG("d"):
        task = rows().operator
    with pytest.raises(AirflowFailException, match=r"type 'arrow'.*source=…, steps="):
        task.execute(context_of(task))


def test_without_its_line_its_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(ENGINES, "arrow")
    with pytest.raises(InvalidWriteError, match="'arrow'; Spark is reached through"):
        engine_for("a")
