"""The one road into a table's log: every commit of ours is a proposal that goes around this loop.

::

        ┌─────────────►  read the newest snapshot, and the commits that others have made since
        │                            │
        │            is one of those ours?  ── yes: the answer to our put was lost ────────┐
        │                            │ no                                                  │
        │                  proposal.decide(view)  ── anything but a Put: that is the result│
        │                            │ Put                                                 │
        │              put it, create-only, at the next version  ── done ──────────────────┤
        │                            │                                                     ▼
        └── wait ◄── another was there first, or no answer                  proposal.committed(version)
                     (budget used up: proposal.give_up)                     then what follows a commit

A proposal says what to commit on a given snapshot, and decides again in every round of the loop. The loop does the rest
for all proposals: it retries, finds its own commit after a lost answer, waits and gives up (protocol: create-only).
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from random import Random
from typing import Generic, TypeVar

import attrs

from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.exceptions import (
    CommitContentionError,
    LogGapError,
    ObjectExistsError,
    StoreUnavailableError,
)
from airflow_provider_onelake.log.actions import Action, dump_actions
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.durable import sync_named
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import NO_TABLE, Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.storage.concurrent import reused_threads

logger = logging.getLogger(__name__)

# Called with the snapshot that was committed against, and the version that was put.
AfterCommit = Callable[[Snapshot, int], None]
_Read = Callable[[Mapping[str, str | None]], Partition]

_T = TypeVar("_T")


@attrs.frozen
class Backoff:
    """Exponential back-off with full jitter: each wait is drawn between nothing and a bound that doubles.

    Why jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    The bounds are measured, with sixteen committers at once. On a store that takes 30 ms for a read and 60 ms for a
    put, waits of up to 0.1 s make 1.1 to 1.3 times the commits of waits of up to 1 s, and the slowest commit comes
    earlier, because an unlucky committer does not wait on when the others are done. This costs 1.5 times the puts.
    Without any waits there are hardly more commits, and still more puts.

    :param first: bound of the first wait, in seconds.
    :param longest: bound of every wait after a lost race, in seconds.
    :param silent: bound of every wait after a request that got no answer, in seconds. It is longer, because the store
        may be overloaded.
    :param budget: how long all waits together may be, in seconds.
    """

    first: float = 0.02
    longest: float = 0.1
    silent: float = 1.0
    budget: float = 600.0

    def wait(self, attempt: int, random: Random, longest: float | None = None) -> float:
        """Return how long to wait before the next attempt, in seconds.

        :param attempt: number of the attempt that failed, from 1.
        :param random: where the jitter comes from.
        :param longest: bound of this wait, in seconds. Default: that after a lost race.
        """
        bound: float = min(self.longest if longest is None else longest, self.first * 2.0 ** min(attempt - 1, 30))
        return random.uniform(0.0, bound)


@attrs.frozen
class Tally:
    """What a transaction has cost so far.

    :param attempts: puts tried.
    :param lost_races: puts refused because another was first.
    :param unanswered: times that the store did not answer.
    :param rebasing: seconds since the first lost race; 0 without one.
    """

    attempts: int = 0
    lost_races: int = 0
    unanswered: int = 0
    rebasing: float = 0.0


@attrs.frozen
class View:
    """What a proposal decides on.

    :param snapshot: the newest; :data:`NO_TABLE` where a proposal creates the table and there is none yet.
    :param winners: every commit since the proposal's read version, in the order of versions.
    :param complete: whether ``winners`` has all of them; some are missing where the log was cleaned up meanwhile.
    :param tally: of the transaction so far.
    """

    snapshot: Snapshot
    winners: Sequence[Commit]
    complete: bool
    tally: Tally


@attrs.frozen
class Put:
    """A proposal's decision to commit.

    :param entry: what the commit does.
    :param snapshot: that this was decided on: the view's, or a table that is yet to be made.
    """

    entry: Entry
    snapshot: Snapshot = attrs.field(repr=False)


class Proposal(ABC, Generic[_T]):
    """What a caller wants to commit; ``_T`` is the result that the caller gets."""

    name: str
    """What is to be committed, in messages."""
    read_version: int | None = None
    """The version that the proposal was formed on. Commits after it are its winners. ``None``: only commits after the
    transaction's beginning are."""
    creates_table = False
    left = "Nothing was changed; a retry goes on"
    """What is so after a transaction that has given up, and what to do, in messages."""

    def look_ahead(self) -> AbstractContextManager[object]:
        """Begin to ask for what :meth:`decide` needs besides the snapshot.

        Entered before each snapshot is read, and left when :meth:`decide` has ended.
        """
        return nullcontext()

    @abstractmethod
    def decide(self, view: View) -> Put | _T:
        """Say what to put on a snapshot, or how the transaction ends without a put.

        The loop calls this again after every put that lost its race, and after every request that got no answer; the
        view is then the newest.
        """

    @abstractmethod
    def committed(self, version: int, tally: Tally) -> _T | None:
        """Return the result once a :class:`Put` stands in the log; ``None`` to decide once more, on what is there then.

        :param version: the version of that put.
        """

    def give_up(self, tally: Tally) -> _T | None:
        """Return the result where the budget is used up and the last put met another's commit.

        Default: ``None``, and the transaction ends with a ``CommitContentionError``, which says :attr:`left`.
        """
        return None


