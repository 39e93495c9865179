"""Rewrite the files of a shadow table by Delta's own OPTIMIZE.

Works with a Spark Connect session and with a classic one: only SQL is used. The session must be the job's own, as
settings are changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark.jobs.application import application, configure
from airflow_provider_onelake.spark.jobs.columns import quoted
from airflow_provider_onelake.spark.jobs.private_table import SETTINGS, is_untouched
from airflow_provider_onelake.spark.jobs.v_order import v_order_settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_MIN_FILE_SIZE = "spark.databricks.delta.optimize.minFileSize"
_MAX_FILE_SIZE = "spark.databricks.delta.optimize.maxFileSize"
_BATCH_SIZE = "spark.databricks.delta.optimize.batchSize"

_FIXED = {
    **SETTINGS,
    # The files were chosen before. Files with deleted rows are in the shadow to be rewritten without those rows.
    "spark.databricks.delta.optimize.maxDeletedRowsRatio": "0.0",
}


def optimize(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Rewrite a shadow's files, as its version 1.

    A second run of the same shadow does nothing. Where the first died before it committed, its files are nobody's.

    :param spark: session of the job's own.
    :param job: fields of ``spark.base.OptimizeJob``.
    :returns: ``application_id`` and ``ui``.
    """
    size = str(job["target_file_size"])
    # Without the keyword VORDER, which only Fabric's Spark parses, its OPTIMIZE does as the session says.
    configure(spark, {**_FIXED, **v_order_settings(job), _MIN_FILE_SIZE: size, _MAX_FILE_SIZE: size})
    # With a batch size, OPTIMIZE makes several commits, and we would publish only the first one.
    spark.conf.unset(_BATCH_SIZE)
    if is_untouched(spark, job["shadow_uri"]):
        columns = ", ".join(quoted(name) for name in job.get("zorder_by") or ())
        order = f" ZORDER BY ({columns})" if columns else ""
        spark.sql(f"OPTIMIZE delta.{quoted(job['shadow_uri'])}{order}").collect()
    return application(spark)
