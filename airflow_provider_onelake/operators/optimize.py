"""The operator that compacts a table's small files, and never makes a writer wait or fail."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.task_run import TaskRun
from airflow_provider_onelake.lineage import Lineage, lineage_of
from airflow_provider_onelake.operators._results import describe_compaction, size
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.operators._terms import check_rendered, is_final, terminal_errors_fail

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.maintenance.compact import Publication
    from airflow_provider_onelake.maintenance.compaction import Plan, Terms
    from airflow_provider_onelake.maintenance.shadow import Shadow

_MOST = 50


class OneLakeOptimizeOperator(SparkTaskOperator):
    """Rewrite the files of the partitions where this pays, and replace the old files by the new ones.

    Spark runs Delta's own OPTIMIZE on a private table over these files, so Z-order, clustering, V-Order and row ids
    are Delta's own. A small commit without a change of data then publishes each partition whose old files are all still
    unchanged. The result of any other partition is dropped, and no rows are lost. Files that writers in flight may need
    are left alone, and no writer waits or fails because of a compaction. If no partition is worth it, Spark is not
    asked.

    The result in XCom is a dict:

    - ``table`` (str), ``read_version`` (int): the table, and the version that the compaction was planned on.
    - ``status`` (str): ``published``, ``dropped`` or ``nothing_to_do``; ``summary`` (str): one sentence.
    - ``version`` (int or None): the version that has the new files.
    - ``files_before``, ``files_after``, ``bytes_before``, ``bytes_after``, ``lost_races`` (int).
    - ``partitions`` (list of dict): the compacted partitions with ``partition``, ``reason`` and the four counts above.
    - ``dropped`` (list of dict): ``partition`` and ``reason``; ``left_out`` (list of dict): ``partition``, ``files``
      and ``reason``.
    - ``partitions_compacted``, ``partitions_dropped``, ``partitions_left_out`` (int): counts, because each list has at
      most 50 entries.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param where: a predicate on partition columns. Only partitions that satisfy it are compacted. Default: all
        (templated).
    :param partitions: a list of partitions as values by column, such as reconcile's XCom ``partitions``. Only these are
        compacted; an empty list stands for none. Default: all (templated).
    :param zorder_by: the columns of Z-order, as a list or as a text with commas between. Default: none. A clustered
        table sorts itself (templated).
    :param target_file_size: the size of the new files in bytes. Default: the table's ``delta.targetFileSize``, else
        128 MiB. Not templated.
    :param min_files: the number of small files, below half of that size, from which a partition is compacted. Default:
        4. Not templated.
    :param min_deleted: the share of a file's rows, from 0 to 1, that deletion vectors must hide for the file to be
        rewritten alone. Default: 0.1. Not templated.
    :param abandoned_after: a ``timedelta``. A writer that wrote nothing for this long no longer protects files from a
        compaction. Default: half of the table's ``delta.deletedFileRetentionDuration``, after which its buffer cannot
        be published. Not templated.
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator. ``deferrable`` has no effect here.
    """

    template_fields: Collection[str] = ("table", "where", "partitions", "zorder_by")
    ui_color = "#e6e3f4"

    def __init__(
        self,
        *,
        table: str,
        where: str | None = None,
        partitions: Sequence[Mapping[str, Any]] | str | None = None,
        zorder_by: Sequence[str] | str | None = None,
        target_file_size: int | None = None,
        min_files: int = 4,
        min_deleted: float = 0.1,
        abandoned_after: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.where = where
        self.partitions = partitions
        self.zorder_by = zorder_by
        self.target_file_size = target_file_size
        self.min_files = min_files
        self.min_deleted = min_deleted
        self.abandoned_after = abandoned_after
        if is_final(zorder_by):
            self._terms()

    def execute(self, context: Context) -> dict[str, Any]:
        """Compact the table.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        with terminal_errors_fail():
            for name in self.template_fields:
                value = getattr(self, name)
                # Do not check a list of partitions: its values come from the table and may look like templates.
                if name != "partitions" or isinstance(value, str):
                    check_rendered(name, value)
            log = self.hook.delta_log(self.table)
            self.begin(context)
            snapshot, plan = self._plan(log)
            run = TaskRun.of(context)
            begun = self._taken_over(log, snapshot, plan, run)
            publication = self._compact(log, snapshot, plan, begun, run) if plan.groups else None
            result = describe_compaction(plan, publication)
            for drop in result["dropped"]:
                self.log.warning("%s: %s: the result is dropped: %s", log.table, drop["partition"], drop["reason"])
            self.log.info("%s: %s", log.table, result["summary"])
            self.metrics.compacted(result)
            self.show_commit(result["version"])
            if result["version"] is not None:
                moved = Lineage(
                    table=self.hook.address(self.table),
                    read_version=snapshot.version,
                    version=result["version"],
                    bytes=result["bytes_after"],
                    files=result["files_after"],
                )
                self._lineage = lineage_of(lambda: moved.with_snapshot(snapshot))
            return {"table": log.table, "read_version": snapshot.version, **result}

    def _plan(self, log: DeltaLog) -> tuple[Snapshot, Plan]:
        from airflow_provider_onelake.exceptions import TableNotFoundError
        from airflow_provider_onelake.maintenance.compaction import plan, selection
        from airflow_provider_onelake.maintenance.in_flight import writers_in_flight

        snapshot = log.snapshot()
        if snapshot is None:
            raise TableNotFoundError(f"There is no Delta table at {log.table}.")
        snapshot.check_supported(log.table)
        terms = self._terms()
        terms.check(snapshot, log.table)
        chosen, split = selection(snapshot, (self.where or "").strip() or None, self._listed()), snapshot.partitioning
        files = log.live_files(lambda add: chosen(split.partition(add["partitionValues"])), snapshot.version)
        needed = writers_in_flight(log, snapshot, self.abandoned_after)
        found = plan(files, snapshot, terms, needed.why_needed)
        for group in found.groups[:_MOST]:
            self.log.info(
                "%s: %s: %d files of %s are rewritten: %s",
                log.table,
                group.name,
                len(group.inputs),
                size(group.bytes),
                group.reason,
            )
        for left in found.left_out[:_MOST]:
            self.log.info("%s: %s: %d files stay: %s", log.table, left.partition, left.files, left.reason)
        if len(found.left_out) > _MOST:
            self.log.info("%s: and so on, %d more", log.table, len(found.left_out) - _MOST)
        return snapshot, found

    def _compact(
        self, log: DeltaLog, snapshot: Snapshot, plan: Plan, begun: Shadow | None, run: TaskRun
    ) -> Publication | None:
        from airflow_provider_onelake.maintenance.compact import Publisher
        from airflow_provider_onelake.maintenance.shadow import open_shadow, read_rewrite
        from airflow_provider_onelake.staging.buffers import write_marker

        address = self.hook.address(self.table)
        shadow = begun or open_shadow(log, snapshot, plan, address.spark_uri, self._name(run), run.attempt)
        self._optimize(shadow, address.spark_uri, address.child(shadow.path).spark_uri, run)
        rewrite = read_rewrite(log.store, shadow)
        self.check_not_stopped()
        if rewrite is None or not rewrite.groups:
            write_marker(log.store, shadow.path, {"reason": "Spark found nothing to rewrite"})
            return None
        committer = self.hook.committer(log, self.table)
        publisher = Publisher(
            log,
            cross_check=committer.cross_check,
            after_commit=committer.after_commit,
            abandoned_after=self.abandoned_after,
        )
        return publisher.publish(shadow, rewrite)

    def _taken_over(self, log: DeltaLog, snapshot: Snapshot, plan: Plan, run: TaskRun) -> Shadow | None:
        """Return the shadow that an earlier try's driver is rewriting, if it still fits the plan. End other drivers."""
        from airflow_provider_onelake.engines.base import OptimizeJob
        from airflow_provider_onelake.maintenance.shadow import reopen_shadow, shadow_path
        from airflow_provider_onelake.staging.buffers import write_marker

        uri, name, found = self.hook.address(self.table).spark_uri, self._name(run), None
        for attempt in self.left_at_work(run.owner(self.hook.namespace), OptimizeJob.doing):
            shadow = reopen_shadow(log, snapshot, plan, uri, name, attempt) if found is None else None
            if shadow is not None:
                found = shadow
                self.log.info("%s: %s of an earlier try is taken over", log.table, shadow.path)
                continue
            self.kill_job(attempt, OptimizeJob.doing)
            write_marker(log.store, shadow_path(name, attempt), {"reason": "another try compacts what pays now"})
        return found

    def _name(self, run: TaskRun) -> str:
        return f"{self.hook.namespace}/{run.dag}/{run.label}"

    def _optimize(self, shadow: Shadow, table_uri: str, shadow_uri: str, run: TaskRun) -> None:
        from airflow_provider_onelake.engines.base import OptimizeJob

        self.engine().optimize(
            OptimizeJob(
                table_uri=table_uri,
                attempt=shadow.attempt,
                shadow_uri=shadow_uri,
                target_file_size=shadow.plan.target_file_size,
                zorder_by=shadow.plan.zorder_by,
                label=f"{run.label} compaction",
                owner=run.owner(self.hook.namespace),
            )
        )

    def _terms(self) -> Terms:
        from airflow_provider_onelake.maintenance.compaction import Terms

        names = self.zorder_by.split(",") if isinstance(self.zorder_by, str) else list(self.zorder_by or ())
        return Terms(
            target_file_size=self.target_file_size,
            min_files=self.min_files,
            min_deleted=self.min_deleted,
            zorder_by=tuple(name.strip() for name in names if name.strip()),
        )

    def _listed(self) -> list[Mapping[str, Any]] | None:
        """Return the partitions as a list, also if a template has rendered them to text."""
        value: Any = self.partitions
        if isinstance(value, str):
            try:
                value = json.loads(value) if value.strip() else None
            except ValueError as error:
                raise InvalidWriteError(f"partitions={value!r} is no JSON: {error}. Nothing was changed.") from error
        if value is None:
            return None
        listed = list(value)
        if isinstance(value, Mapping) or not all(isinstance(item, Mapping) for item in listed):
            raise InvalidWriteError(
                f"partitions={value!r}: a list of partitions, each as values by column, such as "
                "[{'month': '2019-01'}]. Nothing was changed."
            )
        return listed
