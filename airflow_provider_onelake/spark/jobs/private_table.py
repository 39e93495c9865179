"""What jobs that write into a private table share: the settings of their sessions, and that each works once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.spark.jobs.application import WHOLE_FILES
from airflow_provider_onelake.spark.jobs.set_up import check_seen, is_there, version_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS = {
    **WHOLE_FILES,
    # One instant has one spelling, as a partition value too (protocol: typed partition values).
    "spark.sql.session.timeZone": "UTC",
    "spark.databricks.delta.write.utcTimestampPartitionValues": "true",
    # What a job did is exactly version 1, so nothing may add a version 2 (protocol: exactly version 1).
    "spark.databricks.delta.autoCompact.enabled": "false",
    # Nobody reads the checksum of a private table, and making it, or the list of files for it, costs a Spark job.
    "spark.databricks.delta.writeChecksumFile.enabled": "false",
    "spark.databricks.delta.allFilesInCrc.enabled": "false",
}
"""The settings of every job that writes into a private table."""


def is_untouched(spark: SparkSession, uri: str) -> bool:
    """Say whether a private table has its version 0 only, so that its job is still to be done.

    This takes two small requests. ``DESCRIBE HISTORY`` would run two Spark jobs to say the same.

    :param uri: of the table.
    :raises SparkIsNotSetUpError: Spark does not see the private table.
    """
    check_seen(spark, version_file(uri, 0))
    return not is_there(spark, version_file(uri, 1))
