"""What the table of the stress holds: which rows each writer of each load brings."""

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
WRITERS_OF = {EACH: ("spread", "shared", "slot"), TOGETHER: ("left", "right")}


@attrs.frozen
class Load:
    """One run of a DAG that writes.

    :param dag_id: of the run.
    :param run_id: of the run.
    :param name: as its rows name it.
    :param slot: the partition that its overwriting writer replaces.
    """

    dag_id: str
    run_id: str
    name: str
    slot: str

    @property
    def writers(self) -> tuple[str, ...]:
        """Names of its writers."""
        return WRITERS_OF[self.dag_id]

    def rows(self, writer: str) -> list[Row]:
        """The rows that a writer of it brings."""
        parts = [part.format(slot=self.slot) for part in WRITERS[writer]["parts"]]
        return [(parts[n % len(parts)], self.name, writer, n, n * 7) for n in range(WRITERS[writer]["rows"])]


def is_overwriter(writer: str) -> bool:
    """Whether a writer replaces what its partition held."""
    return "mode" in WRITERS[writer]
