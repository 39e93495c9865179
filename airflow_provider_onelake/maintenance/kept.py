"""Versions that people asked to keep: our VACUUM spares their files.

_kept_versions/<version>.json    who asked, and why

The record lies beside the data, so every vacuum of ours honours it, in any DAG. Its directory's name begins with an
underscore, so a VACUUM of others leaves the record alone. But only our vacuum obeys the record.

Since Delta 4.1, Spark refuses to time travel beyond ``delta.deletedFileRetentionDuration``, even where every file is
there: to read an older version, set :data:`READ_OLD` to ``false`` in the session. deltalake needs nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import (
    LogGapError,
    ObjectExistsError,
    ObjectNotFoundError,
    VacuumRefusedError,
)
from airflow_provider_onelake.log.actions import Add, DataFile, is_absolute, object_path
from airflow_provider_onelake.maintenance.shadow import deletion_vector_path

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.replay import LiveFiles

DIRECTORY = "_kept_versions"

READ_OLD = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""The setting of a Spark session that must be ``false`` for reading a kept version older than the retention."""

_RECORD = re.compile(rf"^{DIRECTORY}/(\d{{20}})\.json$")


@attrs.frozen
class KeptVersion:
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


def keep_version(log: DeltaLog, version: int, by: str) -> KeptVersion:
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
    kept = KeptVersion(version, by, log.clock.now())
    record = {**attrs.asdict(kept), "since": kept.since.isoformat()}
    try:
        log.store.create(_path(version), json.dumps(record).encode())
    except ObjectExistsError:
        return _read(log, version)
    return kept


def release_version(log: DeltaLog, version: int) -> None:
    """Stop keeping a version. It is no error if it was not kept.

    :param version: of the table.
    """
    log.store.delete(_path(version))


def kept_versions(log: DeltaLog) -> list[KeptVersion]:
    """Return the versions that are kept, ascending."""
    found = (_RECORD.match(info.path) for info in log.store.list(DIRECTORY))
    return [_read(log, int(match[1])) for match in found if match]


def keep_from(log: DeltaLog) -> int | None:
    """Return the oldest version that is kept, from which a clean-up of the log must keep it readable.

    :returns: the version, as ``log.expiry.clean_up_log`` takes it for ``keep_from``; ``None`` where none is kept.
    """
    return min((kept.version for kept in kept_versions(log)), default=None)


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


def lost_files(files: Iterable[Add], present: Collection[str]) -> list[str]:
    """Return the files of a version that are not in the store; files outside of the table are not looked for.

    :param files: bodies of ``add`` actions.
    :param present: every path in the table's directory.
    """
    lost = []
    for file in files:
        if not is_absolute(file["path"]) and object_path(file) not in present and file["path"] not in present:
            lost.append(object_path(file))
        vector = file.get("deletionVector")
        if vector and vector["storageType"] == "u":
            path = deletion_vector_path(vector["pathOrInlineDv"])
            lost += [path] if path not in present else []
    return sorted(lost)


def referenced(files: Iterable[DataFile]) -> Iterator[str]:
    """Yield every path that files may have in the store, with their deletion vectors; too many rather than too few.

    :param files: bodies of ``add``, ``remove`` or ``cdc`` actions.
    """
    for file in files:
        yield from _spellings(object_path(file))
        if unquote(file["path"]) != file["path"]:
            # Some tables have a log whose paths are not percent-encoded.
            yield from _spellings(file["path"])
        vector = file.get("deletionVector")
        if vector and vector["storageType"] == "u":
            yield deletion_vector_path(vector["pathOrInlineDv"])
        elif vector and vector["storageType"] == "p":
            yield from _spellings(unquote(vector["pathOrInlineDv"]))


def _spellings(path: str) -> Iterator[str]:
    yield path
    if is_absolute(path):
        # An address has several spellings, so the end of the table's own directory in the path is not known: yield all.
        segments = path.split("/")
        yield from ("/".join(segments[start:]) for start in range(1, len(segments)))


def _path(version: int) -> str:
    return f"{DIRECTORY}/{version:020d}.json"


def _read(log: DeltaLog, version: int) -> KeptVersion:
    """Return a record; a record that cannot be read still keeps its version."""
    try:
        record = json.loads(log.store.get(_path(version)))
        return KeptVersion(version, str(record["by"]), datetime.fromisoformat(record["since"]))
    except (ObjectNotFoundError, ValueError, KeyError, TypeError):
        return KeptVersion(version, "somebody", log.clock.now())
