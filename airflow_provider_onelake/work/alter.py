"""The steps of one ALTER: carry it out, with Spark where rows are to be looked at, and say what it did."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.commit.alter import Altered, alter
from airflow_provider_onelake.commit.statement import Status
from airflow_provider_onelake.engines.base import CheckJob
from airflow_provider_onelake.work.rounds import Rounds

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.alteration import Alteration
    from airflow_provider_onelake.hooks.task_run import TaskRun
    from airflow_provider_onelake.log.actions import Add
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.staging.claims import Deed
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.work.spark import SparkWork

logger = logging.getLogger(__name__)


@attrs.define(kw_only=True)
class TableChange:
    """One task's ALTER of one table.

    :param asked: what is altered.
    :param max_rounds: how many times Spark may look for rows that violate a new CHECK before it gives up.
    :param run: the try of the task.
    :param deed: the task's first start or last clear; all tries of it are one start.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    """

    table: Table
    spark: SparkWork
    asked: Alteration
    max_rounds: int
    run: TaskRun
    deed: Deed
    namespace: str
    message: str | None = None

    def carry_out(self) -> Altered:
        """Alter the table.

        :raises OneLakeError: as :func:`~airflow_provider_onelake.commit.alter.alter`, and as an engine's ``check``.
        """
        asker = self.run.asker("alter", f"ask={self.asked.digest}", self.deed, self.namespace, self.message)
        rounds = Rounds(
            table=self.table,
            spark=self.spark,
            operation="ALTER TABLE",
            doing=CheckJob.doing,
            owner=self.run.owner(self.namespace),
            attempt=self.run.attempt,
            name=f"{self.namespace}/{self.run.dag}/{self.run.label}",
        )

        def check(
            number: int, snapshot: Snapshot, files: Sequence[Add], checks: Mapping[str, str]
        ) -> Mapping[str, int]:
            _, told = rounds.open(number, snapshot, files)
            found = self.spark.engine().check(CheckJob(**told, label=f"CHECK of task {self.run.label}", checks=checks))
            self.spark.check_not_stopped()
            return found.violations

        try:
            done = alter(self.table.committer(), self.asked, asker, check, most_rounds=self.max_rounds)
        finally:
            rounds.close({"reason": "the rows were looked at, and nothing of this is published"})
        logger.info("%s: %s", self.table.name, _summary(done))
        return done


def describe_alter(done: Altered) -> dict[str, Any]:
    """Return the result of an ALTER for XCom."""
    changes = None if done.changes is None else list(done.changes)
    return {**attrs.asdict(done), "changes": changes, "features": list(done.features), "summary": _summary(done)}


def _summary(done: Altered) -> str:
    if done.status is Status.NOTHING_TO_DO:
        return "the table is as it was asked for; nothing to do"
    what = "altered the table" if done.changes is None else "; ".join(done.changes) or "there was nothing to do"
    if done.status is Status.ALREADY:
        return f"an earlier try or start did it{'' if done.version is None else f' in version {done.version}'}: {what}"
    features = f"; readers and writers must know {', '.join(done.features)} now" if done.features else ""
    return f"version {done.version}: {what}{features}"
