"""Conditions on the state of a table: how many rows it has, and how fresh they are. Knows nothing of Airflow."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, cast

from airflow_provider_onelake.exceptions import MissingStatisticsError
from airflow_provider_onelake.following.filters import predicate_on
from airflow_provider_onelake.log.actions import Add, row_count

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import PartitionPredicate
    from airflow_provider_onelake.log.replay import LiveFiles
    from airflow_provider_onelake.log.snapshot import Snapshot

_ROWS = "rows"


class RowsHeld:
    """Whether a table, or its partitions where a predicate holds, has at least so many rows.

    Rows are counted by the files' statistics, minus the rows that deletion vectors mark, so no data file is read. The
    live files are listed once and kept up to date by the new commits; only the row count of each stays in memory.

    :param at_least: the number of rows.
    :param partition: a predicate on partition columns; ``None`` for the whole table.
    """

    def __init__(self, log: DeltaLog, at_least: int, partition: str | None) -> None:
        self.log = log
        self.at_least = at_least
        self.partition = partition
        self._seen: Snapshot | None = None
        self._files: LiveFiles | None = None
        self._short = False
        self._predicates: dict[Any, PartitionPredicate] = {}

    def look(self) -> dict[str, Any] | None:
        """Count the rows of the newest version.

        :returns: the version and its rows if there are enough; else ``None``.
        :raises MissingStatisticsError: some files do not say how many rows they have, and the others have too few.
        :raises InvalidWriteError: the predicate is no predicate on partition columns.
        """
        snapshot = self.log.snapshot_or_none()
        # The log returns the same object until there is another version.
        if snapshot is None or (snapshot is self._seen and self._short):
            return None
        files = self._read_on(snapshot)
        counts = [cast("int | None", file.get(_ROWS)) for file in files]
        rows = sum(count for count in counts if count is not None)
        self._short = False
        if rows >= self.at_least:
            return {"version": snapshot.version, "rows": rows}
        silent = counts.count(None)
        if silent:
            raise MissingStatisticsError(
                f"{silent} of {len(counts)} files of {self._where} in version {snapshot.version} do not say how many "
                f"rows they have, and the others have {rows}, so nobody knows whether there are {self.at_least}. "
                "Nothing was changed. Compute statistics (ANALYZE TABLE … COMPUTE DELTA STATISTICS), or rewrite the "
                "files; delta.dataSkippingNumIndexedCols=0 is what leaves them out."
            )
        self._short = True
        return None

    @property
    def _where(self) -> str:
        return self.log.table if self.partition is None else f"{self.log.table} where {self.partition}"

    def _read_on(self, snapshot: Snapshot) -> LiveFiles:
        seen = self._seen
        if seen is None or self._files is None or not _follows(snapshot, seen):
            self._files = self.log.live_files(self._wanted(snapshot), snapshot.version, _rows)
        else:
            for commit in self.log.commits_between(seen.version, snapshot.version):
                self._files.apply(commit)
        self._seen = snapshot
        return self._files

    def _wanted(self, snapshot: Snapshot) -> Callable[[Add], bool]:
        if self.partition is None:
            return lambda add: True
        split = snapshot.partitioning
        predicate = predicate_on(self.partition, split, self._predicates)

        def wanted(add: Add) -> bool:
            return predicate.judge(split.partition(add["partitionValues"])) is True

        return wanted


class Freshness:
    """Whether rows of a table were changed within a period before now.

    Commits that change no rows, such as those of a compaction or a VACUUM, do not make a table fresher. A commit's time
    is its in-commit timestamp, else what its ``commitInfo`` says, else the store's time of its log entry.

    :param within: the length of the period.
    """

    def __init__(self, log: DeltaLog, within: timedelta) -> None:
        self.log = log
        self.within = within
        self._seen: Snapshot | None = None
        self._newest: tuple[datetime, int] | None = None

    def look(self) -> dict[str, Any] | None:
        """Look at the newest commits.

        :returns: the version that made the table fresh, and its time; ``None`` if the table is not fresh.
        """
        snapshot = self.log.snapshot_or_none()
        if snapshot is None:
            return None
        oldest = self.log.clock.now() - self.within
        known = -1 if self._seen is None or not _follows(snapshot, self._seen) else self._seen.version
        if known < 0:
            self._newest = None
        for version in range(snapshot.version, known, -1):
            commit = self.log.commit(version)
            # Stop here: all versions before this one are older still, or were cleaned up too.
            if commit is None or commit.time is None or commit.time < oldest:
                break
            if commit.data_change:
                self._newest = max(self._newest or (commit.time, version), (commit.time, version))
                break
        self._seen = snapshot
        if self._newest is None or self._newest[0] < oldest:
            return None
        return {"version": self._newest[1], "time": self._newest[0].isoformat()}


def _rows(add: Add) -> Add:
    return cast("Add", {_ROWS: row_count(add)})


def _follows(snapshot: Snapshot, seen: Snapshot) -> bool:
    """Say whether a snapshot is the same or a later version of the same table, with the same partitioning."""
    return (
        snapshot.version >= seen.version
        and snapshot.metadata.get("id") == seen.metadata.get("id")
        and snapshot.partitioning == seen.partitioning
    )
