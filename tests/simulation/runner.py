"""One history from one seed: run it, judge it, and tell it.

Replay a seed, with its whole history: ``python -m tests.simulation.runner SEED``; many: ``… runner FIRST LAST``.
"""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from airflow_provider_onelake.writes.report import Report
from tests.simulation.actors import Deployment
from tests.simulation.lake import Lake
from tests.simulation.oracle import Judge
from tests.simulation.world import ViolationError


@attrs.frozen
class History:
    """What came of a seed.

    :param violation: what is wrong, ``None`` if nothing is.
    """

    seed: int
    violation: str | None
    counters: Counter[str]
    deployment: Lake = attrs.field(repr=False)

    def __str__(self) -> str:
        lake = self.deployment
        lines = [f"seed {self.seed}", f"  {lake.column}, {lake.world.faults}, coarse={lake.store.coarse}"]
        lines += [f"  {plan}" for plan in lake.terms]
        lines += [str(step) for step in lake.world.history]
        lines.append(f"seed {self.seed}: {self.violation or 'nothing is wrong'}")
        return "\n".join(lines)


def simulate(seed: int, kind: type[Deployment] = Deployment) -> History:
    """Run and judge one history."""
    deployment = kind(seed)
    judge = Judge(deployment)
    violation: str | None = None
    with silence():
        try:
            deployment.run()
            judge.judge_log()
            judge.judge_said()
            refused = set()
            for plan in deployment.scenario.loads:
                last = deployment.settle(plan)
                judge.judge_log()
                if last is not None:
                    judge.judge_settled(last)
                    assert isinstance(last.said, Report)
                    refused |= {plan.load.id for outcome in last.said.outcomes if outcome.status == "refused"}
            for plan in deployment.scenario.loads:
                settled = deployment.store.version()
                deployment.settle(plan)
                judge.judge_log()
                # What was refused may be settled once another load has published: it may have replaced what was in the
                # way.
                if deployment.store.version() != settled and plan.load.id not in refused:
                    raise ViolationError(f"reconciling once more made version {deployment.store.version()}")
            judge.judge_said()
            judge.judge_end()
        except ViolationError as error:
            violation = str(error)
            deployment.world.stop()
    return History(seed, violation, deployment.world.counters, deployment)


@contextmanager
def silence() -> Iterator[None]:
    """Production's logging costs more than all the rest, and the history says it better."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def main(arguments: list[str], simulate: Callable[[int], History] = simulate) -> int:
    """Replay a seed, or run a range of them."""
    first, last = int(arguments[0]), int(arguments[-1])
    counters: Counter[str] = Counter()
    failed = []
    began = time.perf_counter()
    for seed in range(first, last + 1):
        history = simulate(seed)
        counters.update({**history.counters, "steps": len(history.deployment.world.history)})
        if history.violation:
            failed.append(seed)
        if first == last:
            print(history)
        elif history.violation:
            print(f"seed {seed}: {history.violation[:400]}")
    seconds = time.perf_counter() - began
    print(f"{len(failed)} of {last - first + 1} failed; {(last - first + 1) / seconds:.0f} histories a second")
    if first != last:
        print("\n".join(f"{count:8} {name}" for name, count in sorted(counters.items())))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
