"""How long a committer waits between attempts, and when it gives up."""

from __future__ import annotations

from random import Random

import attrs


@attrs.frozen
class Backoff:
    """Exponential back-off with full jitter: each wait is drawn between nothing and a bound that doubles.

    Why jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    The bounds are measured (``make bench``): with sixteen committers at once on a local disk they make 1.4 times the
    commits of bounds of 5 ms and 5 s, as fewer puts meet another's, and nobody who was unlucky waits on when all others
    are done.

    :param first: bound of the first wait, in seconds.
    :param longest: bound of every wait, in seconds.
    :param budget: how long all waits together may be, in seconds.
    """

    first: float = 0.02
    longest: float = 1.0
    budget: float = 600.0

    def wait(self, attempt: int, random: Random) -> float:
        """Return how long to wait before the next attempt, in seconds.

        :param attempt: number of the attempt that failed, from 1.
        :param random: where the jitter comes from.
        """
        bound: float = min(self.longest, self.first * 2.0 ** min(attempt - 1, 30))
        return random.uniform(0.0, bound)
