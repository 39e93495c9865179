"""What the tables of the stress hold: which rows each writer of each load brings."""

from __future__ import annotations

import json
from typing import Any

import attrs

from include.local.settings import REPOSITORY

Row = tuple[str, str, str, int, int]
"""Partition, load, writer, id, value."""

COLUMNS = ("part", "load", "writer", "id", "value")
FOREIGN = "foreign"

WRITERS: dict[str, dict[str, Any]] = json.loads(
    (REPOSITORY / "tests" / "live" / "dags" / "stress" / "writers.json").read_text()
)
EACH, TOGETHER, OPTIMIZE, VACUUM = "stress_each", "stress_together", "stress_optimize", "stress_vacuum"
DAGS = (EACH, TOGETHER, OPTIMIZE, VACUUM)

# Loads whose writers replace the same partitions of a second table, by every policy in turn.
POLICIES = ("last_writer_wins", "first_writer_wins", "fail")
CONTESTED = ("c0", "c1", "c2")
RIVALS, NARROW, BLOCK, LONE = "rivals_each", "rivals_narrow", "rivals_together", "rivals_lone"
RIVAL_DAGS = (RIVALS, NARROW, BLOCK, LONE)
RIVALS_OPTIMIZE = "rivals_optimize"
ALL_DAGS = (*DAGS, *RIVAL_DAGS, RIVALS_OPTIMIZE)
# Their writers run one after another.
POOL = "one_at_a_time"

WRITERS_OF = {
    EACH: ("spread", "shared", "slot"),
    TOGETHER: ("left", "right"),
    RIVALS: ("first", "second", "joiner"),
    NARROW: ("third", "first"),
    BLOCK: ("upper", "lower"),
    LONE: ("lone",),
}


@attrs.frozen
class Load:
    """One run of a DAG that writes.

    :param slot: which partition a writer replaces that replaces one of several.
    """

    dag_id: str
    run_id: str
    name: str
    slot: str
    policy: str = "last_writer_wins"

    @property
    def writers(self) -> tuple[str, ...]:
        """Names of its writers."""
        return WRITERS_OF[self.dag_id]

    def parts(self, writer: str) -> tuple[str, ...]:
        """The partitions in which a writer of it has rows, which are those that an overwriting one replaces."""
        return tuple(part.format(slot=self.slot) for part in WRITERS[writer]["parts"])

    def rows(self, writer: str) -> list[Row]:
        """The rows that a writer of it brings."""
        parts = self.parts(writer)
        return [(parts[n % len(parts)], self.name, writer, n, n * 7) for n in range(WRITERS[writer]["rows"])]


def is_overwriter(writer: str) -> bool:
    """Whether a writer replaces what its partitions held."""
    return "mode" in WRITERS[writer]
