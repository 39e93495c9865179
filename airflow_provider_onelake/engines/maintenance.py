"""Upkeep of a table as plain values: what an engine is asked to do, and what it says of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.spark_jobs.optimize import RESERVED_SETTINGS
from airflow_provider_onelake.spark_jobs.vacuum import RESERVED_SETTINGS as VACUUM_SETTINGS


@attrs.frozen
class OptimizeJob:
    """One compaction: the files of a shadow table are rewritten. Everything can be written as JSON.

    :param table_uri: of the table that the shadow stands for, as Spark addresses it; for messages only.
    :param attempt: id of the attempt, for messages and for Spark's UI.
    :param shadow_uri: of the shadow, as Spark addresses it.
    :param target_file_size: of the new files, in bytes.
    :param zorder_by: columns to sort along. Default: none; a clustered table sorts itself.
    :param session: further settings of the Spark session. Default: none.
    :param label: whose work it is, for people who look at Spark's UI. Default: nothing.
    :raises InvalidWriteError: the size is not above 0, or a setting is one that compaction needs for itself.
    """

    table_uri: str
    attempt: str
    shadow_uri: str
    target_file_size: int
    zorder_by: tuple[str, ...] = ()
    session: Mapping[str, str] = attrs.field(factory=dict)
    label: str = ""

    def __attrs_post_init__(self) -> None:
        if self.target_file_size <= 0:
            raise InvalidWriteError(f"target_file_size={self.target_file_size!r}: a size in bytes, above 0.")
        if taken := sorted(set(self.session) & set(RESERVED_SETTINGS)):
            raise InvalidWriteError(f"{', '.join(taken)}: compaction needs this setting for itself; leave it out.")

    def as_dict(self) -> dict[str, Any]:
        """Return the job as ``spark_jobs`` takes it."""
        return {**attrs.asdict(self), "zorder_by": list(self.zorder_by)}


@attrs.frozen
class OptimizeResult:
    """What an engine knows of a finished compaction. Files and rows are read from the shadow's log instead.

    :param engine: the engine's name.
    :param application_id: Spark's application, where known.
    :param session_id: Spark's session, where there is one.
    """

    engine: str
    application_id: str | None = None
    session_id: str | None = None


@attrs.frozen
class VacuumJob:
    """One VACUUM by an inventory. Everything can be written as JSON.

    :param table_uri: of the table, as Spark addresses it.
    :param attempt: id of the attempt, for messages and for Spark's UI.
    :param inventory_uri: of a Parquet file of what may be deleted, as Spark addresses it: ``path`` relative to the
        table, ``length``, ``isDir``, ``modificationTime``.
    :param log_entries: whether Spark records the VACUUM in the table's log; only where its commit is safe with several
        drivers (protocol, rule 22). Default: no.
    :param session: further settings of the Spark session. Default: none.
    :param label: whose work it is, for people who look at Spark's UI. Default: nothing.
    :raises InvalidWriteError: a setting is one that VACUUM needs for itself.
    """

    table_uri: str
    attempt: str
    inventory_uri: str
    log_entries: bool = False
    session: Mapping[str, str] = attrs.field(factory=dict)
    label: str = ""

    def __attrs_post_init__(self) -> None:
        if taken := sorted(set(self.session) & set(VACUUM_SETTINGS)):
            raise InvalidWriteError(f"{', '.join(taken)}: a vacuum needs this setting for itself; leave it out.")

    def as_dict(self) -> dict[str, Any]:
        """Return the job as ``spark_jobs`` takes it."""
        return attrs.asdict(self)


@attrs.frozen
class VacuumResult:
    """What an engine knows of a finished VACUUM. What went is seen in a listing instead.

    :param engine: the engine's name.
    :param application_id: Spark's application, where known.
    :param session_id: Spark's session, where there is one.
    """

    engine: str
    application_id: str | None = None
    session_id: str | None = None
