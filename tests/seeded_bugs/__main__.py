"""``python -m tests.seeded_bugs``: every seeded bug is caught by the tests that are named for it, or this fails."""

from __future__ import annotations

import argparse
import sys

from tests.seeded_bugs.bug import Bug
from tests.seeded_bugs.catalogue import catalogue
from tests.seeded_bugs.find import find
from tests.seeded_bugs.runner import run_all
from tests.simulation.schedules import Schedules

# Of all bugs, how many must be noticed by `make test`.
_AT_LEAST = 80


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.seeded_bugs", description=__doc__)
    parser.add_argument("--only", default="", help="those whose name or module contains this text")
    parser.add_argument("--workers", type=int, default=2, help="how many at once (default: 2)")
    parser.add_argument(
        "--find", action="store_true", help="look for seeds where none that is kept shows a bug any more"
    )
    asked = parser.parse_args()
    known = catalogue()
    bugs = [bug for bug in known if asked.only in bug.name or asked.only in bug.module]
    if not bugs:
        print(f"No seeded bug is named like {asked.only!r}.")
        return 2
    if asked.find:
        return find(bugs, known, asked.workers)
    fine = _passes_clean(bugs, asked.workers, at_least=0 if asked.only else _AT_LEAST)
    return 0 if fine and _are_caught(bugs, asked.workers) else 1


def _passes_clean(bugs: list[Bug], workers: int, at_least: int) -> bool:
    nodes = list(dict.fromkeys(node for bug in bugs for node in bug.fails))
    shares = [share for share in (nodes[at::workers] for at in range(workers)) if share]
    fine = True
    marked: set[str] = set()
    for place, run in run_all([(None, share) for share in shares], workers):
        # A parametrised test is named as a whole.
        passed = {node.partition("[")[0] for node in run.passed} | set(run.passed)
        marked |= {node.partition("[")[0] for node in run.marked} | set(run.marked)
        missing = [node for node in shares[place] if node not in passed]
        for failure in run.failures:
            print(f"Fails on clean code: {failure.test}: {failure.error}")
        if run.broken is not None or missing:
            print(f"Did not run on clean code: {run.broken or ', '.join(missing)}")
        fine &= not run.failures and run.broken is None and not missing
    print(f"{len(nodes)} tests {'pass' if fine else 'do not all pass'} on clean code.")
    noticed = sum(not marked.isdisjoint(bug.fails) for bug in bugs)
    print(f"`make test` runs the tests of {noticed} bugs; it must be {at_least} at least.")
    return fine and noticed >= at_least


def _are_caught(bugs: list[Bug], workers: int) -> bool:
    alive = 0
    for place, run in run_all([(bug, bug.fails) for bug in bugs], workers):
        bug, why = bugs[place], run.survived
        alive += why is not None
        by = ", ".join(failure.test for failure in run.failures)
        told = f"caught by {by}" if why is None else f"NOT CAUGHT: {why}\n  {bug.promise}"
        if why is not None and isinstance(bug.shown_by, Schedules):
            told += " If its seed has become another history, --find looks for another seed."
        print(f"{bug.module}: {bug.name}: {told} ({run.seconds:.1f} s)", flush=True)
    print(f"{len(bugs) - alive} of {len(bugs)} seeded bugs are caught.")
    return not alive


if __name__ == "__main__":
    sys.exit(main())
