"""What must hold of every history.

The judge shares no code with what it judges. It replays the log's raw JSON and checks its structure (``versions``), holds
each version against the one rule (``whole``), and compares what processes said with what was in the table by then
(``words``).
"""

from __future__ import annotations

from urllib.parse import unquote

from airflow_provider_onelake.writes.report import Report
from tests.simulation.actors import Deployment, Said
from tests.simulation.versions import Versions, fail
from tests.simulation.whole import WholeWrites
from tests.simulation.words import Words


class Judge:
    """Judges one history."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._begin()
        deployment.before_remake = self._start_over

    def _begin(self) -> None:
        self._versions = Versions(self._deployment)
        self._whole = WholeWrites(self._versions)
        self._words = Words(self._versions, self._whole)

    def _start_over(self) -> None:
        """The table is about to be made again: all that was said of it so far is judged by what it was."""
        self.judge_log()
        self.judge_said()
        self._deployment.epoch += 1
        self._begin()

    def judge_log(self) -> None:
        """Judge every version that is new since the last time."""
        versions = sorted(self._deployment.store.entries)
        if versions != list(range(len(versions))):
            fail(f"the versions of the log are {versions}")
        for version in versions[len(self._versions.commits) :]:
            commit = self._versions.read(version)
            facts = self._whole.facts(commit)
            self._versions.apply(commit)
            self._whole.judge(facts)

    def judge_said(self) -> None:
        """Judge what processes reported since the last time."""
        self._words.judge()

    def judge_settled(self, said: Said) -> None:
        """Judge the last reconciliation of a load."""
        if not isinstance(said.said, Report):
            fail(f"{said.actor} could not settle {said.plan.load.id}: {said.error}")
        self._words.judge_settled(said)

    def judge_end(self) -> None:
        """Judge the table as it stands."""
        versions = self._versions
        for path in versions.live:
            if versions.store.peek(unquote(path)) is None:
                fail(f"the live file {path} is gone")
        replaces = any(c.ranges or any(r.get("dataChange", True) for r in c.removes) for c in versions.commits)
        versions.counters["histories of appends only"] += not replaces
