"""Which tables a lakehouse has, as people are shown them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.log.actions import LOG_DIRECTORY
from airflow_provider_onelake.storage.at_once import each

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

_TABLES = "Tables"
# Tables/schema/table, and one directory more where somebody keeps lakehouses side by side.
_DEEPEST = 3


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
        for path, names in zip(level, each(store, store.directories, level), strict=True):
            if LOG_DIRECTORY in names:
                found.append(path)
                continue
            entered = [_TABLES] if not path and _TABLES in names else names
            below += [f"{path}/{name}" if path else name for name in entered if not name.startswith(("_", "."))]
        level = below
    return sorted(found)
