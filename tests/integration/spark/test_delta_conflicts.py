"""Delta's conflicts, provoked over Spark Connect, are told from other failures: the retry policy tries again at once."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from airflow_provider_onelake.retry_policies.onelake import Failure, failure_of
from tests.support.spark import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class Gate:
    """Holds a Spark job open, from one process to another."""

    directory: Path

    def held_rows(self, spark: SparkSession) -> Any:
        """A row that is computed once the gate is open, within the transaction that writes it."""
        from pyspark.sql.connect.functions import col, udf
        from pyspark.sql.types import LongType

        begun, go = self.directory / "begun", self.directory / "go"

        # Sent to Spark's workers, which know nothing of this module.
        def wait(value: int) -> int:
            import time

            begun.touch()
            while not go.exists():
                time.sleep(0.02)
            return value

        return spark.sql("SELECT 5L AS id, 'a' AS part").withColumn("id", udf(wait, LongType())(col("id")))

    def wait_begun(self, job: Future[Any]) -> None:
        """Wait until the job computes rows."""
        while not (self.directory / "begun").exists():
            if job.done():
                job.result()
            time.sleep(0.02)

    def open(self) -> None:
        """Let the job go on."""
        (self.directory / "go").touch()


@pytest.fixture
def loser(connect_server: Server) -> Iterator[SparkSession]:
    """A second session on the same server."""
    from pyspark.sql.connect.session import SparkSession

    session: Any = SparkSession(connection=connect_server.remote)
    yield session
    session.stop()


@attrs.frozen
class Race:
    """How the loser writes, and what the winner commits in between. Without a statement, it makes the table as well."""

    options: dict[str, str]
    winner: str | None = None

    def win(self, spark: SparkSession, table: Path) -> None:
        """Commit as the winner."""
        if self.winner is None:
            spark.sql("SELECT 3L AS id, 'b' AS part").write.format("delta").save(str(table))
            return
        for name in ("txnAppId", "txnVersion"):
            if value := self.options.get(name):
                spark.conf.set(f"spark.databricks.delta.write.{name}", value)
        spark.sql(self.winner.format(table=f"delta.`{table}`")).collect()


RACES = {
    "DELTA_CONCURRENT_APPEND": Race(
        {"mode": "overwrite", "replaceWhere": "part = 'a'"},
        "MERGE INTO {table} t USING (SELECT 9L id, 'a' part) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *",
    ),
    "DELTA_CONCURRENT_DELETE_READ": Race(
        {"mode": "overwrite", "replaceWhere": "part = 'a'"}, "DELETE FROM {table} WHERE part = 'a'"
    ),
    "DELTA_CONCURRENT_TRANSACTION": Race(
        {"mode": "append", "txnAppId": "load", "txnVersion": "1"}, "INSERT INTO {table} SELECT 3L, 'b'"
    ),
    "DELTA_METADATA_CHANGED": Race({"mode": "append"}, "ALTER TABLE {table} ADD COLUMN more STRING"),
    "DELTA_PROTOCOL_CHANGED": Race({"mode": "append"}),
}


@pytest.mark.parametrize("condition", RACES)
def test_a_lost_race_is_a_conflict_itself_and_where_only_its_text_is_left(
    spark: SparkSession, loser: SparkSession, tmp_path: Path, condition: str
) -> None:
    race, table = RACES[condition], tmp_path / "table"
    if race.winner is not None:
        rows = spark.sql("SELECT 1L id, 'a' part UNION ALL SELECT 2L, 'b'")
        rows.write.format("delta").partitionBy("part").save(str(table))
    gate = Gate(tmp_path)
    with ThreadPoolExecutor(1) as threads:
        writer = gate.held_rows(loser).write.format("delta")
        job = threads.submit(functools.partial(writer.save, str(table), **race.options))
        try:
            gate.wait_begun(job)
            race.win(spark, table)
        finally:
            gate.open()
        error: Any = job.exception()
    assert error.getCondition().startswith(condition)
    assert failure_of(error) is Failure.CONFLICT
    assert failure_of(RuntimeError(f"the load failed: {error}")) is Failure.CONFLICT
