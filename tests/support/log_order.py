"""The judge of the one rule: each version is one write, done whole to the version before it, or it changes nothing.

A write is what it does to the rows of any table; a row is a tuple that begins with its partition. Whoever uses the judge
tells it what a commit would do, when it finished, what it was formed on and under which policy. The judge says whether
that policy had the commit published, left out or refused. It knows nothing of how production decides, and reads none of
what production says of its decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable
from enum import StrEnum
from typing import Any

import attrs

Row = tuple[Any, ...]
Rows = frozenset[Row]
_NOBODY: frozenset[Any] = frozenset()


@attrs.frozen
class Write:
    """What a write does to the rows of any table.

    :param changes: what it makes of a row: another one, or ``None`` where it deletes the row.
    """

    wipes: frozenset[Hashable] = _NOBODY
    spares: Rows = _NOBODY
    changes: Callable[[Row], Row | None] | None = None
    puts: Rows = _NOBODY

    def on(self, rows: Rows) -> Rows:
        """Return the table after it."""
        if self.changes is not None:
            rows = frozenset(new for new in map(self.changes, rows) if new is not None)
        if self.wipes:
            rows = frozenset(row for row in rows if row[0] not in self.wipes or row in self.spares)
        return rows | self.puts


@attrs.frozen
class Commit:
    """What is known of a commit, from elsewhere than its own account of what was decided.

    :param write: what it does when it is done whole. Default: nothing, as a compaction.
    :param finished: when, by the store's clock, and the greatest id of its writers, which is empty where it has none;
        ``None`` where nobody knows.
    :param replaces: the partitions of which its log entry says that it replaced whatever was there.
    :param may_change: the partitions in which it may have changed rows, as far as its log entry says.
    :param may_replace: the partitions of which its log entry does not say whether it replaced what was there.
    :param policy: of a write that replaces rows; ``None`` for all others, which are always done whole.
    :param allies: ids of the other writers of its load, where the load is published together.
    :param began: the version of the table when its load began, where each writer of the load publishes for itself.
    """

    who: str
    write: Write = attrs.field(factory=Write)
    finished: tuple[Any, str] | None = None
    replaces: frozenset[Hashable] = _NOBODY
    may_change: frozenset[Hashable] = _NOBODY
    may_replace: frozenset[Hashable] = _NOBODY
    restores: bool = False
    policy: str | None = None
    read: int = -1
    writers: frozenset[str] = _NOBODY
    allies: frozenset[str] = _NOBODY
    load: Hashable = None
    began: int | None = None

    @property
    def own(self) -> frozenset[Hashable]:
        """The partitions for which it has rows."""
        return frozenset(row[0] for row in self.write.puts)

    def finished_after(self, other: Commit) -> bool:
        """Say whether it finished later than another. One whose time is not known did."""
        return self.finished is None or other.finished is None or self.finished > other.finished


class Outcome(StrEnum):
    """What a policy makes of a commit."""

    WHOLE = "published whole"
    LEFT_OUT = "left out"
    REFUSED = "refused"


@attrs.define
class LogOrder:
    """Judges one version after another.

    :param commits: of the versions so far. One that was left out replaces nothing.
    """

    commits: list[Commit] = attrs.field(factory=list)
    states: list[Rows] = attrs.field(factory=list)
    complaints: list[str] = attrs.field(factory=list)

    def take_in(self, commit: Commit, rows: Rows) -> tuple[Outcome, str]:
        """Judge the next version. Whatever is wrong, the versions after it are judged on top of the rows that are there."""
        version, before = len(self.commits), self._before(len(self.commits))
        (should, why), whole = self.ruling(commit), commit.write.on(before)
        if should is Outcome.REFUSED:
            self._complain(version, commit, f"should have been refused: {why}")
        elif rows != (whole if should is Outcome.WHOLE else before):
            if commit.policy is not None and rows in (whole, before):
                became = Outcome.WHOLE if rows == whole else Outcome.LEFT_OUT
                self._complain(version, commit, f"is {became}, and should be {should}: {why or 'there is no conflict'}")
            else:
                lacks, more = _in_short(whole - rows), _in_short(rows - whole)
                self._complain(version, commit, f"is not done whole: it lacks {lacks} and has too much {more}")
        left_out = should is Outcome.LEFT_OUT if whole == before else rows == before
        self.commits.append(attrs.evolve(commit, replaces=_NOBODY) if left_out else commit)
        self.states.append(rows)
        return should, why

    def ruling(self, commit: Commit, at: int | None = None) -> tuple[Outcome, str]:
        """Return what its policy makes of a commit, and because of which conflicts; empty where there are none.

        :param at: the version that it would become. Default: the next one.
        """
        at = len(self.commits) if at is None else at
        rivals = [v for v in range(at) if self._counts(commit, v) and self._places(commit, v)]
        if commit.policy is None or not rivals:
            return Outcome.WHOLE, ""
        late = [self.commits[v] for v in rivals if self.commits[v].finished_after(commit)]
        why = "; ".join(self._why(commit, rival) for rival in rivals)
        if commit.policy == "fail":
            return Outcome.REFUSED, why
        if commit.policy == "first_writer_wins":
            return Outcome.LEFT_OUT, why
        if not late:
            return Outcome.WHOLE, f"{why}, and all of that finished before it"
        removes = {row[0] for row in self._before(at) - commit.write.spares} & commit.replaces
        left = (commit.own | removes).difference(*(other.replaces for other in late))
        if left:
            return Outcome.REFUSED, f"{why}, and nobody has replaced {_listed(left)} since"
        if any(other.restores for other in self.commits[commit.read + 1 : at]):
            return Outcome.REFUSED, f"{why}, and a RESTORE came"
        return Outcome.LEFT_OUT, f"{why}, and all of it was replaced since"

    def touched(self, version: int) -> frozenset[Hashable]:
        """Return the partitions whose rows a version changed."""
        return frozenset(row[0] for row in self._before(version) ^ self.states[version])

    def _before(self, version: int) -> Rows:
        return self.states[version - 1] if version else _NOBODY

    def _counts(self, commit: Commit, version: int) -> bool:
        """Say whether a version is of another writer, and after the one on which a commit was formed.

        Where the first writer stays, those of its load count from the load's beginning: it does not matter how many of
        its writers had a slot.
        """
        other = self.commits[version]
        if other.writers and other.writers <= commit.writers | commit.allies:
            return False
        from_beginning = commit.policy != "last_writer_wins" and other.load == commit.load
        first = commit.read if commit.began is None or not from_beginning else min(commit.began, commit.read)
        return version > first

    def _places(self, commit: Commit, version: int) -> frozenset[Hashable]:
        """Return the partitions in which a version is in conflict with a commit. One that changes no rows is in none."""
        other = self.commits[version]
        changed = self.touched(version) | other.may_change
        found = (changed & commit.replaces) | ((other.replaces | other.may_replace) & commit.own)
        return found if changed else _NOBODY

    def _why(self, commit: Commit, version: int) -> str:
        other = self.commits[version]
        later = ", later" if other.finished_after(commit) else ""
        return f"version {version} ({other.who}{later}) changed {_listed(self._places(commit, version))}"

    def _complain(self, version: int, commit: Commit, what: str) -> None:
        self.complaints.append(f"Version {version} ({commit.who}) {what}")


def _listed(partitions: frozenset[Hashable]) -> str:
    return ", ".join(sorted(map(str, partitions)))


def _in_short(rows: Rows) -> str:
    if len(rows) <= 10:
        return ", ".join(sorted(map(str, rows))) or "nothing"
    return ", ".join(f"{count} rows of {part}" for part, count in sorted(Counter(str(row[0]) for row in rows).items()))
