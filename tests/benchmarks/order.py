"""In which order ways are measured, so that no way profits from its place."""

from __future__ import annotations

from collections.abc import Sequence


def warm_ups(ends: Sequence[str], middle: Sequence[str], times: int) -> list[str]:
    """Return the order of the warm-ups: every way as often as any other, in turns.

    :param ends: ways that :func:`rounds` measures first and last.
    :param middle: the other ways.
    :param times: that each is warmed up.
    """
    return [*ends, *middle] * times


def rounds(ends: Sequence[str], middle: Sequence[str], times: int) -> list[list[str]]:
    """Return the order of every round.

    A server gets warmer from load to load. So the ways that others are compared with are measured at both ends of a
    round, and every second round has the others in reversed order.

    :param ends: ways that are measured first and last.
    :param middle: the other ways.
    :param times: how many rounds.
    """
    return [[*ends, *(reversed(middle) if number % 2 else middle), *reversed(ends)] for number in range(times)]
