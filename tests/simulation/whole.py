"""Whole writes in the order of the log: what :mod:`tests.support.log_order` is told of the versions of a simulated table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import attrs

from airflow_provider_onelake.log.actions import version_path
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
        """Return what the judge has to know of the next version, or of what would have been it."""
        finished, may_change = commit.finished, _may_change(commit)
        if not commit.ours:
            task_start, who = self._versions.d.foreign_writes.get(commit.version), str(commit.info.get("operation"))
            if task_start is None:
                return Commit(who, finished=finished, may_change=may_change)
            write, restores = task_start.write, task_start.restores is not None
            if task_start.restores is not None:
                write = Write(_EVERYWHERE, puts=self._versions.states[task_start.restores])
            says, may_replace = task_start.says, _may_replace(commit)
            if self._versions.d.scenario.column.type == "timestamp" and "predicate" in _parameters(commit):
                # In the time zone of that engine's session, which nobody knows, it may mean any partition.
                says, may_replace = frozenset(), _EVERYWHERE
            return Commit(who, write, finished, says, may_change, may_replace, restores)
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
            allies=frozenset(w.app_id for w in self._versions.writers_of(commit.load))
            if commit.together
            else frozenset(),
            load=load,
            began=None if commit.together else self._began(commit),
        )

    def judge(self, commit: Commit) -> None:
        """Judge the newest version."""
        outcome, why = self._order.take_in(commit, self._versions.newest)
        if self._order.complaints:
            fail(self._order.complaints[0])
        counters, left_out = self._versions.counters, outcome is Outcome.LEFT_OUT
        counters["conflicts"] += bool(why)
        counters["replaced"] += bool(why) and not left_out
        counters["set aside"] += left_out
        counters["superseded whole"] += left_out and commit.policy == "last_writer_wins"
        if commit.began is not None:
            without, _ = self._order.ruling(attrs.evolve(commit, began=None), len(self._order.commits) - 1)
            counters["writers of a load one after another"] += without is not outcome

    def check_refused(self, who: str, plan: LoadPlan, paths: Iterable[str], versions: Iterable[int]) -> None:
        """Check that a policy refuses some buffers.

        :param paths: of the buffers, which are published in one version.
        :param versions: one of which was the newest when it was decided.
        """
        facts, versions = self.facts(self._versions.unpublished(plan, paths)), list(versions)
        since = range(facts.read + 1, max(versions) + 1)
        altered = any("metaData" in action for version in since for action in self._versions.actions(version))
        if altered and self._versions.d.scenario.table.mapping != "none":
            return  # A column may have another name since, so nobody knows which partitions a predicate meant.
        rulings = [self._order.ruling(facts, version + 1) for version in versions]
        if all(outcome is not Outcome.REFUSED for outcome, _ in rulings):
            fail(f"{who} refuses what should be {rulings[-1][0]}: {rulings[-1][1] or 'there is no conflict'}")

    def _began(self, commit: Published) -> int | None:
        """Return the version when a writer's load began, or once more began for the writers that were run again with it.

        The first of them that had its claim has looked, before one of them opened a buffer.
        """
        versions, (record,) = self._versions, commit.records
        staged = versions.version_0(record["buffer"])["commitInfo"]["staged"]
        began = staged["spec"]["began"]
        if began["version"] >= 0 and began["table_id"] != staged["tableId"]:
            return None
        life = self._life(commit.load, record["app_id"], record["generation"])
        mates = [
            (writer.directory, generation)
            for writer in versions.writers_of(commit.load)
            for generation in versions.store.claims.get(writer.directory, {})
            if self._life(commit.load, writer.app_id, generation) == life
        ]
        first = min(versions.store.claims[directory][generation] for directory, generation in mates)
        opened = min(
            stored.step
            for path in versions.d.writer_of
            if (stored := versions.store.peek(f"{path}/{version_path(0)}")) is not None
            and (path.rpartition("/")[0], versions.version_0(path)["commitInfo"]["staged"]["spec"]["generation"])
            in mates
        )
        earliest, latest = (versions.at_step(step) for step in (first, opened))
        if not earliest <= began["version"] <= latest:
            fail(
                f"{record['buffer']} says that its load began at version {began['version']}, and it did between "
                f"{earliest} and {latest}"
            )
        return int(began["version"])

    def _life(self, plan: LoadPlan, app_id: str, generation: int) -> object:
        """Return what tells the beginnings of a load apart. A writer's first generation belongs to the first."""
        deployment = self._versions.d
        numbers = [number for number, (_, g) in deployment.generations.get(app_id, {}).items() if g == generation]
        return deployment.lives[plan.load.id, numbers[0]] if generation > 1 and numbers else None

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
    parameters = _parameters(commit)
    overwrites = commit.info.get("operation") == "WRITE" and parameters.get("mode") == "Overwrite"
    unsaid = overwrites and not {"predicate", "isDynamicPartitionOverwrite"} & set(parameters)
    return _EVERYWHERE if unsaid else frozenset()


def _parameters(commit: Published) -> dict[str, Any]:
    return commit.info.get("operationParameters") or {}
