"""VACUUM a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession


def vacuum(spark: SparkSession, job: Mapping[str, Any]) -> dict[str, Any]:
    """Vacuum a table.

    :param spark: session of the job's own.
    :param job: fields of ``engines.maintenance.VacuumJob``.
    :returns: the fields of ``engines.maintenance.VacuumResult``, but for the engine's and the session's.
    """
    raise NotImplementedError
