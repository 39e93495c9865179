"""Files as if they had been written earlier: a disk's times can be set."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

from airflow_provider_onelake.log.delta_log import DeltaLog


def grow_old(log: DeltaLog, path: str = "", days: float = 8) -> None:
    """Set back the times of everything below a path, or of one object."""
    instant = (datetime.now(UTC) - timedelta(days=days)).timestamp()
    below = Path(log.table, path)
    for file in [below] if below.is_file() else below.rglob("*"):
        os.utime(file, (instant, instant))


def files(log: DeltaLog, path: str = "") -> set[str]:
    """Every file below a path, relative to the table."""
    return {str(file.relative_to(log.table)) for file in Path(log.table, path).rglob("*") if file.is_file()}
