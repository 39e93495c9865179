"""The steps of one vacuum: record pinned versions, wait for an earlier try, plan, delete."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.maintenance.pinned_versions import drop_ended_leases, pin_version, release_version
from airflow_provider_onelake.maintenance.vacuum import VacuumPlan, VacuumTerms, carry_out, check_clock, forget, plan
from airflow_provider_onelake.spark.base import VacuumJob
from airflow_provider_onelake.steps.outcomes import describe_vacuum, size
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.spark.base import Engine
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)

_MOST = 50


@attrs.frozen
class Vacuum:
    """One task's vacuum of one table.

    :param terms: how far it may go.
    :param run: the try of the task.
    :param namespace: of the deployment.
    """

    table: Table
    spark: SparkWork
    terms: VacuumTerms
    run: TaskRun
    namespace: str

    def preview(self) -> dict[str, Any]:
        """Say what a vacuum would do.

        :returns: the result for XCom.
        """
        return {"dry_run": True, **self._say(plan(self.table.log, self.terms))}

    def vacuum(self) -> dict[str, Any]:
        """Delete what nothing needs.

        :returns: the result for XCom.
        :raises VacuumRefusedError: a guard refused, or this worker's clock is far ahead of the store's.
        """
        check_clock(self.table.log, self.run.attempt)
        self._record_pinned()
        for attempt in self.spark.left_at_work(self.table, self._owner, VacuumJob.doing):
            # Wait for an earlier try's job before planning, so that the plan leaves out what it deletes.
            self.spark.wait_for_job(self.table, attempt, VacuumJob.doing)
            forget(self.table.log, attempt)
        todo = plan(self.table.log, self.terms)
        return {"dry_run": False, **self._say(todo), **self._delete(todo)}

    def _record_pinned(self) -> None:
        log, by = self.table.log, f"{self.run.dag}.{self.run.label}"
        for version in self.terms.keep_versions:
            logger.info("%s: %s stays readable", log.table, pin_version(log, version, by))
        for version in self.terms.release_versions:
            release_version(log, version)
        drop_ended_leases(log)

    def _say(self, todo: VacuumPlan) -> dict[str, Any]:
        result, say = describe_vacuum(todo), logger.info
        what = f"{counted(result['files'], 'file')} of {size(todo.bytes)}" if result["files"] else "nothing"
        say("%s, version %d; to delete: %s", self.table.name, todo.version, what)
        if result["files"]:
            say("The oldest is of %s, the newest of %s", result["oldest"], result["newest"])
            say("Such as %s", ", ".join(result["examples"]))
        say("Spared: what was needed at %s or later (%s)", result["before"], todo.held_by or "the table's retention")
        for staged in todo.in_flight[:_MOST]:
            say("Spared: %s (%s)", staged.path, staged.owner)
        for pinned in todo.pinned:
            say("Spared: %s", pinned)
        for staged in todo.abandoned[:_MOST]:
            logger.warning("%s of %s was abandoned %s ago", staged.path, staged.owner, staged.age)
        for note in todo.notes[:_MOST]:
            logger.warning("%s", note)
        return result

    def _delete(self, todo: VacuumPlan) -> dict[str, Any]:
        self.spark.check_not_stopped()
        log = self.table.log
        result: dict[str, Any] = {"logs_deleted": len(clean_up(log, todo.abandoned_after))}
        if not todo.candidates:
            return result
        # The engine is made first: an error there leaves no inventory.
        outcome = carry_out(log, todo, self.run.attempt, partial(self._spark_vacuum, self.spark.engine()))
        logger.info("%s: deleted %s of %s", log.table, counted(len(outcome.deleted), "file"), size(outcome.bytes))
        if outcome.left:
            logger.warning("Spark left %s, such as %s", counted(len(outcome.left), "file"), outcome.left[0].path)
        return {**result, "files": len(outcome.deleted), "bytes": outcome.bytes, "left": len(outcome.left)}

    def _spark_vacuum(self, engine: Engine, inventory: str) -> None:
        address = self.table.address
        engine.vacuum(
            VacuumJob(
                table_uri=address.spark_uri,
                attempt=self.run.attempt,
                inventory_uri=address.child(*inventory.split("/")).spark_uri,
                log_entries=address.kind.logs_spark_commits,
                label=f"VACUUM of task {self.run.label}",
                owner=self._owner,
            )
        )

    @property
    def _owner(self) -> str:
        return self.run.owner(self.namespace)
