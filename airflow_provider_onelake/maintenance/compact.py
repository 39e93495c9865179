"""Publishing a compaction: in every partition, the new files replace the old ones if all old ones are still live.

A compaction gives way to all writers. No writer in flight waits or fails because of it. A partition whose files another
commit changed, or a writer needs, is dropped from the compaction.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import timedelta
from enum import StrEnum

import attrs

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.buffers.markers import try_to_mark
from airflow_provider_onelake.buffers.shadow import Shadow
from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.commit.loop import Backoff, Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task
from airflow_provider_onelake.exceptions import LogGapError
from airflow_provider_onelake.log.actions import Add, file_key
from airflow_provider_onelake.log.commits import COMPACTION, Commit
from airflow_provider_onelake.log.compatibility import unfit
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.maintenance.compaction import ZORDER_TAG, bytes_of, zorder_tag
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.shadow import Rewrite, Rewritten

POLITE = Backoff(first=0.2, longest=2.0, silent=2.0, budget=20.0)
"""Waits that leave a busy log to its writers: they are longer than the writers' waits, and end after 20 seconds."""


class CompactionStatus(StrEnum):
    """How publishing a compaction ended."""

    PUBLISHED = "published"
    DROPPED = "dropped"


@attrs.frozen
class Dropped:
    """A partition whose rewrite was not published.

    :param partition: as people write it.
    :param reason: why it was dropped, in words.
    """

    partition: str
    reason: str


@attrs.frozen
class CompactionResult:
    """How publishing a compaction ended.

    :param status: published, if only for some partitions, or dropped.
    :param version: of the table; ``None`` where it was dropped.
    :param groups: the partitions that were published.
    :param dropped: the partitions that were not, and why.
    """

    status: CompactionStatus
    version: int | None
    groups: tuple[Rewritten, ...]
    dropped: tuple[Dropped, ...]
    tally: Tally = attrs.field(factory=Tally)


def publish_rewrite(
    transactions: Transactions,
    shadow: Shadow,
    rewrite: Rewrite,
    *,
    zorder_by: Sequence[str] = (),
    abandoned_after: timedelta | None = None,
    backoff: Backoff = POLITE,
    by: str = "",
    message: str | None = None,
) -> CompactionResult:
    """Publish, in one version, the partitions of a rewrite whose files have not changed since.

    :param shadow: that was rewritten.
    :param rewrite: what Spark left in it.
    :param zorder_by: the columns that Spark sorted along. Default: none.
    :param abandoned_after: see :func:`~airflow_provider_onelake.maintenance.in_flight.writers_in_flight`.
    :param backoff: between attempts.
    :param by: who compacts, for people who read the table's history. Default: nothing is said.
    :param message: of the author, for the same people. Default: none.
    :returns: how it ended. If all of it was dropped, that is a result, not an error.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. It is not known whether the
        compaction was published; the table is right in both cases.
    """
    polite = attrs.evolve(transactions, backoff=backoff)
    return polite.commit(_Compaction(polite, shadow, rewrite, zorder_by, abandoned_after, by, message))


