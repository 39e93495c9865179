"""Cleaning up a log: what no reader of a retained version needs any more is deleted.

The steps are the format's own: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#metadata-cleanup
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY
from airflow_provider_onelake.log.replay import SIDECARS, Checkpoint, LogFiles, read_checkpoint, sidecar_path

if TYPE_CHECKING:
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import ObjectInfo, Store

logger = logging.getLogger(__name__)

# Whatever the table says. A committer that was held up between its snapshot and its put must not find its next version
# cleaned up, for it would put that version a second time; and a sidecar may lie there before its checkpoint does.
_LEAST_AGE = timedelta(days=1)
# Everything in the log that belongs to one version: entries, checkpoints of every kind, checksums, compacted entries,
# and the hidden checksums that Hadoop puts beside each of them on a local disk.
_OF_A_VERSION = re.compile(
    rf"^{LOG_DIRECTORY}/\.?(\d{{20}})\.(?:json|crc|checkpoint\..+|\d{{20}}\.compacted\.json)(?:\.crc)?$"
)
_ENTRY = re.compile(rf"^{LOG_DIRECTORY}/(\d{{20}})\.json$")


@attrs.frozen
class CleanedUp:
    """What a clean-up of a log did.

    :param oldest: the oldest version that can still be read, ``None`` where nothing was to be cleaned up.
    :param deleted: paths, in the order in which they went.
    """

    oldest: int | None
    deleted: tuple[str, ...] = attrs.field(repr=False)


def clean_up_log(store: Store, snapshot: Snapshot, now: datetime, keep_from: int | None = None) -> CleanedUp:
    """Delete what only versions older than ``delta.logRetentionDuration`` need.

    The newest checkpoint that is itself old enough stays, and all that follows it, so that every version within the
    retention can be read. It is opened before anything goes. Deletion is ascending: interrupted anywhere, it leaves a
    log that is merely longer, and the next one carries on.

    :param store: rooted at the table.
    :param snapshot: of the table, for its properties.
    :param now: by the store's clock.
    :param keep_from: a version that somebody asked to keep readable, with all later ones.
    :raises TablePropertyError: the table's retention cannot be read; nothing was deleted.
    :raises StoreUnavailableError: the store did not answer; some of it may be deleted.
    """
    if str(snapshot.configuration.get("delta.enableExpiredLogCleanup", "true")).lower() == "false":
        return CleanedUp(None, ())
    expired_before = now - max(timedelta(days=snapshot.log_retention_days), _LEAST_AGE)
    listing = list(store.list(LOG_DIRECTORY))
    newest_expired = _newest_expired(listing, expired_before)
    if keep_from is not None:
        newest_expired = min(newest_expired, keep_from)
    first = _checkpoint_to_keep(store, LogFiles.of(listing), newest_expired)
    if first is None:
        return CleanedUp(None, ())
    deleted = []
    for info in listing:
        found = _OF_A_VERSION.match(info.path)
        if found and int(found[1]) < first.version:
            store.delete(info.path)
            deleted.append(info.path)
    for path in _orphaned_sidecars(store, listing, now):
        store.delete(path)
        deleted.append(path)
    return CleanedUp(first.version, tuple(deleted))


def _newest_expired(listing: Iterable[ObjectInfo], expired_before: datetime) -> int:
    """Return the last version of the log's beginning that is old, or -1.

    Time travel to the very instant of expiry needs it. Beginning: a younger entry, as after a copy, keeps all that
    follow, whatever their time.
    """
    newest = -1
    for info in listing:
        entry = _ENTRY.match(info.path)
        if entry and info.modified >= expired_before:
            break
        if entry:
            newest = int(entry[1])
    return newest


def _checkpoint_to_keep(store: Store, files: LogFiles, until: int) -> Checkpoint | None:
    """Return the newest checkpoint up to a version that can really be read, if any, and if anything is before it."""
    present = set(files.versions)
    for checkpoint in files.checkpoints:
        # Its own entry holds its time, which no checkpoint does.
        if checkpoint.version > until or checkpoint.version not in present:
            continue
        try:
            kinds = {kind for kind, _ in read_checkpoint(store, checkpoint, ["protocol", "metaData"])}
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
        # Listed anew: a checkpoint may have come meanwhile that refers to an old sidecar.
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
    return {sidecar_path(body) for _, body in read_checkpoint(store, checkpoint, ["sidecar"])}
