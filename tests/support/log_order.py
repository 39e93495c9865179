"""The judge of the one rule: each version is one write, done whole to the version before it, or it changes nothing.

A write is what it does to the rows of any table; a row is a tuple that begins with its partition. Whoever uses the judge
tells it what a commit would do, when it finished, what it was formed on and under which policy. The judge says whether
that policy had the commit published, left out or refused. It knows nothing of how production decides, and reads none of
what production says of its decisions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from enum import StrEnum
from typing import Any

import attrs

Row = tuple[Any, ...]
Rows = frozenset[Row]
_NOBODY: frozenset[Any] = frozenset()


@attrs.frozen
class Write:
    """What a write does to the rows of any table.

    :param wipes: partitions that it empties.
    :param spares: rows that stay there all the same.
    :param changes: what it makes of a row: another one, or ``None`` where it deletes the row.
    :param puts: rows that it adds.
    """

    wipes: frozenset[Hashable] = _NOBODY
    spares: Rows = _NOBODY
    changes: Callable[[Row], Row | None] | None = None
    puts: Rows = _NOBODY

    def on(self, rows: Rows) -> Rows:
        """Return the table after it.

        :param rows: before.
        """
        if self.changes is not None:
            rows = frozenset(new for new in map(self.changes, rows) if new is not None)
        if self.wipes:
            rows = frozenset(row for row in rows if row[0] not in self.wipes or row in self.spares)
        return rows | self.puts


@attrs.frozen
class Commit:
    """What is known of a commit, from elsewhere than its own account of what was decided.

    :param who: made it, in words.
    :param write: what it does when it is done whole. Default: nothing, as a compaction.
    :param finished: when, by the store's clock, and the greatest id of its writers, which is empty where it has none;
        ``None`` where nobody knows.
    :param replaces: the partitions of which its log entry says that it replaced whatever was there.
    :param may_change: the partitions in which it may have changed rows, as far as its log entry says.
    :param may_replace: the partitions of which its log entry does not say whether it replaced what was there.
    :param restores: whether it takes the table back to an older version.
    :param policy: of a write that replaces rows; ``None`` for all others, which are always done whole.
    :param read: the version that it was formed on.
    :param writers: ids of its writers.
    :param allies: ids of the other writers of its load, where the load is published together.
    :param load: that it is of.
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


@attrs.frozen
class Ruling:
    """What a policy makes of a commit, and why.

    :param outcome: what becomes of it.
    :param rivals: the versions that it is in conflict with.
    :param late: those of them that finished after it.
    :param why: in words; empty where nothing is in conflict.
    """

    outcome: Outcome
    rivals: tuple[int, ...] = ()
    late: tuple[int, ...] = ()
    why: str = ""


