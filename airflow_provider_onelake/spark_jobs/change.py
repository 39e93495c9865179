"""One round of a DELETE or UPDATE, in a session that may be one of Spark Connect.

No function of Python runs inside Spark, because the server may lack Python or have another one: only SQL is used. The
session must be the job's own, as settings are changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark_jobs.application import application, configure
from airflow_provider_onelake.spark_jobs.columns import quoted
from airflow_provider_onelake.spark_jobs.shadow import SETTINGS, is_untouched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def change(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Run a statement in a shadow, as its version 1. Where no row matches, there is no version 1.

    A second run of the same round does nothing. Where the first died before it committed, its files are nobody's.

    :param spark: session of the job's own.
    :param job: fields of ``engines.base.ChangeJob``.
    :returns: ``application_id`` and ``ui``.
    """
    configure(spark, SETTINGS)
    if is_untouched(spark, job["shadow_uri"]):
        spark.sql(statement(job)).collect()
    return application(spark)


def statement(job: Mapping[str, Any]) -> str:
    """Return the statement in SQL.

    :param job: fields of ``engines.base.ChangeJob``.
    """
    shadow = f"delta.{quoted(job['shadow_uri'])}"
    # The author's texts may end in a comment, so each of them ends with its line.
    where = f"WHERE (\n{job['where']}\n)"
    sets = ",\n".join(f"{_column(name)} = {sql}\n" for name, sql in job["assignments"].items())
    return " ".join(["UPDATE", shadow, "SET\n", sets, where] if sets else ["DELETE FROM", shadow, where])


def _column(name: str) -> str:
    """Quote a column, or a field of a nested one, unless its author has done so."""
    return name if "`" in name else ".".join(quoted(part) for part in name.split("."))
