"""The operators that delete rows: DELETE by partition columns, and TRUNCATE. Neither needs Spark."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.hooks.task_run import TaskRun, deed_of
from airflow_provider_onelake.lineage import Lineage, lineage_of
from airflow_provider_onelake.links.onelake import CommitLink, TableLink
from airflow_provider_onelake.operators._spark_task import TableTaskOperator
from airflow_provider_onelake.operators._terms import (
    check_message,
    check_rendered,
    is_final,
    rendered_message,
    terminal_errors_fail,
)

if TYPE_CHECKING:
    from airflow.sdk import Context


class OneLakeTruncateOperator(TableTaskOperator):
    """Delete all rows of a table, in one commit and without Spark. The columns and the properties stay.

    The commit is Delta's TRUNCATE. It removes what is in the table when it is made, also rows that others appended a
    moment before; rows that are appended after it stay. No commit of others makes it fail. Older versions stay
    readable. An append-only table (``delta.appendOnly``) is refused.

    A retry after a commit whose answer was lost deletes nothing more, unless a RESTORE has brought the rows back, or
    the task asks for something else by then. A clear deletes again.

    The result in XCom is a dict:

    - ``table`` (str); ``status`` (str): ``done``, ``already_done`` (an earlier try did it) or ``nothing_to_do``;
      ``summary`` (str): one sentence.
    - ``version`` (int or None): the version that the commit made.
    - ``rows_deleted`` (int, or None if the statistics of a file do not say); ``files_removed``, ``bytes_removed`` (int,
      or None for an earlier try whose commit the log has no more); ``lost_races`` (int).

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    """

    operator_extra_links = (TableLink(), CommitLink())
    template_fields: Collection[str] = ("table", "commit_message")
    ui_color = "#f4ece3"

    def __init__(
        self, *, table: str, commit_message: str | None = None, onelake_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.commit_message = commit_message
        check_message(commit_message)
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the rows.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was changed and nothing is retried.
        """
        from airflow_provider_onelake.work.statement import Deletion, describe_deletion

        with terminal_errors_fail():
            for name in self.template_fields:
                check_rendered(name, getattr(self, name))
            where, message = self._predicate(), rendered_message(self.commit_message)
            table = self.begin(context)
            done = Deletion(
                table=table,
                where=where,
                run=TaskRun.of(context),
                deed=deed_of(context).id,
                namespace=self.hook.namespace,
                message=message,
            ).carry_out()
            self.show_commit(done.version)
            if done.version is not None:
                lineage = Lineage(table=table.address, version=done.version)
                self._lineage = lineage_of(lambda: lineage.with_snapshot(table.log.snapshot()))
            return {"table": str(table), **describe_deletion(done)}

    def _predicate(self) -> str | None:
        """Return the predicate of the rows to delete; ``None`` for all rows."""
        return None


class OneLakeDeleteOperator(OneLakeTruncateOperator):
    """Delete the rows of the partitions that a predicate covers, in one commit and without Spark.

    The commit is Delta's DELETE. What holds for :class:`OneLakeTruncateOperator` holds here too: what others commit
    meanwhile, retries, clears and the result in XCom. A predicate on other columns is refused.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param where: which rows go: a predicate on partition columns alone, in Spark SQL, as in ``month < '2019-01'``. It
        may compare columns with literals (=, <>, <, <=, >, >=, <=>, IN, BETWEEN, IS NULL), joined by AND, OR and NOT
        (templated).
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    """

    template_fields: Collection[str] = ("table", "where", "commit_message")
    template_fields_renderers: ClassVar[dict[str, str]] = {"where": "sql"}

    def __init__(self, *, table: str, where: str, **kwargs: Any) -> None:
        super().__init__(table=table, **kwargs)
        self.where = where
        if is_final(where):
            self._predicate()

    def _predicate(self) -> str | None:
        where = self.where
        if not isinstance(where, str) or not where.strip():
            raise InvalidWriteError(
                f"{self.task_id}: where={where!r}: a predicate on partition columns, such as \"month = '2019-01'\". "
                "Nothing was changed. To delete all rows, use OneLakeTruncateOperator."
            )
        return where.strip()
