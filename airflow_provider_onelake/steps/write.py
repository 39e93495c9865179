"""The steps of one writer: create the table, fit its columns to the rows, stage the rows, publish them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer, audited, plan_of, write_checksum
from airflow_provider_onelake.buffers.layout import WriterDirectory, is_share
from airflow_provider_onelake.buffers.markers import MERGED, set_aside, try_to_mark
from airflow_provider_onelake.buffers.read_shadow import open_read_shadow
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
from airflow_provider_onelake.history.reruns import Skip, check_not_set_aside
from airflow_provider_onelake.log.features import IN_COMMIT_TIMESTAMPS
from airflow_provider_onelake.log.snapshot import NO_VERSION
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.spark.base import AuditJob, StageJob
from airflow_provider_onelake.spark.jobs.columns import fit
from airflow_provider_onelake.steps.create import plan
from airflow_provider_onelake.steps.last_loads import judged_by_loads
from airflow_provider_onelake.steps.merge import merge_buffer
from airflow_provider_onelake.steps.outcomes import Written, partitions_of
from airflow_provider_onelake.writes.prepare import Stage, complete, prepare
from airflow_provider_onelake.writes.publish import Publication, PublishStatus, overtaken_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from airflow_provider_onelake.buffers.spec import WriteSpec
    from airflow_provider_onelake.choices import Policy
    from airflow_provider_onelake.log.actions import Metadata
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.observability.metrics import Metrics
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.steps.write_terms import WriteTerms
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)

MOST_RERUNS = 3
"""How many times at most one task stages rows anew that came too late."""


def write(
    spec: WriteSpec,
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
    return _Writing(spec, terms, table, spark, metrics, scan, check_files, retried).run(policy)


class _Writing:
    """One call of :func:`write`."""

    def __init__(
        self,
        spec: WriteSpec,
        terms: WriteTerms,
        table: Table,
        spark: SparkWork,
        metrics: Metrics,
        scan: str | None,
        check_files: Callable[[], None] | None,
        retried: bool,
    ) -> None:
        self._first = spec
        self._terms = terms
        self._table = table
        self._log = table.log
        self._spark = spark
        self._metrics = metrics
        self._scan = scan
        self._check_files = check_files
        self._retried = retried
        self._key = spec.identity.key
        self._publications: list[Publication] = []
        self._staged: Buffer | None = None
        self._make: Callable[[], Snapshot] = table.log.snapshot

    def run(self, policy: Policy) -> Written:
        if self._log.snapshot_or_none() is None:
            self._plan()
        rerun = self._last_rerun()
        while True:
            self._check_partitioned_as_asked()
            try:
                done = self._write(_rerun_of(self._first, rerun), policy)
                break
            except OutOfDateError as error:
                if rerun >= MOST_RERUNS or self._staged is None:
                    raise
                rerun += 1
                self._give_up(self._staged, error, rerun)
        if done.without_rows:
            # Who sets allow_empty expects sources without rows.
            level = logging.INFO if self._first.allow_empty else logging.WARNING
            logger.log(level, "%s: writer %s: %s", self._table.name, self._key, done.without_rows)
        return attrs.evolve(done, reruns=rerun, publications=tuple(self._publications))

    def _last_rerun(self) -> int:
        """Return the last rerun that has a buffer: a task that is back from the triggerer carries on with it."""
        begun = set(WriterDirectory.read(self._log.store, self._first.identity.directory).buffers)
        reruns = range(1, MOST_RERUNS + 1)
        return max((n for n in reruns if _rerun_of(self._first, n).buffer in begun), default=0)

    def _write(self, spec: WriteSpec, policy: Policy) -> Written:
        table, preflight = self._table, self._terms.tuning.preflight
        self._spark.settle_earlier(table, spec, prove=preflight)
        evolve: Callable[[Snapshot], Snapshot] | None = None
        if spec.mode.own_columns:
            evolve = partial(self._with_own_columns, spec)
        elif self._terms.definition.adds_columns:
            evolve = partial(self._evolve, spec)
        # The source of a merge is a table of its own, which Spark reads in each round. No scan has a view `target`.
        scan = None if spec.mode.in_rounds or spec.reads is not None else self._scan
        begin = partial(prepare, self._log, spec, evolve, prove=preflight, footers=True)
        decision = begin(scan=scan)
        if isinstance(decision, Buffer) and is_share(decision.path) and self._is_older_than_others(decision):
            decision = begin()
        if isinstance(decision, Skip):
            logger.warning("%s: writer %s is skipped: %s", table.name, self._key, decision.reason)
            return Written(skipped=decision)
        reused = isinstance(decision, Buffer)
        told: Mapping[str, Any] | None = None
        if isinstance(decision, Buffer):
            buffer = decision
            told = checks_told(self._log.store, buffer)
            logger.info("%s: writer %s finds its rows staged in %s", table.name, self._key, buffer.path)
            if buffer.path == spec.buffer:
                # The task is back from the triggerer, and its driver has staged the rows: clear the driver's job files.
                self._spark.wait_for_job(table, spec.attempt, StageJob.doing)
        else:
            self._check_unchanged(decision.path)
            write_checksum(self._log.store, decision.path)
            job = self._job(
                spec, buffer=decision, evolves=self._terms.definition.adds_columns and not spec.mode.in_rounds
            )
            staged = self._spark.engine().stage(job)
            self._spark.check_not_stopped()
            if spec.reads is not None and staged.reads_target:
                logger.warning(
                    "%s: writer %s reads the table by another name than `target`, so a change in any partition counts",
                    table.name,
                    self._key,
                )
            buffer = complete(self._log, decision.path, staged.reads_target)
            told = staged.checks.get("")
            logger.info("%s: writer %s staged %s rows in %s", table.name, self._key, buffer.rows, buffer.path)
        self._check_unchanged(buffer.path)
        self._staged = buffer = self._audited(buffer, told)
        # Rows that this attempt's own driver staged while the task was deferred are new, so count them as staged.
        self._metrics.staged(buffer, reused=reused and buffer.spec.attempt != spec.attempt)
        partitions = () if spec.mode.own_columns else partitions_of(buffer, self._log.snapshot())
        done = Written(buffer=buffer, partitions=partitions, reused=reused)
        if buffer.refused:
            return done
        if spec.mode.in_rounds:
            check_not_set_aside(self._log.store, buffer)
            self._spark.check_not_stopped()
            mode = self._first.mode
            assert isinstance(mode, Merge)
            if not buffer.adds and self._log.snapshot_or_none() is None:
                try_to_mark(self._log, buffer.path, {MERGED: True, "reason": "there is no row, and no table"})
                return attrs.evolve(done, publication=Publication(PublishStatus.NOTHING, None))
            if buffer.read_version == NO_VERSION:
                # Spark merges into a table, so it is made now.
                buffer = attrs.evolve(buffer, table_id=self._make().table_id)
            merged = merge_buffer(
                table,
                self._spark,
                buffer,
                max_rounds=mode.max_rounds,
                v_order=self._terms.tuning.v_order,
                retried=self._retried,
            )
            return attrs.evolve(done, merged=merged)
        if buffer.spec.publish is PublishMode.TOGETHER:
            check_not_set_aside(self._log.store, buffer)
            return done
        self._spark.check_not_stopped()
        return attrs.evolve(done, publication=self._publish(buffer, policy))

    def _is_older_than_others(self, adopted: Buffer) -> bool:
        """Set rows of a shared scan aside that others have overtaken, and say whether they have.

        A writer may wait for hours for its slot. By its own scan it reads the source after what others changed.
        """
        why = overtaken_by(self._log, adopted, self._log.snapshot())
        if why is not None:
            logger.info("%s: writer %s does not use the shared scan: %s", self._table.name, self._key, why)
            set_aside(self._log.store, adopted.path, f"since the shared scan, {why}")
        return why is not None

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

    def _audited(self, buffer: Buffer, told: Mapping[str, Any] | None) -> Buffer:
        """Return the buffer with the verdict of its checks, which is kept beside the rows (protocol: audited).

        :param told: what the Spark job that staged the rows says of the checks; ``None`` where it does not.
        """
        checks = buffer.spec.checks
        if not checks:
            return buffer
        if buffer.unchecked:
            verdict = self._judged(buffer, told)
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
                "%s: rows of writer %s fail checks, and are published: %s", self._table.name, self._key, failed
            )

    def _uri(self, path: str) -> str:
        return self._table.address.child(path).spark_uri

    def _judged(self, buffer: Buffer, told: Mapping[str, Any] | None) -> Verdict:
        """Say what the checks say. Those that compare with the last loads need the number of rows, and no Spark."""
        spec, rows = buffer.spec, buffer.rows
        if in_sql(spec.checks) or rows is None:
            verdict = Verdict.of(in_sql(spec.checks), told) or self._check(buffer)
        else:
            verdict = Verdict(rows, ())
        by_loads = judged_by_loads(self._log, spec.identity, spec.checks, verdict.rows)
        return verdict.joined(by_loads, spec.checks)

    def _check(self, buffer: Buffer) -> Verdict:
        """Have Spark evaluate the checks in SQL over rows that another try, or a shared scan, has staged."""
        checks = in_sql(buffer.spec.checks)
        job = AuditJob(
            table_uri=self._table.address.spark_uri,
            buffer_uri=self._uri(buffer.path),
            metadata=buffer.metadata,
            checks=checks,
            attempt=self._first.attempt,
            label=f"writer {self._key} of task {self._first.task}",
            owner=self._first.identity.app_id,
        )
        verdict = Verdict.of(checks, self._spark.engine().audit(job).checks.get(""))
        if verdict is None:
            raise SparkJobError(
                f"Spark did not say whether the rows of writer {self._key!r} for {self._table.name} pass their checks. "
                "Nothing was published; a retry asks again."
            )
        return verdict

    def _plan(self) -> None:
        """Plan the table with the columns of the rows; make it, if its author gave `schema`."""
        if self._first.reads is not None and not self._terms.definition.new_table.schema:
            raise InvalidWriteError(
                f"There is no table at {self._table.name} yet, and writer {self._key!r} is to read it. Nothing was "
                "staged: give `schema`, the columns to create it with."
            )
        if self._first.mode.own_columns and not self._terms.definition.new_table.schema:
            raise InvalidWriteError(
                f"There is no table at {self._table.name} yet, and the source of a MERGE with `when` or `on` may have "
                "columns that are not for it. Nothing was staged: give `schema`, the columns to create it with."
            )
        if not (self._first.mode.in_rounds or self._terms.definition.new_table.schema):
            # A shared scan has asked Spark for the columns, and so has this attempt, if it is back from the triggerer.
            for asked in filter(None, (self._scan, self._first.buffer)):
                with suppress(ObjectNotFoundError):
                    plan_of(self._log, asked)
        if self._log.planned is None:
            job = self._job(self._first, creates=True)
            self._make = plan(self._table, self._spark, job, self._terms.definition, of_writer(self._first))
        if self._terms.definition.new_table.schema:
            self._make()

    def _check_partitioned_as_asked(self) -> None:
        wanted = self._terms.definition.partition_columns
        actual = list(self._log.snapshot().partitioning.types)
        if wanted is not None and wanted != actual:
            raise InvalidWriteError(
                f"{self._table.name} is partitioned by {', '.join(actual) or 'nothing'}, and partition_by asks for "
                f"{', '.join(wanted) or 'nothing'}. Nothing was staged: leave partition_by out, or write another table."
            )

    def _with_own_columns(self, spec: WriteSpec, snapshot: Snapshot) -> Snapshot:
        """Return a snapshot with the columns of the rows in place of the table's, for a buffer that is a source."""
        schema_json = self._spark.engine().analyze(self._job(spec))
        self._spark.check_not_stopped()
        of_rows: Metadata = {
            **snapshot.metadata,
            "schemaString": schema_json,
            "partitionColumns": [],
            "configuration": {IN_COMMIT_TIMESTAMPS: "true"} if snapshot.has_in_commit_timestamps else {},
        }
        return attrs.evolve(snapshot, metadata=of_rows)

    def _evolve(self, spec: WriteSpec, snapshot: Snapshot) -> Snapshot:
        """Fit the table's columns to those of the rows, before the buffer copies the table's definition."""
        if snapshot.version == NO_VERSION:
            return snapshot  # It is planned with these columns.
        schema_json = self._spark.engine().analyze(self._job(spec, evolves=True))
        self._spark.check_not_stopped()

        def fits(rows: dict[str, Any], table: dict[str, Any], by: Sequence[str]) -> object:
            missing_as_null = not spec.mode.in_rounds
            return fit(rows, table, self._table.name, missing_as_null=missing_as_null, partition_columns=by)

        committer, generated = self._table.committer(), self._terms.definition.generated
        return add_columns(committer, schema_json, fits, generated=generated, told=of_writer(spec))

    def _publish(self, buffer: Buffer, policy: Policy) -> Publication:
        try:
            publication = self._table.committer(self._observe).publish([buffer], policy)
        except BufferDoesNotFitError as error:
            if buffer.read_version != NO_VERSION:
                raise
            # Another has made the table meanwhile, so the rows are staged again, for the table that is there.
            raise OutOfDateError(str(error)) from error
        done = Written(buffer=buffer, publication=publication)
        if done.status == "set_aside" and publication.version is None:
            check_not_set_aside(self._log.store, buffer)
        for settlement in publication.settlements:
            logger.warning("%s: writer %s: %s", self._table.name, self._key, settlement)
        if done.rows_unexpected != 0:
            logger.warning(
                "%s: writer %s staged %s rows outside of its expected partitions; they stay in %s, unpublished",
                self._table.name,
                self._key,
                done.rows_unexpected,
                buffer.path,
            )
        logger.info("%s: version %s, writer %s: %s", self._table.name, publication.version, self._key, done.status)
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
            self._key,
            rerun,
            MOST_RERUNS,
            error,
        )
        set_aside(self._log.store, buffer.path, f"staged anew: {error}")

    def _job(
        self, spec: WriteSpec, *, buffer: Stage | None = None, creates: bool = False, evolves: bool = False
    ) -> StageJob:
        terms, definition = self._terms.job(), self._terms.definition
        if spec.mode.in_rounds:
            # The source of a MERGE is read once or twice, and no file of it comes into the table.
            terms["v_order"] = None
        address, other = self._table.address, self._table.other_address
        target = None if spec.reads is None else address.spark_uri
        if target is not None and buffer is not None and spec.reads is not None:
            target = self._uri(open_read_shadow(self._log, buffer.path, spec.reads, buffer.read_version, target))
        return StageJob(
            **terms,
            generated=definition.generated if creates else {},
            schema=definition.new_table.schema if creates else None,
            evolves=evolves,
            table_uri=address.spark_uri,
            buffer_uri=address.child(buffer.path).spark_uri if buffer else None,
            metadata=buffer.metadata if buffer else None,
            # Use deltalake's address: Spark may have no address for the other spelling.
            other_uri=other.deltalake_uri if other else None,
            # Of a job that is only analysed, only the columns count.
            target_uri=target,
            attempt=spec.attempt,
            label=f"writer {self._key} of task {spec.task}",
            owner=spec.identity.app_id,
            fingerprint=spec.fingerprint,
            checks=in_sql(spec.checks),
        )


def _rerun_of(spec: WriteSpec, number: int) -> WriteSpec:
    """Return the spec of an attempt's rerun, which has a buffer of its own. Number 0 is the attempt itself."""
    return attrs.evolve(spec, attempt=f"{spec.attempt}-{number}") if number else spec
