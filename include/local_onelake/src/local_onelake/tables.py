"""The Delta tables of an item, and the newest version of each."""

from __future__ import annotations

import re
from collections.abc import Iterator

from local_onelake.lake import Lake
from local_onelake.names import Item, Workspace
from local_onelake.refusals import RefusalError
from local_onelake.shortcuts import Spot

_LOG = "_delta_log"
_ENTRY = re.compile(r"(\d{20})\.json")


def tables_of(lake: Lake, workspace: Workspace, item: Item) -> Iterator[tuple[str, Spot]]:
    """Yield each table below ``Tables`` by its name, ``table`` or ``schema/table``, and where its files are.

    A shortcut that leads nowhere, or out of OneLake, is no table.
    """
    for name in _below(lake, Spot(workspace, item, "Tables")):
        spot = _table_at(lake, Spot(workspace, item, f"Tables/{name}"))
        if spot is not None:
            yield name, spot
            continue
        for inside in _below(lake, Spot(workspace, item, f"Tables/{name}")):
            spot = _table_at(lake, Spot(workspace, item, f"Tables/{name}/{inside}"))
            if spot is not None:
                yield f"{name}/{inside}", spot


def newest_version(lake: Lake, spot: Spot) -> int:
    """Return the newest version that the log of a table has an entry for; -1 if there is none."""
    names = (child.path.rpartition("/")[2] for child in lake.tree.children(f"{spot.key}/{_LOG}"))
    return max((int(found[1]) for name in names if (found := _ENTRY.fullmatch(name))), default=-1)


def _below(lake: Lake, spot: Spot) -> list[str]:
    real = _real(lake, spot)
    return sorted(child.path.rpartition("/")[2] for child in lake.tree.children(real.key)) if real else []


def _table_at(lake: Lake, spot: Spot) -> Spot | None:
    real = _real(lake, spot)
    return real if real is not None and lake.tree.stat(f"{real.key}/{_LOG}") is not None else None


def _real(lake: Lake, spot: Spot) -> Spot | None:
    try:
        return lake.shortcuts.resolve(spot)[-1]
    except RefusalError:
        return None
