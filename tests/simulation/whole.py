"""Whole writes in the order of the log: every version is its write done to the version before, or changes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from airflow_provider_onelake.choices import Policy
from tests.simulation.scenario import PARTITIONS
from tests.simulation.serial import Write, difference
from tests.simulation.versions import Published, Versions, fail, original

_EMPTY = tuple(frozenset[str]() for _ in PARTITIONS)
_NOTHING = Write()


@attrs.frozen
class _Rival:
    """Another's write that changed rows which a write of ours replaces.

    :param vague: whether the log does not say where it was.
    """

    commit: Published
    vague: bool = False


class WholeWrites:
    """Judges one version after another, once its structure is known to be sound."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._counters = versions.counters

    def candidates(self, commit: Published) -> list[Write]:
        """Return what the next version may have done to the one before."""
        if not commit.ours:
            return [self._of_others(commit)]
        if not commit.ranges:
            return [Write(drops=commit.taken_back, puts=commit.inside)]
        rivals = list(self._rivals(commit))
        self._counters["conflicts"] += bool(rivals)
        definite = [rival for rival in rivals if not rival.vague]
        whole = Write(commit.ranges, self._spared(commit), puts=commit.inside)
        if commit.policy in (None, Policy.FAIL):
            if definite:
                fail(f"version {commit.version} passes over version {definite[0].commit.version}, a conflict")
            return [whole]
        in_the_way = [r for r in rivals if commit.policy is Policy.FIRST_WRITER_WINS or self._is_later(r, commit)]
        if not in_the_way:
            self._counters["replaced"] += bool(rivals)
            return [whole]
        aside = not commit.adds and not commit.removes
        self._counters["set aside"] += aside
        if aside and commit.policy is Policy.LAST_WRITER_WINS and not any(rival.vague for rival in in_the_way):
            self._check_superseded(commit, [rival.commit for rival in in_the_way])
        return [_NOTHING] if any(not rival.vague for rival in in_the_way) else [whole, _NOTHING]

    def _check_superseded(self, commit: Published, later: list[Published]) -> None:
        """A late write is set aside only where others have replaced since all that it would have replaced."""
        there = {partition for partition, rows in enumerate(self._versions.states[-1]) if rows}
        concerned = {p for p, rows in commit.inside.items() if rows} | (there & commit.ranges)
        left = concerned - frozenset().union(*(self._says(other) for other in later))
        if left or any(other.info.get("operation") == "RESTORE" for other in later):
            fail(f"version {commit.version} is set aside, and nobody has replaced {sorted(left)} since")

    def judge(self, commit: Published, candidates: list[Write]) -> None:
        """Judge the newest version."""
        states = self._versions.states
        before = states[-2] if len(states) > 1 else _EMPTY
        left = [write.on(before) for write in candidates]
        if states[-1] not in left:
            where = "; ".join(difference(left[0], states[-1]))
            fail(
                f"version {commit.version} is not its write done to the version before (policy "
                f"{commit.policy and commit.policy.value}): {where}"
            )
        if commit.ours and not commit.adds and not commit.removes and any(commit.inside.values()):
            commit.ranges = frozenset()

    @staticmethod
    def _is_later(rival: _Rival, commit: Published) -> bool:
        return rival.commit.finished > commit.finished

    def _of_others(self, commit: Published) -> Write:
        deed = self._versions.d.foreign_writes.get(commit.version)
        if deed is None:
            return _NOTHING
        if deed.restores is None:
            return deed.write
        before = self._versions.states[deed.restores]
        return Write(wipes=frozenset(PARTITIONS), puts=dict(enumerate(before)))

    def _spared(self, commit: Published) -> frozenset[str]:
        """Published together, a load's writers are one transaction, in however many versions it comes."""
        if not commit.together:
            return frozenset()
        theirs = self._versions.colleagues_rows(commit)
        known = {row for rows in self._versions.newest for row in rows if original(row) in theirs}
        return frozenset(theirs | known)

    def _rivals(self, commit: Published) -> Iterator[_Rival]:
        """Yield those who changed rows that a write replaces, in the order of versions."""
        own = frozenset(partition for partition, rows in commit.inside.items() if rows)
        for other in self._versions.commits[commit.read + 1 : commit.version]:
            if self._allied(commit, other):
                continue
            says = self._says(other)
            wiped = (self._wiped(other) - says) & own
            if (other.touched & commit.ranges) | (says & own):
                yield _Rival(other)
            elif wiped or any(r.get("dataChange", True) and not r.get("partitionValues") for r in other.removes):
                yield _Rival(other, vague=True)

    def _allied(self, commit: Published, other: Published) -> bool:
        """Say whether a write is a colleague's of another, or what its own writers did before."""
        if other.plan is None or other.plan is not commit.plan:
            return False
        allies = {identity.app_id for identity in self._versions.colleagues(commit)} if commit.together else set()
        return all(a in allies or commit.generations.get(a, 0) > g for a, g in other.generations.items())

    def _says(self, commit: Published) -> frozenset[int]:
        """Return the partitions of which a version says that it replaced whatever was there."""
        if commit.ours:
            return commit.ranges
        deed = self._versions.d.foreign_writes.get(commit.version)
        return deed.says if deed is not None else frozenset()

    def _wiped(self, commit: Published) -> frozenset[int]:
        deed = self._versions.d.foreign_writes.get(commit.version)
        return deed.write.wipes if deed is not None else frozenset()
