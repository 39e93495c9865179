"""Other engines in the partitions that loads of ours replace: Spark and deltalake append, delete, change, overwrite."""

from __future__ import annotations

import random
import re
from collections import Counter
from functools import partial
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa
from deltalake import CommitProperties, write_deltalake
from deltalake.exceptions import CommitFailedError

from tests.live.stress.shape import COLUMNS, CONTESTED, FOREIGN, Row
from tests.support.log_order import Write

if TYPE_CHECKING:
    from pathlib import Path

_BATCH = 6
# In partitions that are replaced all the time, a statement could lose for ever.
_TRIES = 3
# Between two statements.
_PAUSE = 0.5
_CONFLICT = re.compile(r"DELTA_(?:CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)[A-Z_]*")
_WINNER = re.compile(r"a concurrent ([A-Z]+)")
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


class Meddler(Thread):
    """Executes one statement after another, each in one of the contested partitions.

    Spark and deltalake know nothing of us, and commit to the shared log by themselves.
    """

    def __init__(self, remote: str, table: Path, properties: dict[str, str], seed: int = 2) -> None:
        super().__init__(name="the writer in contested partitions", daemon=True)
        from pyspark.sql import SparkSession

        self.done: Counter[str] = Counter()
        self.conflicts: Counter[str] = Counter()
        self.error: BaseException | None = None
        self.statements: dict[str, Statement] = {}
        self._spark: Any = SparkSession.builder.remote(remote).create()
        self._table = table
        self._into = f"delta.`{table}`"
        self._properties = properties
        self._random = random.Random(seed)
        self._told_to_end = Event()
        self._number = 0
        self._untried = self._random.sample([*_KINDS], len(_KINDS))
        # A dynamic overwrite empties no other partition; without it, Spark says which one it replaces.
        self._spark.conf.set(_DYNAMIC, "static")

    def create(self) -> None:
        """Make the table."""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in self._properties.items())
        self._spark.sql(
            f"CREATE TABLE {self._into} (part STRING, load STRING, writer STRING, id BIGINT, value BIGINT) USING delta "
            f"PARTITIONED BY (part) TBLPROPERTIES ({properties})"
        ).collect()

    def run(self) -> None:
        """Execute one statement after another: each kind once, then as they come."""
        try:
            while not self._told_to_end.is_set():
                (kind,) = self._untried[-1:] or self._random.choices([*_KINDS], [*_KINDS.values()])
                self._do(kind, self._random.choice(CONTESTED))
                self._untried = self._untried[:-1]
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        """Let it finish its statement, and end."""
        self._told_to_end.set()
        self.join(300)
        assert not self.is_alive(), f"{self.name} is stuck in a statement"
        self._spark.stop()

    @property
    def seen_enough(self) -> bool:
        """Whether each kind has been tried. One that loses all the time may never take effect."""
        return not self._untried

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
        # An append of deltalake does not say whether it is blind. It loses to whoever removes a file meanwhile.
        for _ in range(_TRIES):
            try:
                if statement:
                    self._spark.conf.set(_SAID, name)
                    self._spark.sql(statement).collect()
                else:
                    columns = dict(zip(COLUMNS, map(list, zip(*rows, strict=True)), strict=True))
                    said = CommitProperties(custom_metadata={"userMetadata": name})
                    write_deltalake(str(self._table), pa.table(columns), mode="append", commit_properties=said)
            except CommitFailedError:
                self.conflicts[f"{kind} lost (CommitFailedError)"] += 1
            except Exception as error:
                conflict = _CONFLICT.search(f"{getattr(error, 'getCondition', lambda: '')()} {error}")
                if conflict is None:
                    raise
                winner = _WINNER.search(str(error))
                self.conflicts[f"{kind} lost to {winner[1] if winner else 'another'} ({conflict[0]})"] += 1
            else:
                self.done[kind] += 1
                return
            finally:
                # Leave the cores to the writers for a moment.
                self._told_to_end.wait(_PAUSE)
        del self.statements[name]


def replacing(part: str, rows: list[Row]) -> Write:
    """Return what the overwrite of a partition does."""
    return Write(wipes=frozenset((part,)), puts=frozenset(rows))


def _deleted(part: str, every: int, which: int, row: Row) -> Row | None:
    return None if _chosen(part, every, which, row) else row


def _updated(part: str, every: int, which: int, row: Row) -> Row:
    return (*row[:4], row[4] + 1_000_000) if _chosen(part, every, which, row) else row


def _chosen(part: str, every: int, which: int, row: Row) -> bool:
    return row[0] == part and row[3] % every == which
