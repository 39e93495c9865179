"""The trigger of an asset that a table's commits update."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Hashable, Sequence
from typing import TYPE_CHECKING, Any

import attrs
from airflow.sdk import Asset
from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_provider_onelake._airflow import check_has
from airflow_provider_onelake.exceptions import InvalidWriteError, OneLakeError, TransientError
from airflow_provider_onelake.following.filters import CommitFilter
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.triggers._fields import FieldsTrigger
from airflow_provider_onelake.triggers.asking import LONGEST_PAUSE, asking
from airflow_provider_onelake.triggers.feed import LogFeed, NewCommits, Poll, Position

if TYPE_CHECKING:
    from airflow_provider_onelake._airflow import SharedStreamProducer

IN_FLIGHT = 200
"""The most versions that a watcher reads beyond the last one that Airflow confirmed. A crash may repeat as many."""

_WATERMARK = "delta_log_seen"
_A_POLL = 100
_KEEP_SECONDS = 10.0
# The most polls between two warnings of the same trouble: one hour with the default interval.
_RAREST = 720


def _operations(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


@attrs.define(slots=False, eq=False, repr=False)
class DeltaLogTrigger(FieldsTrigger, BaseEventTrigger):
    """Fire an asset's event for every commit to a table, in order and without gaps. Use it in an ``AssetWatcher``.

    The watermark is the last version whose event Airflow has in its database. It is kept in the asset's state store, so
    a triggerer that starts again continues there. If the triggerer dies before the watermark is stored, events come
    twice, and ``assets.commits`` drops repeated ones (docs/guides/events.md). The watermark includes a digest of the
    version's log entry. A table that was made again has another digest, and is followed from its first version. A table
    that was only away has the same digest, and the watcher continues. All watchers of a table in one triggerer share
    one poll, whatever their filters.

    If a store does not answer, the trigger asks again. If the table does not exist, the trigger waits. If versions were
    cleaned up before the trigger saw them, the trigger logs them, names them in the next event (``missed``), and
    continues with the first version that exists.

    :param table: an address, or a path in the connection's lakehouse.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    :param operation: one operation, or several, as the log spells them (``WRITE``, …). Only their commits become
        events. Default: all operations.
    :param partition: a predicate on partition columns. Only commits that add or remove rows where it holds become
        events. Default: all commits.
    :param writer: an application id, where ``*`` stands for any text. Only commits with such a ``txn`` become events:
        ``onelake/prod/taxi/load/*`` for the write group ``load`` of the DAG ``taxi`` of the namespace ``prod``,
        ``onelake/*/2019-01-01T00:00:00+00:00/*`` for a run. Default: all commits.
    :param data_change_only: whether to leave out commits that change no rows, such as compaction's. Default: no.
    :param after: the last version already seen, for a watcher that starts for the first time; -1 for all commits, as
        for a table that is still to be made. Default: the table's version at the watcher's first look, which is some
        seconds after its DAG was parsed.
    :param asset: the name of the asset. Needed only if two assets have equal watchers, because Airflow runs equal
        watchers as one. Default: the watcher's only asset.
    :param poll_interval: seconds between two polls. Default: 5.
    :raises InvalidWriteError: Airflow is older than 3.3, which has no watermarks.
    """

    table: str
    onelake_conn_id: str = OneLakeHook.default_conn_name
    operation: Sequence[str] = attrs.field(default=(), converter=_operations)
    partition: str | None = None
    writer: str | None = None
    data_change_only: bool = False
    after: int | None = None
    asset: str | None = None
    poll_interval: float = 5.0
    _position: Position | None = attrs.field(default=None, init=False)
    _confirmed: int = attrs.field(default=0, init=False)

    def __attrs_post_init__(self) -> None:
        # Without a watermark, what is committed while no triggerer runs would be no event.
        check_has(f"A watcher of {self.table}", "Wait with a DeltaLogSensor, or name the table as the writers' outlet.")

    @property
    def watermark(self) -> str:
        """The watermark's key in the asset's state store. Another table, connection or filter has another key."""
        names = ("onelake_conn_id", "table", "operation", "partition", "writer", "data_change_only")
        mine = [getattr(self, name) for name in names]
        return f"{_WATERMARK}.{hashlib.sha256(json.dumps(mine).encode()).hexdigest()[:16]}"

    def shared_stream_key(self) -> Hashable:
        """Return the key that is equal for all watchers that share one poll."""
        return ("onelake", self.onelake_conn_id, self.table, self.poll_interval)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> SharedStreamProducer:
        """Make the feed that the watchers share.

        It is a producer, because Airflow tells only producers when events are in its database.

        :param kwargs: the arguments that one of the watchers serialises.
        """
        return LogFeed(kwargs["table"], kwargs["onelake_conn_id"], kwargs["poll_interval"])

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Any]) -> AsyncIterator[TriggerEvent]:
        """Turn each poll into events for the commits that this watcher has not read yet.

        :param shared_stream: the polls.
        :returns: the events.
        """
        position = self._position = await self._watermark()
        self._confirmed = 0 if position is None else position.version
        incarnation: int | None = None
        trouble = _Trouble()
        wanted = CommitFilter(tuple(self.operation), self.partition, self.writer, self.data_change_only)
        async for poll in shared_stream:
            if poll.head < 0:
                position = poll.positions[self.keep] = position or await self._first_position(poll)
                if position.version not in (-1, self.after) and trouble.is_due("gone"):
                    self.log.warning(
                        "%s: there is no table, and version %d was seen; waiting for it", self.table, position.version
                    )
                continue
            try:
                if position is None:
                    position = await self._first_position(poll)
                elif await self._is_another_table(poll, position, incarnation):
                    position = self._begin_again(poll, position)
                incarnation = poll.incarnation
                poll.positions[self.keep] = position
                async for found in self._read(poll, position.version):
                    told = await poll.feed.describe(found, wanted)
                    if told is not None:
                        yield TriggerEvent(told)  # type: ignore[no-untyped-call]
                    position = poll.positions[self.keep] = found.at
            except OneLakeError as error:
                # The next poll tries the same version again.
                where = "" if position is None else f"after version {position.version}: "
                message = f"{self.table}: {where}{type(error).__name__}: {error}"
                if trouble.is_due(message):
                    (self.log.warning if isinstance(error, TransientError) else self.log.error)(message)
            else:
                trouble = _Trouble()
                if position.version < poll.head:
                    poll.feed.poll_soon()

    async def _first_position(self, poll: Poll) -> Position:
        version = self._confirmed = poll.head if self.after is None else self.after
        first = Position(version, await poll.feed.digest(version) if 0 <= version <= poll.head else None)
        if self.after is None:
            # Else a triggerer that starts again before the first event would begin at a later version.
            await self.keep(first)
        text = "%s: this watcher is new: commits become events from version %d on. `after` says another beginning."
        self.log.info(text, self.table, version + 1)
        return first

    async def _is_another_table(self, poll: Poll, position: Position, incarnation: int | None) -> bool:
        """Say whether the table was made again since the last poll, or at the first poll, since the watermark."""
        if incarnation is not None:
            return incarnation != poll.incarnation
        if position.version < 0:
            return False
        digest = await poll.feed.digest(position.version)
        if digest is None:
            return bool(poll.head < position.version != self.after)
        return position.digest is not None and digest != position.digest

    def _begin_again(self, poll: Poll, position: Position) -> Position:
        self.log.warning(
            "%s was dropped or made again: it has version %d, and the version %d that was seen is not the one that it "
            "has now, so all that comes is taken from its first version on.",
            self.table,
            poll.head,
            position.version,
        )
        self._confirmed = -1
        return Position(-1)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Follow the log alone, for a triggerer that does not share streams.

        An event then counts as taken when Airflow asks for the next one.

        :returns: the events.
        """

        async def polls() -> AsyncIterator[Poll]:
            async for poll, _ in LogFeed(self.table, self.onelake_conn_id, self.poll_interval).open_stream():
                yield poll
                await poll.keep()

        async for event in self.filter_shared_stream(polls()):
            yield event

    async def keep(self, position: Position) -> None:
        """Store the watermark.

        :param position: the last version whose event Airflow has in its database.
        """
        if position == self._position or self.asset_state_store is None:
            return
        try:
            # While the triggerer stops, Airflow may no longer answer, so limit the wait.
            await asyncio.wait_for(self._store().aset(self.watermark, attrs.asdict(position)), _KEEP_SECONDS)
        except Exception as error:
            # Do not raise: that would end the poll of all watchers. The next poll stores the watermark, or after a
            # crash the events come again.
            self.log.warning("%s: version %d could not be kept as seen: %r", self.table, position.version, error)
        else:
            self._position, self._confirmed = position, position.version

    async def _read(self, poll: Poll, cursor: int) -> AsyncIterator[NewCommits]:
        most = min(poll.head, cursor + _A_POLL)
        if self.asset_state_store is not None:
            most = min(most, self._confirmed + IN_FLIGHT)
        while cursor < most and (found := await poll.feed.read(cursor + 1)) is not None:
            if found.incarnation != poll.incarnation:
                # The table was made again since this poll. The next poll finds the version to continue after.
                return
            cursor = found.at.version
            if found.missed is not None:
                first, last = found.missed
                self.log.error(
                    "%s: versions %d to %d were cleaned up from its log before they were seen; it goes on with "
                    "version %d. Let logs live longer (delta.logRetentionDuration), or the triggerer be away for less.",
                    self.table,
                    first,
                    last,
                    cursor,
                )
            yield found

    async def _watermark(self) -> Position | None:
        if self.asset_state_store is None:
            return None
        try:
            # Ask until the watermark is read: to begin at another version would lose commits.
            asked = asking(self.table, self.poll_interval, Exception, unless=InvalidWriteError)
            kept: Any = await asked(self._read_kept)
        except InvalidWriteError as error:
            self.log.error("%s", error)  # noqa: TRY400
            # Wait first, because the triggerer restarts a failed watcher at once.
            await asyncio.sleep(LONGEST_PAUSE)
            raise
        return Position(int(kept["version"]), kept.get("digest")) if isinstance(kept, dict) else None

    async def _read_kept(self) -> Any:
        try:
            return await self._store().aget(self.watermark)
        except ValueError:
            if self.asset is not None:
                raise
            raise InvalidWriteError(
                f"Several assets have equal watchers of {self.table}, which are one to Airflow, and how far each has "
                "come cannot be kept. Nothing is lost: give each watcher its asset's name (asset=…)."
            ) from None

    def _store(self) -> Any:
        assert self.asset_state_store is not None
        if self.asset is None:
            return self.asset_state_store
        try:
            return self.asset_state_store[Asset.ref(name=self.asset)]
        except KeyError:
            raise InvalidWriteError(
                f"The watcher of {self.table} says that its asset is {self.asset!r}, and it is another's. Nothing is "
                "lost: say the asset's own name."
            ) from None


@attrs.define
class _Trouble:
    """Decides when to log a watcher's trouble: at the first poll that meets it, then more and more rarely."""

    _message: str | None = None
    _polls: int = 0
    _next: int = 1

    def is_due(self, message: str) -> bool:
        if message != self._message:
            self._message, self._polls, self._next = message, 0, 1
        self._polls += 1
        if self._polls < self._next:
            return False
        self._next = min(4 * self._next, self._next + _RAREST)
        return True
