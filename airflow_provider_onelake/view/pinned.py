"""The versions of a table that are kept readable, as people are shown them."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions


def versions_kept(log: DeltaLog) -> list[dict[str, Any]]:
    """Return the versions that a vacuum of ours spares: because people asked for it, or because a task needs them.

    It costs one listing, and one request for each of them.

    :returns: for each ``version``, ``by``, ``since`` and ``until`` (``None``: until it is released).
    """
    return [
        {
            "version": pinned.version,
            "by": pinned.by,
            "since": pinned.since.isoformat(),
            "until": pinned.until and pinned.until.isoformat(),
        }
        for pinned in pinned_versions(log)
    ]
