"""Pinned versions: those that people asked to keep (``keep_versions``). Our VACUUM spares their files.

    _kept_versions/<version>.json             who asked
    _kept_versions/<version>-<holder>.json    the same, for a task that needs the version while it runs

A record may be a lease: it counts for so long after it was last written, and its holder writes it again and again. So
the record of a holder that was killed ends by itself. The times are the store's (leases.py).

The record lies beside the data, so every vacuum of ours honours it, in any DAG. Its directory's name begins with an
underscore, so a VACUUM of others leaves the record alone. But only our vacuum obeys the record.

Since Delta 4.1, Spark refuses to time travel beyond ``delta.deletedFileRetentionDuration``, even where every file is
there: to read an older version, set :data:`READ_OLD` to ``false`` in the session. deltalake needs nothing.
"""

from __future__ import annotations

import json
import re
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import (
    LogGapError,
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    VacuumAtWorkError,
    VacuumRefusedError,
)
from airflow_provider_onelake.log.checkpoints import clean_up_at_work
from airflow_provider_onelake.maintenance.inventory import inventories
from airflow_provider_onelake.maintenance.referenced import lost_files, referenced

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.replay import LiveFiles

DIRECTORY = "_kept_versions"

READ_OLD = "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration"
"""The setting of a Spark session that must be ``false`` for reading a kept version older than the retention."""

_CLOCKS_DIFFER = timedelta(minutes=5)
"""How much longer than it says a lease counts, as the store has another clock than whoever looks."""

_RECORD = re.compile(rf"^{DIRECTORY}/(\d{{20}})(-[0-9A-Za-z]+)?\.json$")


@attrs.frozen
class PinnedVersion:
    """A version that stays readable.

    :param version: of the table.
    :param by: who asked: a DAG and task, or a person.
    :param since: when they asked.
    :param held: whether a task needs it while it runs.
    :param until: when the record ends unless it is renewed; ``None`` if it stays until somebody takes it away.
    :param note: what the holder wrote into the record for itself.
    """

    version: int
    by: str
    since: datetime
    held: bool = False
    until: datetime | None = None
    note: Mapping[str, Any] = attrs.field(factory=dict, eq=False, repr=False)

    def __str__(self) -> str:
        if self.until is None:
            return f"version {self.version} (kept by {self.by} since {self.since:%Y-%m-%d})"
        return (
            f"version {self.version} (held open by {self.by} since {self.since:%Y-%m-%d %H:%M}; this ends at "
            f"{self.until:%Y-%m-%d %H:%M} unless it is renewed)"
        )


def pin_version(
    log: DeltaLog,
    version: int,
    by: str,
    *,
    holder: str | None = None,
    lasts: timedelta | None = None,
    note: Mapping[str, Any] | None = None,
) -> PinnedVersion:
    """Have every vacuum of ours keep a version readable, until it is released. Doing it twice changes nothing.

    A version whose files or log are gone already is refused: nothing could bring them back. So is one whose files a
    vacuum that planned before is deleting, or whose log a clean-up is.

    :param version: of the table.
    :param by: who asks; shown to people.
    :param holder: of a record of its own, which :func:`release_version` takes away without touching that of others.
        Letters and digits. Default: the record that people share.
    :param lasts: for how long the record counts, unless it is written again. Default: until it is released.
    :param note: what else the holder writes into the record, for itself. Default: nothing.
    :returns: the record, which is that of the first who asked.
    :raises VacuumRefusedError: there is no such version, its log or one of its files is gone.
    :raises VacuumAtWorkError: a vacuum is deleting files of the version, or a clean-up its log.
    :raises StoreUnavailableError: the outcome is unknown; calling again is safe.
    """
    files = files_of(log, version)
    path = record_path(version, holder)
    pinned = PinnedVersion(version, by, log.clock.now(), holder is not None, note=note or {})
    try:
        log.store.create(path, record_of(pinned, lasts))
    except ObjectExistsError:
        # Whoever put it may rely on it, so it stays even if this look fails.
        pinned = _read(log, path, version, pinned.held, pinned.since)
        _check_readable(log, version, files)
        return pinned
    # Look for the files once the record is there: a vacuum that plans from now on spares them.
    try:
        _check_readable(log, version, files)
    except OneLakeError:
        log.store.delete(path)
        raise
    return pinned


