"""How long a committer waits between attempts, and when it gives up."""

from __future__ import annotations

from random import Random

import attrs

from airflow_provider_onelake.storage.clock import Clock


@attrs.frozen
class Backoff:
    """Exponential back-off with full jitter: each wait is drawn between nothing and a bound that doubles.

    Why jitter: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    The bounds are measured (``make bench``): with sixteen committers at once on a local disk they make 1.4 times the
    commits of bounds of 5 ms and 5 s. Fewer puts meet another's, and an unlucky committer does not wait on when all
    others are done.

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


class Waits:
    """The waits of one piece of work, which share a budget.

    Waits are counted, not puts, as a store that does not answer may never let the work come to a put.

    :param backoff: how long to wait.
    :param random: where the jitter comes from.
    :param clock: that waits.
    """

    def __init__(self, backoff: Backoff, random: Random, clock: Clock) -> None:
        self._backoff = backoff
        self._random = random
        self._clock = clock
        self._count = 0
        self._waited = 0.0

    @property
    def exhausted(self) -> bool:
        """Whether the budget is used up."""
        return self._waited >= self._backoff.budget

    def wait(self) -> None:
        """Wait before the next attempt."""
        self._count += 1
        seconds = self._backoff.wait(self._count, self._random)
        self._waited += max(seconds, self._backoff.first / 10)
        self._clock.sleep(seconds)
