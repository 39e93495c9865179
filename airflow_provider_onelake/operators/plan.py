"""Divide a source over writers, once for each run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_onelake.exceptions import InvalidWriteError, PlanError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.task_run import TaskRun
from airflow_provider_onelake.operators.source_templates import SourceTemplates
from airflow_provider_onelake.operators.terms import check_rendered, is_final, terminal_errors_fail
from airflow_provider_onelake.operators.write import group_defaults
from airflow_provider_onelake.sources import FileSource, SourceFile

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.planning.balance import Share
    from airflow_provider_onelake.planning.record import Plan

logger = logging.getLogger(__name__)

# Hive's name for the partition of NULL, which no other value has.
_NULL = "__HIVE_DEFAULT_PARTITION__"
_MEBIBYTE = 1 << 20


class OneLakePlanOperator(SourceTemplates):
    """Divide the partitions of a source over writers by size, for ``expand_kwargs`` of a writer.

    ``OneLakeWriteOperator.partial(source=…).expand_kwargs(plan.output)``: each writer reads whole partitions, and each
    partition is read by one writer. Which writer has which partition is planned once for each run and kept beside the
    table, so that a clear finds the writers that it knows. Partitions that are new by then get writers of their own.

    The result, in XCom: one entry for each writer, with ``writer``, its key (the partition's name, or the first one's
    with a hash of all), and what it reads: ``files``, with ``max_bytes`` where there is one, or ``where``.

    Inside an :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup`, what is not given here is the
    group's.

    :param source: the files to be divided, listed here: on this machine, or in the connection's lakehouse (templated).
    :param by: how a file's path tells its partition: a column of Hive's directories (``month`` for
        ``…/month=2019-01/…``) or a regular expression with one group. Default: every file is a partition (templated).
    :param sizes: in place of ``source``: the size of each partition in bytes, by its value (templated).
    :param column: with ``sizes``, the source's column that holds the values.
    :param writers: how many there should be; fewer where there are fewer partitions, more where ``max_bytes`` asks for
        them. Default: as few as ``max_bytes`` allows; without either, one for each partition.
    :param max_bytes: the most that a writer may get, of the source as it is stored. A partition above it is refused.
        Default: anything.
    :param prefix: of the writers' keys, where two plans feed one write group (templated).
    :param table: see :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator` (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``.
    """

    template_fields: Collection[str] = ("source", "by", "sizes", "prefix", "table")
    template_fields_renderers: ClassVar[dict[str, str]] = {"source": "json", "sizes": "json"}
    ui_color = "#e3e8f0"

    def __init__(
        self,
        *,
        source: FileSource | None = None,
        by: str | None = None,
        sizes: Mapping[Any, int] | None = None,
        column: str | None = None,
        writers: int | None = None,
        max_bytes: int | None = None,
        prefix: str = "",
        table: str | None = None,
        onelake_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        group = group_defaults(self)
        self.source = source
        self.by = by
        self.sizes = sizes
        self.column = column
        self.writers = writers
        self.max_bytes = max_bytes
        self.prefix = prefix
        self.table: str = table or group.get("table") or ""
        self.onelake_conn_id: str = onelake_conn_id or group.get("onelake_conn_id") or OneLakeHook.default_conn_name
        if not self.table:
            raise InvalidWriteError(f"{self.task_id}: `table` is missing: give it here, or to the task group.")
        if (source is None) == (sizes is None) or (column is None) != (sizes is None):
            raise InvalidWriteError(
                f"{self.task_id}: give `source`, whose files are listed, or `sizes` with the `column` of their values."
            )
        if is_final(source) and not isinstance(source, FileSource | None):
            raise InvalidWriteError(f"{self.task_id}: source={source!r} is no FileSource; for a query give `sizes`.")

    @cached_property
    def hook(self) -> OneLakeHook:
        """The lakehouse."""
        return OneLakeHook(self.onelake_conn_id)

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Plan.

        :param context: of the running task.
        :returns: for each writer, what it is to be given.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        with terminal_errors_fail():
            for name in self.template_fields:
                check_rendered(name, getattr(self, name))
            run = TaskRun.of(context)
            name = f"{run.load(self.hook.namespace).id}/{self.task_id}"
            if self.sizes is not None:
                return self._by_value(name, self.sizes)
            return self._by_files(name)

    def _by_files(self, name: str) -> list[dict[str, Any]]:
        from airflow_provider_onelake.planning.listing import by_partition

        files = by_partition(self._files(), self.by)
        sizes = {partition: sum(file.size for file in found) for partition, found in files.items()}
        limit = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        return [
            {"writer": share.writer, "files": [file.path for part in share.partitions for file in files.get(part, ())]}
            | limit
            for share in self._shares(name, sizes)
        ]

    def _by_value(self, name: str, given: Mapping[Any, int]) -> list[dict[str, Any]]:
        values = {_NULL if value is None else str(value): value for value in given}
        if len(values) != len(given):
            raise PlanError(f"sizes={given!r}: two partitions have one name. Nothing was planned.")
        sizes = {partition: int(given[value]) for partition, value in values.items()}
        return [
            {
                "writer": share.writer,
                "where": self._where([values[part] for part in share.partitions if part in values]),
            }
            for share in self._shares(name, sizes)
        ]

    def _shares(self, name: str, sizes: Mapping[str, int]) -> list[Share]:
        """Return the shares of the plan that have something to read by now."""
        from airflow_provider_onelake.planning.record import make_plan

        plan = make_plan(
            self.hook.delta_log(self.table).store,
            name,
            sizes,
            writers=self.writers,
            max_bytes=self.max_bytes,
            prefix=self.prefix or "",
        )
        self._tell(plan, sizes)
        return [share for share in plan.shares if any(partition in sizes for partition in share.partitions)]

    def _tell(self, plan: Plan, sizes: Mapping[str, int]) -> None:
        for number, share in enumerate(plan.shares, 1):
            logger.info(
                "%s: writer %s gets %s: %.1f MiB%s",
                self.table,
                share.writer,
                ", ".join(share.partitions),
                share.size(sizes) / _MEBIBYTE,
                "" if number > len(plan.shares) - plan.new else ", as planned before",
            )
            if gone := [partition for partition in share.partitions if partition not in sizes]:
                logger.warning(
                    "%s: %s, planned for writer %s, is not in the source any more; what was written of it stays",
                    self.table,
                    ", ".join(gone),
                    share.writer,
                )
        logger.info("%s: the plan is kept in %s", self.table, plan.path)

    def _files(self) -> Iterator[SourceFile]:
        from airflow_provider_onelake.planning.listing import stored_files
        from airflow_provider_onelake.storage.addresses import TableAddress

        assert self.source is not None
        for path in self.source.paths:
            if "://" not in path or path.startswith("file:"):
                yield from FileSource(path).files()
                continue
            root = TableAddress.parse_root(self.hook.lakehouse).spark_uri if self.hook.lakehouse else ""
            if not root or not path.startswith(f"{root}/"):
                raise PlanError(
                    f"{path} cannot be listed: it is not in the lakehouse of {self.onelake_conn_id}, "
                    f"{root or 'which names none'}, as Spark spells it. Nothing was planned: use a connection of that "
                    "lakehouse, or give `sizes`."
                )
            yield from stored_files(self.hook.get_conn(), root, path.removeprefix(f"{root}/"))

    def _where(self, values: Collection[Any]) -> str:
        column = f"`{(self.column or '').replace('`', '``')}`"
        parts = [f"{column} IN ({', '.join(_literal(value) for value in values if value is not None)})"]
        if None in values:
            parts = [*(parts if len(values) > 1 else ()), f"{column} IS NULL"]
        return " OR ".join(parts)


def _literal(value: Any) -> str:
    """Return a value as Spark SQL; Spark casts text to the column's type where it compares them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
