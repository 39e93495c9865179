"""Writes checkpoints by deltalake, and deletes what no reader of a retained version needs any more.

Without checkpoints, a table that only we commit to gets slow to read and a long log. The steps of the clean-up are the
format's own: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#metadata-cleanup
"""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError, OneLakeError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, version_path
from airflow_provider_onelake.log.durable import sync_checkpoint
from airflow_provider_onelake.log.replay import ENTRY, SIDECARS, Checkpoint, LogFiles, read_checkpoint, sidecar_path
from airflow_provider_onelake.log.schema import setting
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

logger = logging.getLogger(__name__)

# Spark writes a checkpoint every ten versions. With one every hundred, a reader opens a table of many small commits
# about as fast, and checkpoints delay committers ten times less often.
DEFAULT_INTERVAL = 100
_INTERVAL = "delta.checkpointInterval"
# Delete nothing younger than this, whatever the table's retention is. Else a committer that was held up between its
# snapshot and its put could find its next version cleaned up, and would put that version a second time. Also, a sidecar
# is written before its checkpoint, so a young sidecar may belong to a checkpoint that is still to come.
_LEAST_AGE = timedelta(days=1)
# All objects in the log that belong to one version: entries, checkpoints of every kind, checksums, compacted entries,
# and the hidden checksums that Hadoop puts beside each of them on a local disk.
_OF_A_VERSION = re.compile(
    rf"^{LOG_DIRECTORY}/\.?(\d{{20}})\.(?:json|crc|checkpoint\..+|\d{{20}}\.compacted\.json)(?:\.crc)?$"
)

CLEAN_UPS = "_log_clean_up"
"""The directory of the notes of clean-ups at work. VACUUM skips it, as its name begins with ``_``."""

# The note says in its name which version stays: what is older goes.
_NOTE = re.compile(rf"^{CLEAN_UPS}/(\d{{20}})-[0-9a-f]+\.json$")


def checkpointer(
    table_uri: str,
    storage_options: Callable[[], Mapping[str, str]] = dict,
    interval: int = DEFAULT_INTERVAL,
    *,
    log: DeltaLog,
    keep_from: Callable[[DeltaLog], int | None] | None = None,
) -> Callable[[Snapshot, int], None]:
    """Return a function that writes a checkpoint whenever one is due, and then cleans up the log.

    :param table_uri: the table's address as deltalake wants it.
    :param storage_options: returns the current credentials, as deltalake wants them. Default: none.
    :param interval: versions from one checkpoint to the next, where ``delta.checkpointInterval`` is not set.
    :param log: the table's log.
    :param keep_from: returns the oldest version that must stay readable because a user asked for it.
    """

    def write_if_due(snapshot: Snapshot, version: int) -> None:
        if version == 0 or version % _versions_between(snapshot, interval, log.table):
            return
        from deltalake import DeltaTable

        DeltaTable(table_uri, version=version, storage_options=dict(storage_options())).create_checkpoint()
        logger.info("%s: checkpoint of version %d written", log.table, version)
        sync_checkpoint(log.store, version)
        try:
            kept = None if keep_from is None else partial(keep_from, log)
            # The store has just given its present time to the entry.
            now = log.store.head(version_path(version)).modified
            done = clean_up_log(log.store, snapshot, now, kept)
        except OneLakeError as error:
            # Do not fail: the commit stands, and the log is only longer than it needs to be.
            logger.warning("%s: the log was not cleaned up: %s", log.table, error)
            return
        if done.deleted:
            gone, oldest = counted(len(done.deleted), "object"), done.oldest
            logger.info("%s: deleted %s of the log; the oldest version is %s now", log.table, gone, oldest)

    return write_if_due


def _versions_between(snapshot: Snapshot, default: int, table: str) -> int:
    text = snapshot.configuration.get(_INTERVAL, "")
    if not text:
        return default
    if text.isdecimal() and int(text) > 0:
        return int(text)
    logger.warning("%s: %s is %r, which is no number of versions; %d is used", table, _INTERVAL, text, default)
    return default


@attrs.frozen
class CleanedUp:
    """What a clean-up of a log did.

    :param oldest: the oldest version that can still be read; ``None`` if there was nothing to clean up.
    :param deleted: the deleted paths, in the order of deletion.
    """

    oldest: int | None
    deleted: tuple[str, ...] = attrs.field(repr=False)


