"""Create the table of a load with the columns that Spark finds in its rows."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from airflow_provider_onelake.commit.definition import create_table, with_generated
from airflow_provider_onelake.exceptions import SparkQueryError
from airflow_provider_onelake.log.features import new_protocol
from airflow_provider_onelake.log.properties import of_new_table

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from airflow_provider_onelake.engines.base import StageJob
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.spark import SparkWork

logger = logging.getLogger(__name__)


def create(
    table: Table,
    spark: SparkWork,
    job: StageJob,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    told: str,
) -> Snapshot:
    """Create a table with the ``schema`` of a job, or with the columns of its rows. Of several tasks, one creates it.

    :param job: of which Spark tells the columns; it is not staged.
    :param partition_by: names of the partition columns.
    :param properties: of the table.
    :param told: what people read of the commit in the table's history.
    :returns: the newest snapshot, also where another task made the table.
    :raises SparkQueryError: Spark refuses the source, or the source reads the table that is not there yet.
    :raises InvalidWriteError: there can be no such table.
    :raises TablePropertyError: no table must be created with a property, or not with its value. Spark was not asked.
    :raises UnsupportedFeatureError: a property switches a feature on that this version does not write to.
    :raises OneLakeError: Spark or the store failed.
    """
    properties = of_new_table(properties)
    # No column makes up for a property that asks for too much.
    new_protocol([], {"id": "", "schemaString": "", "configuration": properties}, table.log.table)
    try:
        schema_json = spark.engine().analyze(job)
    except SparkQueryError as error:
        # Look at Spark's own words only: our prefix always contains the table's path.
        said = str(error).partition("Spark said: ")[2]
        if job.table_uri.removeprefix("file://") not in said:
            raise
        raise SparkQueryError(
            f"{error}\nThere is no table at {table} yet. A job that reads the table that it writes needs `schema`, the "
            "columns to create it with."
        ) from error
    spark.check_not_stopped()
    schema = with_generated(schema_json, job.generated)
    snapshot = create_table(table.log, schema, partition_by, properties, told=told)
    by = ", ".join(partition_by) or "nothing"
    logger.info("%s: partitioned by %s, at version %d", table.name, by, snapshot.version)
    return snapshot
