"""The steps of a shared scan: see whether it may be shared, let Spark write the rows, tell the writers."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import SCANNED_FOR, share_name
from airflow_provider_onelake.buffers.scan import ScanShare, complete, completed_by, offer, open_scan, why_not_shared
from airflow_provider_onelake.commit.words import of_task, task_in_words
from airflow_provider_onelake.exceptions import (
    BufferIncompleteError,
    BufferInvalidError,
    ConstraintViolatedError,
    InvalidWriteError,
    SchemaMismatchError,
    SparkQueryError,
)
from airflow_provider_onelake.log.actions import total
from airflow_provider_onelake.spark.base import AuditJob, StageJob
from airflow_provider_onelake.steps.create import plan
from airflow_provider_onelake.steps.disjoint import why_not_disjoint
from airflow_provider_onelake.texts import counted, rows_in_words

if TYPE_CHECKING:
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.steps.write_terms import WriteTerms
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)


class NotSharedError(Exception):
    """Why writers scan for themselves. It is no failure: each of them does then what it does without a shared scan."""


@attrs.frozen(kw_only=True)
class SharedScan:
    """One task's scan for several writers.

    :param terms: what the writers have in common.
    :param shares: of the writers.
    :param skips: whether writers whose rows are in the table have nothing to do.
    :param run: the try of the task.
    :param task_start: the id of the task's start.
    :param namespace: of the deployment.
    """

    table: Table
    spark: SparkWork
    terms: WriteTerms
    shares: Sequence[ScanShare]
    skips: bool
    run: TaskRun
    task_start: str
    namespace: str

    def scan(self) -> dict[str, Any]:
        """Write the rows of the writers, unless an earlier try of this start has done so.

        :returns: the result for XCom.
        :raises NotSharedError: the writers have to scan for themselves.
        :raises OneLakeError: Spark failed for a reason that may pass.
        """
        log = self.table.log
        snapshot = log.snapshot_or_none() or self._planned()
        shares = self._shares(snapshot)
        scan = open_scan(log, f"{self.run.owner(self.namespace)}/{self.task_start}", self.run.label, shares, snapshot)
        done_by = completed_by(log, scan)
        checked: Mapping[str, Mapping[str, Any]] = {}
        if done_by is not None and self.terms.sql_checks:
            logger.info("%s: %s is complete already; Spark evaluates the checks", self.table.name, scan.path)
            # Where the task is back from the triggerer, its driver has done so.
            is_back = done_by == self.run.attempt
            checked = self._stage(scan.path, shares, snapshot) if is_back else self._check(scan.path, snapshot)
        elif done_by is not None:
            logger.info("%s: %s is complete already; Spark does not run", self.table.name, scan.path)
            if done_by == self.run.attempt:
                # The task is back from the triggerer, and its driver has ended: clear the driver's job files.
                self.spark.wait_for_job(self.table, done_by, StageJob.doing)
        else:
            self._end_earlier()
            checked = self._stage(scan.path, shares, snapshot)
            complete(log, scan)
        try:
            told = offer(log, scan, shares, checked)
        except (BufferIncompleteError, BufferInvalidError) as error:
            raise NotSharedError(str(error)) from None
        for key, (files, rows) in told.items():
            logger.info("%s: %s in %s for writer %s", self.table.name, rows_in_words(rows), counted(files, "file"), key)
        return {
            "status": "shared",
            "scan": scan.path,
            "read_version": scan.read_version,
            "rows": total(rows for _, rows in told.values()),
            "files": sum(files for files, _ in told.values()),
            "writers": len(told),
            "reused": done_by is not None,
        }

    def _planned(self) -> Snapshot:
        """Plan the table, as the first writer would, if the writers may share a scan as far as that is known yet."""
        _check_apart(self.shares)
        load = self.shares[0].identity.load
        who = task_in_words(load.dag, load.group, load.run, load.namespace)
        definition = self.terms.definition
        make = plan(self.table, self.spark, self._job(self.shares), definition, of_task(who, "shared scan", None))
        return make() if definition.new_table.schema else self.table.log.snapshot()

    def _shares(self, snapshot: Snapshot) -> list[ScanShare]:
        snapshot.check_supported(self.table.name)
        if (why_not := why_not_shared(snapshot)) is not None:
            raise NotSharedError(why_not)
        wanted = self.terms.definition.partition_columns
        if wanted is not None and wanted != list(snapshot.partitioning.types):
            raise NotSharedError("the table is partitioned otherwise than partition_by asks for")
        shares = [share for share in self.shares if not (self.skips and share.identity.app_id in snapshot.txns)]
        _check_apart(shares)
        return shares

    def _end_earlier(self) -> None:
        """End drivers that earlier tries left at work, as the same rows are written twice else."""
        if not self.spark.engine().outlives_the_task:
            return
        for attempt in self.spark.left_at_work(self.table, self._owner, StageJob.doing):
            if attempt != self.run.attempt:
                self.spark.kill_job(self.table, attempt, StageJob.doing)

    def _check(self, path: str, snapshot: Snapshot) -> Mapping[str, Mapping[str, Any]]:
        """Have Spark evaluate the checks over the rows that another try of the scan has written."""
        job = AuditJob(
            table_uri=self.table.address.spark_uri,
            buffer_uri=self.table.address.child(path).spark_uri,
            metadata=snapshot.metadata,
            checks=self.terms.sql_checks,
            by=SCANNED_FOR,
            attempt=self.run.attempt,
            label=f"task {self.run.label}",
            owner=self._owner,
        )
        try:
            checked = self.spark.engine().audit(job).checks
        except (SparkQueryError, InvalidWriteError) as error:
            raise NotSharedError(f"Spark refused it: {error}") from None
        self.spark.check_not_stopped()
        return checked

    def _job(self, shares: Sequence[ScanShare]) -> StageJob:
        """Return the job of the scan, but for what it knows of the scan's directory."""
        other = self.table.other_address
        # Spark pushes down what all rows satisfy, and reads no row group that no writer wants.
        where = " OR ".join(f"(\n{share.where}\n)" for share in shares)
        return StageJob(
            **{**self.terms.job(), "where": where},
            table_uri=self.table.address.spark_uri,
            other_uri=other.deltalake_uri if other else None,
            attempt=self.run.attempt,
            label=f"{len(shares)} writers in task {self.run.label}",
            owner=self._owner,
        )

    def _stage(self, path: str, shares: Sequence[ScanShare], snapshot: Snapshot) -> Mapping[str, Mapping[str, Any]]:
        address = self.table.address
        job = attrs.evolve(
            self._job(shares),
            routes={share_name(share.identity.directory): share.where for share in shares},
            buffer_uri=address.child(path).spark_uri,
            metadata=snapshot.metadata,
            fingerprint=path,
        )
        try:
            staged = self.spark.engine().stage(job)
        except (ConstraintViolatedError, SchemaMismatchError, SparkQueryError, InvalidWriteError) as error:
            # The rows of one writer must not fail the others, so each finds out for itself.
            raise NotSharedError(f"Spark refused it: {error}") from None
        self.spark.check_not_stopped()
        if staged.reads_target:
            raise NotSharedError("the source reads the table itself")
        if staged.why_not_shared:
            raise NotSharedError(staged.why_not_shared)
        if staged.buffer_uri != job.buffer_uri:
            # A task that is back from the triggerer gets the result of the job that its first execution submitted, and
            # the scan's directory is another one if the source or the table has changed since.
            raise NotSharedError(
                "the source or the table changed while Spark was at work, so what it read is out of date"
            )
        return staged.checks

    @property
    def _owner(self) -> str:
        return self.run.owner(self.namespace)


def _check_apart(shares: Sequence[ScanShare]) -> None:
    """Refuse writers that are no two, or of which two may want the same row.

    :raises NotSharedError: they are so.
    """
    keys = {share.identity.key: share.where for share in shares}
    if len(keys) < len(shares):
        raise NotSharedError("two of the writers have the same key")
    if len(shares) < 2:
        raise NotSharedError(f"only {len(shares)} of the writers have rows to write")
    if (why_not := why_not_disjoint(keys)) is not None:
        raise NotSharedError(why_not)
