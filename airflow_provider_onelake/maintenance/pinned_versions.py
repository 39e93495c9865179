"""Pinned versions: those that people asked to keep (``keep_versions``). Our VACUUM spares their files.

_kept_versions/<version>.json    who asked, and why

The record lies beside the data, so every vacuum of ours honours it, in any DAG. Its directory's name begins with an
underscore, so a VACUUM of others leaves the record alone. But only our vacuum obeys the record.

Since Delta 4.1, Spark refuses to time travel beyond ``delta.deletedFileRetentionDuration``, even where every file is
there: to read an older version, set :data:`READ_OLD` to ``false`` in the session. deltalake needs nothing.
"""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import (
    LogGapError,
    ObjectExistsError,
    ObjectNotFoundError,
    VacuumRefusedError,
)
from airflow_provider_onelake.maintenance.referenced import lost_files

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.replay import LiveFiles

DIRECTORY = "_kept_versions"

READ_OLD = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""The setting of a Spark session that must be ``false`` for reading a kept version older than the retention."""

_RECORD = re.compile(rf"^{DIRECTORY}/(\d{{20}})\.json$")


@attrs.frozen
class PinnedVersion:
    """A version that stays readable.

    :param version: of the table.
    :param by: who asked: a DAG and task, or a person.
    :param since: when they asked.
    """

    version: int
    by: str
    since: datetime

    def __str__(self) -> str:
        return f"version {self.version} (kept by {self.by} since {self.since:%Y-%m-%d})"


def pin_version(log: DeltaLog, version: int, by: str) -> PinnedVersion:
    """Have every vacuum of ours keep a version readable, until it is released. Doing it twice changes nothing.

    A version whose files are gone already is refused: nothing could bring it back.

    :param version: of the table.
    :param by: who asks; shown to people.
    :returns: the record, which is that of the first who asked.
    :raises VacuumRefusedError: there is no such version, its log or one of its files is gone.
    :raises StoreUnavailableError: the outcome is unknown; calling again is safe.
    """
    lost = lost_files(files_of(log, version), {info.path for info in log.store.list("")})
    if lost:
        raise VacuumRefusedError(
            f"Version {version} of {log.table} cannot be kept: {len(lost)} of its files are gone, such as "
            f"{lost[0]}. Nothing was changed; ask for a later version."
        )
    pinned = PinnedVersion(version, by, log.clock.now())
    record = {**attrs.asdict(pinned), "since": pinned.since.isoformat()}
    try:
        log.store.create(_path(version), json.dumps(record).encode())
    except ObjectExistsError:
        return _read(log, version)
    return pinned


def release_version(log: DeltaLog, version: int) -> None:
    """Stop keeping a version. It is no error if it was not kept.

    :param version: of the table.
    """
    log.store.delete(_path(version))


def pinned_versions(log: DeltaLog) -> list[PinnedVersion]:
    """Return the versions that are kept, ascending."""
    found = (_RECORD.match(info.path) for info in log.store.list(DIRECTORY))
    return [_read(log, int(match[1])) for match in found if match]


def oldest_pinned(log: DeltaLog) -> int | None:
    """Return the oldest version that is kept, from which a clean-up of the log must keep it readable.

    :returns: the version, as ``log.checkpoints.clean_up_log`` takes it for ``keep_from``; ``None`` where none is kept.
    """
    return min((pinned.version for pinned in pinned_versions(log)), default=None)


def files_of(log: DeltaLog, version: int) -> LiveFiles:
    """Return the files that a reader of a version opens.

    :param version: of the table.
    :raises VacuumRefusedError: there is no such version, or its log is gone.
    """
    snapshot = log.snapshot_or_none()
    if snapshot is None or not 0 <= version <= snapshot.version:
        raise VacuumRefusedError(
            f"{log.table} has no version {version}, so it cannot be kept; its newest is "
            f"{snapshot.version if snapshot else 'none'}. Nothing was deleted: release it (release_versions)."
        )
    try:
        return log.live_files(lambda add: True, version)
    except LogGapError as error:
        raise VacuumRefusedError(
            f"Version {version} of {log.table} is to be kept, but its log is gone, so nobody knows its files. Nothing "
            f"was deleted: release it (release_versions). ({error})"
        ) from error


def _path(version: int) -> str:
    return f"{DIRECTORY}/{version:020d}.json"


def _read(log: DeltaLog, version: int) -> PinnedVersion:
    """Return a record; a record that cannot be read still keeps its version."""
    try:
        record = json.loads(log.store.get(_path(version)))
        return PinnedVersion(version, str(record["by"]), datetime.fromisoformat(record["since"]))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return PinnedVersion(version, "somebody", log.clock.now())
