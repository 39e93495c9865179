"""At which version of the table a load began: a note that its first writer puts create-only, and the others read.

Protocol: beginning of a load.

staged/_begun/<digest>.json      the table's version, and its id

A load begins with its first writer. For the writers that a clear runs again, it begins once more with the first of
these, and so it does each time that its run is made again. With this version, ``first_writer_wins`` and ``fail`` tell
what others of the load have committed, however many of its writers had a slot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import beginning_path, json_at
from airflow_provider_onelake.exceptions import ObjectExistsError
from airflow_provider_onelake.log.snapshot import NO_VERSION

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Turn
    from airflow_provider_onelake.buffers.identity import Load, WriterIdentity
    from airflow_provider_onelake.storage.stores import Store


@attrs.frozen
class Beginning:
    """The table when a load began.

    :param version: of the table; -1 where there was none.
    :param table_id: the table's id; empty where there was none.
    """

    version: int = attrs.field(converter=int)
    table_id: str = attrs.field(default="", converter=str)

    @classmethod
    def from_json(cls, value: Any) -> Beginning | None:
        """Read it back from a buffer or a note; ``None`` where it does not say."""
        if not isinstance(value, Mapping):
            return None
        with suppress(KeyError, TypeError, ValueError):
            return cls(value["version"], value.get("table_id", ""))
        return None

    def is_of(self, table_id: str) -> bool:
        """Say whether the version is one of a table, and not of another that was there before it."""
        return self.version == NO_VERSION or self.table_id == table_id


def beginning_of(store: Store, load: Load, turn: Turn[WriterIdentity], life: str) -> Beginning | None:
    """Return where a load began for one of its writers. Whoever begins first decides it.

    :param store: of the table, which need not be there yet.
    :param turn: of the writer. One of the first generation belongs to the first beginning of its load.
    :param life: tells the clears of a run from one another, and runs that were made again. It is that of the start's
        first try.
    :returns: ``None`` where the note is damaged.
    """
    path = beginning_path(f"{load.id} {life}" if turn.generation > 1 else load.id)
    snapshot = turn.snapshot
    began = Beginning(snapshot.version, snapshot.table_id) if snapshot is not None else Beginning(NO_VERSION)
    try:
        store.create(path, json.dumps(attrs.asdict(began)).encode())
    except ObjectExistsError:
        return Beginning.from_json(json_at(store, path))
    return began
