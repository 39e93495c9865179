"""Schedules of DELETE, UPDATE, MERGE and TRUNCATE beside everybody else, on every one of which the rules hold."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from include.local.settings import REPOSITORY
from tests.simulation.schedules import Schedules
from tests.simulation.statements.runner import simulate_statements

# What must have happened in the schedules, or they prove little.
NOT_VACUOUS = """DELETE judged, MERGE judged, TRUNCATE judged, UPDATE judged, checkpoints, clears, commits of nothing, compactions published, crashes, files deleted by VACUUM,
    foreign: compact, foreign: erase, foreign: overwrite, foreign: restore, foreign: trim, foreign: update,
    lost answers to commits, lost races, more rounds than one, rows got ids, sources reused,
    starts skipped, told: RoundsUsedUpError, told: RerunRefusedError, told: StatementRefusedError,
    told: ZombieWriterError, told: already_done, told: nothing_to_do, writers published, zombies"""


@pytest.mark.promise
@pytest.mark.parametrize("seed", Schedules.STATEMENTS.kept)
def test_a_kept_schedule_holds(seed: int) -> None:
    Schedules.STATEMENTS.hold([seed])


@pytest.mark.promise
def test_every_statement_is_done_once_to_the_version_before() -> None:
    Schedules.STATEMENTS.hold(range(20))


def test_every_statement_is_done_once_in_two_hundred_schedules() -> None:
    counters = Schedules.STATEMENTS.hold(range(200))
    assert not [name for name in NOT_VACUOUS.split(",") if not counters[name.strip()]]


@pytest.mark.promise
def test_a_seed_tells_the_same_history_again() -> None:
    assert str(simulate_statements(7)) == str(simulate_statements(7))


def test_a_seed_tells_the_same_history_in_every_process() -> None:
    # Rounds with several vectors: in the order of a set, they would be read otherwise in each process.
    command = [sys.executable, "-m", "tests.simulation.statements.runner", "50"]
    told = []
    for hashes in ("1", "2"):
        env = {**os.environ, "PYTHONHASHSEED": hashes}
        said = subprocess.run(command, env=env, cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
        # The last line says how fast it was.
        told.append(said.splitlines()[:-1])
    assert len(told[0]) > 100
    assert told[0] == told[1]
