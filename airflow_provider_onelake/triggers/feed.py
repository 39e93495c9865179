"""One poll of a table's log for all its watchers in a triggerer.

Airflow runs one producer for all triggers with one ``shared_stream_key``. Here what is shared is a *poll*: the newest
version, and the way to read any version at or below it, each read once for all. So a watcher that joins late, or that
was away, catches up from its own watermark, and the poll need not begin where the slowest of them is.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    ConnectionUnavailableError,
    CorruptLogError,
    CredentialsError,
    LogGapError,
    OneLakeError,
    StoreNotFoundError,
    TerminalError,
    TransientError,
)
from airflow_provider_onelake.following.watch import describe, describe_unreadable
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.log.commits import Commit

if TYPE_CHECKING:
    from airflow_provider_onelake.following.filters import CommitFilter
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.partitions import Partitioning

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

LONGEST_PAUSE = 60.0
"""Seconds between two looks at a store that does not answer."""

# After so many polls the log is listed, to tell "not yet" from "gone" (protocol: log gap).
_LIST_EVERY = 20
# While a watcher has more to read than it may take at once.
_HURRIED_PAUSE = 0.2

_ASK_ANEW = (AccessDeniedError, CredentialsError, StoreNotFoundError)


@attrs.frozen
class Seen:
    """How far a watcher came.

    :param version: the last one that it read; -1 before the first.
    :param digest: of that version's entry, by which a table that was made again is told apart; ``None`` if unknown.
    """

    version: int
    digest: str | None = None


Keep = Callable[[Seen], Awaitable[None]]


@attrs.define
class Poll:
    """What Airflow hands from the producer to every watcher, and back to the producer when it is settled.

    :param feed: that it comes from.
    :param head: the newest version, -1 without a table.
    :param making: counts how often the table was made again since the feed began.
    :param reached: how far each watcher has read, by what keeps its watermark.
    """

    feed: LogFeed
    head: int
    making: int = 0
    reached: dict[Keep, Seen] = attrs.field(factory=dict)

    async def keep(self) -> None:
        """Let each watcher keep how far it came; to be called once Airflow has its events."""
        for keep, seen in list(self.reached.items()):
            await keep(seen)


@attrs.frozen
class Found:
    """A commit that was read.

    :param commit: of the table.
    :param making: of the table that it belongs to, see :class:`Poll`.
    :param missed: the first and the last version that should have come before it and are no longer in the log.
    :param unreadable: why the entry cannot be read, where that is so; the commit is an empty one then.
    """

    commit: Commit
    making: int
    missed: tuple[int, int] | None = None
    unreadable: str | None = None


class LogFeed(SharedStreamProducer):
    """Polls one table's log.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection.
    :param poll_interval: between two looks, in seconds.
    """

    def __init__(self, table: str, onelake_conn_id: str, poll_interval: float) -> None:
        self.table = table
        self.onelake_conn_id = onelake_conn_id
        self.poll_interval = poll_interval
        self._log: DeltaLog | None = None
        # Threads of several watchers must not be in one log at the same time.
        self._reading = asyncio.Lock()
        self._hurry = asyncio.Event()
        self._head = -1
        # The newest entry when the feed last made sure that the table is the one that it knows.
        self._anchor: Seen | None = None
        self._making = 0
        self._strange: int | None = None
        # The first look lists the log.
        self._looks = _LIST_EVERY

    async def open_stream(self) -> AsyncIterator[tuple[Poll, Poll]]:
        """Poll for ever.

        :returns: each poll twice: for the watchers, and for :meth:`advance`.
        """
        pause = self.poll_interval
        while True:
            try:
                head = await self._locked(self._look)
            except OneLakeError as error:
                pause = min(LONGEST_PAUSE, max(pause, self.poll_interval) * 2)
                say = logger.warning if isinstance(error, TransientError) else logger.error
                say("%s: %s: %s; asking again in %.0f s", self.table, type(error).__name__, error, pause)
                await asyncio.sleep(pause)
                continue
            pause = self.poll_interval
            poll = Poll(self, head, self._making)
            yield poll, poll
            try:
                await asyncio.wait_for(self._hurry.wait(), self.poll_interval)
            except TimeoutError:
                continue
            self._hurry.clear()
            await asyncio.sleep(min(_HURRIED_PAUSE, self.poll_interval))

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Let the watchers keep how far they came: Airflow says that their events are in its database.

        A poll that one watcher failed in is passed over: the next one says how far the others came.

        :param batch: polls, in order.
        """
        for item in batch:
            if item.outcome.failed == 0:
                await item.broker_payload.keep()

    def hurry(self) -> None:
        """Poll again soon: a watcher has more to read than it took."""
        self._hurry.set()

    async def read(self, version: int) -> Found | None:
        """Read a version at or below the head, or the first one after it that is still there.

        :param version: wanted.
        :returns: the commit; ``None`` where it and what follows is gone.
        :raises TransientError: the store does not answer.
        """

        def look() -> Found | None:
            found = self._found(version)
            if found is not None:
                return found
            later = next(iter(self._known_log().versions_after(version)), None)
            found = None if later is None else self._found(later)
            return None if found is None else attrs.evolve(found, missed=(version, found.commit.version - 1))

        return await self._locked(look)

    async def digest(self, version: int) -> tuple[str | None, int]:
        """Say which entry a version has.

        :param version: of the table.
        :returns: the entry's digest, ``None`` where it is not there; and how often the table was made again by then.
        :raises TransientError: the store does not answer.
        """

        def look() -> tuple[str | None, int]:
            return self._known_log().digest(version), self._making

        return await self._locked(look)

    async def describe(self, found: Found, wanted: CommitFilter) -> dict[str, Any] | None:
        """Describe a commit as an event carries it, in a thread: the store may have to be asked.

        What cannot be judged is told, with what is known of it: rather an event too many than one too few.

        :param found: the commit.
        :param wanted: by the watcher.
        :returns: plain JSON; ``None`` where the watcher is not to be told of it.
        :raises InvalidWriteError: the watcher's predicate is no predicate on partition columns.
        """

        def look() -> dict[str, Any] | None:
            # As a load's event calls the table, so that a commit that both tell of is known to be one.
            table = self._known_log().table
            missed = list(found.missed) if found.missed is not None else None
            if found.unreadable is not None:
                logger.error("%s It is told of by its version alone, as later ones are there.", found.unreadable)
                return {"table": table, **describe_unreadable(found.commit.version), "missed": missed}
            if not self._takes(wanted, found.commit):
                return None
            return {"table": table, **describe(found.commit, self._names()), "missed": missed}

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
            # A log that cannot be read from its beginning: the commit itself can.
            return {}

    def _partitioning(self) -> Partitioning:
        from airflow_provider_onelake.log.partitions import Partitioning

        snapshot = self._known_log().snapshot()
        return Partitioning({}) if snapshot is None else snapshot.partitioning

    def _look(self) -> int:
        self._looks += 1
        due = self._looks >= _LIST_EVERY
        if not due and not self._is_there(self._head + 1):
            return self._head
        # What comes next may belong to another table by now, whose entries up to here are others.
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
            # The first look, or the table is gone, or back, or was made again: entries that are known may be others'.
            self._log = log = type(log)(log.store, log.table, log.clock)
            self._head = log.newest_listed()
            if self._head >= 0 and not self._is_the_same():
                self._making += 1

    def _is_the_same(self) -> bool:
        if self._anchor is None:
            return True
        log = self._known_log()
        digest = type(log)(log.store, log.table, log.clock).digest(self._anchor.version)
        if digest is None:
            # Cleaned up, if it is older than what is there.
            return self._anchor.version < self._head
        return digest == self._anchor.digest

    def _stand_at(self, version: int) -> None:
        if self._anchor is None or self._anchor.version != version or self._looks == 0:
            digest = self._known_log().digest(version)
            self._anchor = None if digest is None else Seen(version, digest)

    def _found(self, version: int) -> Found | None:
        log = self._known_log()
        try:
            commit = log.commit(version)
        except CorruptLogError as error:
            if not log.versions_after(version):
                raise
            unread = Commit(version, [], digest=log.digest(version) or "")
            return Found(unread, self._making, unreadable=str(error))
        return None if commit is None else Found(commit, self._making)

    def _is_there(self, version: int) -> bool:
        """Say whether a version is there to be told of.

        One whose entry cannot be read is, once there is a later one: who committed that could read it. As long as it
        is the newest, it is waited for, as it may be half written, or be mended.
        """
        log = self._known_log()
        try:
            return log.commit(version) is not None
        except CorruptLogError as error:
            if log.versions_after(version):
                return True
            if self._looks == 0 or self._strange != version:
                logger.error("%s: %s No later version is there, so it is waited for.", self.table, error)  # noqa: TRY400
            self._strange = version
            return False

    def _known_log(self) -> DeltaLog:
        assert self._log is not None
        return self._log

    async def _locked(self, function: Callable[[], _T]) -> _T:
        async with self._reading:
            if self._log is None:
                self._log = await open_log(self.table, self.onelake_conn_id)
            try:
                return await asyncio.to_thread(function)
            except _ASK_ANEW:
                # The connection may have been corrected, or its key renewed: the next look reads it again.
                self._log = None
                raise


async def open_log(table: str, onelake_conn_id: str) -> DeltaLog:
    """Open a table's log without blocking the event loop.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection.
    :raises ConnectionUnavailableError: Airflow does not give the connection.
    :raises TerminalError: what the connection says is wrong.
    """
    try:
        hook = await OneLakeHook.from_async(onelake_conn_id)
    except Exception as error:
        # Airflow says "not defined" also of a connection that it could not ask its API for.
        raise ConnectionUnavailableError(
            f"Airflow does not give the connection {onelake_conn_id!r} ({type(error).__name__}): it is not defined, or "
            "the API server or the secrets backend did not answer."
        ) from error
    return await asyncio.to_thread(hook.delta_log, table)


def feed_of(kwargs: Mapping[str, Any]) -> LogFeed:
    """Make the feed of a trigger.

    :param kwargs: what the trigger serialises.
    """
    return LogFeed(kwargs["table"], kwargs["onelake_conn_id"], kwargs["poll_interval"])
