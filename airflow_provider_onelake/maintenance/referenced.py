"""Which files a vacuum must not take: what a table's log says of its files, and how far back the log reaches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, VacuumRefusedError
from airflow_provider_onelake.log.actions import (
    LOG_DIRECTORY,
    Add,
    DataFile,
    Remove,
    is_absolute,
    object_path,
    of_kind,
    version_path,
)
from airflow_provider_onelake.log.replay import LogFiles, read_checkpoint
from airflow_provider_onelake.log.vectors import vector_home
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
class RetentionHorizon:
    """An instant from which on everything is spared.

    :param before: the instant.
    :param held_by: what sets the instant, where that is not the table's property.
    :param advice: what to do where the log does not reach back so far; ``None`` where that is no error.
    """

    before: datetime
    held_by: str | None
    advice: str | None


class ReferencedFiles:
    """The files that a table's log names: live, removed lately, ever removed.

    :param listing: of the table's directory, older than the snapshot.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot, listing: Iterable[ObjectInfo]) -> None:
        self._log = log
        self._snapshot = snapshot
        entries = [info for info in listing if info.path.startswith(f"{LOG_DIRECTORY}/")]
        self._files = LogFiles.of(entries, snapshot.version)
        self._modified = {info.path: info.modified for info in entries}
        # Listed entries that somebody has cleaned up before they were read.
        self._gone: set[int] = set()

    def check_reaches(self, horizons: Iterable[RetentionHorizon], by_property: datetime) -> list[str]:
        """Refuse a horizon beyond the table's retention if the log does not reach back to it.

        Ask once the log is read: a committer may clean it up after it was listed.

        :param by_property: the instant, if only the table's property counted; checkpoints reach that far.
        :returns: what people should know of horizons that hold only as far as the log reaches.
        :raises VacuumRefusedError: the log begins later than a horizon that has advice.
        """
        since_gone = max(self._gone, default=-1)
        oldest = min((version for version in self._files.versions if version > since_gone), default=0)
        notes = []
        for horizon in horizons:
            if horizon.before >= by_property or oldest == 0 or self._time(oldest) < horizon.before:
                continue
            gone = f"the log before version {oldest} was cleaned up, so nobody knows what was removed since"
            if horizon.advice is None:
                notes.append(f"{horizon.held_by}, but {gone}: that is not spared for longer than the table's retention")
                continue
            raise VacuumRefusedError(
                f"{self._log.table}: everything since {horizon.before:%Y-%m-%d %H:%M} is to be spared "
                f"({horizon.held_by}), but {gone}. Nothing was deleted: {horizon.advice}."
            )
        return notes

    def alive(self, before: datetime) -> set[str]:
        """Return every path that is in the table, or was at an instant or later.

        The changes that a commit since then tells of count too: a round of a statement may have written them long
        before they were committed.

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
            if commit.version > self._files.latest or self._time(commit.version) >= before:
                alive.update(referenced(of_kind(commit.actions, "cdc")))
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
            if commit is None:
                self._gone.add(version)
            else:
                yield commit
        yield from self._log.commits_between(self._files.latest, self._snapshot.version)

    def _time(self, version: int) -> datetime:
        return self._modified[version_path(version)]


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
        if vector and (home := vector_home(vector)) is not None:
            yield home
        elif vector and vector["storageType"] == "p":
            yield from _spellings(unquote(vector["pathOrInlineDv"]))


def _spellings(path: str) -> Iterator[str]:
    yield path
    if is_absolute(path):
        # An address has several spellings, so the end of the table's own directory in the path is not known: yield all.
        segments = path.split("/")
        yield from ("/".join(segments[start:]) for start in range(1, len(segments)))


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
        if vector and (home := vector_home(vector)) is not None and home not in present:
            lost.append(home)
    return sorted(lost)
