"""One poll of a table's log for all its watchers in a triggerer.

This is the life of a poll:

1. *producer*: Airflow runs one :class:`LogFeed` for all triggers with the same ``shared_stream_key``. It looks for the
   newest version, the head, and yields a :class:`Poll`.
2. *watcher*: Airflow hands the poll to every watcher (:mod:`~airflow_provider_onelake.triggers.delta_log`). A watcher
   asks the feed for the versions between its own position and the head. The feed reads each version once for all.
3. *event*: for each commit that its filter takes, the watcher yields an event. It writes its position into the poll.
4. *advance*: when Airflow has the events in its database, it hands the poll back to the feed.
5. *keep*: the feed lets each watcher store its position as its watermark. A triggerer that starts again begins there.

So a watcher that joins late or was away catches up from its own watermark, and the poll does not have to begin at the
slowest watcher. A watcher that has not come up to the head asks the feed to poll again soon.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs

from airflow_provider_onelake._airflow import AdvanceItem, SharedStreamProducer
from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    CorruptLogError,
    CredentialsError,
    LogGapError,
    OneLakeError,
    StoreNotFoundError,
    TerminalError,
)
from airflow_provider_onelake.following.watch import LIST_EVERY, describe, describe_unreadable
from airflow_provider_onelake.triggers.asking import asking, in_thread, open_log

if TYPE_CHECKING:
    from airflow_provider_onelake.following.filters import CommitFilter
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

# The pause, in seconds, while a watcher has more to read than it may read in one poll.
_SHORT_PAUSE = 0.2

_ASK_ANEW = (AccessDeniedError, CredentialsError, StoreNotFoundError)


@attrs.frozen
class Position:
    """How far a watcher has read.

    :param version: the last version that the watcher read; -1 before the first.
    :param digest: the digest of that version's log entry. A table that was made again has another digest.
        ``None`` if unknown.
    """

    version: int
    digest: str | None = None


Keep = Callable[[Position], Awaitable[None]]


@attrs.define
class Poll:
    """One poll. Airflow hands it from the producer to every watcher, and back when its events are in the database.

    :param head: the newest version; -1 if there is no table.
    :param incarnation: how often the table was made again since the feed began.
    :param positions: how far each watcher has read, by the method that keeps the watcher's watermark.
    """

    feed: LogFeed
    head: int
    incarnation: int = 0
    positions: dict[Keep, Position] = attrs.field(factory=dict)

    async def keep(self) -> None:
        """Let each watcher store its watermark. Call this only once Airflow has the poll's events in its database."""
        for keep, seen in list(self.positions.items()):
            await keep(seen)


@attrs.frozen
class NewCommits:
    """A version whose log entry was read.

    :param at: the version, and the digest of its entry.
    :param incarnation: which incarnation of the table the version belongs to, see :class:`Poll`.
    :param commit: what the entry says; ``None`` if it cannot be read.
    :param missed: the first and the last of the versions before it that are no longer in the log.
    :param unreadable: why the entry cannot be read.
    """

    at: Position
    incarnation: int
    commit: Commit | None = None
    missed: tuple[int, int] | None = None
    unreadable: str | None = None


