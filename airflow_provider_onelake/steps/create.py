"""Plan the table of a load with the columns that Spark finds in its rows."""

from __future__ import annotations

import logging
from functools import partial
from random import Random
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.definition.create import create_table, define, with_generated
from airflow_provider_onelake.exceptions import SparkQueryError
from airflow_provider_onelake.log.features import new_protocol
from airflow_provider_onelake.log.properties import of_new_table

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.spark.base import StageJob
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.steps.write_terms import Definition
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)


def plan(table: Table, spark: SparkWork, job: StageJob, definition: Definition, told: str) -> Callable[[], Snapshot]:
    """Plan a table with the ``schema`` of a job, or with the columns of its rows: the first commit of rows makes it.

    :param job: of which Spark tells the columns, if the author gives no ``schema``; it is not staged.
    :param definition: that the author asks for.
    :param told: what people read of the commit in the table's history.
    :returns: makes the table at once, without rows, unless there is one by then.
    :raises SparkQueryError: Spark refuses the source, or the source reads the table that is not there yet.
    :raises InvalidWriteError: there can be no such table.
    :raises TablePropertyError: no table must be created with a property, or not with its value. Spark was not asked.
    :raises UnsupportedFeatureError: a property switches a feature on that this version does not write to.
    :raises OneLakeError: Spark or the store failed.
    """
    partition_by, properties = definition.partition_columns or [], of_new_table(definition.new_table.properties)
    # No column makes up for a property that asks for too much.
    new_protocol([], {"id": "", "schemaString": "", "configuration": properties}, table.log.table)
    job = attrs.evolve(job, generated=definition.generated, schema=definition.new_table.schema)
    try:
        schema_json = spark.engine().analyze(job)
    except SparkQueryError as error:
        # Look at Spark's own words only: our prefix always contains the table's path.
        said = str(error).partition("Spark said: ")[2]
        if job.table_uri.removeprefix("file://") not in said:
            raise
        raise SparkQueryError(
            f"{error}\nThere is no table at {table.name} yet. A job that reads the table that it writes needs "
            "`schema`, the columns to create it with."
        ) from error
    spark.check_not_stopped()
    schema = with_generated(schema_json, definition.generated)
    table.log.plan(*define(table.log, schema, partition_by, properties, Random()))  # noqa: S311 - an id, no secret
    by = ", ".join(partition_by) or "nothing"
    logger.info("%s is not there yet; the first commit of rows makes it, partitioned by %s", table.name, by)
    return partial(create_table, table.log, schema, partition_by, properties, told=told)
