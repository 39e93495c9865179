"""The operator that compacts a table's small files, and never makes a writer wait or fail."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import task_run_of
from airflow_provider_onelake.observability.lineage import Lineage, lineage_of
from airflow_provider_onelake.observability.metrics import Metrics
from airflow_provider_onelake.operators._parameters import (
    check_flag,
    check_message,
    check_number,
    check_rendered,
    check_size,
    check_table,
    check_whole,
    rendered_message,
)
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.maintenance.compaction import CompactionTerms


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
    :param v_order: whether the new files are written in V-Order. Only Fabric's Spark writes it: on any other, ``True``
        has no effect. Partitions that need no compaction stay as they are. A table whose property asks for it gets it
        also with ``False``. Default: as the session and the table say. Not templated.
    :param min_files: the number of small files, below half of that size, from which a partition is compacted. Default:
        4. Not templated.
    :param min_deleted: the share of a file's rows, from 0 to 1, that deletion vectors must hide for the file to be
        rewritten alone. Default: 0.1. Not templated.
    :param abandoned_after: a ``timedelta``. A writer that wrote nothing for this long no longer protects files from a
        compaction. Default: half of the table's ``delta.deletedFileRetentionDuration``, after which its buffer cannot
        be published. Not templated.
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator.
    """

    template_fields: Collection[str] = ("table", "where", "partitions", "zorder_by", "commit_message")
    ui_color = "#e6e3f4"

    def __init__(
        self,
        *,
        table: str,
        where: str | None = None,
        partitions: Sequence[Mapping[str, Any]] | str | None = None,
        zorder_by: Sequence[str] | str | None = None,
        target_file_size: int | None = None,
        v_order: bool | None = None,
        min_files: int = 4,
        min_deleted: float = 0.1,
        abandoned_after: timedelta | None = None,
        commit_message: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.where = where
        self.partitions = partitions
        self.zorder_by = zorder_by
        self.target_file_size = target_file_size
        self.v_order = v_order
        self.min_files = min_files
        self.min_deleted = min_deleted
        self.abandoned_after = abandoned_after
        self.commit_message = commit_message
        check_message(commit_message)
        check_flag("v_order", v_order, or_none=True)
        check_table("table", table)
        check_size("target_file_size", target_file_size)
        check_whole("min_files", min_files)
        check_number("min_deleted", min_deleted)
        if is_final(zorder_by):
            self._compaction_terms()

    def execute(self, context: Context) -> dict[str, Any] | None:
        """Compact the table.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it; ``None`` if the load of its group made no table.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        from airflow_provider_onelake.steps.compact import CompactionStep

        with self.errors_explained():
            for name in self.template_fields:
                value = getattr(self, name)
                # Do not check a list of partitions: its values come from the table and may look like templates.
                if name != "partitions" or isinstance(value, str):
                    check_rendered(name, value)
            message = rendered_message(self.commit_message)
            table = self.begin(context)
            if self.is_without_table(context, table):
                return None
            snapshot, result = CompactionStep(
                table=table,
                spark=self.spark,
                terms=self._compaction_terms(),
                where=(self.where or "").strip() or None,
                partitions=self._listed(),
                abandoned_after=self.abandoned_after,
                run=task_run_of(context),
                namespace=self.hook.namespace,
                message=message,
                v_order=self.v_order,
            ).compact()
            Metrics.of(context["ti"], table.address).compacted(result)
            self.show_commit(result["version"])
            if result["version"] is not None:
                moved = Lineage(
                    table=table.address,
                    read_version=snapshot.version,
                    version=result["version"],
                    bytes=result["bytes_after"],
                    files=result["files_after"],
                )
                self._lineage = lineage_of(lambda: moved.with_snapshot(snapshot))
            return {"table": str(table), "read_version": snapshot.version, **result}

    def _compaction_terms(self) -> CompactionTerms:
        from airflow_provider_onelake.maintenance.compaction import CompactionTerms

        names = self.zorder_by.split(",") if isinstance(self.zorder_by, str) else list(self.zorder_by or ())
        return CompactionTerms(
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
                f"partitions={value!r} must be a list of partitions, each as values by column, such as "
                "[{'month': '2019-01'}]. Nothing was changed."
            )
        return listed
