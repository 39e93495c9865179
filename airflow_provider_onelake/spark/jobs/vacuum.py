"""VACUUM a table by an inventory.

Works with a Spark Connect session and with a classic one: only SQL is used. The session must be the job's own, as
settings are changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.application import application, configure
from airflow_provider_onelake.spark.jobs.columns import quoted

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_LOGGING = "spark.databricks.delta.vacuum.logging.enabled"

_VIEW = "onelake_vacuum_inventory"

_FIXED = {
    # Otherwise the driver deletes one file after another.
    "spark.databricks.delta.vacuum.parallelDelete.enabled": "true",
}


def vacuum(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Delete the files of an inventory that the table does not name within its retention.

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.VacuumJob``.
    :returns: ``application_id`` and ``ui``.
    """
    # Logging makes two commits, which are safe only on stores with a conditional rename or put (protocol: no Spark
    # commit to the shared log).
    configure(spark, {**_FIXED, _LOGGING: str(bool(job.get("log_entries"))).lower()})
    table = f"delta.{quoted(job['table_uri'])}"
    # The inventory must name files as Delta itself spells the table's directory: not percent-encoded, with a scheme.
    base = str(spark.sql(f"DESCRIBE DETAIL {table}").collect()[0]["location"]).rstrip("/")
    listed = spark.read.parquet(job["inventory_uri"])
    listed.selectExpr(
        f"concat({_literal(base + '/')}, path) AS path", "length", "isDir", "modificationTime"
    ).createOrReplaceTempView(_VIEW)
    spark.sql(f"VACUUM {table} USING INVENTORY (TABLE {_VIEW})").collect()
    return application(spark)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"
