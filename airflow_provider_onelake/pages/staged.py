"""What stands below a table's ``staged`` directory, as people are shown it."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import lifetime
from airflow_provider_onelake.staging.clean_up import State, survey
from airflow_provider_onelake.storage.addresses import STAGED_DIRECTORY


def staged_below(log: DeltaLog) -> list[dict[str, Any]]:
    """Return the buffers, shared scans and compactions below a table: those in flight first, the oldest first.

    It costs one listing of the directory, and what a snapshot costs.

    :returns: for each ``path``, ``owner`` (or ``None``), ``state``, ``complete`` and ``age_seconds``.
    :raises TableNotFoundError: there is no table.
    """
    listing = list(log.store.list(STAGED_DIRECTORY))
    snapshot = log.snapshot()
    found = survey(log, snapshot, listing, lifetime(snapshot.retention_days))
    return [
        {
            "path": staged.path,
            "owner": staged.owner if staged.owner != staged.path else None,
            "state": staged.state.value,
            "complete": staged.ended is not None,
            "age_seconds": int(staged.age.total_seconds()),
        }
        for staged in sorted(found, key=lambda staged: (staged.state is State.CLOSED, -staged.age))
    ]
