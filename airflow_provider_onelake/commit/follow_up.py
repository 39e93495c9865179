"""What is done behind a commit, such as a checkpoint: the commit stands, whatever becomes of it."""

from __future__ import annotations

import logging
from collections.abc import Callable

from airflow_provider_onelake.log.snapshot import Snapshot

logger = logging.getLogger(__name__)

# Called with the snapshot that was committed against, and the version that was put.
AfterCommit = Callable[[Snapshot, int], None]


def follow_up(after_commit: AfterCommit | None, snapshot: Snapshot, version: int, table: str) -> None:
    """Do what follows a commit; its failure is only logged.

    :param after_commit: what to do; ``None`` for nothing.
    :param snapshot: that was committed against.
    :param version: that was put.
    :param table: what messages call the table.
    """
    if after_commit is None:
        return
    try:
        after_commit(snapshot, version)
    except Exception:
        logger.exception("%s: version %d is committed; what follows a commit failed", table, version)
