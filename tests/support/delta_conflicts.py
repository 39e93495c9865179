"""Provokes Delta's conflicts with Delta's own transactions: the loser is open until the winner has committed.

A program of its own, since a process cannot have a classic session beside those of Spark Connect:

    python -m tests.support.delta_conflicts DIRECTORY JARS

It prints a line of JSON: for each conflict, by the name of its exception, a :class:`Provoked` for the class that Delta's
Python package makes of it (``typed``), and one for what py4j raises where nobody imported that package (``raw``).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import attrs

from airflow_provider_onelake.retry_policies.onelake import failure_of
from tests.support.spark_jvms import INTERPRETED


@attrs.frozen
class Provoked:
    """An error and what is made of it: by itself, as the cause of another one, and where only its text is left."""

    kind: str
    alone: str | None
    as_cause: str | None
    as_text: str | None

    @classmethod
    def of(cls, error: BaseException) -> Provoked:
        """What is made of an error."""
        wrapper = RuntimeError("the load failed")
        wrapper.__cause__ = error
        found = [failure_of(one) for one in (error, wrapper, RuntimeError(f"the load failed: {error}"))]
        return cls(type(error).__name__, *(one and one.name for one in found))


@attrs.frozen
class Table:
    """A table with one row in each of the partitions ``a`` and ``b``."""

    spark: Any
    path: Path

    def sql(self, statement: str) -> None:
        """Commit as the winner."""
        self.spark.sql(statement.format(table=f"delta.`{self.path}`")).collect()

    def begin(self) -> Any:
        """Open the loser's transaction."""
        return self._delta.DeltaLog.forTable(self.spark._jsparkSession, str(self.path)).startTransaction()

    def removal(self, txn: Any, partition: str) -> Any:
        """The removal of a partition's file, without having read it."""
        files = txn.snapshot().allFiles().collectAsList()
        (file,) = [one for one in files if one.partitionValues().apply("part") == partition]
        return file.remove()

    def commit(self, txn: Any, action: Any) -> None:
        """Commit as the loser."""
        txn.commit(self.actions(action), self.operation)

    def actions(self, action: Any) -> Any:
        """One action, as Delta takes them."""
        return self.jvm.PythonUtils.toSeq([action])

    @property
    def operation(self) -> Any:
        """What a commit says that it does."""
        return getattr(getattr(self._delta, "DeltaOperations$ManualUpdate$"), "MODULE$")

    @property
    def jvm(self) -> Any:
        """py4j's view of the JVM."""
        return self.spark._jvm

    @property
    def _delta(self) -> Any:
        return self.jvm.org.apache.spark.sql.delta


def concurrent_append(table: Table) -> None:
    txn = table.begin()
    txn.readWholeTable()
    table.sql("MERGE INTO {table} t USING (SELECT 9 id, 'a' part) s ON t.id = s.id WHEN NOT MATCHED THEN INSERT *")
    table.commit(txn, table.removal(txn, "a"))


def concurrent_delete_read(table: Table) -> None:
    txn = table.begin()
    txn.filterFiles()
    table.sql("DELETE FROM {table} WHERE part = 'a'")
    table.commit(txn, table.removal(txn, "b"))


def concurrent_delete_delete(table: Table) -> None:
    txn = table.begin()
    table.sql("DELETE FROM {table} WHERE part = 'a'")
    table.commit(txn, table.removal(txn, "a"))


def metadata_changed(table: Table) -> None:
    txn = table.begin()
    table.sql("ALTER TABLE {table} ADD COLUMN more STRING")
    table.commit(txn, table.removal(txn, "a"))


def protocol_changed(table: Table) -> None:
    txn = table.begin()
    table.sql("ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")
    table.commit(txn, txn.snapshot().protocol())


def concurrent_transaction(table: Table) -> None:
    txn = table.begin()
    txn.txnVersion("load")
    options = {"txnAppId": "load", "txnVersion": "1"}
    rows = table.spark.sql("SELECT 3L id, 'c' part")
    rows.write.format("delta").mode("append").options(**options).save(str(table.path))
    table.commit(
        txn,
        table.jvm.org.apache.spark.sql.delta.actions.SetTransaction("load", 1, table.jvm.scala.Option.empty()),
    )


def concurrent_write(table: Table) -> None:
    # Only RESTORE, CLONE and CONVERT commit this way.
    txn = table.begin()
    table.sql("DELETE FROM {table} WHERE part = 'a'")
    actions = table.actions(table.removal(txn, "b")).iterator()
    no_version, nothing = table.jvm.scala.Option.empty(), table.jvm.PythonUtils.toScalaMap({})
    txn.commitLarge(table.spark._jsparkSession, actions, no_version, table.operation, nothing, nothing)


LOSERS: dict[str, Callable[[Table], None]] = {
    "ConcurrentAppendException": concurrent_append,
    "ConcurrentDeleteReadException": concurrent_delete_read,
    "ConcurrentDeleteDeleteException": concurrent_delete_delete,
    "MetadataChangedException": metadata_changed,
    "ProtocolChangedException": protocol_changed,
    "ConcurrentTransactionException": concurrent_transaction,
    "ConcurrentWriteException": concurrent_write,
}


def provoke(name: str, table: Table) -> BaseException:
    """Return the error of a lost race.

    :param name: of the exception.
    :param table: that nobody else uses.
    """
    rows = table.spark.sql("SELECT 1L id, 'a' part UNION ALL SELECT 2L, 'b'")
    rows.write.format("delta").partitionBy("part").save(str(table.path))
    try:
        LOSERS[name](table)
    except Exception as error:
        return error
    raise AssertionError(f"{name}: the loser won")


def main(directory: Path, jar_files: str) -> None:
    """Provoke all of them, and print what is made of them."""
    from pyspark.sql import SparkSession

    settings = {
        **INTERPRETED,
        "spark.jars": jar_files,
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.shuffle.partitions": "1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
    raw = Provoked.of(provoke("ConcurrentAppendException", Table(spark, directory / "raw")))
    # Whoever imports it gets Delta's errors of the JVM as classes of their own; before, they are py4j's.
    import delta.exceptions  # noqa: F401

    typed = {name: Provoked.of(provoke(name, Table(spark, directory / name))) for name in LOSERS}
    print(json.dumps({"raw": raw, "typed": typed}, default=attrs.asdict), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
