"""The jobs of compaction and VACUUM, as plain values."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, ClassVar

import attrs

from airflow_provider_onelake.engines.jobs import SparkJob, check_file_size
from airflow_provider_onelake.spark_jobs import optimize, vacuum


@attrs.frozen(kw_only=True)
class OptimizeJob(SparkJob):
    """One compaction, which rewrites the files of a shadow table.

    It also takes the parameters of a :class:`~airflow_provider_onelake.engines.jobs.SparkJob`.

    :param shadow_uri: the shadow's address for Spark.
    :param target_file_size: the size of the new files in bytes.
    :param zorder_by: columns of Z-order. Default: none. A clustered table sorts itself.
    :raises InvalidWriteError: the size is not above 0, or ``session`` has a setting that compaction needs for itself.
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
        """Return the job's fields as ``spark_jobs`` reads them."""
        return {**super().as_dict(), "zorder_by": list(self.zorder_by)}


@attrs.frozen(kw_only=True)
class VacuumJob(SparkJob):
    """One VACUUM by an inventory.

    It also takes the parameters of a :class:`~airflow_provider_onelake.engines.jobs.SparkJob`.

    :param inventory_uri: Spark's address of a Parquet file that lists the files that may be deleted. Its columns are
        ``path`` (relative to the table), ``length``, ``isDir`` and ``modificationTime``.
    :param log_entries: whether Spark records the VACUUM in the table's log. Only say yes where Spark's commit is safe
        with several drivers (protocol: no Spark commit to the shared log). Default: no.
    :raises InvalidWriteError: ``session`` has a setting that VACUUM needs for itself.
    """

    doing: ClassVar[str] = "vacuuming"
    reserved: ClassVar[Collection[str]] = vacuum.RESERVED_SETTINGS

    inventory_uri: str
    log_entries: bool = False