def clean_up_log(
    store: Store, snapshot: Snapshot, now: datetime, keep_from: Callable[[], int | None] | None = None
) -> CleanedUp:
    """Delete what only versions older than ``delta.logRetentionDuration`` need.

    The newest checkpoint that is older than the retention stays, with all that follows it, so that every version within
    the retention can be read. That checkpoint is read before anything is deleted. Deletion goes in ascending order: if
    it is interrupted, the log is only longer than needed, and the next clean-up continues.

    Before it asks which versions must stay, it leaves a note that says what it is about to delete. So of a clean-up and
    somebody who asks for a version at the same time, one sees the other; see :func:`clean_up_at_work`.

    :param snapshot: gives the table's properties.
    :param now: the present instant, by the store's clock.
    :param keep_from: returns the oldest version that must stay readable with all later ones, because a user asked for
        it. It is called if there is something to delete.
    :raises TablePropertyError: the table's retention cannot be read; nothing was deleted.
    :raises StoreUnavailableError: the store did not answer; some objects may be deleted.
    """
    if setting(snapshot.metadata, "delta.enableExpiredLogCleanup") == "false":
        return CleanedUp(None, ())
    expired_before = now - max(timedelta(days=snapshot.log_retention_days), _LEAST_AGE)
    listing = list(store.list(LOG_DIRECTORY))
    newest_expired, files = _newest_expired(listing, expired_before), LogFiles.of(listing)
    first = _checkpoint_to_keep(store, files, newest_expired)
    if first is None:
        return CleanedUp(None, ())
    note = None
    if keep_from is not None and _before(listing, first):
        note = _leave_note(store, first, now)
        kept = keep_from()
        if kept is not None and kept < first.version:
            first = _checkpoint_to_keep(store, files, kept)
    deleted: list[str] = []
    if first is not None:
        for path in _before(listing, first):
            store.delete(path)
            deleted.append(path)
        for path in _orphaned_sidecars(store, listing, now):
            store.delete(path)
            deleted.append(path)
    if note is not None:
        store.delete(note)
    return CleanedUp(None if first is None else first.version, tuple(deleted))


def clean_up_at_work(listing: Iterable[ObjectInfo], version: int, now: datetime) -> str | None:
    """Return the note of a clean-up that may be deleting what a version needs; ``None`` where there is none.

    Ask once the version is recorded as one that must stay: a clean-up that leaves its note later sees the record.

    :param listing: of the table's directory.
    :param now: the present instant, by the store's clock.
    """
    for info in listing:
        found = _NOTE.match(info.path)
        if found and version < int(found[1]) and info.modified >= now - _LEAST_AGE:
            return info.path
    return None


def _leave_note(store: Store, first: Checkpoint, now: datetime) -> str:
    for left in store.list(CLEAN_UPS):
        # A clean-up that was killed left this note. A younger one may still be at work.
        if left.modified < now - _LEAST_AGE:
            store.delete(left.path)
    path = f"{CLEAN_UPS}/{first.version:020d}-{uuid.uuid4().hex}.json"
    store.put(path, b"{}")
    return path


def _before(listing: Iterable[ObjectInfo], first: Checkpoint) -> list[str]:
    """Return the objects of the versions before the one of a checkpoint."""
    paths = []
    for info in listing:
        found = _OF_A_VERSION.match(info.path)
        if found and int(found[1]) < first.version:
            paths.append(info.path)
    return paths


def _newest_expired(listing: Iterable[ObjectInfo], expired_before: datetime) -> int:
    """Return the last version before the first entry that is not expired, or -1.

    That version must stay readable, because time travel to the very instant of expiry reads it. The first young entry
    keeps all that follow it, whatever their times; after a copy of the log, entries may have unordered times.
    """
    newest = -1
    for info in listing:
        entry = ENTRY.match(info.path)
        if entry and info.modified >= expired_before:
            break
        if entry:
            newest = int(entry[1])
    return newest


def _checkpoint_to_keep(store: Store, files: LogFiles, until: int) -> Checkpoint | None:
    """Return the newest checkpoint up to a version that can really be read, if there is one."""
    present = set(files.versions)
    for checkpoint in files.checkpoints:
        # The checkpoint's version must still have its log entry: it holds the version's time, which no checkpoint does.
        if checkpoint.version > until or checkpoint.version not in present:
            continue
        try:
            kinds = {kind for action in read_checkpoint(store, checkpoint, ["protocol", "metaData"]) for kind in action}
            for path in _sidecars(store, checkpoint):
                store.head(path)
        except (CorruptLogError, ObjectNotFoundError) as error:
            logger.warning("The checkpoint of version %d cannot be read: %s", checkpoint.version, error)
            continue
        if {"protocol", "metaData"} <= kinds:
            return checkpoint
    return None


def _orphaned_sidecars(store: Store, listing: Iterable[ObjectInfo], now: datetime) -> list[str]:
    lying = [info for info in listing if info.path.startswith(f"{SIDECARS}/") and now - info.modified > _LEAST_AGE]
    if not lying:
        return []
    try:
        # List the log again: a checkpoint that refers to an old sidecar may have been written meanwhile.
        needed = {
            path
            for checkpoint in LogFiles.of(store.list(LOG_DIRECTORY)).checkpoints
            for path in _sidecars(store, checkpoint)
        }
    except CorruptLogError as error:
        logger.warning("Sidecars are left where they are: %s", error)
        return []
    return [info.path for info in lying if info.path not in needed]


def _sidecars(store: Store, checkpoint: Checkpoint) -> set[str]:
    return {sidecar_path(action["sidecar"]) for action in read_checkpoint(store, checkpoint, ["sidecar"])}
