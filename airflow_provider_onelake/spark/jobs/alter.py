"""One round of an ALTER TABLE in a shadow, in a session that may be one of Spark Connect. Only SQL is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.application import application, configure
from airflow_provider_onelake.spark.jobs.columns import quoted
from airflow_provider_onelake.spark.jobs.private_table import SETTINGS, is_untouched

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_FIXED = {
    **SETTINGS,
    # Texts of the statements are escaped with backslashes.
    "spark.sql.parser.escapedStringLiterals": "false",
    # The caller has checked the names of properties, and Fabric's are none of Delta's.
    "spark.databricks.delta.allowArbitraryProperties.enabled": "true",
}
_NUMBER = "spark.databricks.delta.commitInfo.userMetadata"


def alter(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Run statements in a shadow, each as a version of its own that says which statement it is.

    A second run of the same round goes on after the last statement that the first one has committed.

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.AlterJob``.
    :returns: ``application_id`` and ``ui``.
    """
    configure(spark, _FIXED)
    shadow, done = f"delta.{quoted(job['shadow_uri'])}", 0
    if not is_untouched(spark, job["shadow_uri"]):
        done = int(spark.sql(f"DESCRIBE HISTORY {shadow} LIMIT 1").collect()[0]["userMetadata"])
    for number, statement in list(enumerate(job["statements"], start=1))[done:]:
        configure(spark, {_NUMBER: str(number)})
        spark.sql(f"ALTER TABLE {shadow} {statement}").collect()
    return application(spark)
