"""Who is at work at a table beside the tasks that are judged: other engines, compactions, clean-ups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tests.simulation.compactor import compact
from tests.simulation.foreign import foreign, vacuum, write_checkpoint
from tests.simulation.lake import Lake
from tests.simulation.scenario import CompactionPlan, ForeignPlan


class Others(Protocol):
    """What a scenario says of them; of a VACUUM and a checkpoint it says when it begins."""

    @property
    def foreign(self) -> Sequence[ForeignPlan]: ...

    @property
    def compactions(self) -> Sequence[CompactionPlan]: ...

    @property
    def vacuums(self) -> Sequence[float]: ...

    @property
    def checkpoints(self) -> Sequence[float]: ...


def spawn_others(lake: Lake, others: Others) -> None:
    """Let them begin at their times."""
    world = lake.world
    for number, other in enumerate(others.foreign):
        name = f"foreign {number}: {other.kind}"
        world.spawn(name, lambda f=other: foreign(lake, f), faulty=False, after=other.start)  # type: ignore[misc]
    for number, terms in enumerate(others.compactions):
        world.spawn(f"optimize {number}", lambda c=terms: compact(lake, c), after=terms.start)  # type: ignore[misc]
    for at in others.vacuums:
        world.spawn("VACUUM", lambda: vacuum(lake), faulty=False, after=at)
    for at in others.checkpoints:
        world.spawn("checkpoint", lambda: write_checkpoint(lake), faulty=False, after=at)