@attrs.define
class Transactions:
    """Makes the commits of one table.

    :param random: for ids and jitter.
    :param backoff: between attempts.
    :param after_commit: called with every version that was put, such as for a checkpoint; its failure is only logged.
    """

    log: DeltaLog
    random: Random = attrs.field(factory=Random)
    backoff: Backoff = attrs.field(factory=Backoff)
    after_commit: AfterCommit | None = None

    def commit(self, proposal: Proposal[_T]) -> _T:
        """Take a proposal around the loop until it is committed, ends without a put, or the budget is used up.

        :param proposal: to commit.
        :raises TableNotFoundError: there is no table, and the proposal does not create one.
        :raises LogGapError: a version of the log is missing.
        :raises CommitContentionError: the budget is used up, and the last put met another's commit.
        :raises StoreUnavailableError: the budget is used up, and the store did not answer the last attempt. It is not
            known whether the commit stands.
        """
        with reused_threads(self.log.store):
            return _Transaction(self, proposal).run()

    def live_in(self, snapshot: Snapshot, touches: Callable[[Partition], bool], read: _Read | None = None) -> LiveFiles:
        """Return the live files of some partitions.

        :param touches: says which partitions are meant.
        :param read: returns a file's partition, from its raw partition values. Default: as the snapshot reads it.
        """
        read = read or snapshot.partitioning.partition
        return self.log.live_files(InPartitions(lambda values: touches(read(values))), snapshot.version)


