"""Publishing a compaction: the new files take the old ones' place, if those are all still there; else nothing does.

It gives way to everybody: no writer in flight waits or fails because of it, and what met another's change is dropped.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from random import Random
from typing import Any

import attrs

from airflow_provider_onelake import __version__
from airflow_provider_onelake.commit.backoff import Backoff, Waits
from airflow_provider_onelake.commit.entry import remove_of
from airflow_provider_onelake.commit.follow_up import AfterCommit, follow_up
from airflow_provider_onelake.commit.stamps import stamp
from airflow_provider_onelake.exceptions import (
    LogGapError,
    ObjectExistsError,
    OneLakeError,
    StoreUnavailableError,
    TableNotFoundError,
)
from airflow_provider_onelake.log.actions import Action, dump_actions, file_key, version_path
from airflow_provider_onelake.log.commits import FORMAT, STAGED, Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.fits import misfits
from airflow_provider_onelake.log.partitions import Partition
from airflow_provider_onelake.log.referee import Referee
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.maintenance.compaction import ZORDER_TAG, zorder_tag
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.shadow import COMPACTION, Rewrite, Rewritten, Shadow
from airflow_provider_onelake.staging.buffers import close
from airflow_provider_onelake.storage.clock import milliseconds

logger = logging.getLogger(__name__)

POLITE = Backoff(first=0.2, longest=2.0, budget=20.0)
"""Waits that leave a busy log to its writers: longer than theirs, and soon given up."""


class Status(StrEnum):
    """How publishing a compaction ended."""

    PUBLISHED = "published"
    DROPPED = "dropped"


@attrs.frozen
class Dropped:
    """A partition that was rewritten for nothing.

    :param partition: as people write it.
    :param reason: in words.
    """

    partition: str
    reason: str


@attrs.frozen
class Publication:
    """How publishing a compaction ended.

    :param status: published, if only for some partitions, or dropped.
    :param version: of the table; ``None`` where it was dropped.
    :param groups: what was published.
    :param dropped: what was not, and why.
    :param lost_races: puts refused because another was first.
    """

    status: Status
    version: int | None
    groups: tuple[Rewritten, ...]
    dropped: tuple[Dropped, ...]
    lost_races: int = 0


@attrs.define
class Publisher:
    """Publishes compactions of one table.

    :param log: of the table.
    :param random: for ids and jitter.
    :param backoff: between attempts.
    :param referee: asked before files are removed; ``None`` for no second opinion.
    :param after_commit: called with every version that was put; its failure is only logged.
    :param abandoned_after: see :func:`~airflow_provider_onelake.maintenance.in_flight.writers_in_flight`.
    """

    log: DeltaLog
    random: Random = attrs.field(factory=Random)
    backoff: Backoff = POLITE
    referee: Referee | None = None
    after_commit: AfterCommit | None = None
    abandoned_after: timedelta | None = None

    def publish(self, shadow: Shadow, rewrite: Rewrite) -> Publication:
        """Publish what is still right of a rewrite, in one version.

        :param shadow: that was rewritten.
        :param rewrite: what Spark left in it.
        :returns: how it ended; that all of it was dropped is a result, not an error.
        :raises UnsupportedFeatureError: the table has got a feature outside the allow-list.
        :raises CorruptLogError: deltalake sees other live files than we do.
        :raises StoreUnavailableError: the store did not answer until the budget was used up; nobody knows whether the
            compaction was published, and either is right.
        """
        return _Attempts(self, shadow, rewrite).run()


class _Attempts:
    """One call of :meth:`Publisher.publish`: what is known of the winners grows from attempt to attempt."""

    def __init__(self, publisher: Publisher, shadow: Shadow, rewrite: Rewrite) -> None:
        self._publisher = publisher
        self._log = publisher.log
        # Spark's work lies behind the snapshot: the table may have been made again since.
        self._log.doubt()
        self._shadow = shadow
        self._rewrite = rewrite
        self._groups = {group.partition: group for group in rewrite.groups}
        self._dropped: list[Dropped] = []
        self._txn_id = str(uuid.UUID(int=publisher.random.getrandbits(128), version=4))
        self._seen = shadow.snapshot.version
        self._winners: list[Commit] = []
        self._live: LiveFiles | None = None
        self._put: tuple[Rewritten, ...] = ()
        self._lost = 0
        self._waits = Waits(publisher.backoff, publisher.random, self._log.clock)

    def run(self) -> Publication:
        """Attempt until the rewrite is published, dropped, or the budget is used up."""
        while True:
            unknown: StoreUnavailableError | None = None
            try:
                ended = self._attempt()
                if ended is not None:
                    return ended
            except StoreUnavailableError as error:
                # The put may have taken effect; the next attempt reads the log first and finds it (protocol:
                # create-only).
                logger.warning("%s: publishing compaction %s: %s", self._log.table, self._shadow.path, error)
                unknown = error
            if self._waits.exhausted:
                if unknown is not None:
                    raise unknown
                return self._drop_all(f"{self._lost} puts met another's commit, and a compaction does not insist")
            self._waits.wait()

    def _attempt(self) -> Publication | None:
        snapshot = self._log.snapshot()
        if snapshot is None:
            raise TableNotFoundError(f"There is no Delta table at {self._log.table} any more.")
        news = self._take_in(snapshot)
        if news is None:
            return self._drop_all(f"the log after version {self._seen} was cleaned up meanwhile")
        mine = next((commit for commit in news if commit.txn_id == self._txn_id), None)
        if mine is not None:
            # The answer to our put was lost. What stands there is the last that was put: a version is put once.
            return self._published(mine.version, snapshot)
        snapshot.check_supported(self._log.table)
        reason = self._unfit(snapshot)
        if reason is not None:
            return self._drop_all(reason)
        try:
            self._drop_groups(snapshot)
        except LogGapError as error:
            return self._drop_all(f"the log was cleaned up while it was read: {error}")
        if not self._groups:
            return self._drop_all("")
        self._put = tuple(self._groups.values())
        entry = self._entry(snapshot)
        try:
            self._log.store.create(version_path(snapshot.version + 1), dump_actions(entry))
        except ObjectExistsError:
            self._lost += 1
            return None
        return self._published(snapshot.version + 1, snapshot)

    def _take_in(self, snapshot: Snapshot) -> list[Commit] | None:
        try:
            news = self._log.commits_between(self._seen, snapshot.version)
        except LogGapError:
            return None
        self._winners += news
        self._seen = snapshot.version
        if self._live is not None:
            for commit in news:
                self._live.apply(commit)
        return news

    def _unfit(self, snapshot: Snapshot) -> str | None:
        """Say why files that were rewritten under the old definition no longer fit, or ``None``.

        Protocol: compatible definition.
        """
        before = self._shadow.snapshot
        if snapshot.table_id != before.table_id:
            return "the table was replaced by another"
        if _protocol(snapshot) != _protocol(before):
            return f"the table's protocol was changed (seen at version {snapshot.version})"
        reasons = list(misfits(before.metadata, snapshot.metadata))
        # Files rewritten without row ids would give their rows new ones.
        if _row_tracking(before) != _row_tracking(snapshot):
            reasons.append("row tracking was switched")
        return f"the table changed: {'; '.join(reasons)} (seen at version {snapshot.version})" if reasons else None

    def _drop_groups(self, snapshot: Snapshot) -> None:
        """Leave out the partitions in which an input went, or is needed by a writer that began meanwhile."""
        oldest, days = self._rewrite.oldest, snapshot.retention_days
        if oldest is not None and self._log.clock.now() - oldest >= timedelta(days=days) / 2:
            # A VACUUM may have listed them for deletion, as it does a buffer's (protocol: young).
            self._drop(f"its new files are older than half of the table's retention of {days:g} days", *self._groups)
            return
        live = self._live_files(snapshot)
        present = {file_key(file) for file in live}
        needed = writers_in_flight(self._log, snapshot, self._publisher.abandoned_after)
        for partition, group in list(self._groups.items()):
            for file in group.removed:
                if file_key(file) not in present:
                    self._drop(self._why_gone(file), partition)
                    break
                reason = needed.why_needed(file)
                if reason is not None:
                    self._drop(f"{file['path']} must stay as it is: {reason}", partition)
                    break

    def _live_files(self, snapshot: Snapshot) -> LiveFiles:
        if self._live is None:
            split, touched = snapshot.partitioning, frozenset(self._groups)
            self._live = self._log.live_files(
                lambda add: split.partition(add["partitionValues"]) in touched, snapshot.version
            )
            if self._publisher.referee is not None:
                self._publisher.referee(snapshot.version, split, lambda partition: partition in touched, self._live)
        return self._live

    def _why_gone(self, file: Mapping[str, Any]) -> str:
        for commit in self._winners:
            if any(remove["path"] == file["path"] for remove in commit.removes):
                changed = "gave it another deletion vector" if _adds(commit, file["path"]) else "removed it"
                who = ", ".join(writer.writer for writer in commit.writers) or commit.operation or "an unknown writer"
                return f"{file['path']} is no longer as it was: version {commit.version} ({who}) {changed}"
        return f"{file['path']} is no longer in the table as it was"

    def _entry(self, snapshot: Snapshot) -> list[Action]:
        now = self._log.clock.now()
        adds = [self._add(add) for group in self._put for add in group.added]
        removes = [
            remove_of(file, milliseconds(now), data_change=False) for group in self._put for file in group.removed
        ]
        zorder_by = self._shadow.plan.zorder_by
        info: dict[str, Any] = {
            "timestamp": milliseconds(now),
            "operation": "OPTIMIZE",
            # Maps of strings: a list in them breaks DESCRIBE HISTORY (protocol: texts in commitInfo).
            "operationParameters": {"predicate": "[]", "zOrderBy": json.dumps(list(zorder_by)), "auto": "false"},
            "readVersion": snapshot.version,
            "isolationLevel": "SnapshotIsolation",
            "isBlindAppend": False,
            "operationMetrics": {
                "numRemovedFiles": str(len(removes)),
                "numRemovedBytes": str(sum(int(file["size"]) for file in removes)),
                "numAddedFiles": str(len(adds)),
                "numAddedBytes": str(sum(int(file["size"]) for file in adds)),
            },
            "engineInfo": f"airflow-provider-onelake/{__version__}",
            "txnId": self._txn_id,
            STAGED: {
                "format": FORMAT,
                COMPACTION: {"shadow": self._shadow.path, "readVersion": self._shadow.snapshot.version},
            },
        }
        if self._rewrite.tags:
            info["tags"] = dict(self._rewrite.tags)
        more = stamp(info, adds, snapshot, now)
        entry: list[Action] = [{"commitInfo": info}, *more]
        entry += [{"remove": remove} for remove in removes]
        entry += [{"add": add} for add in adds]
        return entry

    def _add(self, add: Mapping[str, Any]) -> dict[str, Any]:
        published = {**add, "path": f"{self._shadow.path}/{add['path']}", "dataChange": False}
        if self._shadow.plan.zorder_by:
            tag = zorder_tag(self._shadow.plan.zorder_by, self._shadow.attempt)
            published["tags"] = {**(add.get("tags") or {}), ZORDER_TAG: tag}
        return published

    def _drop(self, reason: str, *partitions: Partition) -> None:
        for partition in partitions:
            self._dropped.append(Dropped(self._groups.pop(partition).name, reason))

    def _drop_all(self, reason: str) -> Publication:
        self._drop(reason, *list(self._groups))
        self._close({"reason": "; ".join(dict.fromkeys(dropped.reason for dropped in self._dropped))})
        return Publication(Status.DROPPED, None, (), tuple(self._dropped), self._lost)

    def _published(self, version: int, snapshot: Snapshot) -> Publication:
        self._close({"version": version, COMPACTION: {"partitions": [group.name for group in self._put]}})
        follow_up(self._publisher.after_commit, snapshot, version, self._log.table)
        return Publication(Status.PUBLISHED, version, self._put, tuple(self._dropped), self._lost)

    def _close(self, outcome: Mapping[str, Any]) -> None:
        try:
            close(self._log.store, self._shadow.path, outcome)
        except OneLakeError as error:
            # It only keeps the shadow's log from lying about for longer.
            logger.warning("%s: the marker of %s was not written: %s", self._log.table, self._shadow.path, error)


def _adds(commit: Commit, path: str) -> bool:
    return any(add["path"] == path for add in commit.adds)


def _protocol(snapshot: Snapshot) -> tuple[Any, ...]:
    versions = (snapshot.protocol["minReaderVersion"], snapshot.protocol["minWriterVersion"])
    return (*versions, snapshot.writer_features)


def _row_tracking(snapshot: Snapshot) -> Mapping[str, str]:
    return {
        key: value
        for key, value in snapshot.configuration.items()
        if key == "delta.enableRowTracking" or key.startswith("delta.rowTracking.")
    }
