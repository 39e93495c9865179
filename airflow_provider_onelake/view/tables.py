"""The tables of a lakehouse as people are shown them: how large each is, what was done to it last, and how it is.

A lakehouse may have thousands of tables, so a page looks at so many of them, and reads little of each: what a table's
newest version says, and what sums the table up as long as that is small. Sums are kept until the table changes.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import (
    ObjectNotFoundError,
    OneLakeError,
    TableNotFoundError,
    TransientError,
    with_page,
)
from airflow_provider_onelake.log.actions import Add, total_rows
from airflow_provider_onelake.log.replay import LAST_CHECKPOINT
from airflow_provider_onelake.maintenance import compaction
from airflow_provider_onelake.storage.clock import whole_number
from airflow_provider_onelake.storage.concurrent import map_in_windows
from airflow_provider_onelake.view.commits import summary_of

if TYPE_CHECKING:
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

MOST_TABLES = 300
"""Of how many tables a page reads the newest version: three requests each."""
MOST_ON_A_PAGE = 50
MOST_ACTIONS = 30_000
"""How many actions of checkpoints a page reads, of all its tables together: about a second of work."""
MANY_ENTRIES = 100
"""From so many log entries since the newest checkpoint on, readers are slow, and a table is not summed up here."""
_MOST_KEPT = 2_000
# Each reads several entries of its log at once, in threads of its own.
_SUMMED_AT_ONCE = 4

# By a table's address, the digest of its newest entry, and what the table is in sum.
_sums: dict[str, tuple[str, dict[str, Any]]] = {}


def page_of_tables(
    store: Store, paths: Sequence[str], open_log: Callable[[str], DeltaLog], page: int = 0
) -> dict[str, Any]:
    """Return a page of the tables of a lakehouse: first what cannot be read, and then what was changed last.

    :param store: of the lakehouse.
    :param paths: of the tables, of :data:`MOST_TABLES` at most.
    :param open_log: opens the log of a table. What it raises stands in the table's row.
    :param page: the number of the page, from 0, of :data:`MOST_ON_A_PAGE` tables each.
    :returns: ``found`` (how many tables there are), ``pages``, and ``tables``: for each ``table``, ``version``,
        ``time``, ``operation``, ``by``, ``run``, ``rows``, ``files``, ``bytes`` (``None``: not known), ``health`` in a
        word (``well``, ``fragmented``, ``slow``, ``broken`` or ``unknown``), and ``why`` (may be empty).
    """
    tables = [_Table(path, open_log) for path in paths]
    _each(store, tables, _Table.look)
    tables.sort(key=lambda table: (table.commit is not None, -table.changed))
    shown = tables[max(page, 0) * MOST_ON_A_PAGE :][:MOST_ON_A_PAGE]
    _each(store, shown, _Table.weigh)
    left, summed = MOST_ACTIONS, []
    for table in shown:
        if table.actions is not None and table.actions <= left:
            left -= table.actions
            summed.append(table)
        elif table.actions is not None:
            table.tell("unknown", "It is not summed up yet: load the page again.")
    _each(store, summed, _Table.sum_up, at_once=_SUMMED_AT_ONCE)
    return {
        "found": len(tables),
        "pages": -(-len(tables) // MOST_ON_A_PAGE),
        "tables": [table.row for table in shown],
    }


def keep_sums(log: DeltaLog, version: int, files: Sequence[Add], small: int) -> dict[str, Any]:
    """Return what a table is in sum, and keep it for the page of tables until the table changes.

    :param version: of the table.
    :param files: that are live in it.
    :param small: how many of them a compaction would rewrite.
    :returns: ``rows``, ``files``, ``bytes``, ``health`` and ``why``, as :func:`page_of_tables` has them.
    """
    sums: dict[str, Any] = {
        "rows": total_rows(files),
        "files": len(files),
        "bytes": compaction.bytes_of(files),
        "health": "fragmented" if small else "well",
        "why": f"A compaction would rewrite {small:,} files." if small else "",
    }
    if (digest := log.digest(version)) is not None:
        _sums.pop(log.address, None)
        _sums[log.address] = digest, sums
        while len(_sums) > _MOST_KEPT:
            _sums.pop(next(iter(_sums)), None)
    return sums


@attrs.define(eq=False)
class _Table:
    """A table that is looked at.

    :param row: what is told of it.
    :param commit: its newest version; ``None`` where that cannot be read.
    :param actions: how many actions have to be read to sum it up; ``None`` where it is not summed up.
    """

    path: str
    _open_log: Callable[[str], DeltaLog]
    row: dict[str, Any] = attrs.field(factory=dict)
    commit: Commit | None = None
    actions: int | None = None
    _log: DeltaLog | None = None

    @property
    def changed(self) -> float:
        """When it was changed, in seconds."""
        return self.commit.time.timestamp() if self.commit is not None and self.commit.time is not None else 0.0

    def tell(self, health: str, why: str) -> None:
        """Say how the table is, in a word and in a sentence."""
        self.row |= {"health": health, "why": why}

    def look(self) -> None:
        """Read the newest version."""
        names = ("version", "time", "operation", "by", "run")
        self.row = {"table": self.path, **dict.fromkeys((*names, "rows", "files", "bytes"))}
        self._log = self._open_log(self.path)
        version = self._log.newest_listed()
        commit = self._log.commit(version) if version >= 0 else None
        if commit is None:
            raise TableNotFoundError("Its log has no entry, so the table was cleaned up, or dropped meanwhile.")
        said = summary_of(commit)
        self.row |= {name: said[name] for name in names}
        self.commit = commit

    def weigh(self) -> None:
        """Say what is kept of the table, or why it is not summed up, or how much that would take."""
        if self.commit is None or self._log is None:
            return
        digest, kept = _sums.get(self._log.address, ("", {}))
        if digest == self.commit.digest:
            self.row |= kept
            return
        hint: Any = None
        with suppress(ObjectNotFoundError, ValueError, RecursionError):
            hint = json.loads(self._log.store.get(LAST_CHECKPOINT))
        hint = hint if isinstance(hint, dict) else {"version": -1, "size": 0}
        version, actions = whole_number(hint.get("version")), whole_number(hint.get("size"))
        entries = self.commit.version - (-1 if version is None else version)
        if entries > MANY_ENTRIES:
            self.tell("slow", f"Since its newest checkpoint, its log has {entries:,} entries.")
        elif actions is None or actions > MOST_ACTIONS:
            self.tell("unknown", "It is too large to be summed up here: its partitions say how large it is.")
        else:
            self.actions = actions + entries

    def sum_up(self) -> None:
        """Read which files the table has."""
        assert self._log is not None
        snapshot = self._log.snapshot()
        files = list(self._log.live_files(lambda _: True, snapshot.version))
        todo = compaction.plan(files, snapshot, compaction.CompactionTerms())
        self.row |= keep_sums(self._log, snapshot.version, files, sum(len(group.inputs) for group in todo.groups))


def _each(store: Store, tables: Sequence[_Table], step: Callable[[_Table], None], at_once: int = MOST_TABLES) -> None:
    """Do one step for each table. What goes wrong stands in the table's row, and takes no other down."""

    def tried(table: _Table) -> None:
        try:
            step(table)
        except TransientError as error:
            table.tell("unknown", with_page(error))
        except OneLakeError as error:
            table.tell("broken", with_page(error))
        except Exception as error:
            logger.exception("%s cannot be read", table.path)
            table.tell(
                "unknown", f"An error that was not expected: {type(error).__name__}. The API server's log says more."
            )

    for _ in map_in_windows(store, tried, tables, at_once):
        pass
