"""The seeds in ``seeds.txt``. Each shows a seeded bug; ``python -m tests.seeded_bugs --find`` looks for those that are due."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import attrs

_SEEDS = Path(__file__).with_name("seeds.txt")


class Schedules(StrEnum):
    """Kinds of schedules."""

    LOADS = "loads"
    STATEMENTS = "statements"


@attrs.frozen(order=True)
class Kept:
    """A seed that is kept.

    :param kind: of schedules.
    :param bug: the name of the seeded bug that it shows.
    """

    kind: Schedules
    seed: int
    bug: str


def kept_seeds() -> list[Kept]:
    """Return every seed of the file."""
    lines = [line.split(maxsplit=2) for line in _SEEDS.read_text().splitlines() if not line.startswith("#")]
    return [Kept(Schedules(kind), int(seed), bug) for kind, seed, bug in lines]


def keep(seeds: Iterable[Kept]) -> None:
    """Write the file anew.

    :param seeds: all that is to be in it.
    """
    header = [line for line in _SEEDS.read_text().splitlines() if line.startswith("#")]
    lines = [f"{kept.kind} {kept.seed} {kept.bug}" for kept in sorted(seeds)]
    _SEEDS.write_text("\n".join([*header, *lines, ""]))


def seeds_of(kind: Schedules) -> list[int]:
    """Return the seeds of a kind, each once.

    :param kind: of schedules.
    """
    return sorted({kept.seed for kept in kept_seeds() if kept.kind is kind})
