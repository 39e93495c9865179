"""A function that makes the rows: in the job's own session, under its settings, its errors told from Spark's."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from airflow.providers.common.compat.sdk import AirflowSkipException
from deltalake import write_deltalake

from airflow_provider_onelake.exceptions import InvalidWriteError, SparkJobError, SparkJobTimeoutError, SparkQueryError
from airflow_provider_onelake.sources import FunctionSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.spark import Server, Target, make_job


def job_of(target: Target, function: Callable[..., Any], **fields: Any) -> StageJob:
    source = FunctionSource(function)
    return make_job(target, source.job(), rows=source.rows, **fields)


def three(spark: Any) -> Any:
    return spark.range(3)


def test_its_rows_are_staged(engine: ConnectEngine, target: Target) -> None:
    assert not engine.stage(job_of(target, three)).reads_target
    assert (target.versions, target.rows) == ([0, 1], 3)


def test_steps_read_them(engine: ConnectEngine, target: Target) -> None:
    engine.stage(job_of(target, three, where="id > 0", steps={"last": "SELECT id + 10 AS id FROM source"}))
    with target.buffer.joinpath("_delta_log", f"{1:020d}.json").open() as log:
        assert '\\"minValues\\":{\\"id\\":11}' in log.read()
    assert target.rows == 2


def test_what_a_table_would_be_is_found_without_staging(engine: ConnectEngine, target: Target) -> None:
    assert '"name": "id"' in engine.analyze(job_of(target, three))
    assert target.versions == [0]


def test_settings_that_staging_needs_are_taken_back(engine: ConnectEngine, target: Target) -> None:
    def meddles(spark: Any) -> Any:
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        return spark.range(1).selectExpr("CAST(current_timezone() = 'UTC' AS BIGINT) AS id")

    engine.stage(job_of(target, meddles))
    assert '\\"minValues\\":{\\"id\\":1}' in (target.buffer / "_delta_log" / f"{1:020d}.json").read_text()


def test_pysparks_functions_work_as_everywhere(engine: ConnectEngine, target: Target) -> None:
    def rows(spark: Any) -> Any:
        from pyspark.sql import Window
        from pyspark.sql import functions as F  # noqa: N812 - everybody's name for it

        numbered = spark.range(4).withColumn("n", F.row_number().over(Window.orderBy(F.col("id").desc())))
        return numbered.where(F.col("n") > 1).select(F.lit(7).cast("long").alias("id"))

    before = dict(os.environ)
    engine.stage(job_of(target, rows))
    assert target.rows == 3
    assert dict(os.environ) == before


@pytest.fixture
def filled(target: Target, connect_server: Server) -> Iterator[Target]:
    """A target with rows in it, which the catalog knows too, and another table beside it."""
    from pyspark.sql.connect.session import SparkSession

    spark: Any = SparkSession(connection=connect_server.remote)
    for path in (target.path, target.path.with_name("other")):
        write_deltalake(str(path), pd.DataFrame({"id": [1, 2]}))
    spark.sql(f"CREATE TABLE of_functions USING delta LOCATION '{target.path}'")
    yield target
    spark.sql("DROP TABLE of_functions")
    spark.stop()


def of(directory: Path, name: str) -> str:
    # A path that stands nowhere in the code.
    return f"{directory}/{name}"


def compressed(spark: Any, lake: Path) -> Any:
    """Counts the table in a query that is large enough for pyspark to compress its plan."""
    spark.client._plan_compression_threshold, spark.client._plan_compression_algorithm = 100, "ZSTD"
    rows = spark.read.format("delta").load(of(lake, "trips")).where(f"'{'x' * 1000}' <> ''")
    assert rows._plan.to_proto(spark.client).HasField("compressed_operation")
    return spark.range(rows.count())


READS = [
    pytest.param(lambda spark, lake: spark.read.format("delta").load(of(lake, "trips")), id="returned"),
    pytest.param(
        lambda spark, lake: spark.range(spark.read.format("delta").load(of(lake, "trips")).count()), id="counted"
    ),
    pytest.param(
        lambda spark, lake: spark.range(len(spark.sql(f"SELECT * FROM delta.`{lake}/trips`").take(1))), id="taken"
    ),
    pytest.param(lambda spark, lake: spark.range(spark.table("of_functions").count()), id="counted-by-name"),
    pytest.param(
        lambda spark, lake: spark.createDataFrame(spark.sql("SELECT max(id) AS id FROM of_functions").collect()),
        id="collected-by-name",
    ),
    pytest.param(
        lambda spark, lake: spark.createDataFrame(spark.read.parquet(f"{lake}/trips/*.parquet").toPandas()), id="pandas"
    ),
    pytest.param(compressed, id="compressed"),
]


@pytest.mark.parametrize("function", READS)
def test_that_it_reads_the_table_is_found_out(engine: ConnectEngine, filled: Target, function: Any) -> None:
    job = make_job(filled, {"kind": "function"}, rows=lambda spark: function(spark, filled.path.parent))
    assert engine.stage(job).reads_target
    assert filled.rows > 0


@pytest.mark.parametrize("function", READS[:3])
def test_another_table_is_none_of_its_business(engine: ConnectEngine, filled: Target, function: Any) -> None:
    elsewhere = filled.path.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "trips").symlink_to(filled.path.with_name("other"))
    job = make_job(filled, {"kind": "function"}, rows=lambda spark: function(spark, elsewhere))
    assert not engine.stage(job).reads_target


@pytest.mark.parametrize("made", [None, [1], pd.DataFrame({"id": [1]})], ids=["nothing", "list", "pandas"])
def test_something_else_than_a_data_frame_is_refused(engine: ConnectEngine, target: Target, made: Any) -> None:
    def rows(spark: Any) -> Any:
        return made

    with pytest.raises(InvalidWriteError, match=r"not a data frame of Spark.*Nothing was written"):
        engine.stage(job_of(target, rows))
    assert target.versions == [0]


def test_a_data_frame_of_another_session_is_refused(
    engine: ConnectEngine, target: Target, connect_server: Server
) -> None:
    from pyspark.sql.connect.session import SparkSession

    other: Any = SparkSession(connection=connect_server.remote)

    def rows(spark: Any) -> Any:
        return other.range(3)

    try:
        with pytest.raises(InvalidWriteError, match="of another Spark session"):
            engine.stage(job_of(target, rows))
    finally:
        other.stop()
    assert target.versions == [0]


def test_its_own_error_is_raised_as_it_is(engine: ConnectEngine, target: Target) -> None:
    def fails(spark: Any) -> Any:
        return {}["vendor"]

    def skips(spark: Any) -> Any:
        raise AirflowSkipException("nothing today")

    def misuses(spark: Any) -> Any:
        return spark.range(3).where(5)

    with pytest.raises(KeyError, match="vendor"):
        engine.stage(job_of(target, fails))
    with pytest.raises(TypeError):
        engine.stage(job_of(target, misuses))
    with pytest.raises(AirflowSkipException):
        engine.stage(job_of(target, skips))


def test_sparks_error_inside_it_is_sparks(engine: ConnectEngine, target: Target, tmp_path: Path) -> None:
    def missing(spark: Any) -> Any:
        spark.read.json(str(tmp_path / "missing.json")).count()

    with pytest.raises(SparkQueryError, match=r"missing\.json"):
        engine.stage(job_of(target, missing))


def test_it_is_stopped_by_its_time_out_and_by_the_task(target: Target, connect_server: Server) -> None:
    def endless(spark: Any) -> Any:
        try:
            spark.range(0, 10**15, 1, 2).where("xxhash64(id) = 42").count()
        except Exception as error:
            # Whatever it makes of it.
            raise ValueError("interrupted") from error

    with pytest.raises(SparkJobTimeoutError, match="longer than 5 s"):
        ConnectEngine(connect_server.remote, timeout=5).stage(job_of(target, endless))

    stopped = ConnectEngine(connect_server.remote)

    def stops(spark: Any) -> Any:
        stopped.stop()
        return spark.range(3)

    with pytest.raises(SparkJobError, match="as asked"):
        stopped.stage(job_of(target, stops))
    assert target.versions == [0]
