"""One history of statements from one seed: run it, and judge it.

Replay a seed, with its whole history: ``python -m tests.simulation.statements.runner SEED``.
"""

from __future__ import annotations

import sys
import uuid
from random import Random
from unittest.mock import patch

from airflow_provider_onelake.statements.change import Changed
from airflow_provider_onelake.statements.delete import Deleted
from airflow_provider_onelake.statements.statement import StatementStatus
from tests.simulation.runner import History, main, silence
from tests.simulation.statements.judge import Judge
from tests.simulation.statements.tasks import Statements
from tests.simulation.world import ViolationError


def simulate_statements(seed: int) -> History:
    """Run and judge one history."""
    site = Statements(seed)
    judge = Judge(site)
    violation: str | None = None
    ids = Random(seed)
    # The rounds of a MERGE are named by an id that production draws by itself.
    drawn = patch("uuid.uuid4", lambda: uuid.UUID(int=ids.getrandbits(128), version=4))
    with silence(), drawn:
        try:
            site.run()
            judge.judge_log()
            judge.judge_told()
            for plan in site.scenario.tasks:
                last = site.settle(plan)
                judge.judge_log()
                judge.judge_told()
                judge.judge_settled(last)
                settled = site.store.version()
                again = site.settle(plan)
                judge.judge_log()
                judge.judge_told()
                done = (
                    isinstance(last.said, (Changed, Deleted)) and last.said.status is not StatementStatus.NOTHING_TO_DO
                )
                if done and (again.error is not None or site.store.version() != settled):
                    raise ViolationError(
                        f"another try of {plan.name} made version {site.store.version()}: {again.error}"
                    )
            judge.judge_end()
        except ViolationError as error:
            violation = str(error)
            site.world.stop()
    return History(seed, violation, site.world.counters, site)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], simulate_statements))
