"""Upkeep of a table as plain values: what an engine is asked to do."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import attrs

from airflow_provider_onelake.engines.jobs import SparkJob, check_file_size
from airflow_provider_onelake.spark_jobs import optimize, vacuum


@attrs.frozen(kw_only=True)
class OptimizeJob(SparkJob):
    """One compaction: the files of a shadow table are rewritten.

    Further parameters: those of a :class:`~airflow_provider_onelake.engines.jobs.SparkJob`.

    :param shadow_uri: of the shadow, as Spark addresses it.
    :param target_file_size: of the new files, in bytes.
    :param zorder_by: columns to sort along. Default: none; a clustered table sorts itself.
    :raises InvalidWriteError: the size is not above 0, or a setting is one that compaction needs for itself.
    """

    doing: ClassVar[str] = "compacting"
    reserved: ClassVar[Collection[str]] = optimize.RESERVED_SETTINGS

    shadow_uri: str
    target_file_size: int
    zorder_by: tuple[str, ...] = ()

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        check_file_size(self.target_file_size)

    def as_dict(self) -> dict[str, Any]:
        """Return the job as ``spark_jobs`` takes it."""
        return {**super().as_dict(), "zorder_by": list(self.zorder_by)}


@attrs.frozen(kw_only=True)
class VacuumJob(SparkJob):
    """One VACUUM by an inventory.

    Further parameters: those of a :class:`~airflow_provider_onelake.engines.jobs.SparkJob`.

    :param inventory_uri: of a Parquet file of what may be deleted, as Spark addresses it: ``path`` relative to the
        table, ``length``, ``isDir``, ``modificationTime``.
    :param log_entries: whether Spark records the VACUUM in the table's log; only where its commit is safe with several
        drivers (protocol: no Spark commit to the shared log). Default: no.
    :raises InvalidWriteError: a setting is one that VACUUM needs for itself.
    """

    doing: ClassVar[str] = "vacuuming"
    reserved: ClassVar[Collection[str]] = vacuum.RESERVED_SETTINGS

    inventory_uri: str
    log_entries: bool = False
