"""JVMs of Spark that are ready in half the time, as tests start many and use each for a minute or ten.

A JVM of Spark loads, verifies and compiles twenty thousand classes before its first query is done. So the classes come
from an archive, which one Spark of ours writes once, and they are compiled quickly instead of for a long life.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from functools import cache
from pathlib import Path
from typing import Any

from include.local import jars
from include.local.connect_server import free_port
from include.local.settings import from_environment
from tests.support.tools import once

# The first compiler alone gets a code cache of 48 MB by default, which Spark fills: then the JVM throws code away and
# compiles it again all the time. Of heaps with a few rows, the serial collector makes the least work.
# It collects all of the heap each time when classes need a bit more room than the last time, unless they have it.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m -XX:+UseSerialGC -XX:NewRatio=1 -XX:MetaspaceSize=256m"

# Settings of Spark for tables of a few rows: to compile a query costs more than to run it. The live tests, the demo and
# the bench compile.
INTERPRETED = {"spark.sql.codegen.factoryMode": "NO_CODEGEN", "spark.sql.codegen.wholeStage": "false"}

_FOR_SUBMIT = "SPARK_SUBMIT_OPTS"
_CLASSES = "classes.jsa"


def archive() -> Path:
    """Return where the archive of this machine's Java and Spark is, or is to be.

    :raises SetUpError: Java or Spark is missing.
    """
    home = jars.spark_home()
    # The JVM takes an archive only with the very files that it was made with.
    made_with = [jars.java().resolve(), home, *sorted((home / "jars").glob("*.jar"))]
    seen = "".join(f"{path}:{path.stat().st_mtime_ns}\n" for path in made_with)
    name = f"spark-classes-{hashlib.sha256(seen.encode()).hexdigest()[:12]}"
    return from_environment().jars.absolute() / "tools" / name / _CLASSES


@cache
def options() -> str:
    """Return the options of a JVM of Spark that is not to live long; with the archive, if there is one."""
    try:
        classes = archive()
    except jars.SetUpError:
        return _QUICK
    # A JVM with another class path does without the archive, and is not to say so in a log.
    return f"{_QUICK} -XX:SharedArchiveFile={classes} -Xlog:cds*=off" if classes.exists() else _QUICK


def use() -> None:
    """Start every ``spark-submit`` of this process and of its children with these options, and of the tests' Spark."""
    os.environ[_FOR_SUBMIT] = options()
    if os.environ.get(jars.OTHER_SPARK):
        os.environ["SPARK_HOME"] = str(jars.spark_home())


def make() -> Path:
    """Return the archive, written on the first call only: of what a Spark Connect server loads for usual statements.

    :raises SetUpError: Java, Spark or its JARs are missing.
    :raises ServerError: the server did not start.
    """
    path = archive()
    files = jars.resolve(from_environment().jars)

    def write(home: Path) -> None:
        print("Writing an archive of Spark's classes, once: about a minute …", flush=True)
        written = home / "spark" / _CLASSES
        os.environ[_FOR_SUBMIT] = f"{_QUICK} -XX:ArchiveClassesAtExit={written} -Xlog:cds*=off"
        _run_spark(written.parent, files)
        if written.exists():
            written.rename(path)
        else:
            print("This Java writes no archive: the tests take a fifth longer.")
        shutil.rmtree(written.parent)

    once(from_environment().jars, path.parent.name, write, proof=_CLASSES)
    return path


def _run_spark(state: Path, files: list[Path]) -> None:
    # Not at the module's head, as conftest imports this module before Airflow has a home.
    from pyspark.sql import SparkSession

    from tests.support.spark import Server
    from tests.support.spark_server import SETTINGS

    server = Server(state, port=free_port(), ui_port=free_port(), jar_files=files, settings=SETTINGS)
    server.start()
    try:
        spark = SparkSession.builder.remote(server.remote).getOrCreate()
        try:
            _do_a_bit_of_all(spark, state)
        finally:
            spark.stop()
    finally:
        # The JVM writes the archive when it ends.
        server.stop(timeout=300)


def _do_a_bit_of_all(spark: Any, state: Path) -> None:
    columns = ("id", "id % 3 AS part", "cast(id AS STRING) AS text", "now() AS at")
    for form in ("json", "csv", "parquet"):
        spark.range(200).write.format(form).save(str(state / form))
        source = spark.read.format(form).schema("id BIGINT").load(str(state / form)).where("id % 2 = 0")
        rows = source.join(spark.range(200), "id").selectExpr(*columns)
        rows.write.format("delta").partitionBy("part").mode("append").save(str(state / "table"))
    table = f"delta.`{state / 'table'}`"
    merge = f"""MERGE INTO {table} t USING (SELECT {", ".join(columns)} FROM range(50, 150)) s ON t.id = s.id
        WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"""
    for statement in (
        f"DELETE FROM {table} WHERE id < 5",
        f"UPDATE {table} SET text = 'x' WHERE id < 15",
        merge,
        f"OPTIMIZE {table}",
        f"DESCRIBE HISTORY {table}",
        f"SELECT part, count(*), max(at) FROM {table} GROUP BY part ORDER BY part",
    ):
        spark.sql(statement).collect()


if __name__ == "__main__":
    try:
        make()
    except jars.SetUpError as error:
        sys.exit(f"Set-up failed. {error}")
