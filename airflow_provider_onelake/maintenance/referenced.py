"""Which files a vacuum must not take: what a table's log says of its files, and how far back the log reaches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, VacuumRefusedError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Remove, of_kind, version_path
from airflow_provider_onelake.log.replay import LogFiles, read_checkpoint
from airflow_provider_onelake.maintenance.kept import referenced
from airflow_provider_onelake.storage.clock import instant_of

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo

logger = logging.getLogger(__name__)

# A remove has its writer's time and a log entry has the store's time, and clocks differ.
_CLOCKS_DIFFER = timedelta(hours=1)


@attrs.frozen
class Limit:
    """An instant from which on everything is spared.

    :param before: the instant.
    :param held_by: what sets the instant, where that is not the table's property.
    :param advice: what to do where the log does not reach back so far; ``None`` where that is no error.
    """

    before: datetime
    held_by: str | None
    advice: str | None


class Named:
    """The files that a table's log names: live, removed lately, ever removed.

    :param listing: of the table's directory, older than the snapshot.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, listing: Iterable[ObjectInfo]) -> None:
        self._log = log
        self._snapshot = snapshot
        entries = [info for info in listing if info.path.startswith(f"{LOG_DIRECTORY}/")]
        self._files = LogFiles.of(entries, snapshot.version)
        self._modified = {info.path: info.modified for info in entries}

    def check_reaches(self, limits: Iterable[Limit], by_property: datetime) -> list[str]:
        """Refuse a limit beyond the table's retention if the log does not reach back to it.

        :param limits: the limits to check.
        :param by_property: the instant, if only the table's property counted; checkpoints reach that far.
        :returns: what people should know of limits that hold only as far as the log reaches.
        :raises VacuumRefusedError: the log begins later than a limit that has advice.
        """
        oldest = min(self._files.versions, default=0)
        notes = []
        for limit in limits:
            if limit.before >= by_property or oldest == 0 or self._time(oldest) < limit.before:
                continue
            gone = f"the log before version {oldest} was cleaned up, so nobody knows what was removed since"
            if limit.advice is None:
                notes.append(f"{limit.held_by}, but {gone}: that is not spared for longer than the table's retention")
                continue
            raise VacuumRefusedError(
                f"{self._log.table}: everything since {limit.before:%Y-%m-%d %H:%M} is to be spared "
                f"({limit.held_by}), but {gone}. Nothing was deleted: {limit.advice}."
            )
        return notes

    def alive(self, before: datetime) -> set[str]:
        """Return every path that is in the table, or was at an instant or later.

        :param before: the instant.
        """
        snapshot = self._snapshot
        alive = set(referenced(self._log.live_files(lambda add: True, snapshot.version)))
        since = before - _CLOCKS_DIFFER
        removes: list[Remove] = []
        after = -1
        for checkpoint in self._files.checkpoints:
            try:
                removes = [action["remove"] for action in read_checkpoint(self._log.store, checkpoint, ["remove"])]
            except CorruptLogError as error:
                logger.warning("%s: a checkpoint is passed over: %s", self._log.table, error)
                continue
            after = checkpoint.version
            break
        for commit in self._commits(lambda version: version > after or self._time(version) >= since):
            removes += commit.removes
        # As in Delta, a remove without a time counts as the oldest. A file whose time cannot be read is spared.
        late = (r for r in removes if (instant_of(r.get("deletionTimestamp") or 0) or before) >= before)
        alive.update(referenced(late))
        return alive

    def ever_removed(self) -> set[str]:
        """Return every path that an entry of the log removes, or keeps changes in."""
        removed: set[str] = set()
        for commit in self._commits(lambda version: True):
            removed.update(referenced([*commit.removes, *of_kind(commit.actions, "cdc")]))
        return removed

    def _commits(self, wanted: Callable[[int], bool]) -> Iterator[Commit]:
        """Yield the listed entries that are wanted, and all that came between the listing and the snapshot."""
        for version in filter(wanted, self._files.versions):
            commit = self._log.commit(version)
            if commit is not None:
                yield commit
        yield from self._log.commits_between(self._files.latest, self._snapshot.version)

    def _time(self, version: int) -> datetime:
        return self._modified[version_path(version)]
