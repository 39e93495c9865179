"""Wait for something to be committed to a Delta table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from airflow.providers.common.compat.sdk import AirflowFailException, conf
from airflow.sdk import BaseSensorOperator, PokeReturnValue, XComArg

from airflow_provider_onelake._airflow import check_has
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.following.watch import Awaited, LogWatch, check_awaited, check_one_thing, watch_for
from airflow_provider_onelake.hooks.context import load_name, task_run_of, write_group
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators._parameters import check_flag, terminal_errors_fail
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.log.delta_log import DeltaLog

# One note, as a process may die between two, and the digest of another version says that the table was made again.
_SEEN = "seen"


class DeltaLogSensor(BaseSensorOperator):
    """Wait until writers, a version, a partition, an operation or rows are committed to a table.

    The sensor reads every commit in order. It asks the store for the next version's file, so its cost does not grow
    with the log. If the table does not exist yet, the sensor waits. The result in XCom is a dict that describes the
    commit that ended the wait. For ``rows_at_least`` it has the ``version`` and its ``rows``, for ``fresher_than`` the
    ``version`` and its ``time``.

    Give exactly one of ``writers``, ``version``, ``partition``, ``operation``, ``rows_at_least`` and ``fresher_than``.
    Only ``rows_at_least`` may have a ``partition`` beside it.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param writers: the writers whose rows must be in the table, or set aside by the policy of their load: a list of
        their keys, or reconcile's XCom ``txns``. With keys, rows of an earlier run of the same partition, or from
        before a clear, count too. The task fails for good if another run has taken over a writer's files. Do not name a
        MERGE by its key if it may have nothing to do, as that leaves no trace in the table. Default: none (templated).
    :param writer_dag_id: the DAG of the writers that ``writers`` names by key, or the ``load_name`` of their group.
        Default: the ``load_name`` of this task's group, else this DAG (templated).
    :param writer_group: the task group of the writers that ``writers`` names by key. Default: this task's group
        (templated).
    :param writer_run: the run of the writers that ``writers`` names by key: a logical date in UTC such as
        ``2019-01-01T00:00:00+00:00``, ``partition:2019-01`` under a ``CronPartitionTimetable`` (the ``run`` in the
        writers' XCom, as a key that two ticks have is followed by the date), or a run's id. Default: this run
        (templated).
    :param version: the version that the table must have reached. Default: none (templated).
    :param partition: a predicate on partition columns. The sensor waits for a commit that adds rows where it holds. A
        predicate that the table cannot have fails the task as soon as there is a table.
        Beside ``rows_at_least``, it says which rows count. Default: none (templated).
    :param operation: the operation of a commit as the log spells it: ``WRITE``, ``OPTIMIZE``, …; or a list of
        operations, of which any ends the wait. Default: none (templated).
    :param rows_at_least: the number of rows that the table must have, or that must satisfy ``partition``, whoever wrote
        them. They are counted from the files' statistics, without deleted rows. If statistics are missing, the task
        fails and says so. Default: none (templated).
    :param fresher_than: the greatest age of the last commit that changed rows, as a ``timedelta`` or in seconds, by the
        commit's own time. Compaction and VACUUM do not count. Default: none. Not templated.
    :param after: for ``partition`` and ``operation``: only commits after this version count. Default: the table's
        version when the sensor starts. A retry continues where the try before it was, unless ``table`` or ``after``
        was corrected in between (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param deferrable: whether to wait in the triggerer, without a worker. Default: Airflow's
        ``[operators] default_deferrable``. Not templated.
    :param poke_interval: seconds, or a ``timedelta``, between two looks. Default: 5. Not templated.
    """

    template_fields: Collection[str] = (
        "table",
        "writers",
        "writer_dag_id",
        "writer_group",
        "writer_run",
        "version",
        "partition",
        "operation",
        "rows_at_least",
        "after",
    )
    ui_color = "#e6edf5"

    def __init__(
        self,
        *,
        table: str,
        writers: Sequence[str] | Mapping[str, int] | XComArg | None = None,
        writer_dag_id: str | None = None,
        writer_group: str | None = None,
        writer_run: str | None = None,
        version: int | str | None = None,
        partition: str | None = None,
        operation: str | Collection[str] | None = None,
        rows_at_least: int | str | None = None,
        fresher_than: timedelta | float | None = None,
        after: int | str | None = None,
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        deferrable: bool | None = None,
        poke_interval: timedelta | float = 5.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(poke_interval=poke_interval, **kwargs)
        check_flag("deferrable", deferrable, or_none=True)
        self.table = table
        self.writers = writers
        self.writer_dag_id = writer_dag_id
        self.writer_group = writer_group
        self.writer_run = writer_run
        self.version = version
        self.partition = partition
        self.operation = operation
        self.rows_at_least = rows_at_least
        self.fresher_than = fresher_than
        self.after = after
        self.onelake_conn_id = onelake_conn_id
        self.deferrable = conf.getboolean("operators", "default_deferrable") if deferrable is None else deferrable
        self._watch: LogWatch | None = None
        self._noted: Mapping[str, Any] = {}
        try:
            check_one_thing([name for name in attrs.fields_dict(Awaited) if getattr(self, name) is not None])
            self._check_known()
        except InvalidWriteError as error:
            raise InvalidWriteError(f"{self.task_id}: {error}") from None

    def _check_known(self) -> None:
        """Refuse what no rendering makes right."""
        for name, read in _READ.items():
            value = getattr(self, name)
            # Airflow does not render `fresher_than`.
            if name == "fresher_than" or is_final(value):
                value = read(value)
                if value is not None:
                    check_awaited(name, value)

    def execute(self, context: Context) -> Any:
        """Look once, then wait: in the triggerer if ``deferrable``, else in the worker.

        :param context: of the running task.
        :returns: the commit that ended the wait, for XCom; ``None`` if the load committed nothing.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        if isinstance(self.writers, Mapping) and not self.writers:
            # Do not look: a load without writers, or without rows, may leave no table.
            self.log.info("%s: the load committed nothing, so there is nothing to wait for", self.table)
            return None
        if not self.deferrable:
            return super().execute(context)
        watch = self._look_once(context)
        if watch.met is None:
            from airflow_provider_onelake.triggers.wait import DeltaLogWaitTrigger

            # All that is awaited, also what is there already: in a table that is made again it is not.
            self.defer(
                trigger=DeltaLogWaitTrigger(
                    table=self.table,
                    onelake_conn_id=self.onelake_conn_id,
                    after=watch.cursor,
                    digest=watch.digest,
                    poll_interval=self.poke_interval,
                    **attrs.asdict(watch.awaited),
                ),
                method_name="execute_complete",
                timeout=timedelta(seconds=self.timeout),
            )
        return watch.met

    def execute_complete(self, context: Context, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of the trigger's event.

        :param context: of the resumed task.
        :param event: the trigger's event.
        :returns: the commit that ended the wait, for XCom.
        :raises AirflowFailException: the trigger reports an error on which a person has to act.
        """
        if event.get("status") != "met":
            raise AirflowFailException(str(event.get("message", event)))
        self.log.info("%s: version %s ended the wait", event.get("table", self.table), event.get("version"))
        return dict(event)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once.

        :param context: of the running task.
        :returns: whether the wait has ended, and the commit that ended it.
        :raises AirflowFailException: a person has to act; nothing is retried.
        """
        watch = self._look_once(context)
        return PokeReturnValue(is_done=watch.met is not None, xcom_value=watch.met)

    def _look_once(self, context: Context) -> LogWatch:
        # A retry, and each poke of a rescheduled task, runs in a new process. So keep the cursor in the task's state
        # store, because Airflow deletes XComs in between. Else commits from the time between would be missed.
        kept, hook = context.get("task_state_store"), OneLakeHook(self.onelake_conn_id)
        with terminal_errors_fail(hook):
            if self._watch is None:
                self._watch = self._open(context, hook, kept.get(_SEEN) if kept is not None else None)
            watch = self._watch
            commits = watch.poll()
            for commit in commits:
                self.log.info("%s: version %d, %s", watch.log.table, commit.version, commit.operation)
            if not commits and watch.met is None:
                self.log.debug("%s: nothing after version %d", watch.log.table, watch.cursor)
        seen: dict[str, Any] = {"asked": self._question(watch.log), "version": watch.cursor, "digest": watch.digest}
        if kept is not None and watch.met is None and seen != self._noted:
            kept.set(_SEEN, seen)
            self._noted = seen
        return watch

    def _open(self, context: Context, hook: OneLakeHook, noted: Any) -> LogWatch:
        """Return the watch. It goes on from where the process before was, if that one waited for the same.

        :param noted: what the process before has noted; ``None`` for nothing.
        """
        log = hook.table(self.table).log
        awaited = Awaited(
            writers=self._txns(context, hook.namespace, log),
            **{name: read(getattr(self, name)) for name, read in _READ.items() if name in attrs.fields_dict(Awaited)},
        )
        # A person may have corrected the task between two tries: a version of another table says nothing of this one.
        self._noted = noted if isinstance(noted, Mapping) and noted.get("asked") == self._question(log) else {}
        after = self._noted.get("version", _number("after", self.after))
        if after is None and awaited.is_a_commit and self.reschedule and not self.deferrable:
            # Each poke is a process of its own, which would begin at the version of then.
            check_has(
                f"{self.task_id}: a sensor with mode='reschedule' and without `after`",
                "Nothing was waited for: say `after`, or wait in the triggerer (deferrable=True).",
            )
        return watch_for(log, awaited, after, self._noted.get("digest"))

    def _question(self, log: DeltaLog) -> dict[str, Any]:
        """Return where the wait begins, as the task's author says."""
        return {"table": log.address, "after": _number("after", self.after)}

    def _txns(self, context: Context, namespace: str, log: DeltaLog) -> Mapping[str, int] | None:
        if self.writers is None:
            return None
        if isinstance(self.writers, Mapping):
            return {str(app_id): int(generation) for app_id, generation in self.writers.items()}
        if isinstance(self.writers, str | XComArg) or not is_final(self.writers):
            raise InvalidWriteError(f"writers={self.writers!r}: the keys of writers, as a list.")
        from airflow_provider_onelake.buffers.identity import Load

        load = Load(
            namespace=namespace,
            dag=self.writer_dag_id or load_name(self) or context["ti"].dag_id,
            group=self.writer_group or write_group(self),
            run=self.writer_run or task_run_of(context).found_in(log, namespace).run,
        )
        return {load.writer(key).app_id: 1 for key in self.writers}


def _number(name: str, value: Any) -> int | None:
    if value is None or value == "":
        return None
    try:
        if isinstance(value, bool | float):
            raise TypeError
        return int(value)
    except (TypeError, ValueError):
        raise InvalidWriteError(f"{name}={value!r}: a whole number is wanted.") from None


# How each parameter is read, once it is known.
_READ: Mapping[str, Callable[[Any], Any]] = {
    "version": partial(_number, "version"),
    "partition": lambda value: value,
    # A trigger is kept as JSON, which has no sets.
    "operation": lambda value: list(value) if isinstance(value, set | frozenset | tuple) else value,
    "rows_at_least": partial(_number, "rows_at_least"),
    "fresher_than": lambda value: value.total_seconds() if isinstance(value, timedelta) else value,
    "after": partial(_number, "after"),
}
