"""No way to load is measured at a better place than another."""

from __future__ import annotations

from collections import Counter

from tests.benchmarks import order

ENDS, MIDDLE = ("parquet", "delta"), ("a", "b", "c")


def test_every_way_is_warmed_up_equally_often() -> None:
    assert Counter(order.warm_ups(ENDS, MIDDLE, 3)) == dict.fromkeys((*ENDS, *MIDDLE), 3)


def test_what_others_are_compared_with_comes_first_and_last() -> None:
    for ways in order.rounds(ENDS, MIDDLE, 4):
        assert (ways[:2], ways[-2:]) == (["parquet", "delta"], ["delta", "parquet"])
        assert Counter(ways[2:-2]) == Counter(MIDDLE)


def test_every_second_round_reverses_the_other_ways() -> None:
    assert [ways[2:-2] for ways in order.rounds(ENDS, MIDDLE, 3)] == [
        ["a", "b", "c"],
        ["c", "b", "a"],
        ["a", "b", "c"],
    ]
