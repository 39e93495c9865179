"""Which tables a lakehouse has, and how large each is."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, cast

import attrs

from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Add, row_count, total_rows
from airflow_provider_onelake.storage.concurrent import map_concurrently

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import Store

_TABLES = "Tables"
# Tables/schema/table, and one directory more where somebody keeps lakehouses side by side.
_DEEPEST = 3


@attrs.frozen(kw_only=True)
class Overview:
    """How large a table is, and when it was last changed.

    :param version: the newest.
    :param rows: in the table; ``None`` where statistics do not say.
    :param files: live data files.
    :param bytes: of the live data files.
    :param time: of the newest commit; ``None`` where its entry is gone or does not say.
    :param operation: of the newest commit; ``None`` likewise.
    """

    version: int
    rows: int | None
    files: int
    bytes: int
    time: datetime | None
    operation: str | None


def tables_below(store: Store) -> list[str]:
    """Return the paths of the Delta tables in a lakehouse, in order; an empty path if its root is a table itself.

    If the root has a directory ``Tables``, only what lies there counts. Directories are entered three levels deep, and
    not where their names begin with ``_`` or ``.``. A directory inside of a table is no table.

    :param store: rooted at the lakehouse, or at any other directory.
    """
    found: list[str] = []
    level = [""]
    for _ in range(_DEEPEST + 1):
        below: list[str] = []
        for path, names in zip(level, map_concurrently(store, store.directories, level), strict=True):
            if LOG_DIRECTORY in names:
                found.append(path)
                continue
            entered = [_TABLES] if not path and _TABLES in names else names
            below += [f"{path}/{name}" if path else name for name in entered if not name.startswith(("_", "."))]
        level = below
    return sorted(found)


def look_at(log: DeltaLog) -> Overview:
    """Read how large a table is. All its live files are read from the log.

    :raises TableNotFoundError: there is no table.
    :raises StoreUnavailableError: the store did not answer.
    """
    snapshot = log.snapshot()
    files = log.live_files(lambda _: True, snapshot.version, _in_short)
    newest = log.commit(snapshot.version)
    return Overview(
        version=snapshot.version,
        rows=total_rows(files),
        files=len(files),
        bytes=sum(file["size"] for file in files),
        time=newest.time if newest is not None else None,
        operation=(newest.operation or None) if newest is not None else None,
    )


def _in_short(add: Add) -> Add:
    """Return what is needed of a file: a table may have a million."""
    short = {"path": add["path"], "size": add["size"], "stats": {"numRecords": row_count(add)}}
    return cast("Add", short)
