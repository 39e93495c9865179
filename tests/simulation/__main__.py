"""Many schedules, on every core: ``python -m tests.simulation --schedules 100000``, or ``--seconds 3600``.

With ``--statements`` they are schedules of DELETE, UPDATE, MERGE and TRUNCATE, with ``--new-tables`` of loads that find
no table, else of loads. A violation ends with status 1, and with the shortest history that shows one.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import count, islice

import attrs

from tests.simulation.schedules import Schedules

_BATCH = 50
_PROGRESS_EVERY = 10.0


@attrs.define
class Tally:
    """What came of many schedules.

    :param failed: seeds that show a violation: how long their histories are, and what is wrong.
    """

    schedules: int = 0
    counters: Counter[str] = attrs.field(factory=Counter)
    failed: dict[int, tuple[int, str]] = attrs.field(factory=dict)

    def add(self, other: Tally) -> None:
        """Take in what came of others."""
        self.schedules += other.schedules
        self.counters.update(other.counters)
        self.failed.update(other.failed)


def run_batch(kind: Schedules, first: int, schedules: int) -> Tally:
    """Run some schedules."""
    tally = Tally(schedules)
    for seed in range(first, first + schedules):
        history = kind.simulate(seed)
        steps = len(history.deployment.world.history)
        tally.counters.update({**history.counters, "steps": steps})
        if history.violation is not None:
            tally.failed[seed] = steps, history.violation
    return tally


def batches(first: int, schedules: int | None) -> Iterator[tuple[int, int]]:
    """Yield the first seed and the size of every batch.

    :param schedules: how many in all; ``None`` for ever.
    """
    for start in count(0, _BATCH) if schedules is None else range(0, schedules, _BATCH):
        yield first + start, _BATCH if schedules is None else min(_BATCH, schedules - start)


def run(kind: Schedules, first: int, schedules: int | None, seconds: float | None, workers: int) -> Tally:
    """Run schedules on several processes, and tell how far they are.

    :param schedules: how many; ``None`` for as many as there is time for.
    :param seconds: for how long; ``None`` for as long as it takes.
    """
    began = told = time.monotonic()
    tally, left = Tally(), batches(first, schedules)
    with ProcessPoolExecutor(workers) as pool:
        running: set[Future[Tally]] = {pool.submit(run_batch, kind, *batch) for batch in islice(left, workers)}
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            now = time.monotonic()
            for future in done:
                part = future.result()
                tally.add(part)
                for seed, (_, violation) in part.failed.items():
                    print(f"seed {seed}: {violation}", flush=True)
                following = next(left, None) if seconds is None or now - began < seconds else None
                if following is not None:
                    running.add(pool.submit(run_batch, kind, *following))
            if now - told >= _PROGRESS_EVERY:
                told = now
                print(_progress(tally, now - began), flush=True)
    print(_progress(tally, time.monotonic() - began))
    return tally


def _progress(tally: Tally, seconds: float) -> str:
    rate = tally.schedules / seconds if seconds else 0
    return f"{tally.schedules:,} schedules in {seconds:.0f} s, {rate:.0f} a second; violations: {len(tally.failed)}"


def main(arguments: list[str]) -> int:
    """Run what the command line asks for.

    :returns: 0 where nothing is wrong, else 1.
    """
    parser = argparse.ArgumentParser("python -m tests.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, help="how many (default: 10000, or as many as there is time for)")
    parser.add_argument("--seconds", type=float, help="for how long (default: as long as it takes)")
    parser.add_argument("--workers", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--first-seed", type=int, help="default: drawn, so that no two runs are the same")
    parser.add_argument("--statements", action="store_true", help="of statements (default: of loads)")
    parser.add_argument("--new-tables", action="store_true", help="of loads that find no table")
    parser.add_argument("--counters", action="store_true", help="tell at the end what happened, and how often")
    given = parser.parse_args(arguments)
    first = random.SystemRandom().randrange(10**9) if given.first_seed is None else given.first_seed
    schedules = 10_000 if given.schedules is None and given.seconds is None else given.schedules
    print(f"seeds from {first}", flush=True)
    loads = Schedules.NEW_TABLES if given.new_tables else Schedules.LOADS
    kind = Schedules.STATEMENTS if given.statements else loads
    tally = run(kind, first, schedules, given.seconds, given.workers)
    if given.counters:
        print("\n".join(f"{number:10,} {name}" for name, number in sorted(tally.counters.items())))
    if not tally.failed:
        return 0
    shortest = min(tally.failed, key=lambda seed: tally.failed[seed][0])
    print(kind.simulate(shortest))
    print(f"{len(tally.failed)} of {tally.schedules:,} schedules show a violation: seeds {sorted(tally.failed)}")
    print(f"Replay one: {kind.replay} {shortest}")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
