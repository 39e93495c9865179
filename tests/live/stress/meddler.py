"""Other engines in the partitions that loads of ours replace: Spark and deltalake append, delete, change, overwrite."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import attrs
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.live.stress.foreign import ForeignWriter
from tests.live.stress.shape import COLUMNS, CONTESTED, FOREIGN, Row
from tests.support.log_order import Write

if TYPE_CHECKING:
    from pathlib import Path

_BATCH = 6
# In partitions that are replaced all the time, a statement could lose for ever.
_TRIES = 3
_SAID = "spark.databricks.delta.commitInfo.userMetadata"
_DYNAMIC = "spark.sql.sources.partitionOverwriteMode"
# How often each of them comes. After a DELETE, an UPDATE or an append, an earlier write that is still to come is staged anew.
_KINDS = {"append": 5, "append by deltalake": 5, "DELETE": 2, "UPDATE": 2, "INSERT OVERWRITE": 2, "REPLACE WHERE": 2}


@attrs.frozen
class Statement:
    """What a statement does to the rows of the table, whatever they are.

    :param name: in the log, as ``userMetadata``.
    """

    name: str
    kind: str
    part: str
    write: Write


class Meddler(ForeignWriter):
    """Executes one statement after another, each in one of the contested partitions."""

    def __init__(self, remote: str, table: Path, properties: dict[str, str], seed: int = 2) -> None:
        super().__init__(remote, table, properties, seed, "the writer in contested partitions")
        self.statements: dict[str, Statement] = {}
        self._table = table
        self._number = 0
        self._untried = self._random.sample([*_KINDS], len(_KINDS))
        # A dynamic overwrite empties no other partition; without it, Spark says which one it replaces.
        self._spark.conf.set(_DYNAMIC, "static")

    def step(self) -> None:
        """Execute one statement: each kind once, then as they come."""
        (kind,) = self._untried[-1:] or self._random.choices([*_KINDS], [*_KINDS.values()])
        self._do(kind, self._random.choice(CONTESTED))
        self._untried = self._untried[:-1]

    @property
    def seen_enough(self) -> bool:
        """Whether each kind has been tried. One that loses all the time may never take effect."""
        return not self._untried

    @property
    def rows(self) -> list[Row]:
        """None are its own to keep: the history of the table says which are left."""
        return []

    def _do(self, kind: str, part: str) -> None:
        number, self._number = self._number, self._number + 1
        name, first = f"statement-{number:04d}", number * _BATCH
        rows = [(part, name, FOREIGN, n, n * 3) for n in range(first, first + _BATCH)]
        select = f"SELECT '{name}' AS load, '{FOREIGN}' AS writer, id, id * 3 AS value FROM range({first}, {rows[-1][3] + 1})"
        every, which = self._random.choice((3, 5)), self._random.randrange(3)
        chosen = f"part = '{part}' AND id % {every} = {which}"
        statement, does = {
            "append": (
                f"INSERT INTO {self._into} (part, load, writer, id, value) SELECT '{part}', * FROM ({select})",
                Write(puts=frozenset(rows)),
            ),
            "append by deltalake": ("", Write(puts=frozenset(rows))),
            "DELETE": (
                f"DELETE FROM {self._into} WHERE {chosen}",
                Write(changes=partial(_deleted, part, every, which)),
            ),
            "UPDATE": (
                f"UPDATE {self._into} SET value = value + 1000000 WHERE {chosen}",
                Write(changes=partial(_updated, part, every, which)),
            ),
            "INSERT OVERWRITE": (
                f"INSERT OVERWRITE {self._into} PARTITION (part = '{part}') {select}",
                replacing(part, rows),
            ),
            "REPLACE WHERE": (
                f"INSERT INTO {self._into} REPLACE WHERE part = '{part}' SELECT '{part}' AS part, * FROM ({select})",
                replacing(part, rows),
            ),
        }[kind]
        # Before it is executed: one that lost a conflict is to be in no version, and one whose answer never came may be.
        self.statements[name] = Statement(name, kind, part, does)
        if statement:
            self._spark.conf.set(_SAID, name)
            done = self._execute(kind, statement, _TRIES)
        else:
            done = self._append_by_deltalake(kind, name, rows)
        if not done:
            del self.statements[name]

    def _append_by_deltalake(self, kind: str, name: str, rows: list[Row]) -> bool:
        """Append as deltalake does: its commits do not say whether they are blind appends.

        :returns: whether the rows are in the table. An append of deltalake loses to whoever removes a file meanwhile.
        """
        columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
        properties = CommitProperties(custom_metadata={"userMetadata": name})
        for _ in range(_TRIES):
            try:
                write_deltalake(str(self._table), pa.table(columns), mode="append", commit_properties=properties)
            except CommitFailedError:
                self.conflicts[f"{kind} lost (CommitFailedError)"] += 1
            else:
                self.done[kind] += 1
                return True
            finally:
                self.pause()
        return False


def replacing(part: str, rows: list[Row]) -> Write:
    """Return what the overwrite of a partition does."""
    return Write(wipes=frozenset((part,)), puts=frozenset(rows))


def _deleted(part: str, every: int, which: int, row: Row) -> Row | None:
    return None if _chosen(part, every, which, row) else row


def _updated(part: str, every: int, which: int, row: Row) -> Row:
    return (*row[:4], row[4] + 1_000_000) if _chosen(part, every, which, row) else row


def _chosen(part: str, every: int, which: int, row: Row) -> bool:
    return row[0] == part and row[3] % every == which
