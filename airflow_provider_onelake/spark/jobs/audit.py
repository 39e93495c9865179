"""Evaluate a writer's checks over the rows that it has staged, all of them by one query.

Works with a Spark Connect session and with a classic one: only SQL and the data frame reader are used. The session must
be the job's own, as a view is made in it and settings are changed.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.application import WHOLE_FILES, application, condition_of, configure
from airflow_provider_onelake.spark.jobs.columns import ended, quoted, unmet
from airflow_provider_onelake.spark.jobs.set_up import check_seen, is_there, version_file

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import DataFrame, Row, SparkSession

_FIXED = {
    **WHOLE_FILES,
    # The rows were staged in this time zone.
    "spark.sql.session.timeZone": "UTC",
    # Read the version that is there now.
    "spark.databricks.delta.stalenessLimit": "0",
}
_VIEW = "onelake__staged_rows"
_NOT_OF_A_ROW = "INVALID_WHERE_CONDITION"


class CheckRefusedError(ValueError):
    """Spark does not take a check."""


def audit(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Evaluate checks over rows that an earlier job has staged.

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.AuditJob``.
    :returns: ``checks``, as :func:`evaluate` returns them, ``application_id`` and ``ui``.
    :raises CheckRefusedError: Spark does not take a check.
    :raises SparkIsNotSetUpError: Spark does not see the buffer.
    """
    configure(spark, _FIXED)
    check_seen(spark, version_file(job["buffer_uri"], 0))
    about_rows = sort_checks(spark, job["metadata"], job["checks"])
    return {"checks": evaluate(spark, job, about_rows, job.get("by")), **application(spark)}


def sort_checks(spark: SparkSession, metadata: Mapping[str, Any], checks: Mapping[str, str]) -> dict[str, bool]:
    """Say of each check whether it is about each row, or about all rows together. No row is read.

    A condition with an aggregate function, such as ``count(*) > 0``, is about all rows together. One without is about
    each row.

    :param metadata: the body of the ``metaData`` action of the buffer, which has the columns.
    :param checks: conditions in Spark SQL, by name.
    :returns: by name, whether the check is about each row.
    :raises CheckRefusedError: Spark does not take a check; the message names it.
    """
    rows = _no_rows(spark, metadata)
    return {name: _is_about_rows(rows, name, sql) for name, sql in checks.items()}


def evaluate(
    spark: SparkSession, job: Mapping[str, Any], about_rows: Mapping[str, bool], by: str | None = None
) -> dict[str, Any]:
    """Evaluate checks over the rows of a buffer, by one query.

    A condition counts as met only where it is true: NULL is not true.

    :param job: its ``checks``, ``buffer_uri`` and ``metadata`` count.
    :param about_rows: which of the checks are about each row, see :func:`sort_checks`.
    :param by: the column that names the writer of each row of a shared scan. Default: the rows are of one writer.
    :returns: by the writer's name, ``rows`` (how many) and ``results``: for each check ``each_row``, ``failed`` (the
        rows that do not meet it; ``None`` for a check of all rows) and ``met`` (``None`` where the condition is NULL).
        The name ``""`` stands for all rows; with ``by``, for a writer without rows.
    """
    names = list(about_rows)
    columns = [
        "count(*) AS rows",
        *(_column(job["checks"][name], about_rows[name], f"c{n}") for n, name in enumerate(names)),
    ]
    # An append without rows makes no version.
    is_empty = not is_there(spark, version_file(job["buffer_uri"], 1))
    rows = (
        _no_rows(spark, job["metadata"])
        if is_empty
        # Later versions are of a zombie, and nobody reads them (protocol: exactly version 1).
        else spark.read.format("delta").option("versionAsOf", 1).load(job["buffer_uri"])
    )
    if by is None or is_empty:
        return {"": _results(rows.selectExpr(*columns).collect()[0], names, about_rows)}
    rows.createOrReplaceTempView(_VIEW)
    listed = ", ".join(columns)
    # A writer without rows has no group, so the second part says what the checks are of no rows.
    query = (
        f"SELECT {quoted(by)} AS writer, {listed} FROM {_VIEW} GROUP BY {quoted(by)} "  # noqa: S608 - the author's SQL
        f"UNION ALL SELECT '' AS writer, {listed} FROM {_VIEW} WHERE false"
    )
    return {row["writer"]: _results(row, names, about_rows) for row in spark.sql(query).collect()}


def _no_rows(spark: SparkSession, metadata: Mapping[str, Any]) -> DataFrame:
    from pyspark.sql.types import StructType

    return spark.createDataFrame([], StructType.fromJson(json.loads(metadata["schemaString"])))


def _is_about_rows(rows: DataFrame, name: str, sql: str) -> bool:
    each_row = True
    try:
        # A count, as pyspark does not ask Spark for the columns of a filter.
        _ = rows.where(sql).selectExpr("count(*)").schema
    except Exception as error:
        if condition_of(error) != _NOT_OF_A_ROW:
            raise _refused(name, sql, error) from error
        each_row = False
    try:
        # As it is evaluated later. Beside an aggregate function, Spark takes no column that is not in one.
        kind = rows.selectExpr("count(*)", _column(sql, each_row, "met")).schema["met"].dataType.simpleString()
    except Exception as error:
        raise _refused(name, sql, error) from error
    if not each_row and kind != "boolean":
        raise CheckRefusedError(
            f"The check {name!r} is {sql!r}, which is of the type {kind}: it must be a condition, such as count(*) > 0."
        )
    return each_row


def _refused(name: str, sql: str, error: Any) -> Exception:
    """Return the error of a check that Spark does not take. An error that does not come from the check stays."""
    state = getattr(error, "getSqlState", lambda: None)() or ""
    if not state.startswith(("42", "22", "0A")):
        return error  # type: ignore[no-any-return]
    # The plan, the query and the JVM's frames follow in further lines.
    said = str(error).strip().partition("\n")[0].rstrip(".")
    return CheckRefusedError(f"Spark does not take the check {name!r}, {sql!r}: {said}.")


def _column(sql: str, each_row: bool, alias: str) -> str:
    return f"{unmet(sql) if each_row else ended(sql)} AS {alias}"


def _results(row: Row, names: list[str], about_rows: Mapping[str, bool]) -> dict[str, Any]:
    results = {}
    for n, name in enumerate(names):
        value = row[f"c{n}"]
        if about_rows[name]:
            results[name] = {"each_row": True, "failed": value, "met": value == 0}
        else:
            results[name] = {"each_row": False, "failed": None, "met": value}
    return {"rows": row["rows"], "results": results}
