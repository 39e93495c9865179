"""One round of a DELETE, UPDATE or MERGE, in a session that may be one of Spark Connect.

No function of Python runs inside Spark, because the server may lack Python or have another one: only SQL is used. The
session must be the job's own, as settings are changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.application import application, configure
from airflow_provider_onelake.spark.jobs.columns import ended, quoted
from airflow_provider_onelake.spark.jobs.private_table import SETTINGS, is_untouched
from airflow_provider_onelake.spark.jobs.v_order import v_order_settings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession


_MOST_NAMED = 5
_SOURCE = "onelake__source"
_OF_PLAIN_FILES = {
    # By default, Delta keeps a copy of a source that is no Delta table, in case its second look finds other rows.
    # These files never change.
    "spark.databricks.delta.merge.materializeSource": "none",
}


class KeysAreNotUniqueError(ValueError):
    """The source of a MERGE has a key twice, or a NULL in one."""


def change(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a statement in a shadow, as its version 1. Where no row matches, there is no version 1.

    A second run of the same round does nothing. Where the first died before it committed, its files are nobody's.

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.ChangeJob``.
    :returns: ``application_id`` and ``ui``.
    :raises KeysAreNotUniqueError: the source of a MERGE has a key twice, or a NULL in one.
    """
    plain = _OF_PLAIN_FILES if job.get("source_files") else {}
    configure(spark, {**SETTINGS, **plain, **v_order_settings(job)})
    if is_untouched(spark, job["shadow_uri"]):
        if job.get("source_uri"):
            _source(spark, job).createOrReplaceTempView(_SOURCE)
        if job.get("keys"):
            _check_keys(spark, job["keys"])
        spark.sql(statement(job)).collect()
    return application(spark)


def statement(job: Mapping[str, Any]) -> str:
    """Return the statement in SQL.

    :param job: fields of ``spark.base.ChangeJob``.
    """
    shadow = f"delta.{quoted(job['shadow_uri'])}"
    if job.get("source_uri"):
        clauses = "".join(f"WHEN {clause}\n" for clause in job["when"])
        return f"MERGE INTO {shadow} AS target USING {_SOURCE} AS source ON {ended(job['where'])}\n{clauses}"
    # The author's texts may end in a comment, so each of them ends with its line.
    where = f"WHERE {ended(job['where'])}"
    sets = ",\n".join(f"{_column(name)} = {sql}\n" for name, sql in job["assignments"].items())
    return " ".join(["UPDATE", shadow, "SET\n", sets, where] if sets else ["DELETE FROM", shadow, where])


def _source(spark: SparkSession, job: Mapping[str, Any]) -> DataFrame:
    """Return the rows of a MERGE's source."""
    if files := job.get("source_files"):
        from pyspark.sql.types import StructType

        schema = StructType.fromJson(json.loads(job["source_schema"]))
        return spark.read.schema(schema).parquet(*files)
    # Only version 1 counts, whatever an attempt that came back may have appended since (protocol: exactly version 1).
    return spark.read.format("delta").option("versionAsOf", 1).load(job["source_uri"])


def _check_keys(spark: SparkSession, names: Sequence[str]) -> None:
    """Refuse a source in which rows have equal keys or NULL in one.

    Delta notices two such rows only where they match a row of the table, and names none. Where they match none, it
    inserts both. A NULL matches nothing, so that every run would insert its row again.
    """
    keys = [quoted(name) for name in names]
    null = " OR ".join(f"{key} IS NULL" for key in keys)
    listed = ", ".join(keys)
    twice = f"GROUP BY {listed} HAVING count(*) > 1 OR {null} LIMIT {_MOST_NAMED}"
    found = spark.sql(f"SELECT {listed} FROM {_SOURCE} {twice}").collect()  # noqa: S608 - the names are quoted
    if found:
        raise KeysAreNotUniqueError(not_unique(names, found))


def not_unique(names: Sequence[str], found: Iterable[Sequence[Any]]) -> str:
    """Say that the source of a MERGE has a key twice, or a NULL in one.

    :param names: of the columns.
    :param found: some such keys.
    """
    rows = (", ".join("NULL" if value is None else str(value) for value in row) for row in found)
    named = ", ".join(f"({row})" for row in rows)
    return (
        f"The source of the MERGE has rows with equal keys, or with NULL in one, so nobody could say which row "
        f"counts. Of ({', '.join(names)}), for example: {named}. Nothing was merged."
    )


def _column(name: str) -> str:
    """Quote a column, or a field of a nested one, unless its author has done so."""
    return name if "`" in name else ".".join(quoted(part) for part in name.split("."))
