"""Checkpoints, written by deltalake, so that a table that only we commit to stays fast to read."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Spark writes one every ten versions; with a hundred, a reader opens a table of many small commits about as fast, and a
# committer is held up ten times less.
DEFAULT_INTERVAL = 100


def checkpointer(
    table_uri: str, storage_options: Mapping[str, str] | None = None, interval: int = DEFAULT_INTERVAL
) -> Callable[[Snapshot, int], None]:
    """Return what writes a checkpoint whenever one is due.

    :param table_uri: the table's address as deltalake wants it.
    :param storage_options: credentials, as deltalake wants them.
    :param interval: versions from one checkpoint to the next, where ``delta.checkpointInterval`` is not set.
    """

    def write_if_due(snapshot: Snapshot, version: int) -> None:
        every = int(snapshot.configuration.get("delta.checkpointInterval", interval))
        if version == 0 or version % every:
            return
        from deltalake import DeltaTable

        DeltaTable(table_uri, version=version, storage_options=dict(storage_options or {})).create_checkpoint()
        logger.info("%s: checkpoint of version %d written", table_uri, version)

    return write_if_due
