"""In which order ways are measured, so that no way profits from its place."""

from __future__ import annotations

from collections.abc import Sequence


def warm_ups(ends: Sequence[str], middle: Sequence[str], times: int) -> list[str]:
    """Return the order of the warm-ups: every way as often as any other, in turns."""
    return [*ends, *middle] * times


def rounds(ends: Sequence[str], middle: Sequence[str], times: int) -> list[list[str]]:
    """Return the order of every round.

    A server gets warmer from load to load. So the ways that others are compared with are measured at both ends of a
    round, and every second round has the others in reversed order.
    """
    return [[*ends, *(reversed(middle) if number % 2 else middle), *reversed(ends)] for number in range(times)]
