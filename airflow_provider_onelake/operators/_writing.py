"""The steps of one writer: create the table, add its missing columns, stage the rows, publish them."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError, SparkQueryError
from airflow_provider_onelake.operators._results import describe_buffer, describe_publication
from airflow_provider_onelake.operators._terms import partition_columns
from airflow_provider_onelake.sources import FunctionSource

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.policy import Policy
    from airflow_provider_onelake.engines.base import StageJob, StageResult
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.operators.write import OneLakeWriteOperator
    from airflow_provider_onelake.staging.buffers import Buffer
    from airflow_provider_onelake.staging.spec import WriteSpec

logger = logging.getLogger(__name__)

MOST_RERUNS = 3
"""The most reruns in one task of a job that reads its target, when other commits change the rows that it read."""


@attrs.frozen
class Writing:
    """One writer's work in one task.

    :param task: the writer's operator. Its parameters are rendered and checked.
    :param on_conflict: the policy by which the writer settles its conflicts. ``None`` leaves them to a reconciliation.
    """

    task: OneLakeWriteOperator
    log: DeltaLog
    on_conflict: str | None = None

    def run(self, spec: WriteSpec) -> dict[str, Any]:
        """Stage and publish the rows.

        Rows that were computed from the table itself are staged again when another commit has changed the table since.

        :returns: what happened, for XCom.
        :raises BufferSetAsideError: the rows were staged, but another task set their buffer aside in the meantime.
        :raises ConflictError: the writer settles its conflicts itself, and its policy does not settle this one.
        """
        from airflow_provider_onelake.commit.policy import Policy

        if self.log.snapshot() is None:
            self._create(spec)
        self._check_partitioned_as_asked()
        rerun = self._reruns(spec)
        result, buffer = self._write(_rerun_of(spec, rerun))
        while buffer is not None and buffer.reads_target and result["status"] == "conflicted" and rerun < MOST_RERUNS:
            rerun += 1
            self._give_up(buffer, result, rerun)
            result, buffer = self._write(_rerun_of(spec, rerun))
        if rerun:
            result["reruns"] = rerun
        if result["status"] == "conflicted" and self.on_conflict is not None and buffer is not None:
            self.task.check_not_stopped()
            result |= self._publish(buffer, Policy(self.on_conflict))
        if result["status"] == "conflicted":
            logger.warning(
                "%s: writer %s is in conflict and left to reconcile: %s",
                self.log.table,
                spec.identity.key,
                "; ".join(result["conflicts"]),
            )
        return result

    def _reruns(self, spec: WriteSpec) -> int:
        """Return the last rerun that has a buffer: a task that is back from the triggerer carries on with it."""
        from airflow_provider_onelake.staging.layout import WriterDirectory

        begun = WriterDirectory.read(self.log.store, spec.identity.directory).buffers
        return max((n for n in range(1, MOST_RERUNS + 1) if _rerun_of(spec, n).buffer in begun), default=0)

    def _write(self, spec: WriteSpec) -> tuple[dict[str, Any], Buffer | None]:
        from airflow_provider_onelake.engines.base import StageJob
        from airflow_provider_onelake.staging.prepare import Reuse, Skip, check_not_set_aside, complete, prepare
        from airflow_provider_onelake.staging.spec import PublishMode

        table, key = self.log.table, spec.identity.key
        evolves = self.task.schema_evolution == "add_columns"
        self.task.settle_earlier(self.log, spec, prove=self.task.preflight)
        decision = prepare(
            self.log, spec, (lambda _: self._evolve(spec)) if evolves else None, prove=self.task.preflight
        )
        if isinstance(decision, Skip):
            logger.warning("%s: writer %s is skipped: %s", table, key, decision.reason)
            return {"status": "skipped", "version": decision.version, "reason": decision.reason}, None
        if isinstance(decision, Reuse):
            buffer = decision.buffer
            logger.info("%s: writer %s finds its rows staged in %s; Spark does not run", table, key, buffer.path)
            if buffer.spec.attempt == spec.attempt:
                # The task is back from the triggerer, and its driver has staged the rows: clear the driver's job files.
                self.task.wait_for_job(spec.attempt, StageJob.doing)
        else:
            staged = self.task.engine().stage(self._job(spec, buffer=decision.path, evolves=evolves))
            self.task.check_not_stopped()
            self._warn_of_log_stores(staged)
            buffer = complete(self.log, decision.path, staged.reads_target)
            logger.info("%s: writer %s staged %s rows in %s", table, key, buffer.rows, buffer.path)
        # Rows that this attempt's own driver staged while the task was deferred are new, so count them as staged.
        known = isinstance(decision, Reuse) and buffer.spec.attempt != spec.attempt
        self.task.metrics.staged(buffer, reused=known)
        result = {**describe_buffer(buffer, self.log), "reused": isinstance(decision, Reuse), "reruns": 0}
        if buffer.spec.publish is PublishMode.TOGETHER:
            check_not_set_aside(self.log.store, buffer)
            return {"status": "staged", "version": None, **result}, buffer
        self.task.check_not_stopped()
        return result | self._publish(buffer), buffer

    def _create(self, spec: WriteSpec) -> None:
        """Create the table with `schema`, or with the columns of the rows. Of several writers, one creates it."""
        from airflow_provider_onelake.commit.create import create_table, with_generated

        columns = partition_columns(self.task.partition_by) or []
        generated = self._generated()
        job = self._job(spec, generated=generated, schema=self.task.schema)
        try:
            analysis = self.task.engine().analyze(job)
        except SparkQueryError as error:
            # Look at Spark's own words only: our prefix always contains the table's path.
            said = str(error).partition("Spark said: ")[2]
            if job.table_uri.removeprefix("file://") not in said:
                raise
            raise SparkQueryError(
                f"{error}\nThere is no table at {self.log.table} yet. A job that reads the table that it writes needs "
                "`schema`, the columns to create it with."
            ) from error
        self.task.check_not_stopped()
        schema = with_generated(analysis.schema_json, generated)
        snapshot = create_table(self.log, schema, columns, self.task.table_properties)
        logger.info(
            "%s: partitioned by %s, at version %d", self.log.table, ", ".join(columns) or "nothing", snapshot.version
        )

    def _check_partitioned_as_asked(self) -> None:
        wanted, snapshot = partition_columns(self.task.partition_by), self.log.snapshot()
        if wanted is None or snapshot is None:
            return
        actual = list(snapshot.partitioning.types)
        if wanted != actual:
            raise InvalidWriteError(
                f"{self.log.table} is partitioned by {', '.join(actual) or 'nothing'}, and partition_by asks for "
                f"{', '.join(wanted) or 'nothing'}. Nothing was staged: leave partition_by out, or write another table."
            )

    def _evolve(self, spec: WriteSpec) -> Snapshot:
        """Add the columns that only the rows have to the table, before the buffer copies the table's definition."""
        from airflow_provider_onelake.commit.evolve import add_columns
        from airflow_provider_onelake.spark_jobs.columns import fit

        analysis = self.task.engine().analyze(self._job(spec, evolves=True))
        self.task.check_not_stopped()
        follow_up = self.task.hook.committer(self.log, self.task.table).after_commit
        return add_columns(
            self.log,
            analysis.schema_json,
            lambda rows, table, by: fit(rows, table, self.log.table, missing_as_null=True, partition_columns=by),
            generated=self._generated(),
            after_commit=follow_up,
        )

    def _publish(self, buffer: Buffer, policy: Policy | None = None) -> dict[str, Any]:
        from airflow_provider_onelake.staging.prepare import check_not_set_aside

        committer = self.task.hook.committer(self.log, self.task.table, self.task.observe)
        publication = committer.publish([buffer], policy)
        result = describe_publication(publication)
        if publication.conflicts:
            return result
        if result["status"] == "set_aside":
            check_not_set_aside(self.log.store, buffer)
        table, key = self.log.table, buffer.spec.identity.key
        for decision in result["decisions"]:
            logger.warning("%s: writer %s: %s", table, key, decision)
        if result["rows_outside"] != 0:
            logger.warning(
                "%s: writer %s staged %s rows outside of what it covers; they stay in %s, unpublished",
                table,
                key,
                result["rows_outside"],
                buffer.path,
            )
        logger.info("%s: version %s, writer %s: %s", table, publication.version, key, result["status"])
        return result

    def _warn_of_log_stores(self, staged: StageResult) -> None:
        """Warn of log stores in Spark that lose commits. Our writers do not use them; other jobs of this Spark do."""
        from airflow_provider_onelake.storage.preflight import unsafe_log_stores

        for problem in unsafe_log_stores(self.task.hook.address(self.task.table).kind, staged.log_stores):
            logger.warning("%s: this load is safe, others by Spark are not: %s", self.log.table, problem)

    def _give_up(self, buffer: Buffer, result: Mapping[str, Any], rerun: int) -> None:
        """Set rows aside that were computed from an older state of the table (protocol: reads its target)."""
        from airflow_provider_onelake.staging.buffers import set_aside

        self.task.check_not_stopped()
        conflicts = "; ".join(result["conflicts"])
        logger.warning(
            "%s: writer %s computed its rows from the table itself, and %s. They are not published; its Spark job runs "
            "again on the newest version (rerun %d of at most %d)",
            self.log.table,
            buffer.spec.identity.key,
            conflicts,
            rerun,
            MOST_RERUNS,
        )
        set_aside(self.log.store, buffer.path, f"computed from the table itself, and {conflicts}")

    def _job(
        self,
        spec: WriteSpec,
        *,
        buffer: str | None = None,
        generated: Mapping[str, str] | None = None,
        schema: str | None = None,
        evolves: bool = False,
    ) -> StageJob:
        from airflow_provider_onelake.engines.base import StageJob

        task, address = self.task, self.task.hook.address(self.task.table)
        other = task.hook.other_address(task.table)
        return StageJob(
            source=task.source.job(),
            rows=task.source.rows if isinstance(task.source, FunctionSource) else None,
            where=task.where,
            steps=dict(task.steps),
            generated=dict(generated or {}),
            schema=schema,
            evolves=evolves,
            table_uri=address.spark_uri,
            buffer_uri=address.child(buffer).spark_uri if buffer else None,
            # Use deltalake's address: Spark may have no address for the other spelling.
            other_uri=other.deltalake_uri if other else None,
            attempt=spec.attempt,
            target_file_size=task.target_file_size,
            label=f"{spec.task} {spec.identity.key}",
            owner=spec.identity.app_id,
            fingerprint=spec.fingerprint,
            preflight=task.preflight,
        )

    def _generated(self) -> dict[str, str]:
        partitions = self.task.partition_by if isinstance(self.task.partition_by, Mapping) else {}
        return {**self.task.generated_columns, **partitions}


def _rerun_of(spec: WriteSpec, number: int) -> WriteSpec:
    """Return the spec of an attempt's rerun, which has a buffer of its own. Number 0 is the attempt itself."""
    return attrs.evolve(spec, attempt=f"{spec.attempt}-{number}") if number else spec
