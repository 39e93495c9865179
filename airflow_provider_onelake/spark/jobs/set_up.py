"""Whether Spark has what a job needs, asked before it looks at a source, which may take it long.

Each question is one small request to a Connect server, and starts no Spark job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.spark.jobs.application import condition_of, settings_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_BY_SETTINGS = ("spark.sql.extensions", "spark.sql.catalog.spark_catalog")
_NOTHING_THERE = ("PATH_NOT_FOUND",)
_NO_DELTA = ("DATA_SOURCE_NOT_FOUND", "DELTA_CONFIGURE_SPARK_SESSION_WITH_EXTENSION_AND_CATALOG")


class SparkIsNotSetUpError(RuntimeError):
    """Spark lacks what every job needs."""


def check_delta(spark: SparkSession, table_uri: str) -> None:
    """Insist on Delta Lake.

    :param spark: session of the job's own.
    :param table_uri: of the job's table, as Spark addresses it; there need not be one.
    :raises Exception: Spark's own error says what is missing.
    """
    settings = settings_of(spark)
    if any("delta" in settings.get(name, "").lower() for name in _BY_SETTINGS):
        # Spark only warns of an extension that it cannot load. A catalog that it cannot load fails every query, this
        # one first.
        spark.catalog.currentCatalog()
    else:
        # Some Sparks have Delta Lake without these settings.
        try:
            _ = spark.read.format("delta").load(table_uri).schema
        except Exception as error:
            if condition_of(error) in _NO_DELTA:
                raise


def check_store(spark: SparkSession, table_uri: str) -> None:
    """Insist on reaching the table's store, whether there is a table yet or not.

    :param spark: session of the job's own.
    :param table_uri: of the job's table, as Spark addresses it.
    :raises Exception: Spark's own error says what is missing.
    """
    # Ask for one file, because Spark lists everything below a directory.
    is_there(spark, version_file(table_uri, 0))


def check_seen(spark: SparkSession, path: str) -> None:
    """Insist on seeing what this task has put into the store just now.

    :param path: of a text file, as Spark addresses it.
    :raises SparkIsNotSetUpError: Spark finds nothing there.
    """
    if not is_there(spark, path):
        raise SparkIsNotSetUpError(
            f"Spark finds no {path}, which this task has put there just now. It reaches another store, or a disk that "
            "is not mounted there under the same path."
        )


def version_file(table_uri: str, version: int) -> str:
    """Return the address of a version's file in the log of a Delta table, such as a buffer.

    :param table_uri: of the table, as Spark addresses it.
    """
    return f"{table_uri}/_delta_log/{version:020d}.json"


def is_there(spark: SparkSession, path: str) -> bool:
    """Say whether Spark finds a text file. Spark lists it and does not read it.

    :param path: as Spark addresses it.
    :raises Exception: Spark's own error says why it does not reach the store.
    """
    try:
        _ = spark.read.text(path).schema
    except Exception as error:
        if condition_of(error) not in _NOTHING_THERE:
            raise
        return False
    return True
