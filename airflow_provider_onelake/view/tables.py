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

from airflow_provider_onelake.exceptions import ObjectNotFoundError, OneLakeError, TerminalError, with_page
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

MOST_TABLES = 300  # three requests for each
MOST_ON_A_PAGE = 50
# Of the checkpoints of all tables of a page together: about a second of work.
MOST_ACTIONS = 30_000
# Behind so many log entries since the newest checkpoint, readers are slow, and a table is not summed up here.
MANY_ENTRIES = 100
_MOST_KEPT = 2_000
_SAID = ("version", "time", "operation", "by", "run")

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
    tables = [_Row({"table": path, **dict.fromkeys((*_SAID, "rows", "files", "bytes"))}, open_log) for path in paths]
    _do_for_all(store, tables, _Row.look, MOST_TABLES)
    tables.sort(key=lambda table: (table.commit is not None, -table.changed))
    shown = tables[max(page, 0) * MOST_ON_A_PAGE :][:MOST_ON_A_PAGE]
    _do_for_all(store, [table for table in shown if table.commit is not None], _Row.weigh, MOST_ON_A_PAGE)
    left, summed = MOST_ACTIONS, []
    for table in shown:
        if table.actions is not None and table.actions <= left:
            left -= table.actions
            summed.append(table)
        elif table.actions is not None:
            table.row |= {"health": "unknown", "why": "It is not summed up yet: load the page again."}
    # Each reads several entries of its log at once, in threads of its own.
    _do_for_all(store, summed, _Row.sum_up, 4)
    pages = -(-len(tables) // MOST_ON_A_PAGE)
    return {"found": len(tables), "pages": pages, "tables": [table.row for table in shown]}


def keep_sums(log: DeltaLog, version: int, files: Sequence[Add], small: int) -> dict[str, Any]:
    """Return what a table is in sum, and keep it for the page of tables until the table changes.

    :param version: of the table.
    :param files: that are live in it.
    :param small: how many of them a compaction would rewrite.
    :returns: ``rows``, ``files``, ``bytes``, ``health`` and ``why``, as :func:`page_of_tables` has them.
    """
    how = ("fragmented", f"A compaction would rewrite {small:,} files.") if small else ("well", "")
    sums = {"rows": total_rows(files), "files": len(files), "bytes": compaction.bytes_of(files)}
    known: dict[str, Any] = {**sums, "health": how[0], "why": how[1]}
    if len(_sums) >= _MOST_KEPT:
        _sums.clear()
    if (digest := log.digest(version)) is not None:
        _sums[log.address] = digest, known
    return known


@attrs.define(eq=False)
class _Row:
    """A table that is looked at: what is told of it, its newest version, and what has to be read to sum it up."""

    row: dict[str, Any]
    open_log: Callable[[str], DeltaLog]
    commit: Commit | None = None
    actions: int | None = None
    log: DeltaLog = attrs.field(init=False)

    @property
    def changed(self) -> float:
        return self.commit.time.timestamp() if self.commit is not None and self.commit.time is not None else 0.0

    def look(self) -> None:
        self.log = self.open_log(self.row["table"])
        commit = self.log.commit(self.log.newest_listed())
        if commit is None:
            raise TerminalError("Its log has no entry: the table was cleaned up, or it was dropped meanwhile.")
        said = summary_of(commit)
        self.row |= {name: said[name] for name in _SAID}
        self.commit = commit

    def weigh(self) -> None:
        assert self.commit is not None
        digest, known = _sums.get(self.log.address, ("", {}))
        if digest == self.commit.digest:
            self.row |= known
            return
        hint: Any = None
        with suppress(ObjectNotFoundError, ValueError, RecursionError):
            hint = json.loads(self.log.store.get(LAST_CHECKPOINT))
        hint = hint if isinstance(hint, dict) else {"version": -1, "size": 0}
        version, actions = whole_number(hint.get("version")), whole_number(hint.get("size"))
        entries = self.commit.version - (-1 if version is None else version)
        if entries > MANY_ENTRIES:
            self.row |= {"health": "slow", "why": f"Since its newest checkpoint, its log has {entries:,} entries."}
        elif actions is None or actions > MOST_ACTIONS:
            why = "It is too large to be summed up here: its partitions say how large it is."
            self.row |= {"health": "unknown", "why": why}
        else:
            self.actions = actions + entries

    def sum_up(self) -> None:
        snapshot = self.log.snapshot()
        files = list(self.log.live_files(lambda _: True, snapshot.version))
        todo = compaction.plan(files, snapshot, compaction.CompactionTerms())
        self.row |= keep_sums(self.log, snapshot.version, files, sum(len(group.inputs) for group in todo.groups))


def _do_for_all(store: Store, tables: Sequence[_Row], step: Callable[[_Row], None], at_once: int) -> None:
    """Do one step for each table. What goes wrong stands in the table's row, and takes no other down."""

    def tried(table: _Row) -> None:
        try:
            step(table)
        except Exception as error:
            health = "broken" if isinstance(error, TerminalError) else "unknown"
            why = f"An error that was not expected: {type(error).__name__}. The API server's log says more."
            if isinstance(error, OneLakeError):
                why = with_page(error)
            else:
                logger.exception("%s cannot be read", table.row["table"])
            table.row |= {"health": health, "why": why}

    for _ in map_in_windows(store, tried, tables, at_once):
        pass
