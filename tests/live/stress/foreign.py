"""A foreign writer: plain Spark, which knows nothing of us and commits to the shared log by itself."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import count
from threading import Event, Thread
from typing import TYPE_CHECKING, Any

from tests.live.stress.shape import FOREIGN, Row

if TYPE_CHECKING:
    from pathlib import Path

_BATCH = 20
_PARTS = ("foreign", "shared")
_CONFLICT = re.compile(r"DELTA_(?:CONCURRENT|METADATA_CHANGED|PROTOCOL_CHANGED)[A-Z_]*")
_WINNER = re.compile(r"a concurrent ([A-Z]+)")
# Between two statements.
_PAUSE = 0.5


class ForeignWriter(Thread):
    """Inserts batches, now and then deletes or changes rows of its own, and tries again after a conflict.

    Some of its rows lie in a partition of its own, which compaction rewrites, others in one that writers append to.
    """

    def __init__(
        self, remote: str, table: Path, properties: dict[str, str], seed: int = 1, name: str = "the foreign writer"
    ) -> None:
        super().__init__(name=name, daemon=True)
        from pyspark.sql import SparkSession

        self.done: Counter[str] = Counter()
        self.conflicts: Counter[str] = Counter()
        self.error: BaseException | None = None
        self._spark: Any = SparkSession.builder.remote(remote).create()
        self._into = f"delta.`{table}`"
        self._properties = properties
        self._random = random.Random(seed)
        self._rows: dict[int, tuple[str, int]] = {}
        self._told_to_end = Event()

    def create(self) -> None:
        """Make the table."""
        properties = ", ".join(f"'{key}' = '{value}'" for key, value in self._properties.items())
        self._spark.sql(
            f"CREATE TABLE {self._into} (part STRING, load STRING, writer STRING, id BIGINT, value BIGINT) USING delta "
            f"PARTITIONED BY (part) TBLPROPERTIES ({properties})"
        ).collect()

    def run(self) -> None:
        try:
            while not self._told_to_end.is_set():
                self.step()
        except BaseException as error:
            self.error = error

    def step(self) -> None:
        """Insert a batch, and now and then delete or change some rows."""
        self._insert()
        if self.done["INSERT"] % 2 == 0:
            self._delete_some()
        if self.done["INSERT"] % 3 == 0:
            self._update_some()

    def end(self) -> None:
        """Let it finish its statement, and end."""
        self._told_to_end.set()
        self.join(300)
        assert not self.is_alive(), f"{self.name} is stuck in a statement"
        self._spark.stop()

    def pause(self) -> None:
        """Leave the cores to the writers for a moment."""
        self._told_to_end.wait(_PAUSE)

    @property
    def seen_enough(self) -> bool:
        """Whether each kind of statement has taken effect."""
        return all(self.done[kind] for kind in ("INSERT", "DELETE", "UPDATE"))

    @property
    def rows(self) -> list[Row]:
        """The rows that it has left in the table."""
        return [(part, FOREIGN, FOREIGN, n, value) for n, (part, value) in self._rows.items()]

    def _insert(self) -> None:
        batch = self.done["INSERT"]
        part = _PARTS[batch % len(_PARTS)]
        first = batch * _BATCH
        self._execute(
            "INSERT",
            f"INSERT INTO {self._into} SELECT '{part}', '{FOREIGN}', '{FOREIGN}', id, id * 3 FROM range({first}, "
            f"{first + _BATCH})",
        )
        self._rows |= {n: (part, n * 3) for n in range(first, first + _BATCH)}

    def _delete_some(self) -> None:
        part, chosen = self._choose()
        self._execute("DELETE", f"DELETE FROM {self._into} WHERE {self._where(part, chosen)}")
        for n in chosen:
            del self._rows[n]

    def _update_some(self) -> None:
        part, chosen = self._choose()
        self._execute("UPDATE", f"UPDATE {self._into} SET value = value + 1000000 WHERE {self._where(part, chosen)}")
        self._rows |= {n: (part, self._rows[n][1] + 1_000_000) for n in chosen}

    def _choose(self) -> tuple[str, list[int]]:
        part = self._random.choice(sorted({part for part, _ in self._rows.values()}))
        ours = [n for n, (where, _) in self._rows.items() if where == part]
        return part, self._random.sample(ours, min(4, len(ours)))

    @staticmethod
    def _where(part: str, chosen: list[int]) -> str:
        return f"part = '{part}' AND writer = '{FOREIGN}' AND id IN ({', '.join(map(str, chosen))})"

    def _execute(self, kind: str, statement: str, tries: int | None = None) -> bool:
        """Execute a statement until it has taken effect, once: a conflict says that it has not.

        :param tries: after which it is given up. Default: never.
        """
        for _ in count() if tries is None else range(tries):
            try:
                self._spark.sql(statement).collect()
            except Exception as error:
                conflict = _CONFLICT.search(f"{getattr(error, 'getCondition', lambda: '')()} {error}")
                if conflict is None:
                    raise
                winner = _WINNER.search(str(error))
                self.conflicts[f"{kind} lost to {winner[1] if winner else 'another'} ({conflict[0]})"] += 1
            else:
                self.done[kind] += 1
                return True
            finally:
                self.pause()
        return False
