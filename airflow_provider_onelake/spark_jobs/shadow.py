"""What jobs that write into a private table share: the settings of their sessions, and that each works once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.spark_jobs.columns import quoted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    # One instant has one spelling, as a partition value too (protocol: typed partition values).
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "true",
    # What a job did is exactly version 1, so nothing may add a version 2 (protocol: exactly version 1).
    "spark.databricks.delta.autoCompact.enabled": "false",
    # Nobody reads the checksum of a private table, and making it costs a Spark job.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
}
"""The settings of every job that writes into a private table."""


def is_untouched(spark: SparkSession, uri: str) -> bool:
    """Say whether a private table has its version 0 only, so that its job is still to be done.

    :param uri: of the table.
    """
    newest = spark.sql(f"DESCRIBE HISTORY delta.{quoted(uri)} LIMIT 1").collect()[0]["version"]
    return bool(newest == 0)