class _Transaction(Generic[_T]):
    """One proposal on its way. Every attempt adds the winners that came since the last one."""

    def __init__(self, means: Transactions, proposal: Proposal[_T]) -> None:
        self._means = means
        self._log = means.log
        self._proposal = proposal
        # The log's last snapshot may be hours old, as Spark worked since: the table may have been made again.
        self._log.doubt()
        self._txn_id = random_id(means.random)
        self._winners: list[Commit] = []
        self._searched = 0
        self._complete = True
        self._seen_version = proposal.read_version
        self._snapshot = NO_TABLE
        self._attempts = self._lost = self._unanswered = 0
        self._rebasing_since: datetime | None = None
        self._waited = 0.0
        self._last: tuple[Snapshot, list[Action]] | None = None
        self._synced: set[str] = set()

    def run(self) -> _T:
        while True:
            trouble: StoreUnavailableError | None = None
            try:
                version, ended = self._attempt()
            except StoreUnavailableError as error:
                # The put may have succeeded nevertheless, so the next attempt looks for it first.
                logger.warning(
                    "%s: attempt %d to commit %s: %s", self._log.table, self._attempts, self._proposal.name, error
                )
                self._unanswered += 1
                trouble = error
            else:
                if version is not None and (ended := self._committed(version)) is None:
                    continue
                if ended is not None:
                    return ended
            if self._waited >= self._means.backoff.budget:
                if trouble is not None:
                    raise trouble
                return self._given_up(self._tally())
            self._wait(self._means.backoff.longest if trouble is None else self._means.backoff.silent)

    def _given_up(self, tally: Tally) -> _T:
        if (result := self._proposal.give_up(tally)) is not None:
            return result
        raise CommitContentionError(
            f"{self._log.table}: {tally.lost_races} of {tally.attempts} puts of {self._proposal.name} met another's "
            f"commit, and the budget of {self._means.backoff.budget:g} s is used up. {self._proposal.left}."
        )

    def _wait(self, longest: float) -> None:
        backoff = self._means.backoff
        # Attempts are counted, not puts, as a store that does not answer may never let the work come to a put.
        seconds = backoff.wait(self._lost + self._unanswered, self._means.random, longest)
        self._waited += max(seconds, backoff.first / 10)
        self._log.clock.sleep(seconds)

    def _attempt(self) -> tuple[int | None, _T | None]:
        """Return the version of our commit, or the result of a proposal without a put; neither after a lost race."""
        with self._proposal.look_ahead():
            newest = self._log.snapshot_or_none() if self._proposal.creates_table else self._log.snapshot()
            snapshot = self._snapshot = newest or NO_TABLE
            self._take_in(snapshot)
            news = self._winners[self._searched :] if self._last is not None else ()
            self._searched = len(self._winners)
            mine = next((commit for commit in news if commit.txn_id == self._txn_id), None)
            if mine is not None:
                # The answer to the put was lost. While this version was free, every attempt put the same, so what the
                # proposal has decided last is what stands there.
                return mine.version, None
            pending = self._put_before(snapshot)
            if (actions := pending) is None:
                decided = self._proposal.decide(View(snapshot, self._winners, self._complete, self._tally()))
                if not isinstance(decided, Put):
                    return None, decided
                actions = decided.entry.on(decided.snapshot, self._txn_id, self._log.clock.now())
        self._attempts += 1
        self._last = snapshot, actions
        version = snapshot.version + 1
        sync_named(self._log.store, actions, self._synced)
        try:
            self._log.put(version, dump_actions(actions))
        except ObjectExistsError:
            if pending is not None and self._is_ours(version):
                return version, None
            self._lost += 1
            self._rebasing_since = self._rebasing_since or self._log.clock.now()
            return None, None
        return version, None

    def _is_ours(self, version: int) -> bool:
        """Say whether a put that got no answer took effect before its repetition, which may have been the last try."""
        commit = self._log.commit(version)
        return commit is not None and commit.txn_id == self._txn_id

    def _put_before(self, snapshot: Snapshot) -> list[Action] | None:
        """Return the entry of a put that got no answer and may yet take effect, as its version is free; else ``None``.

        Put nothing else there: a proposal may decide otherwise on the same version, as it also looks at what lies
        beside the log, such as claims, and at the clock. Then nobody would know which of the two decisions stands, and
        who is told that nothing was changed could find it in the table.
        """
        if self._last is None:
            return None
        before, actions = self._last
        same = before.version == snapshot.version and before.metadata.get("id") == snapshot.metadata.get("id")
        return actions if same else None

    def _take_in(self, snapshot: Snapshot) -> None:
        if self._seen_version is None:
            self._seen_version = snapshot.version
        try:
            self._winners += self._log.commits_between(self._seen_version, snapshot.version)
        except LogGapError:
            self._complete = False
        self._seen_version = snapshot.version

    def _committed(self, version: int) -> _T | None:
        # What is committed after this is another commit, with an id of its own. The id is derived, not drawn, because
        # hardly any proposal commits again.
        self._txn_id = str(uuid.uuid5(uuid.UUID(self._txn_id), "another commit"))
        result = self._proposal.committed(version, self._tally())
        if self._means.after_commit is not None:
            try:
                self._means.after_commit(self._snapshot, version)
            except Exception:
                # The commit stands even if, for example, its checkpoint fails.
                logger.exception("%s: version %d is committed; what follows a commit failed", self._log.table, version)
        return result

    def _tally(self) -> Tally:
        since = self._rebasing_since
        rebasing = (self._log.clock.now() - since).total_seconds() if since is not None else 0.0
        return Tally(self._attempts, self._lost, self._unanswered, rebasing)


def random_id(random: Random) -> str:
    """Draw a UUID.

    :param random: to draw from, so that a simulation draws the same again.
    """
    return str(uuid.UUID(int=random.getrandbits(128), version=4))
