"""Which failures Airflow should retry, and when: a policy for every task that writes Delta tables."""

from __future__ import annotations

import random
from datetime import timedelta
from enum import Enum
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake._airflow import RetryDecision, RetryPolicy, check_has
from airflow_provider_onelake.exceptions import (
    CommitContentionError,
    OneLakeError,
    TerminalError,
    TransientError,
    causes_of,
)
from airflow_provider_onelake.spark.errors import is_conflict, is_sparks, kind_of

if TYPE_CHECKING:
    from airflow.sdk import Context


class Failure(Enum):
    """What a failure means for the next try."""

    CONFLICT = "another commit came first"
    """The same work, begun again on the newest version, has every chance."""

    TRANSIENT = "a store or Spark is away or busy"
    """It needs time."""

    TERMINAL = "a person has to act"
    """Trying again changes nothing."""


def _span(delay: float | timedelta) -> timedelta:
    return delay if isinstance(delay, timedelta) else timedelta(seconds=delay)


@attrs.define(slots=False, eq=False)
class OneLakeRetryPolicy(RetryPolicy):
    """Retries at once after a lost race, after a growing pause when a store or Spark is away, and not at all otherwise.

    The operators of this package do not need the policy: they fail for good if a person has to act. With the policy,
    they do not wait for ``retry_delay`` after a lost race. The policy works for any task, also for a PySpark script
    that commits by itself: it recognises Delta's conflict exceptions by class, by condition and in the text of wrapping
    errors. For failures that it does not know, ``retries`` and ``retry_delay`` apply. It never exceeds ``retries``.

    :param first_delay: seconds, or a ``timedelta``, before the first retry after a transient failure. The pause doubles
        with each try. Up to half of it is subtracted at random, so that writers that failed together do not retry
        together. Default: 30.
    :param longest_delay: the longest pause, in seconds or as a ``timedelta``. Default: 600.
    :raises ValueError: a delay is negative, or the longest is shorter than the first.
    :raises InvalidWriteError: Airflow is older than 3.3, which asks no policy.
    """

    first_delay: timedelta = attrs.field(default=timedelta(seconds=30), converter=_span)
    longest_delay: timedelta = attrs.field(default=timedelta(minutes=10), converter=_span)

    def __attrs_post_init__(self) -> None:
        check_has(type(self).__name__, "Leave it out: the package's tasks fail at once where a person has to act.")
        if not timedelta() <= self.first_delay <= self.longest_delay:
            raise ValueError(
                f"first_delay is {self.first_delay}, longest_delay {self.longest_delay}: neither may be negative, "
                "nor the longest shorter than the first."
            )

    def evaluate(
        self, exception: BaseException, try_number: int, max_tries: int, context: Context | None = None
    ) -> RetryDecision:
        """Decide on the next try; called by Airflow in the worker.

        :param exception: that the task raised.
        :param try_number: of the try that failed, from 1.
        :param max_tries: of the task; Airflow holds to it.
        :param context: of the task; not looked at.
        """
        failure = failure_of(exception)
        if failure is None:
            return RetryDecision.default()
        if failure is Failure.TERMINAL:
            return RetryDecision.fail(failure.value)
        pause = timedelta() if failure is Failure.CONFLICT else self._pause(try_number)
        return RetryDecision.retry(pause, failure.value)

    def serialize(self) -> dict[str, Any]:
        """Return what :meth:`deserialize` makes an equal policy from."""
        return {
            "__type": type(self).__name__,
            "first_delay": self.first_delay.total_seconds(),
            "longest_delay": self.longest_delay.total_seconds(),
        }

    @classmethod
    def deserialize(cls, data: dict[str, Any]) -> OneLakeRetryPolicy:
        """Return the policy that was serialized.

        :param data: of :meth:`serialize`.
        """
        return cls(data["first_delay"], data["longest_delay"])

    def _pause(self, try_number: int) -> timedelta:
        # A power of two that no number of tries makes too large for a timedelta.
        doubled = self.first_delay.total_seconds() * 2 ** min(max(try_number, 1) - 1, 30)
        # The random number only spreads the retries, so it does not have to be secure.
        return timedelta(seconds=min(doubled, self.longest_delay.total_seconds()) * random.uniform(0.5, 1))  # noqa: S311


def failure_of(exception: BaseException) -> Failure | None:
    """Return what a failure means for the next try; ``None`` if it is neither ours nor Spark's nor Delta's.

    The outermost error that is known decides. Its causes are looked at after it.

    :param exception: the exception of a task. In a group of exceptions, the gravest one counts.
    """
    for error in causes_of(exception):
        if isinstance(error, BaseExceptionGroup):
            found = {failure_of(one) for one in error.exceptions}
            for failure in (Failure.TERMINAL, Failure.TRANSIENT, Failure.CONFLICT):
                if failure in found:
                    return failure
        elif isinstance(error, OneLakeError):
            return _of(type(error))
        elif is_conflict(error):
            return Failure.CONFLICT
        elif is_sparks(error):
            return _of(kind_of(error))
    return None


def _of(kind: type[OneLakeError]) -> Failure | None:
    if issubclass(kind, CommitContentionError):
        return Failure.CONFLICT
    if issubclass(kind, TransientError):
        return Failure.TRANSIENT
    return Failure.TERMINAL if issubclass(kind, TerminalError) else None