class LogFeed(SharedStreamProducer):
    """Polls one table's log.

    :param table: an address, or a path in the connection's lakehouse.
    :param poll_interval: seconds between two polls.
    """

    def __init__(self, table: str, onelake_conn_id: str, poll_interval: float) -> None:
        self.table = table
        self.onelake_conn_id = onelake_conn_id
        self.poll_interval = poll_interval
        self._log: DeltaLog | None = None
        # Watchers read in threads, and two threads must not use one log at the same time.
        self._reading = asyncio.Lock()
        self._soon = asyncio.Event()
        self._head = -1
        # The newest entry at the last poll that checked that the table is still the same. If its digest changes, the
        # table was made again.
        self._anchor: Position | None = None
        self._incarnation = 0
        self._strange: int | None = None
        # The first poll lists the log.
        self._looks = LIST_EVERY

    async def open_stream(self) -> AsyncIterator[tuple[Poll, Poll]]:
        """Poll for ever.

        :returns: pairs of the same poll: Airflow hands one to the watchers, and the other to :meth:`advance`.
        """
        while True:
            head: int = await asking(self.table, self.poll_interval, OneLakeError)(self._locked, self._look)
            poll = Poll(self, head, self._incarnation)
            yield poll, poll
            try:
                await asyncio.wait_for(self._soon.wait(), self.poll_interval)
            except TimeoutError:
                continue
            self._soon.clear()
            await asyncio.sleep(min(_SHORT_PAUSE, self.poll_interval))

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Let the watchers store their watermarks. Airflow calls this when their events are in its database.

        A poll in which a watcher failed is skipped: the next poll has the watermarks of the other watchers.

        :param batch: the polls, in order.
        """
        for item in batch:
            if item.outcome.failed == 0:
                await item.broker_payload.keep()

    def poll_soon(self) -> None:
        """Poll again soon, because a watcher has not read up to the newest version."""
        self._soon.set()

    async def read(self, version: int) -> NewCommits | None:
        """Read a version at or below the head. If it is gone, read the first later version that the log still has.

        :returns: the commit; ``None`` if this version and all later ones are gone.
        :raises TransientError: the store does not answer.
        """

        def look() -> NewCommits | None:
            found = self._new_commits(version)
            if found is not None:
                return found
            later = next(iter(self._known_log().versions_after(version)), None)
            found = None if later is None else self._new_commits(later)
            return None if found is None else attrs.evolve(found, missed=(version, found.at.version - 1))

        return await self._locked(look)

    async def digest(self, version: int) -> str | None:
        """Return the digest of a version's log entry; ``None`` if there is no entry.

        :raises TransientError: the store does not answer.
        """
        return await self._locked(lambda: self._known_log().digest(version))

    async def describe(self, found: NewCommits, wanted: CommitFilter) -> dict[str, Any] | None:
        """Describe a commit for an event. This runs in a thread, because it may read from the store.

        If the filter cannot decide on a commit, the commit becomes an event: one too many is better than one too few.

        :param wanted: the watcher's filter.
        :returns: plain JSON; ``None`` if the watcher's filter leaves the commit out.
        :raises InvalidWriteError: the watcher's predicate is no predicate on partition columns.
        """

        def look() -> dict[str, Any] | None:
            if found.commit is None:
                logger.error("%s It is told of by its version alone, as later ones are there.", found.unreadable)
                told = describe_unreadable(found.at.version)
            elif self._takes(wanted, found.commit):
                told = describe(found.commit, self._names())
            else:
                return None
            # Name the table as a load's event does, so that readers recognise one commit that comes in both events.
            return {"table": self._known_log().address, **told, "missed": list(found.missed) if found.missed else None}

        return await self._locked(look)

    def _takes(self, wanted: CommitFilter, commit: Commit) -> bool:
        try:
            return wanted.takes(commit, self._partitioning)
        except (CorruptLogError, LogGapError) as error:
            logger.warning("%s: version %d cannot be judged: %s It is told.", self.table, commit.version, error)
        except OneLakeError:
            raise
        except Exception:
            logger.exception("%s: version %d cannot be judged, and is told.", self.table, commit.version)
        return True

    def _names(self) -> Mapping[str, str]:
        try:
            return self._partitioning().names
        except TerminalError:
            # There is no snapshot, because the log cannot be read from its beginning. The commit itself can be read.
            return {}

    def _partitioning(self) -> Partitioning:
        from airflow_provider_onelake.log.partitions import Partitioning

        snapshot = self._known_log().snapshot_or_none()
        return Partitioning({}) if snapshot is None else snapshot.partitioning

    def _look(self) -> int:
        self._looks += 1
        due = self._looks >= LIST_EVERY
        if not due and not self._is_there(self._head + 1):
            return self._head
        # The table may have been made again: entry N+1 may not continue the N entries that we cached.
        if due or self._head < 0 or not self._is_the_same():
            self._list()
        if self._head >= 0:
            while self._is_there(self._head + 1):
                self._head += 1
            self._stand_at(self._head)
        return self._head

    def _list(self) -> None:
        self._looks = 0
        log = self._known_log()
        if self._head < 0 or self._head not in log.versions_after(self._head - 1) or not self._is_the_same():
            # This is the first poll, or the table went away, came back or was made again. Drop the cached entries,
            # which may belong to the table before.
            self._log = log = log.anew()
            log.check_readable()
            self._head = log.newest_listed()
            if self._head >= 0 and not self._is_the_same():
                self._incarnation += 1

    def _is_the_same(self) -> bool:
        if self._anchor is None:
            return True
        log = self._known_log()
        digest = log.anew().digest(self._anchor.version)
        if digest is None:
            # The entry is gone. If it is older than the head, it may have been cleaned up from the same table's log.
            return self._anchor.version < self._head
        return digest == self._anchor.digest

    def _stand_at(self, version: int) -> None:
        if self._anchor is None or self._anchor.version != version or self._looks == 0:
            digest = self._known_log().digest(version)
            self._anchor = None if digest is None else Position(version, digest)

    def _new_commits(self, version: int) -> NewCommits | None:
        log = self._known_log()
        try:
            commit = log.commit(version)
        except CorruptLogError as error:
            if not log.versions_after(version):
                raise
            return NewCommits(Position(version, log.digest(version)), self._incarnation, unreadable=str(error))
        return None if commit is None else NewCommits(Position(version, commit.digest), self._incarnation, commit)

    def _is_there(self, version: int) -> bool:
        """Say whether a version is there and can become an event.

        A version whose entry we cannot read counts only once there is a later one, because the later committer could
        read it. As the newest version it may be half written, or may still be repaired, so we wait.
        """
        log = self._known_log()
        try:
            commit = log.commit(version)
        except CorruptLogError as error:
            if log.versions_after(version):
                return True
            if self._looks == 0 or self._strange != version:
                logger.error("%s: %s No later version is there, so it is waited for.", self.table, error)  # noqa: TRY400
            self._strange = version
            return False
        if commit is not None and commit.protocol is not None:
            log.check_readable()
        return commit is not None

    def _known_log(self) -> DeltaLog:
        assert self._log is not None
        return self._log

    async def _locked(self, function: Callable[[], _T]) -> _T:
        async with self._reading:
            if self._log is None:
                self._log = await open_log(self.table, self.onelake_conn_id)
            try:
                return await in_thread(function)
            except _ASK_ANEW:
                # The connection may have been corrected, or its key renewed: the next look reads it again.
                self._log = None
                raise
