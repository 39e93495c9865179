"""Writes checkpoints by deltalake. Without them, a table that only we commit to gets slow to read and a long log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log.expiry import clean_up_log

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Spark writes a checkpoint every ten versions. With one every hundred, a reader opens a table of many small commits
# about as fast, and checkpoints delay committers ten times less often.
DEFAULT_INTERVAL = 100
_INTERVAL = "delta.checkpointInterval"


def checkpointer(
    table_uri: str,
    storage_options: Callable[[], Mapping[str, str]] = dict,
    interval: int = DEFAULT_INTERVAL,
    log: DeltaLog | None = None,
    keep_from: Callable[[DeltaLog], int | None] | None = None,
) -> Callable[[Snapshot, int], None]:
    """Return a function that writes a checkpoint whenever one is due, and then cleans up the log.

    :param table_uri: the table's address as deltalake wants it.
    :param storage_options: returns the current credentials, as deltalake wants them. Default: none.
    :param interval: versions from one checkpoint to the next, where ``delta.checkpointInterval`` is not set.
    :param log: the table's log; without it, nothing is cleaned up.
    :param keep_from: returns the oldest version that must stay readable because a user asked for it.
    """

    def write_if_due(snapshot: Snapshot, version: int) -> None:
        if version == 0 or version % _versions_between(snapshot, interval, table_uri):
            return
        from deltalake import DeltaTable

        DeltaTable(table_uri, version=version, storage_options=dict(storage_options())).create_checkpoint()
        logger.info("%s: checkpoint of version %d written", table_uri, version)
        if log is None:
            return
        try:
            kept = keep_from(log) if keep_from is not None else None
            done = clean_up_log(log.store, snapshot, log.clock.now(), kept)
        except OneLakeError as error:
            # Do not fail: the commit stands, and the log is only longer than it needs to be.
            logger.warning("%s: the log was not cleaned up: %s", table_uri, error)
            return
        if done.deleted:
            logger.info(
                "%s: %d objects of the log deleted; the oldest version is %s now",
                table_uri,
                len(done.deleted),
                done.oldest,
            )

    return write_if_due


def _versions_between(snapshot: Snapshot, default: int, table: str) -> int:
    text = snapshot.configuration.get(_INTERVAL, "")
    if not text:
        return default
    if text.isdecimal() and int(text) > 0:
        return int(text)
    logger.warning("%s: %s is %r, which is no number of versions; %d is used", table, _INTERVAL, text, default)
    return default
