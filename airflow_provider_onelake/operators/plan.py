"""Divide a source over writers, once for each run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_onelake.exceptions import InvalidWriteError, PlanError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.task_run import TaskRun
from airflow_provider_onelake.operators._source_files import list_source
from airflow_provider_onelake.operators._source_templates import SourceTemplates
from airflow_provider_onelake.operators._terms import check_rendered, is_final, terminal_errors_fail
from airflow_provider_onelake.operators.write import group_defaults
from airflow_provider_onelake.reading.spark_files import SourceFile, literal
from airflow_provider_onelake.sources import FileSource

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.planning.balance import Share
    from airflow_provider_onelake.planning.record import Plan

logger = logging.getLogger(__name__)

# Hive's name for the partition of NULL, which no other value has.
_NULL = "__HIVE_DEFAULT_PARTITION__"
# What NULL becomes as a key of a dict that goes through XCom, where every key is text.
_NULL_AS_KEY = ("none", "null")
_MEBIBYTE = 1 << 20


class OneLakePlanOperator(SourceTemplates):
    """Divide the partitions of a source over writers by size, for ``expand_kwargs`` of a writer.

    ``OneLakeWriteOperator.partial(source=…).expand_kwargs(plan.output)``: each writer reads whole partitions, and each
    partition is read by one writer. Which writer has which partition is planned once for each run and kept beside the
    table, so that a clear finds the writers that it knows. Partitions that are new by then get writers of their own.

    The result, in XCom: one entry for each writer, with ``writer``, its key (the partition's name, or the first one's
    with a hash of all), and what it reads: ``files``, with ``max_bytes`` where there is one, or ``where``. Files are
    spelled as Spark takes paths: a character that means something in a glob has a backslash in front.

    Inside an :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup`, what is not given here is the
    group's.

    :param source: the files to be divided, listed here: on this machine, or in the connection's lakehouse (templated).
    :param by: how a file's path tells its partition: a column of Hive's directories (``month`` for
        ``…/month=2019-01/…``) or a regular expression with one group. Default: every file is a partition (templated).
    :param sizes: in place of ``source``: the size of each partition in bytes, as a list of ``[value, bytes]`` or as a
        dict. From another task it is the list: XCom makes text of a dict's keys, of NULL too (templated).
    :param column: with ``sizes``, the source's column that holds the values.
    :param writers: how many there should be; fewer where there are fewer partitions, more where ``max_bytes`` asks for
        them. Default: few, as ``max_bytes`` allows; without either, one for each partition.
    :param max_bytes: the most that a writer may get, of the source as it is stored. A partition above it is refused.
        Default: anything.
    :param prefix: of the writers' keys, where two plans feed one write group (templated).
    :param allow_empty: whether a source without files, or a path in it without any, is right: there are fewer writers
        then, or none. Default: the group's, or no.
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
        sizes: Mapping[Any, int] | Sequence[Sequence[Any]] | None = None,
        column: str | None = None,
        writers: int | None = None,
        max_bytes: int | None = None,
        prefix: str = "",
        allow_empty: bool | None = None,
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
        self.allow_empty = bool(group.get("allow_empty") if allow_empty is None else allow_empty)
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
            self.check_partition_key()
            for name in self.template_fields:
                check_rendered(name, getattr(self, name))
            run = TaskRun.of(context)
            name = f"{run.load(self.hook.namespace).id}/{self.task_id}"
            if self.sizes is not None:
                return self._by_value(name, _pairs(self.sizes))
            return self._by_files(name)

    def _by_files(self, name: str) -> list[dict[str, Any]]:
        from airflow_provider_onelake.reading.listing import by_partition

        assert self.source is not None
        files = by_partition(self._files(self.source), self.by)
        sizes = {partition: sum(file.size for file in found) for partition, found in files.items()}
        limit = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        return [
            {
                "writer": share.writer,
                "files": [literal(file.path) for part in share.partitions for file in files.get(part, ())],
            }
            | limit
            for share in self._shares(name, sizes, by=self.by, paths=self.source.paths)
        ]

    def _by_value(self, name: str, given: Sequence[tuple[Any, int]]) -> list[dict[str, Any]]:
        values = {_NULL if value is None else str(value): value for value, _ in given}
        if len(values) != len(given):
            raise PlanError(f"sizes={given!r}: two partitions have one name. Nothing was planned.")
        if not given and not self.allow_empty:
            raise PlanError(
                f"sizes={given!r} of {self.task_id}: there is nothing to load. Nothing was planned: look at the task "
                "that measures, or say allow_empty=True where that is right."
            )
        sizes = {_NULL if value is None else str(value): size for value, size in given}
        return [
            {
                "writer": share.writer,
                "where": self._where([values[part] for part in share.partitions if part in values]),
            }
            for share in self._shares(name, sizes, column=self.column)
        ]

    def _shares(
        self,
        name: str,
        sizes: Mapping[str, int],
        *,
        by: str | None = None,
        column: str | None = None,
        paths: Sequence[str] = (),
    ) -> list[Share]:
        """Return the shares of the plan that have something to read by now."""
        from airflow_provider_onelake.planning.record import Division, make_plan

        plan = make_plan(
            self.hook.delta_log(self.table).store,
            name,
            sizes,
            Division(by, column, tuple(paths)),
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

    def _files(self, source: FileSource) -> Sequence[SourceFile]:
        listing = list_source(source, self.hook)
        if listing.unseen:
            raise PlanError(
                f"{listing.unseen[0]} cannot be listed: it is not in the lakehouse of {self.onelake_conn_id}, "
                f"{listing.root or 'which names none'}, as Spark spells it. Nothing was planned: use a connection of "
                "that lakehouse, or give `sizes`."
            )
        if listing.reading.conflict:
            raise PlanError(
                f"Spark would refuse to read the source of {self.task_id}: {listing.reading.conflict}. Nothing was "
                "planned."
            )
        empty = listing.empty or (() if listing.reading.files else source.paths)
        if empty and not self.allow_empty:
            raise PlanError(
                f"{empty[0]} stands for no file that Spark reads. Nothing was planned: correct the path, wait for the "
                "files, or say allow_empty=True where a source without files is right."
            )
        return listing.reading.files

    def _where(self, values: Collection[Any]) -> str:
        column = f"`{(self.column or '').replace('`', '``')}`"
        parts = [f"{column} IN ({', '.join(_literal(value) for value in values if value is not None)})"]
        if None in values:
            parts = [*(parts if len(values) > 1 else ()), f"{column} IS NULL"]
        return " OR ".join(parts)


def _pairs(sizes: object) -> list[tuple[Any, int]]:
    """Read ``sizes`` in either of its forms.

    :raises PlanError: they are neither, or NULL has become text.
    """
    wrong = PlanError(
        f"sizes={sizes!r}: the sizes of partitions are a list of [value, bytes], or a dict of bytes by value. Nothing "
        "was planned."
    )
    if isinstance(sizes, Mapping):
        if lost := [key for key in sizes if isinstance(key, str) and key.lower() in _NULL_AS_KEY]:
            raise PlanError(
                f"sizes: the key {lost[0]!r} may have been NULL: XCom makes text of a dict's keys. Nothing was "
                "planned: give a list of [value, bytes], in which NULL stays NULL."
            )
        pairs = list(sizes.items())
    elif isinstance(sizes, Sequence) and not isinstance(sizes, str):
        pairs = list(sizes)
    else:
        raise wrong
    try:
        return [(value, int(size)) for value, size in pairs]
    except (TypeError, ValueError):
        raise wrong from None


def _literal(value: Any) -> str:
    """Return a value as Spark SQL; Spark casts text to the column's type where it compares them."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    text = str(value).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"
