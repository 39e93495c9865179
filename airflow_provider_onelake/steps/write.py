"""The steps of one writer: create the table, fit its columns to the rows, stage the rows, publish them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer, audited, complete_buffer, plan_of
from airflow_provider_onelake.buffers.markers import check_not_set_aside, set_aside
from airflow_provider_onelake.buffers.read_shadow import open_read_shadow
from airflow_provider_onelake.buffers.reuse import at_work
from airflow_provider_onelake.buffers.scan import checks_told
from airflow_provider_onelake.buffers.verdict import Verdict
from airflow_provider_onelake.checks import in_sql
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.commit.words import of_writer
from airflow_provider_onelake.definition.create import add_columns
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    InvalidWriteError,
    ObjectNotFoundError,
    OutOfDateError,
    SourceChangedError,
    SparkJobError,
)
from airflow_provider_onelake.history.reruns import Skip
from airflow_provider_onelake.log.features import IN_COMMIT_TIMESTAMPS
from airflow_provider_onelake.log.snapshot import NO_VERSION
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.spark.base import AuditJob, StageJob
from airflow_provider_onelake.spark.jobs.columns import fit
from airflow_provider_onelake.steps.create import plan
from airflow_provider_onelake.steps.last_loads import judged_by_loads
from airflow_provider_onelake.steps.merge import merge_buffer
from airflow_provider_onelake.steps.outcomes import Written, partitions_of
from airflow_provider_onelake.texts import rows_in_words
from airflow_provider_onelake.writes.prepare import prepare
from airflow_provider_onelake.writes.publish import Publication

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_provider_onelake.buffers.buffer import OpenBuffer
    from airflow_provider_onelake.buffers.claims import Turn
    from airflow_provider_onelake.buffers.identity import WriterIdentity
    from airflow_provider_onelake.buffers.spec import WriteSpec
    from airflow_provider_onelake.choices import Policy
    from airflow_provider_onelake.log.actions import Metadata
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.modes import Mode
    from airflow_provider_onelake.observability.metrics import Metrics
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.steps.write_terms import WriteTerms
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)

MOST_RERUNS = 3
"""How many times at most one task stages rows anew that came too late."""


def write(
    spec: WriteSpec,
    turn: Turn[WriterIdentity],
    terms: WriteTerms,
    table: Table,
    spark: SparkWork,
    metrics: Metrics,
    policy: Policy,
    scan: str | None = None,
    check_files: Callable[[], None] | None = None,
    *,
    retried: bool = False,
) -> Written:
    """Stage and publish the rows of one writer.

    Rows that came too late are staged anew: others have changed the table from which they were computed, or finished
    later and replaced a part of what they replace. Rows that fail a check are refused: nothing is published, and the
    result says so.

    :param spec: of this attempt.
    :param turn: of the writer.
    :param terms: what was asked.
    :param policy: by which the writer settles its conflicts.
    :param scan: the directory of the shared scan whose rows the writer may take. Default: none.
    :param check_files: raises ``SourceChangedError`` if the source's files are not as they were planned. It is called
        before and after Spark reads them. Default: there is no such plan.
    :param retried: whether an older try of the same generation may still be at work.
    :raises BufferSetAsideError: the rows were staged, but another task set their buffer aside in the meantime.
    :raises OutOfDateError: the rows came too late each time that they were staged.
    :raises ConflictError: the policy refuses the write.
    """
    return _Writing(terms, table, spark, metrics, policy, scan, check_files, retried).write(spec, turn)


@attrs.define(slots=False)
class _Writing:
    """One call of :func:`write`."""

    _terms: WriteTerms
    _table: Table
    _spark: SparkWork
    _metrics: Metrics
    _policy: Policy
    _scan: str | None
    _check_files: Callable[[], None] | None
    _retried: bool
    _publications: list[Publication] = attrs.field(init=False, factory=list)

    def __attrs_post_init__(self) -> None:
        self._log = self._table.log
        self._make: Callable[[], Snapshot] = self._log.snapshot

    def write(self, spec: WriteSpec, turn: Turn[WriterIdentity]) -> Written:
        if turn.snapshot is None:
            self._plan(spec, turn)
            turn = attrs.evolve(turn, snapshot=self._log.snapshot())
        # A task that is back from the triggerer carries on with its last rerun that has a buffer.
        begun = (n for n in range(1, MOST_RERUNS + 1) if _rerun_of(spec, n).buffer in turn.directory.buffers)
        rerun = max(begun, default=0)
        while True:
            done = self._stage(_rerun_of(spec, rerun), turn)
            try:
                done = self._settled(done, spec.mode)
                break
            except OutOfDateError as error:
                if rerun >= MOST_RERUNS or done.buffer is None:
                    raise
                rerun += 1
                self._give_up(done.buffer, error, rerun)
                turn = turn.anew(self._log)
        if done.without_rows:
            # Who sets allow_empty expects sources without rows.
            level = logging.INFO if spec.allow_empty else logging.WARNING
            logger.log(level, "%s: writer %s: %s", self._table.name, spec.identity.key, done.without_rows)
        return attrs.evolve(done, reruns=rerun, publications=tuple(self._publications))

    def _stage(self, spec: WriteSpec, turn: Turn[WriterIdentity]) -> Written:
        """Return what is staged, and whether its checks refuse it; or why nothing is."""
        table = self._table
        key = spec.identity.key
        job = self._job(spec)
        self._check_partitioned_as_asked(turn)
        if self._spark.settle_earlier(table, at_work(self._log.store, spec, turn.directory.buffers)):
            turn = turn.anew(self._log)
        evolve: Callable[[Snapshot], Snapshot] | None = None
        if spec.mode.own_columns:
            evolve = partial(self._with_own_columns, job)
        elif self._terms.definition.adds_columns:
            evolve = partial(self._evolve, job, self._words(turn), missing_as_null=not spec.mode.in_rounds)
        # The source of a merge is a table of its own, which Spark reads in each round. No scan has a view `target`.
        scan = None if spec.mode.in_rounds or spec.reads is not None else self._scan
        decision = prepare(self._log, spec, turn, evolve, footers=not spec.mode.in_rounds, scan=scan)
        if isinstance(decision, Skip):
            logger.warning("%s: writer %s is skipped: %s", table.name, key, decision.reason)
            return Written(skipped=decision)
        told: Mapping[str, Any] | None
        if isinstance(decision, Buffer):
            buffer = decision
            told = checks_told(self._log.store, buffer)
            logger.info("%s: writer %s finds its rows staged in %s", table.name, key, buffer.path)
            if buffer.path == spec.buffer:
                # The task is back from the triggerer, and its driver has staged the rows: clear the driver's job files.
                self._spark.wait_for_job(table, spec.attempt, StageJob.doing)
        else:
            self._check_unchanged(decision.path)
            staged = self._spark.engine().stage(self._job_of(job, decision))
            self._spark.check_not_stopped()
            if spec.reads is not None and staged.reads_target:
                logger.warning(
                    "%s: writer %s reads the table by another name than `target`, so a change in any partition counts",
                    table.name,
                    key,
                )
            buffer = complete_buffer(self._log, decision, staged.reads_target)
            told = staged.checks.get("")
            logger.info("%s: writer %s staged %s", table.name, key, rows_in_words(buffer.rows))
        self._check_unchanged(buffer.path)
        buffer = self._audited(buffer, told, job)
        reused = isinstance(decision, Buffer)
        # Rows that this attempt's own driver staged while the task was deferred are new, so count them as staged.
        self._metrics.staged(buffer, reused=reused and buffer.spec.attempt != spec.attempt)
        return Written(buffer=buffer, partitions=partitions_of(buffer), reused=reused)

    def _settled(self, done: Written, mode: Mode) -> Written:
        """Publish what is staged, if this task has to.

        :param mode: as it was asked. A buffer does not keep all of it.
        """
        buffer = done.buffer
        if buffer is None or buffer.refused:
            return done
        publishes = buffer.spec.publish is PublishMode.EACH
        if publishes:
            self._spark.check_not_stopped()
        if publishes and not isinstance(mode, Merge):
            done = attrs.evolve(done, publication=self._publish(buffer))
        # What others have set aside meanwhile is published, or merged, by nobody.
        if done.publication is None or (done.status == "set_aside" and done.publication.version is None):
            check_not_set_aside(self._log.store, buffer)
        return self._merged(done, buffer, mode) if isinstance(mode, Merge) else done

    def _merged(self, done: Written, buffer: Buffer, mode: Merge) -> Written:
        if buffer.read_version == NO_VERSION and (buffer.adds or self._log.snapshot_or_none() is not None):
            # Spark merges into a table, so it is made now.
            buffer = attrs.evolve(buffer, table_id=self._make().table_id)
        merged = merge_buffer(
            self._table,
            self._spark,
            buffer,
            max_rounds=mode.max_rounds,
            v_order=self._terms.tuning.v_order,
            retried=self._retried,
        )
        return attrs.evolve(done, merged=merged)

    def _check_unchanged(self, path: str) -> None:
        """Refuse files that are not as they were planned, and keep what was read of them from being published.

        :param path: of the buffer, relative to the table.
        """
        if self._check_files is None:
            return
        try:
            self._check_files()
        except SourceChangedError as error:
            set_aside(self._log.store, path, str(error))
            raise

    def _audited(self, buffer: Buffer, told: Mapping[str, Any] | None, asker: StageJob) -> Buffer:
        """Return the buffer with the verdict of its checks, which is kept beside the rows (protocol: audited).

        :param told: what the Spark job that staged the rows says of the checks; ``None`` where it does not.
        :param asker: the job of this attempt. Another one may have staged the rows.
        """
        checks = buffer.spec.checks
        if not checks:
            return buffer
        if buffer.unchecked:
            verdict = self._judged(buffer, told, asker)
            self._spark.check_not_stopped()
            buffer = audited(self._log.store, buffer, verdict)
        self._tell(buffer)
        return buffer

    def _tell(self, buffer: Buffer) -> None:
        """Say what the checks say, and keep rows that are refused from being waited for."""
        assert buffer.verdict is not None
        for line in (*buffer.verdict.table_lines(), *buffer.verdict.found_lines()):
            logger.info("%s", line)
        if buffer.refused:
            # The verdict alone keeps the rows out. The marker tells compactions and vacuums that nobody waits for them.
            asked = buffer.spec.on_failed_check
            set_aside(self._log.store, buffer.path, f"{buffer.verdict.in_words}, and on_failed_check is '{asked}'")
        elif buffer.verdict.failed:
            failed = "; ".join(map(str, buffer.verdict.failed))
            logger.warning(
                "%s: rows of writer %s fail checks, and are published: %s",
                self._table.name,
                buffer.spec.identity.key,
                failed,
            )

    def _uri(self, path: str) -> str:
        return self._table.address.child(path).spark_uri

    def _judged(self, buffer: Buffer, told: Mapping[str, Any] | None, asker: StageJob) -> Verdict:
        """Say what the checks say. Those that compare with the last loads need the number of rows, and no Spark."""
        spec, rows = buffer.spec, buffer.rows
        if in_sql(spec.checks) or rows is None:
            verdict = Verdict.of(in_sql(spec.checks), told) or self._check(buffer, asker)
        else:
            verdict = Verdict(rows, ())
        by_loads = judged_by_loads(self._log, spec.identity, spec.checks, verdict.rows)
        return verdict.joined(by_loads, spec.checks)

    def _check(self, buffer: Buffer, asker: StageJob) -> Verdict:
        """Have Spark evaluate the checks in SQL over rows that another try, or a shared scan, has staged."""
        checks = in_sql(buffer.spec.checks)
        job = AuditJob(
            table_uri=asker.table_uri,
            buffer_uri=self._uri(buffer.path),
            metadata=buffer.metadata,
            checks=checks,
            attempt=asker.attempt,
            label=asker.label,
            owner=asker.owner,
        )
        verdict = Verdict.of(checks, self._spark.engine().audit(job).checks.get(""))
        if verdict is None:
            raise SparkJobError(
                f"Spark did not say whether the rows of {asker.label} for {self._table.name} pass their checks. "
                "Nothing was published; a retry asks again."
            )
        return verdict

    def _words(self, turn: Turn[WriterIdentity]) -> str:
        return of_writer(turn.identity, self._terms.promise.message)

    def _plan(self, spec: WriteSpec, turn: Turn[WriterIdentity]) -> None:
        """Plan the table with the columns of the rows; make it, if its author gave `schema`."""
        if spec.reads is not None and not self._terms.definition.new_table.schema:
            raise InvalidWriteError(
                f"There is no table at {self._table.name} yet, and writer {spec.identity.key!r} is to read it. Nothing "
                "was staged: give `schema`, the columns to create it with."
            )
        if spec.mode.own_columns and not self._terms.definition.new_table.schema:
            raise InvalidWriteError(
                f"There is no table at {self._table.name} yet, and the source of a MERGE with `when` or `on` may have "
                "columns that are not for it. Nothing was staged: give `schema`, the columns to create it with."
            )
        if not (spec.mode.in_rounds or self._terms.definition.new_table.schema):
            # A shared scan has asked Spark for the columns, and so has this attempt, if it is back from the triggerer.
            for path in (self._scan, *turn.directory.buffers):
                if path is not None and path in (self._scan, spec.buffer):
                    with suppress(ObjectNotFoundError):
                        plan_of(self._log, path)
        if self._log.planned is None:
            job = self._job(spec)
            self._make = plan(self._table, self._spark, job, self._terms.definition, self._words(turn))
        if self._terms.definition.new_table.schema:
            self._make()

    def _check_partitioned_as_asked(self, turn: Turn[WriterIdentity]) -> None:
        wanted = self._terms.definition.partition_columns
        actual = list(turn.snapshot.partitioning.types) if turn.snapshot is not None else wanted
        if wanted is not None and actual is not None and wanted != actual:
            raise InvalidWriteError(
                f"{self._table.name} is partitioned by {', '.join(actual) or 'nothing'}, and partition_by asks for "
                f"{', '.join(wanted) or 'nothing'}. Nothing was staged: leave partition_by out, write another table, "
                "or make this one anew (docs/guides/new-table.md)."
            )

    def _with_own_columns(self, job: StageJob, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the columns of the rows in place of the table's, for a buffer that is a source."""
        schema_json = self._spark.engine().analyze(job)
        self._spark.check_not_stopped()
        of_rows: Metadata = {
            **snapshot.metadata,
            "schemaString": schema_json,
            "partitionColumns": [],
            "configuration": {IN_COMMIT_TIMESTAMPS: "true"} if snapshot.has_in_commit_timestamps else {},
        }
        return attrs.evolve(snapshot, metadata=of_rows)

    def _evolve(self, job: StageJob, told: str, snapshot: Snapshot, *, missing_as_null: bool) -> Snapshot:
        """Fit the table's columns to those of the rows, before the buffer copies the table's definition."""
        if snapshot.version == NO_VERSION:
            return snapshot  # It is planned with these columns.
        schema_json = self._spark.engine().analyze(attrs.evolve(job, evolves=True))
        self._spark.check_not_stopped()

        def fits(rows: dict[str, Any], table: dict[str, Any], by: Sequence[str]) -> object:
            return fit(rows, table, self._table.name, missing_as_null=missing_as_null, partition_columns=by)

        committer, generated = self._table.committer(), self._terms.definition.generated
        return add_columns(committer, schema_json, fits, generated=generated, told=told)

    def _publish(self, buffer: Buffer) -> Publication:
        key = buffer.spec.identity.key
        try:
            publication = self._table.committer(self._observe).publish([buffer], self._policy)
        except BufferDoesNotFitError as error:
            if buffer.read_version != NO_VERSION:
                raise
            # Another has made the table meanwhile, so the rows are staged again, for the table that is there.
            raise OutOfDateError(str(error)) from error
        done = Written(buffer=buffer, publication=publication)
        for settlement in publication.settlements:
            logger.warning("%s: writer %s: %s", self._table.name, key, settlement)
        if done.rows_unexpected != 0:
            logger.warning(
                "%s: writer %s staged %s outside of its expected partitions; they stay in %s, unpublished",
                self._table.name,
                key,
                rows_in_words(done.rows_unexpected),
                buffer.path,
            )
        logger.info("%s: writer %s: %s", self._table.name, key, done.ending)
        return publication

    def _observe(self, publication: Publication) -> None:
        self._publications.append(publication)
        self._metrics.published(publication)

    def _give_up(self, buffer: Buffer, error: OutOfDateError, rerun: int) -> None:
        """Set rows aside that came too late."""
        self._spark.check_not_stopped()
        logger.warning(
            "%s: the rows of writer %s came too late and are staged anew on the newest version (rerun %d of at most "
            "%d): %s",
            self._table.name,
            buffer.spec.identity.key,
            rerun,
            MOST_RERUNS,
            error,
        )
        set_aside(self._log.store, buffer.path, f"staged anew: {error}")

    def _job(self, spec: WriteSpec) -> StageJob:
        """Return what Spark is to do for an attempt, as far as it is known before there is a buffer."""
        terms = self._terms.job()
        if spec.mode.in_rounds:
            # The source of a MERGE is read once or twice, and no file of it comes into the table.
            terms["v_order"] = None
        address, other = self._table.address, self._table.other_address
        return StageJob(
            **terms,
            table_uri=address.spark_uri,
            # Use deltalake's address: Spark may have no address for the other spelling.
            other_uri=other.deltalake_uri if other else None,
            # Of a job that is only analysed, only the columns count.
            target_uri=address.spark_uri if spec.reads is not None else None,
            attempt=spec.attempt,
            label=f"writer {spec.identity.key} of task {spec.task}",
            owner=spec.identity.app_id,
            fingerprint=spec.fingerprint,
        )

    def _job_of(self, job: StageJob, buffer: OpenBuffer) -> StageJob:
        """Return the job that appends to a buffer."""
        if buffer.spec.reads is not None:
            shadow = open_read_shadow(self._log, buffer, self._table.address.spark_uri)
            job = attrs.evolve(job, target_uri=self._uri(shadow))
        evolves = self._terms.definition.adds_columns and not buffer.spec.mode.in_rounds
        return attrs.evolve(job, evolves=evolves, buffer_uri=self._uri(buffer.path), metadata=buffer.metadata)


def _rerun_of(spec: WriteSpec, number: int) -> WriteSpec:
    """Return the spec of an attempt's rerun, which has a buffer of its own. Number 0 is the attempt itself."""
    return attrs.evolve(spec, attempt=f"{spec.attempt}-{number}") if number else spec
