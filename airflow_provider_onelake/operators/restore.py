"""The operator that takes a table back to an older version."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.context import start_of, task_run_of
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import (
    check_message,
    check_rendered,
    rendered_message,
    value_or_none,
)
from airflow_provider_onelake.operators._spark_task import TableTaskOperator
from airflow_provider_onelake.storage.clock import instant_given
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.steps.restore import Decision

_FIRST_LOOK = "onelake_restore"
"""The key in the task's state store of what the first try of a start decided. A retry must not undo what came since."""


class OneLakeRestoreOperator(TableTaskOperator):
    """Take a table back to an older version, in one commit and without Spark.

    The commit is Delta's RESTORE: it adds the files that the version had, and removes those that came since. No file is
    copied, and all versions stay readable. First it is checked that every file of the version is still there. The
    columns, the properties and the clustering columns come back too; the protocol stays as it is.

    A retry after a commit whose answer was lost changes nothing, unless the task asks for something else by then. A
    clear restores again. An old process that wakes up after a newer start has ended restores nothing: so a retry or a
    clear that finds nothing to do makes a commit that changes nothing. Writers whose rows were taken back are not
    skipped when they are cleared: see ``on_rerun`` of
    :class:`~airflow_provider_onelake.operators.write.OneLakeWriteOperator`. An append in flight that began before the
    restore lands on top of it; an overwrite meets it as its ``on_conflict`` says.

    The result in XCom is a dict:

    - ``table`` (str); ``status`` (str): ``restored``, ``already_restored`` (an earlier try did it) or
      ``nothing_to_do``; ``summary`` (str): one sentence.
    - ``version`` (int or None): the version that the restore made; ``restored_to`` (int): the one that it is as.
    - ``undone`` (list of two int, or None): the first and the last version that were undone.
    - ``files_restored``, ``bytes_restored``, ``files_removed``, ``bytes_removed`` (int); ``rows_restored``,
      ``rows_removed`` (int, or None without statistics); ``lost_races`` (int).

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param version: the number of the version to go back to (templated).
    :param timestamp: goes back to the version that the table had then: a ``datetime``, or its text in ISO format, as in
        ``{{ data_interval_start }}``. The time has a zone. Give either this or ``version`` (templated).
    :param on_newer_commit: what happens if others commit after the task has looked at the table: ``fail`` changes
        nothing, ``undo`` takes their commits back as well. Compactions do not count. Default: ``fail`` (templated).
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table", "version", "timestamp", "on_newer_commit", "commit_message")
    ui_color = "#f4ece3"

    def __init__(
        self,
        *,
        table: str,
        version: int | str | None = None,
        timestamp: datetime | str | None = None,
        on_newer_commit: str = OnNewerCommit.FAIL.value,
        commit_message: str | None = None,
        onelake_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.version = version
        self.timestamp = timestamp
        self.on_newer_commit = on_newer_commit
        self.commit_message = commit_message
        check_message(commit_message)
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name
        if is_final(version) and (is_final(timestamp) or isinstance(timestamp, datetime)) and is_final(on_newer_commit):
            self._target()

    def execute(self, context: Context) -> dict[str, Any]:
        """Take the table back.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was changed and nothing is retried.
        """
        from airflow_provider_onelake.steps.restore import Restoration, describe_restore

        with self.errors_explained():
            for name in self.template_fields:
                if not isinstance(value := getattr(self, name), datetime):
                    check_rendered(name, value)
            version, instant = self._target()
            message = rendered_message(self.commit_message)
            table = self.begin(context)
            state = self.task_state(context)
            task_start = start_of(context, state)
            # A person may have corrected the task between two tries. What an earlier one decided then counts no more.
            asked = {
                "deed": task_start.id,
                "table": str(table),
                "version": version,
                "instant": instant and instant.isoformat(),
            }

            def first_look(decide: Callable[[], Decision]) -> Decision:
                known: Any = state.get(_FIRST_LOOK)
                if not isinstance(known, Mapping) or any(known.get(name) != value for name, value in asked.items()):
                    (newest, digest), wanted = decide()
                    known = {**asked, "newest": newest, "digest": digest, "wanted": wanted}
                    state.set(_FIRST_LOOK, known)
                return (int(known["newest"]), known["digest"]), int(known["wanted"])

            done = Restoration(
                table=table,
                version=version,
                instant=instant,
                on_newer_commit=OnNewerCommit(self.on_newer_commit),
                run=task_run_of(context),
                task_start=task_start,
                first_look=first_look,
                namespace=self.hook.namespace,
                message=message,
            ).carry_out()
            self.show_commit(done.version)
            return {"table": str(table), **describe_restore(done)}

    def _target(self) -> tuple[int | None, datetime | None]:
        """Return the version or the instant to go back to.

        :raises InvalidWriteError: neither or both are given, or a value is wrong.
        """
        if self.on_newer_commit not in list(OnNewerCommit):
            words = ", ".join(OnNewerCommit)
            raise InvalidWriteError(f"on_newer_commit={self.on_newer_commit!r} is unknown; it is one of {words}.")
        version, timestamp = value_or_none(self.version), value_or_none(self.timestamp)
        if (version is None) == (timestamp is None):
            raise InvalidWriteError(
                f"{self.task_id}: give either `version` or `timestamp`, to say what the table goes back to. Nothing "
                "was changed."
            )
        if timestamp is not None:
            return None, instant_given(timestamp)
        try:
            number = int(version)
        except (TypeError, ValueError):
            number = -1
        if number < 0 or isinstance(version, bool | float):
            raise InvalidWriteError(
                f"version={version!r} must be the number of a version, 0 or above. Nothing was changed."
            )
        return number, None
