"""To which version a RESTORE went back, and whether a statement stands: its commit and its ``txn`` stay in the log."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta

from airflow_provider_onelake.exceptions import StatementRefusedError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.storage.clock import instant_of

MAKING_ANEW = (
    "CREATE OR REPLACE TABLE",
    "REPLACE TABLE",
    "CREATE OR REPLACE TABLE AS SELECT",
    "REPLACE TABLE AS SELECT",
)
"""Operations whose table has no rows of the one that was there. A clone may have some."""

REPLACING_TABLE = (*MAKING_ANEW, "CLONE")
"""Operations that put another table in place of the one that was there."""

UNDOING = ("RESTORE", *REPLACING_TABLE)
"""Operations that take a commit's rows back without taking back its txn (protocol: skip only what is there)."""

_MILLISECOND = timedelta(milliseconds=1)
# By how much the clock of who restores may be behind the store's.
_SKEW = timedelta(seconds=1)
# The time zones of the world: a text without one may mean any of them.
_WEST, _EAST = timedelta(hours=12), timedelta(hours=14)


def is_undone(ours: Commit, later: Sequence[Commit]) -> bool:
    """Say whether a RESTORE took the table back to before a commit, and none to a version that has it since.

    :param ours: the commit.
    :param later: all commits after it, in order.
    :raises StatementRefusedError: nobody can tell.
    """
    at: dict[int, bool | None] = {ours.version: False}
    undone: bool | None = False
    last = ours
    for number, commit in enumerate(later):
        if commit.operation in UNDOING:
            last, answers = commit, {at.get(each, True) for each in targets(commit, [ours, *later[:number]])}
            undone = answers.pop() if len(answers) == 1 else None
        at[commit.version] = undone
    if undone is None:
        raise StatementRefusedError(
            f"Version {ours.version} did this already, and {last.operation} in version {last.version} does not say "
            "whether the table that it left has that. It is not done again, as that could change rows twice. Nothing "
            "was changed: look at the table, and mark the task as successful, or clear it to do it once more."
        )
    return undone


def targets(commit: Commit, since: Sequence[Commit]) -> range:
    """Return the versions to one of which an operation of :data:`UNDOING` may have taken the table back.

    A RESTORE to a time went to the newest version of that time or before: of its in-commit timestamp, or else of the
    store's time of its entry. A copy of a table has new times of the store, which tell nothing.

    :param commit: it.
    :param since: commits before it, without a gap. The version before their first one stands for all older ones.
    """
    if commit.restored_to is not None:
        return range(commit.restored_to, commit.restored_to + 1)
    before = since[0].version - 1
    named = _named(commit)
    clocks = [each.time if each.in_commit_timestamp is not None else each.landed for each in since]
    rising = list(_rising(clocks))
    if named is None or len(rising) < len(clocks) or commit.time is None or rising[-1] > commit.time + _SKEW:
        return range(before, commit.version)
    first, last = (before + bisect_right(rising, instant) for instant in named)
    return range(first, last + 1)


def _rising(clocks: Iterable[datetime | None]) -> Iterator[datetime]:
    """Yield times as Delta reads them, up to one that is unknown: at least a millisecond after the one before."""
    stood = datetime.min.replace(tzinfo=UTC)
    for clock in clocks:
        if clock is None:
            return
        stood = max(clock.replace(microsecond=clock.microsecond // 1000 * 1000), stood + _MILLISECOND)
        yield stood


def _named(commit: Commit) -> tuple[datetime, datetime] | None:
    """Return the first and the last instant that the time of a RESTORE may mean; ``None`` where it names none."""
    told = commit.parameters.get("timestamp", commit.parameters.get("datetime"))
    try:
        instant = instant_of(told) or datetime.fromisoformat(str(told))
        if instant.tzinfo is not None:
            return instant, instant
        return instant.replace(tzinfo=UTC) - _EAST, instant.replace(tzinfo=UTC) + _WEST
    except (ValueError, OverflowError):
        return None
