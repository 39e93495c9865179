"""How long a committer waits between attempts."""

from __future__ import annotations

from random import Random

import pytest

from airflow_provider_onelake.commit.backoff import Backoff


class _Highest(Random):
    def uniform(self, a: float, b: float) -> float:
        return b


@pytest.mark.parametrize(("attempt", "bound"), [(1, 0.5), (2, 1), (3, 2), (4, 4), (5, 5), (6, 5), (100_000, 5)])
def test_the_bound_doubles_up_to_the_longest(attempt: int, bound: float) -> None:
    assert Backoff(first=0.5, longest=5).wait(attempt, _Highest()) == bound


def test_the_wait_is_drawn_between_nothing_and_the_bound() -> None:
    random, backoff = Random(1), Backoff(first=0.5, longest=5)
    waits = [backoff.wait(3, random) for _ in range(500)]
    assert all(0 <= wait <= 2 for wait in waits)
    assert min(waits) < 0.2
    assert max(waits) > 1.8


def test_equal_seeds_wait_equally() -> None:
    assert [Backoff().wait(n, Random(7)) for n in range(1, 9)] == [Backoff().wait(n, Random(7)) for n in range(1, 9)]
