"""The operator that divides a source over writers, once for each run."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_onelake.choices import OnChanged, check_choice
from airflow_provider_onelake.exceptions import InvalidWriteError, PlanError
from airflow_provider_onelake.hooks.context import task_run_of, write_group
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._parameters import (
    check_all_rendered,
    check_flag,
    check_size,
    check_whole,
    group_defaults,
    terminal_errors_fail,
)
from airflow_provider_onelake.operators._roles import is_writer
from airflow_provider_onelake.operators._source_files import list_source
from airflow_provider_onelake.operators._source_templates import SourceTemplates
from airflow_provider_onelake.reading.spark_files import SourceFile, literal
from airflow_provider_onelake.sources import FileSource
from airflow_provider_onelake.task_run import TaskRun
from airflow_provider_onelake.templates import is_final
from airflow_provider_onelake.texts import counted

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.planning.balance import Share
    from airflow_provider_onelake.planning.new_files import NewFiles
    from airflow_provider_onelake.planning.record import Division, Plan

logger = logging.getLogger(__name__)

# Hive's name for the partition of NULL. No other value has this name.
_NULL = "__HIVE_DEFAULT_PARTITION__"
# XCom turns every key of a dict into text. NULL becomes one of these.
_NULL_AS_KEY = ("none", "null")
_MEBIBYTE = 1 << 20


class OneLakePlanOperator(SourceTemplates):
    """Divide the partitions of a source over writers by size, for ``expand_kwargs`` of a writer.

    Use it as ``OneLakeWriteOperator.partial(source=…).expand_kwargs(plan.output)``. Each writer reads whole partitions,
    and each partition is read by one writer. The plan is made once for each run and kept beside the table, so that a
    clear divides the source over the same writers. Partitions that are new by then get new writers.

    The result in XCom is a list with one dict for each writer. ``writer`` (str) is its key: the partition's name, or
    for several partitions the first one's name with a hash of all. Planned from ``source``, the dict has ``files``
    (list of str), and ``planned`` (dict) if ``max_bytes`` is given. Planned from ``sizes``, it has ``where`` (str).
    Files are spelled as Spark takes paths, with a backslash before each character that has a meaning in a glob.

    With ``only_new``, the plan has the files that no run has loaded, and each dict has ``planned`` (dict) besides, by
    which the writer and the table's log know the files. A second XCom, with the key ``new_files``, is a dict of counts
    of files: ``planned`` for the run's writers, ``new`` of them since the try before, ``loaded`` before,
    ``left_for_next_run``, ``left_to_others`` (by the name of their run), ``taken_over``, and ``changed``.

    Inside an :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup`, ``table`` and
    ``onelake_conn_id`` take the group's value if they are not given here.

    :param source: a ``FileSource`` whose files are divided. They are listed on this machine, or in the connection's
        lakehouse. Give either ``source`` or ``sizes`` (templated).
    :param by: how the path of a file names its partition: a column of Hive's directories (``month`` for
        ``…/month=2019-01/…``), or a regular expression with one group. Default: every file is a partition (templated).
    :param sizes: the size of each partition in bytes, as a list of ``[value, bytes]`` or as a dict. From another task,
        pass the list, because XCom turns the keys of a dict into text, also NULL. A value is a text, a number, a
        boolean, a date, a time (without a zone: in UTC), bytes, or ``None`` (templated).
    :param column: the column of the source that holds the values of ``sizes``. Required with ``sizes``. Not templated.
    :param writers: the number of writers. There are fewer if there are fewer partitions, and more if ``max_bytes``
        requires it. Default: as few as ``max_bytes`` allows; without ``max_bytes``, one for each partition. Not
        templated.
    :param max_bytes: the most bytes of stored source files that one writer may get. A larger partition is refused.
        Default: no limit. Not templated.
    :param prefix: a prefix of the writers' keys, for two plans in one write group. Default: empty (templated).
    :param allow_empty: whether the source, or a path in it, may have no files. There are then fewer writers, or none.
        Default: no. Not templated.
    :param only_new: whether the plan has only the files that no run has loaded, each once over all runs. A plan without
        new files is no error: it has no writers. Not with ``sizes``. Default: no. Not templated.
    :param on_changed: with ``only_new``, what becomes of a file that has changed since it was loaded. ``refuse`` plans
        nothing and names it. ``load_again`` loads all of it again, and what was loaded before stays unless the writers
        replace it. ``ignore`` keeps what was loaded, and never asks about this change again. Default: ``refuse``
        (templated).
    :param max_files: with ``only_new``, the most files that a run loads, the oldest first. The next run has the rest.
        Default: no limit. Not templated.
    :param take_over: with ``only_new``, the names of runs, as the plan says them, whose files this run is to load where
        their writers have not published. Those writers never publish again. A list, or a text with commas. Default:
        none (templated).
    :param ledger: with ``only_new``, the name under which it is kept what was loaded. Plans with one ``ledger`` and one
        table load each file once together. Default: a name made of the namespace, the DAG and the task. Not templated.
    :param table: the table that the writers write; see
        :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator` (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: the group's, else ``onelake_default``. Not
        templated.
    """

    template_fields: Collection[str] = ("source", "by", "sizes", "prefix", "on_changed", "take_over", "table")
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
        allow_empty: bool = False,
        only_new: bool = False,
        on_changed: str = OnChanged.REFUSE,
        max_files: int | None = None,
        take_over: str | Sequence[str] | None = None,
        ledger: str | None = None,
        table: str | None = None,
        onelake_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        group = group_defaults(self)
        check_flag("allow_empty", allow_empty)
        check_flag("only_new", only_new)
        check_size("max_bytes", max_bytes)
        for name, number in (("writers", writers), ("max_files", max_files)):
            if number is not None:
                check_whole(name, number)
        self.source = source
        self.by = by
        self.sizes = sizes
        self.column = column
        self.writers = writers
        self.max_bytes = max_bytes
        self.prefix = prefix
        self.only_new = only_new
        self.on_changed = on_changed
        self.max_files = max_files
        self.take_over = take_over
        self.ledger = ledger
        self.allow_empty = allow_empty
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
        self._check_only_new()

    def _check_only_new(self) -> None:
        if is_final(self.on_changed):
            check_choice("on_changed", self.on_changed, OnChanged)
        given = self.on_changed != OnChanged.REFUSE or any((self.max_files, self.take_over, self.ledger))
        if given and not self.only_new:
            raise InvalidWriteError(
                f"{self.task_id}: on_changed, max_files, take_over and ledger belong to a plan with only_new=True."
            )
        if self.only_new and self.source is None:
            raise InvalidWriteError(f"{self.task_id}: only_new=True is about files: give `source`, not `sizes`.")

    @cached_property
    def hook(self) -> OneLakeHook:
        """The hook of the lakehouse."""
        return OneLakeHook(self.onelake_conn_id)

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """Divide the source over writers.

        :param context: of the running task.
        :returns: the arguments of each writer, as the class describes them.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        with terminal_errors_fail(self.hook):
            self.check_partition_key()
            check_all_rendered(self)
            if self.only_new:
                return self._by_new_files(context)
            name = f"{self._run(context).load(self.hook.namespace).id}/{self.task_id}"
            return self._by_files(name) if self.sizes is None else self._by_value(name, _pairs(self.sizes))

    def _run(self, context: Context) -> TaskRun:
        run = task_run_of(context, self._writer_behind() if self.only_new else None)
        if run.former is None:
            return run
        return run.found_in(self.hook.table(self.table).log, self.hook.namespace)

    def _by_files(self, name: str) -> list[dict[str, Any]]:
        from airflow_provider_onelake.planning.record import Division
        from airflow_provider_onelake.reading.listing import by_partition

        assert self.source is not None
        files = by_partition(self._files(self.source), self.by)
        sizes = {partition: sum(file.size for file in found) for partition, found in files.items()}
        limit = {} if self.max_bytes is None else {"planned": {"max_bytes": self.max_bytes}}
        return [
            {
                "writer": share.writer,
                "files": [literal(file.path) for part in share.partitions for file in files.get(part, ())],
            }
            | limit
            for share in self._shares(name, sizes, Division(self.by, paths=tuple(self.source.paths)))
        ]

    def _by_new_files(self, context: Context) -> list[dict[str, Any]]:
        from airflow_provider_onelake.planning.new_files import PlanRequest, plan_new
        from airflow_provider_onelake.storage.addresses import TableAddress

        assert self.source is not None
        self._check_only_new()
        load = self._run(context).load(self.hook.namespace)
        given = self.take_over.split(",") if isinstance(self.take_over, str) else self.take_over or ()
        asked = PlanRequest(
            ledger=self.ledger or f"{self.hook.namespace}/{load.dag}/{self.task_id}",
            named=self.ledger is not None,
            load=load,
            plan=f"{load.id}/{self.task_id}",
            by=self.by,
            writers=self.writers,
            max_bytes=self.max_bytes,
            prefix=self.prefix or "",
            max_files=self.max_files,
            on_changed=OnChanged(self.on_changed),
            take_over=frozenset(name.strip() for name in given if name.strip()),
        )
        root = TableAddress.parse_root(self.hook.lakehouse).spark_uri if self.hook.lakehouse else ""
        table = self.hook.table(self.table)
        plan = plan_new(table.committer(), asked, self._files(self.source), root)
        self._tell_new(plan)
        context["ti"].xcom_push(key="new_files", value=plan.to_json())
        limit = {} if self.max_bytes is None else {"max_bytes": self.max_bytes}
        return [
            {
                "writer": given.writer,
                "files": [literal(file.path) for file in given.files],
                "planned": {**given.planned, **limit},
            }
            for given in plan.writers
        ]

    def _writer_behind(self) -> Any:
        """Return a writer behind the plan: by the names of these writers, the table knows what is loaded."""
        dag = self.get_dag()
        if dag is None:
            return None
        behind = [task for task_id in self.downstream_task_ids if is_writer(task := dag.get_task(task_id))]
        groups = set(map(write_group, behind))
        if len(groups) != 1:
            raise InvalidWriteError(
                f"{self.task_id}: with only_new=True, the writers of the plan stand directly behind it, in one write "
                f"group, and here are {len(groups)}: expand the writers over the plan's output itself. Nothing was "
                "planned."
            )
        return behind[0]

    def _tell_new(self, plan: NewFiles) -> None:
        for given in plan.writers:
            size = sum(file.size for file in given.files) / _MEBIBYTE
            files = counted(len(given.files), "file")
            logger.info("%s: writer %s gets %s: %.1f MiB", self.table, given.writer, files, size)
        logger.info(
            "%s: new files: %d; left for the next run: %d; loaded before: %d; changed since: %d",
            self.table,
            plan.new,
            plan.left_for_next_run,
            plan.loaded,
            plan.changed,
        )
        for run, count in plan.left_to_others.items():
            logger.warning(
                "%s: the run %s was given %s whose rows are not in the table. If its writers have not published them, "
                "clear that run. If a RESTORE took them back, or the run is never to load them, start a run with "
                "take_over=%r",
                self.table,
                run,
                counted(count, "file"),
                run,
            )
        logger.info("%s: what was loaded is kept in %s", self.table, plan.path)

    def _by_value(self, name: str, given: Sequence[tuple[Any, int]]) -> list[dict[str, Any]]:
        from airflow_provider_onelake.planning.filters import check_distinct, filter_of
        from airflow_provider_onelake.planning.record import Division

        assert self.column is not None

        named = {_NULL if value is None else str(value): (value, size) for value, size in given}
        if len(named) != len(given):
            raise PlanError(f"sizes={given!r}: two partitions have one name. Nothing was planned.")
        if not given and not self.allow_empty:
            raise PlanError(
                f"sizes={given!r} of {self.task_id}: there is nothing to load. Nothing was planned: look at the task "
                "that measures, or say allow_empty=True where that is right."
            )
        check_distinct(value for value, _ in given)
        # A value that has no filter is refused before a plan is kept.
        filter_of(self.column, [value for value, _ in given])
        sizes = {part: size for part, (_, size) in named.items()}
        return [
            {
                "writer": share.writer,
                "where": filter_of(self.column, [named[part][0] for part in share.partitions if part in named]),
            }
            for share in self._shares(name, sizes, Division(column=self.column))
        ]

    def _shares(self, name: str, sizes: Mapping[str, int], division: Division) -> list[Share]:
        """Return the shares of the plan that have at least one partition in the source now."""
        from airflow_provider_onelake.planning.record import make_plan

        plan = make_plan(
            self.hook.table(self.table).log.store,
            name,
            sizes,
            division,
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


def _pairs(sizes: object) -> list[tuple[Any, int]]:
    """Read ``sizes`` in either of its forms.

    :raises PlanError: ``sizes`` has another form, or NULL may have become text.
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
        sizes = list(sizes.items())
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        raise wrong
    try:
        return [(value, int(size)) for value, size in sizes]
    except (TypeError, ValueError):
        raise wrong from None