@attrs.define
class LogOrder:
    """Judges one version after another.

    :param commits: of the versions so far. One that was left out replaces nothing.
    :param states: the versions' rows.
    :param complaints: what is wrong, a sentence each.
    """

    commits: list[Commit] = attrs.field(factory=list)
    states: list[Rows] = attrs.field(factory=list)
    complaints: list[str] = attrs.field(factory=list)

    def take_in(self, commit: Commit, rows: Rows) -> Ruling:
        """Judge the next version. Whatever is wrong, the versions after it are judged on top of the rows that are there.

        :param commit: of it.
        :param rows: that are there at it.
        :returns: what should have become of the commit.
        """
        version, before = len(self.commits), self._before(len(self.commits))
        ruling, whole = self.ruling(commit), commit.write.on(before)
        named = f"Version {version} ({commit.who})"
        if ruling.outcome is Outcome.REFUSED:
            self.complaints.append(f"{named} should have been refused: {ruling.why}")
        elif rows != (whole if ruling.outcome is Outcome.WHOLE else before):
            if commit.policy is not None and rows in (whole, before):
                became = Outcome.WHOLE if rows == whole else Outcome.LEFT_OUT
                because = f": {ruling.why}" if ruling.why else ", as nothing is in conflict with it"
                self.complaints.append(f"{named} is {became}, and should be {ruling.outcome}{because}")
            else:
                self.complaints.append(
                    f"{named} is not its write done to the version before: it lacks {_in_short(whole - rows)} and has "
                    f"too much {_in_short(rows - whole)}"
                )
        left_out = ruling.outcome is Outcome.LEFT_OUT if whole == before else rows == before
        self.commits.append(attrs.evolve(commit, replaces=_NOBODY) if left_out else commit)
        self.states.append(rows)
        return ruling

    def ruling(self, commit: Commit, at: int | None = None) -> Ruling:
        """Return what its policy makes of a commit.

        :param at: the version that it would become. Default: the next one.
        """
        at = len(self.commits) if at is None else at
        rivals = tuple(self._rivals(commit, at)) if commit.policy is not None else ()
        if not rivals:
            return Ruling(Outcome.WHOLE)
        late = tuple(v for v in rivals if self.commits[v].finished_after(commit))
        why = "; ".join(self._why(commit, rival) for rival in rivals)
        if commit.policy == "fail":
            return Ruling(Outcome.REFUSED, rivals, late, why)
        if commit.policy == "first_writer_wins":
            return Ruling(Outcome.LEFT_OUT, rivals, late, why)
        if not late:
            return Ruling(Outcome.WHOLE, rivals, late, f"{why}, and all of that finished before it")
        removes = {row[0] for row in self._before(at) - commit.write.spares} & commit.replaces
        left = (commit.own | removes) - frozenset().union(*(self.commits[v].replaces for v in late))
        if left:
            return Ruling(Outcome.REFUSED, rivals, late, f"{why}, and nobody has replaced {_listed(left)} since")
        if any(other.restores for other in self.commits[commit.read + 1 : at]):
            return Ruling(Outcome.REFUSED, rivals, late, f"{why}, and a RESTORE came")
        return Ruling(Outcome.LEFT_OUT, rivals, late, f"{why}, and all of it was replaced since")

    def touched(self, version: int) -> frozenset[Hashable]:
        """Return the partitions whose rows a version changed.

        :param version: that was taken in.
        """
        return frozenset(row[0] for row in self._before(version) ^ self.states[version])

    def _before(self, version: int) -> Rows:
        return self.states[version - 1] if version else _NOBODY

    def _rivals(self, commit: Commit, at: int) -> Iterator[int]:
        """Yield the versions that a commit is in conflict with."""
        for version, other in enumerate(self.commits[:at]):
            if other.writers and other.writers <= commit.writers | commit.allies:
                continue
            counts = version > commit.read or self._is_of_its_load(commit, version)
            if counts and self._in_conflict(commit, version):
                yield version

    def _is_of_its_load(self, commit: Commit, version: int) -> bool:
        """Say whether a version is of the commit's load, since it began: one slot or ten makes no difference."""
        if commit.policy == "last_writer_wins" or commit.began is None:
            return False
        return version > commit.began and self.commits[version].load == commit.load

    def _in_conflict(self, commit: Commit, version: int) -> frozenset[Hashable]:
        """Return the partitions in which a version is in conflict with a commit. One that changes no rows is in none."""
        other = self.commits[version]
        changed = self.touched(version) | other.may_change
        found = (changed & commit.replaces) | ((other.replaces | other.may_replace) & commit.own)
        return found if changed else _NOBODY

    def _why(self, commit: Commit, version: int) -> str:
        other = self.commits[version]
        later = ", later" if other.finished_after(commit) else ""
        return f"version {version} ({other.who}{later}) changed {_listed(self._in_conflict(commit, version))}"


def _listed(partitions: frozenset[Hashable]) -> str:
    return ", ".join(sorted(map(str, partitions)))


def _in_short(rows: Rows) -> str:
    if len(rows) <= 10:
        return ", ".join(sorted(map(str, rows))) or "nothing"
    return ", ".join(f"{count} rows of {part}" for part, count in sorted(Counter(str(row[0]) for row in rows).items()))
