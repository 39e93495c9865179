"""A thousand schedules of writers, committers, reconciliations and others, on every one of which the rules hold.

More by ``--schedules N``; they begin at ``--first-seed``. Seeds that ever failed are kept in ``seeds.txt``.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.simulation.runner import simulate

_SEEDS = (Path(__file__).parent / "seeds.txt").read_text(encoding="utf-8").splitlines()
KEPT = [int(seed) for line in _SEEDS if (seed := line.split("#")[0].strip())]

# What must have happened in a thousand schedules, or they prove little.
NOT_VACUOUS = (
    "appends taken back",
    "buffers closed by hand",
    "buffers reused",
    "checkpoints",
    "compactions dropped",
    "compactions published",
    "crashes",
    "crashes right after a commit",
    "creations raced",
    "deliberate reruns",
    "files deleted by VACUUM",
    "foreign: add again",
    "foreign: compact",
    "foreign: delete",
    "foreign: erase",
    "foreign: overwrite",
    "foreign: overwrite all",
    "foreign: overwrite dynamic",
    "foreign: remake",
    "foreign: rename",
    "foreign: rename partition",
    "foreign: replace",
    "foreign: restore",
    "foreign: trim",
    "foreign: truncate",
    "foreign: update",
    "histories of appends only",
    "kept beside or superseded",
    "lost answers to commits",
    "lost races",
    "late effects",
    "log entries cleaned up",
    "mapped lists changed",
    "partitions dropped: an input is gone",
    "replaced",
    "rows got ids",
    "runs deleted and made again",
    "self-reads published",
    "set aside",
    "set aside in a partition",
    "taking back refused",
    "timestamps judged",
    "whole tables overwritten",
    "told: deleted",
    "told: restored_away",
    "told: superseded",
    "torn listings",
    "writers conflicted",
    "writers of a load one after another",
    "writers published",
    "writers skipped",
    "writes placed before others",
    "zombies",
)


@pytest.mark.parametrize("seed", KEPT)
def test_a_schedule_that_once_failed_holds(seed: int) -> None:
    history = simulate(seed)
    assert history.violation is None, history


def test_every_row_is_there_once_whatever_happens(pytestconfig: pytest.Config) -> None:
    first, schedules = pytestconfig.getoption("--first-seed"), pytestconfig.getoption("--schedules")
    counters: Counter[str] = Counter()
    for seed in range(first, first + schedules):
        history = simulate(seed)
        assert history.violation is None, f"{history}\nReplay it: python -m tests.simulation.runner {seed}"
        counters.update(history.counters)
    print("\n".join(f"{count:8} {name}" for name, count in sorted(counters.items())))
    if schedules >= 1000:
        assert not [name for name in NOT_VACUOUS if not counters[name]]


def test_a_seed_tells_the_same_history_again() -> None:
    assert str(simulate(7)) == str(simulate(7))
