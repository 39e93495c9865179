"""Whole writes in the order of the log: what :mod:`tests.support.log_order` is told of the versions of a simulated table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.simulation.scenario import PARTITIONS, LoadPlan
from tests.simulation.versions import Published, Versions, fail, original
from tests.support.log_order import Commit, LogOrder, Outcome, Row, Write

_EVERYWHERE = frozenset(PARTITIONS)


class WholeWrites:
    """Judges one version after another, once its structure is known to be sound."""

    def __init__(self, versions: Versions) -> None:
        self._versions = versions
        self._order = LogOrder()

    def facts(self, commit: Published) -> Commit:
        """Return what the judge has to know of the next version, or of what would have been it.

        :param commit: that is not applied yet.
        """
        finished, may_change = commit.finished, _may_change(commit)
        if not commit.ours:
            deed, who = self._versions.d.foreign_writes.get(commit.version), str(commit.info.get("operation"))
            if deed is None:
                return Commit(who, finished=finished, may_change=may_change)
            write, restores = deed.write, deed.restores is not None
            if deed.restores is not None:
                write = Write(_EVERYWHERE, puts=self._versions.states[deed.restores])
            return Commit(who, write, finished, deed.says, may_change, _may_replace(commit), restores)
        who = ", ".join(commit.generations)
        writers, load = frozenset(commit.generations), commit.load.load.id
        if not commit.ranges:

            def taken_back(row: Row) -> Row | None:
                return None if row[1] in commit.taken_back else row

            return Commit(
                who,
                Write(changes=taken_back, puts=commit.inside),
                finished,
                may_change=may_change,
                writers=writers,
                load=load,
            )
        return Commit(
            who,
            Write(commit.ranges, self._spared(commit), puts=commit.inside),
            finished,
            commit.ranges,
            may_change,
            policy=commit.load.policy,
            read=commit.read,
            writers=writers,
            allies=frozenset(w.app_id for w in self._versions.colleagues(commit)) if commit.together else frozenset(),
            load=load,
        )

    def judge(self, commit: Commit) -> None:
        """Judge the newest version.

        :param commit: its facts.
        """
        ruling = self._order.take_in(commit, self._versions.newest)
        if self._order.complaints:
            fail(self._order.complaints[0])
        counters = self._versions.counters
        counters["conflicts"] += bool(ruling.rivals)
        counters["replaced"] += bool(ruling.rivals) and ruling.outcome is Outcome.WHOLE
        counters["set aside"] += ruling.outcome is Outcome.LEFT_OUT
        counters["superseded whole"] += ruling.outcome is Outcome.LEFT_OUT and commit.policy == "last_writer_wins"

    def check_refused(self, who: str, plan: LoadPlan, paths: Iterable[str], versions: Iterable[int]) -> None:
        """Check that a policy refuses some buffers.

        :param who: says so.
        :param plan: of their load.
        :param paths: of the buffers, which are published in one version.
        :param versions: one of which was the newest when it was decided.
        """
        facts = self.facts(self._versions.unpublished(plan, paths))
        rulings = [self._order.ruling(facts, version + 1) for version in versions]
        if all(ruling.outcome is not Outcome.REFUSED for ruling in rulings):
            fail(f"{who} refuses what should be {rulings[-1].outcome}: {rulings[-1].why or 'nothing is in conflict'}")

    def _spared(self, commit: Published) -> frozenset[Row]:
        """Published together, a load's writers are one transaction, in however many versions it comes."""
        if not commit.together:
            return frozenset()
        theirs = self._versions.colleagues_rows(commit)
        return frozenset(row for row in self._versions.newest if original(row[1]) in theirs)


def _may_change(commit: Published) -> frozenset[int]:
    """Return the partitions in which a version may have changed rows, as far as its files say."""
    hidden = any(r.get("dataChange", True) and not r.get("partitionValues") for r in commit.removes)
    return _EVERYWHERE if hidden else commit.touched


def _may_replace(commit: Published) -> frozenset[int]:
    """Return the partitions that another engine's version may have replaced, as it does not say whether it did."""
    parameters: dict[str, Any] = commit.info.get("operationParameters") or {}
    overwrites = commit.info.get("operation") == "WRITE" and parameters.get("mode") == "Overwrite"
    unsaid = overwrites and not {"predicate", "isDynamicPartitionOverwrite"} & set(parameters)
    return _EVERYWHERE if unsaid else frozenset()
