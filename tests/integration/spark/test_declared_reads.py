"""A job reads what its author says that it reads of the table, as ``target``, and what it reads besides is found out.

Protocol: reads its target.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.read_shadow import open_read_shadow
from airflow_provider_onelake.buffers.reads import Reads
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.sources import FunctionSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.tables import Stage, complete, local_log, prepare, writer_spec

SOME = Reads("part = 'a b'")


@pytest.fixture(params=["plain", "vectors", "column mapping", "row ids"])
def log(request: pytest.FixtureRequest, tmp_path: Path, spark: Any) -> DeltaLog:
    """Ids 0 to 9, five in each of two partitions, of which a DELETE took 4 and 9."""
    properties = {
        "plain": "",
        "vectors": "TBLPROPERTIES (delta.enableDeletionVectors = true)",
        "column mapping": "TBLPROPERTIES (delta.columnMapping.mode = 'name')",
        "row ids": "TBLPROPERTIES (delta.enableRowTracking = true, delta.enableInCommitTimestamps = true)",
    }[request.param]
    path = tmp_path / "a lake" / "trips"
    spark.sql(f"CREATE TABLE delta.`{path}` (id BIGINT, part STRING) USING delta PARTITIONED BY (part) {properties}")
    spark.sql(f"INSERT INTO delta.`{path}` SELECT id, IF(id < 5, 'a b', 'c') FROM range(0, 10, 1, 1)")
    spark.sql(f"DELETE FROM delta.`{path}` WHERE id IN (4, 9)")
    return local_log(path)


def job_of(log: DeltaLog, source: dict[str, Any], reads: Reads = SOME, **fields: Any) -> StageJob:
    task = prepare(log, writer_spec(str(uuid.uuid4()), reads=reads))
    assert isinstance(task, Stage)
    target = open_read_shadow(log, task, log.table)
    return StageJob(
        source=source,
        table_uri=log.table,
        buffer_uri=f"{log.table}/{task.path}",
        target_uri=f"{log.table}/{target}",
        metadata=task.metadata,
        attempt=Path(task.path).name,
        **fields,
    )


def sql(query: str) -> dict[str, Any]:
    return {"kind": "sql", "query": query}


def staged(engine: ConnectEngine, log: DeltaLog, spark: Any, job: StageJob) -> tuple[bool, list[int]]:
    """Whether the job is said to have read the table besides, and the ids that it has staged."""
    at_large = engine.stage(job).reads_target
    buffer = complete(log, str(job.buffer_uri).removeprefix(f"{log.table}/"), at_large)
    assert (buffer.reads_target, buffer.reads is None) == (True, at_large)
    rows = spark.read.format("delta").option("versionAsOf", 1).load(job.buffer_uri).collect()
    return at_large, sorted(row["id"] for row in rows)


def test_it_reads_the_rows_of_the_named_partitions(engine: ConnectEngine, log: DeltaLog, spark: Any) -> None:
    job = job_of(log, sql("SELECT id + 100 AS id, part FROM target"))
    assert staged(engine, log, spark, job) == (False, [100, 101, 102, 103])


@pytest.mark.promise
def test_what_has_been_committed_since_is_not_read(engine: ConnectEngine, log: DeltaLog, spark: Any) -> None:
    job = job_of(log, sql("SELECT count(*) AS id, max(part) AS part FROM target"))
    spark.sql(f"INSERT INTO delta.`{log.table}` VALUES (77, 'a b')")
    assert staged(engine, log, spark, job) == (False, [4])


def test_steps_and_filters_read_it_too(engine: ConnectEngine, log: DeltaLog, spark: Any) -> None:
    job = job_of(
        log,
        sql("SELECT id, 'a b' AS part FROM range(20)"),
        where="id NOT IN (SELECT id FROM target)",
        steps={"new": "SELECT s.* FROM source s LEFT ANTI JOIN target t ON s.id = t.id + 15"},
    )
    assert staged(engine, log, spark, job) == (False, [*range(4, 15), 19])


def test_a_function_reads_it(engine: ConnectEngine, log: DeltaLog, spark: Any) -> None:
    def newer(spark: Any) -> Any:
        newest = spark.table("target").agg({"id": "max"}).collect()[0][0]
        return spark.sql(f"SELECT {newest} + 1 AS id, 'a b' AS part UNION ALL SELECT id, part FROM target")

    source = FunctionSource(newer)
    job = job_of(log, source.job(), rows=source.rows)
    assert staged(engine, log, spark, job) == (False, [0, 1, 2, 3, 4])


@pytest.mark.parametrize("log", ["plain"], indirect=True)
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT t.* FROM target t JOIN delta.`{table}` USING (id)", id="by its path"),
        pytest.param("SELECT count(*) AS id, 'a b' AS part FROM delta.`{table}`", id="answered from statistics"),
        pytest.param("SELECT id, part FROM target UNION ALL SELECT id, 'c' FROM parquet.`{table}/part=c`", id="files"),
        pytest.param("SELECT id, part FROM target WHERE id > (SELECT min(id) FROM known_too)", id="in a subquery"),
    ],
)
def test_what_it_reads_besides_is_found_out(engine: ConnectEngine, log: DeltaLog, spark: Any, query: str) -> None:
    spark.sql(f"CREATE TABLE known_too USING delta LOCATION '{log.table}'")
    try:
        assert engine.stage(job_of(log, sql(query.format(table=log.table)))).reads_target
    finally:
        spark.sql("DROP TABLE known_too")


@pytest.mark.parametrize("log", ["plain"], indirect=True)
def test_a_function_that_reads_the_table_besides_is_found_out(engine: ConnectEngine, log: DeltaLog) -> None:
    def of_all(spark: Any) -> Any:
        newest = spark.read.format("delta").load(log.table).agg({"id": "max"}).collect()[0][0]
        return spark.sql(f"SELECT {newest} AS id, part FROM target LIMIT 1")

    source = FunctionSource(of_all)
    assert engine.stage(job_of(log, source.job(), rows=source.rows)).reads_target


@pytest.mark.parametrize("log", ["plain"], indirect=True)
@pytest.mark.parametrize("where", ["part = 'x'", "true"])
def test_an_empty_part_and_the_whole_table_can_be_read(
    engine: ConnectEngine, log: DeltaLog, spark: Any, where: str
) -> None:
    job = job_of(log, sql("SELECT count(*) AS id, 'd' AS part FROM target"), Reads(where))
    assert staged(engine, log, spark, job) == (False, [8 if where == "true" else 0])


@pytest.mark.parametrize("log", ["plain"], indirect=True)
def test_columns_are_found_without_what_is_read(engine: ConnectEngine, log: DeltaLog) -> None:
    """Before the buffer is there, the job is analysed over the table itself."""
    job = job_of(log, sql("SELECT id, part, id * 2 AS twice FROM target"))
    analysed: Callable[[StageJob], str] = engine.analyze
    schema = analysed(attrs.evolve(job, buffer_uri=None, metadata=None, target_uri=log.table, evolves=True))
    assert '"name": "twice"' in schema
