"""Two committers in processes of their own, lined up on the same version, many times on every store."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.support.object_stores import WITH_ONELAKE, Lake
from tests.support.racers import race_commits

SPAWN = multiprocessing.get_context("spawn")
NAMES = ("left", "right")


@pytest.mark.parametrize("rounds", [30, pytest.param(100, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("lake", WITH_ONELAKE, indirect=True)
def test_of_two_committers_on_one_version_exactly_one_wins_and_nothing_is_lost(lake: Lake, rounds: int) -> None:
    lake.make_table()
    begun, put, said = SPAWN.Barrier(len(NAMES)), SPAWN.Barrier(len(NAMES)), SPAWN.Queue()
    racers = [
        SPAWN.Process(target=race_commits, daemon=True, args=(lake, number, rounds, begun, put, said))
        for number, _ in enumerate(NAMES)
    ]
    for racer in racers:
        racer.start()
    results = dict(said.get(timeout=300) for _ in racers)
    for racer in racers:
        racer.join(timeout=60)
    raced = list(zip(*(results[number] for number, _ in enumerate(NAMES)), strict=True))
    assert len(raced) == rounds
    for number, outcomes in enumerate(raced):
        # Both put the same version first; the one that lost it took the next.
        assert sorted(outcomes) == [(2 * number + 1, 0), (2 * number + 2, 1)]
    assert lake.ids() == sorted(rows for number in range(rounds) for rows in (10 * number, 10 * number + 1))