@attrs.define(eq=False)
class _Compaction(Proposal[CompactionResult]):
    """One call of :func:`publish_rewrite`."""

    _transactions: Transactions
    _shadow: Shadow
    _rewrite: Rewrite
    _zorder_by: Sequence[str]
    _abandoned_after: timedelta | None
    _by: str = ""
    _message: str | None = None
    _dropped: list[Dropped] = attrs.field(factory=list)
    _live: LiveFiles | None = None
    _put: tuple[Rewritten, ...] = ()

    def __attrs_post_init__(self) -> None:
        self._log = self._transactions.log
        self._groups = {group.partition: group for group in self._rewrite.groups}
        self.name = f"compaction {self._shadow.path}"
        self.read_version = self._shadow.snapshot.version

    def decide(self, view: View) -> Put | CompactionResult:
        """Put the partitions of the rewrite whose files have not changed since."""
        snapshot = view.snapshot
        if not view.complete:
            return self._drop_all(f"the log after version {self.read_version} was cleaned up meanwhile", view.tally)
        snapshot.check_supported(self._log.table)
        reason = unfit(self._shadow.snapshot, snapshot)
        if reason is not None:
            return self._drop_all(reason, view.tally)
        try:
            self._drop_groups(view)
        except LogGapError as error:
            return self._drop_all(f"the log was cleaned up while it was read: {error}", view.tally)
        if not self._groups:
            return self._drop_all("", view.tally)
        self._put = tuple(self._groups.values())
        return Put(self._entry(), snapshot)

    def committed(self, version: int, tally: Tally) -> CompactionResult:
        """Mark the shadow as published.

        :param version: in which it was published.
        """
        outcome = {"version": version, COMPACTION: {"partitions": [group.name for group in self._put]}}
        try_to_mark(self._log, self._shadow.path, outcome)
        return CompactionResult(CompactionStatus.PUBLISHED, version, self._put, tuple(self._dropped), tally)

    def give_up(self, tally: Tally) -> CompactionResult:
        """Drop the rewrite: a compaction does not insist."""
        return self._drop_all(f"{tally.lost_races} puts met another's commit, and a compaction does not insist", tally)

    def _drop_groups(self, view: View) -> None:
        """Drop the partitions with an input that is no longer live, or that a writer which began meanwhile needs."""
        snapshot = view.snapshot
        oldest, days = self._rewrite.oldest, snapshot.retention_days
        if oldest is not None and self._log.clock.now() - oldest >= lifetime(days):
            # A VACUUM may have listed the new files for deletion, like those of an old buffer (protocol: young).
            self._drop(f"its new files are older than half of the table's retention of {days:g} days", *self._groups)
            return
        present = {file_key(file) for file in self._live_files(view)}
        needed = writers_in_flight(self._log, snapshot, self._abandoned_after)
        for partition, group in list(self._groups.items()):
            for file in group.removed:
                if file_key(file) not in present:
                    self._drop(_why_gone(file, view.winners), partition)
                    break
                reason = needed.why_needed(file)
                if reason is not None:
                    self._drop(f"{file['path']} must stay as it is: {reason}", partition)
                    break

    def _live_files(self, view: View) -> LiveFiles:
        if self._live is not None:
            self._live.follow(view.winners)
            return self._live
        touched = frozenset(self._groups)
        self._live = self._transactions.live_in(view.snapshot, touched.__contains__)
        return self._live

    def _entry(self) -> Entry:
        removed = [file for group in self._put for file in group.removed]
        added = [self._add(add) for group in self._put for add in group.added]
        told = f"{len(removed)} files became {len(added)}"
        return Entry(
            operation="OPTIMIZE",
            parameters={"predicate": "[]", "zOrderBy": json.dumps(list(self._zorder_by)), "auto": "false"},
            message=of_task(self._by, told, self._message) if self._by else None,
            record={COMPACTION: {"shadow": self._shadow.path, "readVersion": self._shadow.snapshot.version}},
            isolation="SnapshotIsolation",
            metrics={
                "numRemovedFiles": len(removed),
                "numRemovedBytes": bytes_of(removed),
                "numAddedFiles": len(added),
                "numAddedBytes": bytes_of(added),
            },
            tags=self._rewrite.tags,
            removed=removed,
            added=added,
            data_change=False,
        )

    def _add(self, add: Add) -> Add:
        published: Add = {**add, "dataChange": False}
        if self._zorder_by:
            tag = zorder_tag(self._zorder_by, self._shadow.attempt)
            published["tags"] = {**(add.get("tags") or {}), ZORDER_TAG: tag}
        return published

    def _drop(self, reason: str, *partitions: Partition) -> None:
        for partition in partitions:
            self._dropped.append(Dropped(self._groups.pop(partition).name, reason))

    def _drop_all(self, reason: str, tally: Tally) -> CompactionResult:
        self._drop(reason, *list(self._groups))
        reason = "; ".join(dict.fromkeys(dropped.reason for dropped in self._dropped))
        try_to_mark(self._log, self._shadow.path, {"reason": reason})
        return CompactionResult(CompactionStatus.DROPPED, None, (), tuple(self._dropped), tally)


def _why_gone(file: Add, winners: Iterable[Commit]) -> str:
    for commit in winners:
        if any(remove["path"] == file["path"] for remove in commit.removes):
            added = {add["path"] for add in commit.adds}
            changed = "gave it another deletion vector" if file["path"] in added else "removed it"
            return f"{file['path']} is no longer as it was: version {commit.version} ({commit.author}) {changed}"
    return f"{file['path']} is no longer in the table as it was"
