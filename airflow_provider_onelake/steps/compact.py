"""The steps of one compaction: plan it, rewrite a shadow on Spark, publish what still fits."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.buffers.layout import compaction_path
from airflow_provider_onelake.buffers.markers import write_marker
from airflow_provider_onelake.commit.words import task_in_words
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.maintenance.compact import CompactionResult, publish_rewrite
from airflow_provider_onelake.maintenance.compaction import CompactionPlan, CompactionTerms, plan, selection
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.maintenance.shadow import read_rewrite, shadow_of_plan
from airflow_provider_onelake.spark.base import OptimizeJob
from airflow_provider_onelake.steps.outcomes import describe_compaction, size
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)

_MOST = 50


@attrs.frozen(kw_only=True)
class CompactionStep:
    """One task's compaction of one table.

    :param terms: when it pays.
    :param where: a predicate on partition columns. Default: all partitions.
    :param partitions: the partitions that are looked at, as values by column. Default: all.
    :param abandoned_after: how long a writer that writes nothing protects files.
    :param run: the try of the task.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    :param v_order: whether Spark is to write V-Order. Default: as its session and the table say.
    """

    table: Table
    spark: SparkWork
    terms: CompactionTerms
    where: str | None
    partitions: Iterable[Mapping[str, Any]] | None
    abandoned_after: timedelta | None
    run: TaskRun
    namespace: str
    message: str | None = None
    v_order: bool | None = None

    def compact(self) -> tuple[Snapshot, dict[str, Any]]:
        """Rewrite the partitions where this pays.

        :returns: the snapshot that was planned on, and the result for XCom.
        :raises TableNotFoundError: there is no table.
        """
        snapshot = self.table.log.snapshot()
        snapshot.check_supported(self.table.name)
        found = self._plan(snapshot)
        self._end_earlier()
        publication = self._rewrite(snapshot, found) if found.groups else None
        result = describe_compaction(found, publication)
        for drop in result["dropped"]:
            logger.warning("%s: %s: the result is dropped: %s", self.table.name, drop["partition"], drop["reason"])
        logger.info("%s: %s", self.table.name, result["summary"])
        return snapshot, result

    def _plan(self, snapshot: Snapshot) -> CompactionPlan:
        log, split = self.table.log, snapshot.partitioning
        self.terms.check(snapshot, self.table.name)
        chosen = selection(snapshot, self.where, self.partitions)
        files = log.live_files(InPartitions(lambda values: chosen(split.partition(values))), snapshot.version)
        needed = writers_in_flight(log, snapshot, self.abandoned_after)
        found = plan(files, snapshot, self.terms, needed.why_needed)
        for group in found.groups[:_MOST]:
            logger.info(
                "%s: %s: rewriting %s of %s: %s",
                self.table.name,
                group.name,
                counted(len(group.inputs), "file"),
                size(group.bytes),
                group.reason,
            )
        for left in found.left_out[:_MOST]:
            stay = counted(left.files, "file")
            logger.info("%s: %s: leaving %s: %s", self.table.name, left.partition, stay, left.reason)
        if len(found.left_out) > _MOST:
            logger.info("%s: and so on, %d more", self.table.name, len(found.left_out) - _MOST)
        return found

    def _end_earlier(self) -> None:
        """End what earlier tries of the task left at work."""
        for attempt in self.spark.left_at_work(self.table, self._owner, OptimizeJob.doing):
            self.spark.kill_job(self.table, attempt, OptimizeJob.doing)
            reason = {"reason": "another try compacts what pays now"}
            write_marker(self.table.log.store, compaction_path(self._name, attempt), reason)

    def _rewrite(self, snapshot: Snapshot, plan: CompactionPlan) -> CompactionResult | None:
        log, address = self.table.log, self.table.address
        shadow = shadow_of_plan(log, snapshot, plan, address.spark_uri, self._name, self.run.attempt)
        self.spark.engine().optimize(
            OptimizeJob(
                table_uri=address.spark_uri,
                attempt=shadow.attempt,
                shadow_uri=address.child(shadow.path).spark_uri,
                target_file_size=plan.target_file_size,
                zorder_by=plan.zorder_by,
                v_order=self.v_order,
                label=f"compaction of task {self.run.label}",
                owner=self._owner,
            )
        )
        rewrite = read_rewrite(log.store, shadow)
        self.spark.check_not_stopped()
        if rewrite is None or not rewrite.groups:
            write_marker(log.store, shadow.path, {"reason": "Spark found nothing to rewrite"})
            return None
        return publish_rewrite(
            self.table.committer(),
            shadow,
            rewrite,
            zorder_by=plan.zorder_by,
            abandoned_after=self.abandoned_after,
            by=task_in_words(self.run.dag, self.run.label, self.run.run_id, self.namespace),
            message=self.message,
        )

    @property
    def _name(self) -> str:
        return f"{self.namespace}/{self.run.dag}/{self.run.label}"

    @property
    def _owner(self) -> str:
        return self.run.owner(self.namespace)