def _check_readable(log: DeltaLog, version: int, files: LiveFiles) -> None:
    found = list(log.store.list(""))
    listing = {info.path for info in found}
    if lost := lost_files(files, listing):
        raise VacuumRefusedError(
            f"Version {version} of {log.table} cannot be kept: {len(lost)} of its files are gone, such as "
            f"{lost[0]}. Nothing was changed; ask for a later version."
        )
    needed = set(referenced(files))
    for path, going in inventories(log.store, listing):
        if going is None:
            # A vacuum ended after the listing, which may still show what it deleted.
            _check_readable(log, version, files)
            return
        if doomed := needed & going:
            raise VacuumAtWorkError(
                f"Version {version} of {log.table} cannot be kept yet: a vacuum is deleting {len(doomed)} of its "
                f"files, such as {min(doomed)}. Nothing was changed; try again when it is done. If neither a vacuum "
                f"nor a Spark job of one is at work, its task was killed, or has lost Spark: delete {path}."
            )
    if note := clean_up_at_work(found, version, log.clock.now()):
        raise VacuumAtWorkError(
            f"Version {version} of {log.table} cannot be kept yet: a committer is deleting the log of old versions. "
            "Nothing was changed; try again when it is done. If no task commits to the table, one was killed: delete "
            f"{note}."
        )
    try:
        # A clean-up may have ended since the version was read.
        log.anew().snapshot_at(version)
    except LogGapError as error:
        raise _log_is_gone(version, log, error) from error


def release_version(log: DeltaLog, version: int, *, holder: str | None = None) -> None:
    """Stop keeping a version. It is no error if it was not kept.

    :param version: of the table.
    :param holder: of the record to take away. Default: the record that people share; tasks at work keep theirs.
    """
    log.store.delete(record_path(version, holder))


def pinned_versions(log: DeltaLog) -> list[PinnedVersion]:
    """Return the versions that are kept, ascending; a lease that has ended keeps none."""
    now = log.clock.now()
    return [pinned for _, pinned in _records(log) if pinned.until is None or pinned.until >= now]


def _records(log: DeltaLog) -> Iterator[tuple[str, PinnedVersion]]:
    for info in log.store.list(DIRECTORY):
        if match := _RECORD.match(info.path):
            yield info.path, _read(log, info.path, int(match[1]), match[2] is not None, info.modified)


def records_held(log: DeltaLog, start: str) -> list[tuple[str, PinnedVersion]]:
    """Return the records of holders whose names begin with a text, by these names; also leases that have ended.

    :param start: letters and digits.
    """
    found = []
    for path, pinned in _records(log):
        holder = path.removesuffix(".json").rpartition("-")[2] if pinned.held else ""
        if holder.startswith(start):
            found.append((holder, pinned))
    return found


def oldest_pinned(log: DeltaLog) -> int | None:
    """Return the oldest version that is kept, from which a clean-up of the log must keep it readable.

    :returns: the version, as ``log.checkpoints.clean_up_log`` asks for it; ``None`` where none is kept.
    """
    return min((pinned.version for pinned in pinned_versions(log)), default=None)


def drop_ended_leases(log: DeltaLog) -> None:
    """Delete the records of leases that have ended, whose holders were killed."""
    now = log.clock.now()
    for path, pinned in _records(log):
        if pinned.until is not None and pinned.until < now:
            log.store.delete(path)


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
        raise _log_is_gone(version, log, error) from error


def _log_is_gone(version: int, log: DeltaLog, error: LogGapError) -> VacuumRefusedError:
    return VacuumRefusedError(
        f"Version {version} of {log.table} is to be kept, but its log is gone, so nobody knows its files. Nothing was "
        f"deleted: release it (release_versions), or delete the record that a task left below {DIRECTORY}/. ({error})"
    )


def record_path(version: int, holder: str | None) -> str:
    """Return the path of a record, below the table's directory."""
    return f"{DIRECTORY}/{version:020d}{f'-{holder}' if holder else ''}.json"


def record_of(pinned: PinnedVersion, lasts: timedelta | None = None) -> bytes:
    """Return the content of a record.

    :param lasts: for how long it counts. Default: until it is taken away.
    """
    record: dict[str, Any] = {"version": pinned.version, "by": pinned.by, "since": pinned.since.isoformat()}
    if pinned.note:
        record["note"] = pinned.note
    return json.dumps(record if lasts is None else {**record, "lasts": lasts.total_seconds()}).encode()


def _read(log: DeltaLog, path: str, version: int, held: bool, written: datetime) -> PinnedVersion:
    """Return a record; a record that cannot be read still keeps its version.

    :param written: when it was last written.
    """
    try:
        record = json.loads(log.store.get(path))
        lasts = record.get("lasts")
        until = None if lasts is None else written + timedelta(seconds=float(lasts)) + _CLOCKS_DIFFER
        since, note = datetime.fromisoformat(record["since"]), record.get("note")
        note = note if isinstance(note, dict) else {}
        return PinnedVersion(version, str(record["by"]), since, held, until, note)
    except (ObjectNotFoundError, ValueError, KeyError, TypeError, AttributeError, OverflowError):
        return PinnedVersion(version, "somebody", log.clock.now(), held)
