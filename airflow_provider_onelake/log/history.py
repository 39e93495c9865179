"""Which version a table had at an instant.

Delta orders the versions by time as follows, and so do we: with in-commit timestamps, a version has the one that its
commit carries. Without them it has the store's time of its entry, but at least a millisecond more than the version
before, because the clocks of a store's servers differ. Times are whole milliseconds.

https://github.com/delta-io/delta/blob/master/PROTOCOL.md#in-commit-timestamps
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY
from airflow_provider_onelake.log.replay import ENTRY
from airflow_provider_onelake.storage.clock import from_milliseconds, instant_of

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

_TICK = timedelta(milliseconds=1)
# Since this version and this time (in milliseconds), commits carry timestamps. Where the table has neither, all do.
_SINCE_VERSION = "delta.inCommitTimestampEnablementVersion"
_SINCE_TIME = "delta.inCommitTimestampEnablementTimestamp"


def version_at(log: DeltaLog, snapshot: Snapshot, instant: datetime) -> int:
    """Return the newest version that was committed at an instant or before.

    :param snapshot: the newest.
    :param instant: with a time zone.
    :raises LogGapError: the log no longer reaches back to the instant, or an entry that tells a time is gone.
    """
    until = snapshot.version
    if snapshot.has_in_commit_timestamps:
        if instant >= from_milliseconds(_number(snapshot, _SINCE_TIME)):
            return _by_timestamps(log, snapshot, instant)
        until = _number(snapshot, _SINCE_VERSION) - 1
    found = [version for version, time in _by_store(log, until) if time <= instant]
    if not found:
        raise _too_early(log, instant)
    return found[-1]


def _by_store(log: DeltaLog, until: int) -> Iterator[tuple[int, datetime]]:
    """Yield the versions that have an entry, up to one of them, with the store's times, which rise."""
    before: datetime | None = None
    for info in log.store.list(LOG_DIRECTORY):
        if (entry := ENTRY.match(info.path)) and int(entry[1]) <= until:
            # Delta tells a time in milliseconds, as a listing has them.
            landed = info.listed.replace(microsecond=info.listed.microsecond // 1000 * 1000)
            time = landed if before is None else max(landed, before + _TICK)
            yield int(entry[1]), time
            before = time


def _by_timestamps(log: DeltaLog, snapshot: Snapshot, instant: datetime) -> int:
    """Search the versions that have an in-commit timestamp; a search reads few of them."""
    after = _number(snapshot, _SINCE_VERSION) - 1
    versions = [version for version in log.versions_after(after) if version <= snapshot.version]

    def stamped(version: int) -> datetime:
        commit = log.commit(version)
        time = instant_of(commit.in_commit_timestamp) if commit is not None else None
        if time is None:
            raise LogGapError(f"Version {version} of {log.table} does not tell when it was committed.")
        return time

    found = bisect_right(versions, instant, key=stamped)
    if not found:
        raise _too_early(log, instant)
    return versions[found - 1]


def _number(snapshot: Snapshot, name: str) -> int:
    """Return a property that is a number, 0 where the table does not have it."""
    text = snapshot.configuration.get(name, "")
    return int(text) if text.isdecimal() else 0


def _too_early(log: DeltaLog, instant: datetime) -> LogGapError:
    return LogGapError(
        f"The log of {log.table} does not reach back to {instant.isoformat()}, so nobody knows what the table held "
        "then. Nothing was changed."
    )
