"""The kinds of schedules, and the seeds in ``seeds.txt``, each of which shows a seeded bug.

``python -m tests.seeded_bugs --find`` looks for another seed where one that is kept shows its bug no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from pathlib import Path

import attrs

from tests.simulation.new_tables import simulate_new_table
from tests.simulation.runner import History, simulate
from tests.simulation.statements.runner import simulate_statements

_SEEDS = Path(__file__).with_name("seeds.txt")


class Schedules(StrEnum):
    """Kinds of schedules."""

    LOADS = "loads"
    STATEMENTS = "statements"
    NEW_TABLES = "new_tables"

    @property
    def simulate(self) -> Callable[[int], History]:
        """Runs the schedule of a seed."""
        return {
            Schedules.LOADS: simulate,
            Schedules.STATEMENTS: simulate_statements,
            Schedules.NEW_TABLES: simulate_new_table,
        }[self]

    @property
    def replay(self) -> str:
        """The command that shows the history of a seed, which follows."""
        return f"python -m {self.simulate.__module__}"

    def hold(self, seeds: Iterable[int]) -> Counter[str]:
        """Run schedules, each of which must hold."""
        counters: Counter[str] = Counter()
        for seed in seeds:
            history = self.simulate(seed)
            assert history.violation is None, f"{history}\nReplay it: {self.replay} {seed}"
            counters.update(history.counters)
        return counters

    @property
    def kept(self) -> list[int]:
        """The seeds that are kept, each once."""
        return sorted({kept.seed for kept in kept_seeds() if kept.kind is self})


@attrs.frozen(order=True)
class Kept:
    """A seed that is kept.

    :param bug: the name of the seeded bug that it shows.
    """

    kind: Schedules
    seed: int
    bug: str


def kept_seeds() -> list[Kept]:
    """Return every seed of the file, with each bug that it shows."""
    lines = [line.split(maxsplit=2) for line in _SEEDS.read_text().splitlines() if not line.startswith("#")]
    return [Kept(Schedules(kind), int(seed), bug) for kind, seed, bug in lines]


def keep(seeds: Iterable[Kept]) -> None:
    """Write the file anew."""
    header = [line for line in _SEEDS.read_text().splitlines() if line.startswith("#")]
    lines = [f"{kept.kind} {kept.seed} {kept.bug}" for kept in sorted(seeds)]
    _SEEDS.write_text("\n".join([*header, *lines, ""]))
