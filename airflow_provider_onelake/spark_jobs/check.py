"""Count the rows that violate CHECK constraints, in a session that may be one of Spark Connect.

Only SQL is used, because the server may lack Python or have another one. Nothing is written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.spark_jobs.application import WHOLE_FILES, application, configure
from airflow_provider_onelake.spark_jobs.columns import ended, quoted, unmet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

_FIXED = {
    **WHOLE_FILES,
    # As writers of rows have it: the time zone decides what a constraint on a TIMESTAMP means.
    "spark.sql.session.timeZone": "UTC",
}


def check(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Count, for each constraint, the rows of a shadow for which it is false or NULL.

    :param spark: session of the job's own.
    :param job: fields of ``engines.base.CheckJob``.
    :returns: ``application_id``, ``ui``, and ``violations``: the number of rows by the constraint's name.
    """
    configure(spark, _FIXED)
    shadow = spark.table(f"delta.{quoted(job['shadow_uri'])}")
    names = list(job["checks"])
    for name in names:
        # Spark analyses it, and refuses what is no condition on a row, such as a number or a sum over rows.
        _ = shadow.where(ended(job["checks"][name])).schema
    counts = (f"{unmet(job['checks'][name])} AS c{number}" for number, name in enumerate(names))
    (row,) = shadow.selectExpr(*counts).collect()
    violations = {name: int(row[f"c{number}"] or 0) for number, name in enumerate(names)}
    return {**application(spark), "violations": violations}
