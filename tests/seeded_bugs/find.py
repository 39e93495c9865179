"""Looks for seeds again: a seed is another history where production code asks the store in another order."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor
from itertools import chain
from multiprocessing import get_context

from tests.seeded_bugs.bug import Bug
from tests.seeded_bugs.catalogue import catalogue
from tests.simulation.lake import FELL_OVER
from tests.simulation.schedules import Kept, Schedules, keep, kept_seeds

_SEEDS = 5000


def find(bugs: list[Bug], known: list[Bug], workers: int) -> int:
    """Have a seed kept for each bug that schedules show, of those that are asked for, and for no bug that is gone.

    :returns: 0 where each has a seed, else 1.
    """
    searched = [bug.name for bug in bugs if isinstance(bug.shown_by, Schedules)]
    others = {bug.name for bug in known} - set(searched)
    found = [kept for kept in kept_seeds() if kept.bug in others]
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        for name, (kept, said) in zip(searched, pool.map(_seed_for, searched), strict=True):
            print(f"{name}: {said}" if kept is None else f"{name}: seed {kept.seed}: {said}", flush=True)
            found += [] if kept is None else [kept]
    keep(found)
    return 0 if {kept.bug for kept in found} >= set(searched) else 1


def _seed_for(name: str) -> tuple[Kept | None, str]:
    bug = next(bug for bug in catalogue() if bug.name == name)
    kind = bug.shown_by
    assert isinstance(kind, Schedules)
    its_own = [kept.seed for kept in kept_seeds() if kept.bug == name]
    take_out = bug.put_in()
    try:
        for seed in dict.fromkeys(chain(its_own, kind.kept, range(_SEEDS))):
            violation = violation_of(kind, seed)
            if violation is not None:
                return Kept(kind, seed, name), violation[:200]
    finally:
        take_out()
    return None, f"no seed below {_SEEDS} shows it: write a test with lined-up steps instead"


def violation_of(kind: Schedules, seed: int) -> str | None:
    """Return what is wrong in a history; ``None`` also where the code fell over, as where a bug no longer fits it."""
    try:
        violation = kind.simulate(seed).violation
    except Exception:
        return None
    return None if violation is not None and FELL_OVER in violation else violation
