"""The operators of statements: TRUNCATE, and DELETE of whole partitions, without Spark; DELETE and UPDATE of rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_onelake.choices import OnStatementRerun, check_choice
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import check_all_rendered, check_message, check_table, check_whole
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.operators._statement import StatementOperator
from airflow_provider_onelake.statements.statement import DELETE, UPDATE, Statement
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.table import Table


class _DeletingOperator(StatementOperator):
    """A statement that may delete whole files, without Spark."""

    def _delete(self, context: Context, table: Table, where: str | None) -> dict[str, Any]:
        from airflow_provider_onelake.steps.statement import Deletion, describe_deletion

        done = Deletion(table=table, where=where, **self.who(context)).carry_out()
        return self.tell(table, done.version, describe_deletion(done))


class OneLakeTruncateOperator(_DeletingOperator):
    """Delete all rows of a table, in one commit and without Spark. The columns and the properties stay.

    The commit is Delta's TRUNCATE. It removes what is in the table when it is made, also rows that others appended a
    moment before; rows that are appended after it stay. No commit of others makes it fail. Older versions stay
    readable. An append-only table (``delta.appendOnly``) is refused.

    A retry after a commit whose answer was lost deletes nothing more. It is refused if a RESTORE has brought the rows
    back, or if the task asks for something else by then. A clear deletes again.

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

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table", "commit_message")
    ui_color = "#f4ece3"

    def __init__(
        self, *, table: str, commit_message: str | None = None, onelake_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.commit_message = commit_message
        check_table("table", table)
        check_message(commit_message)
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the rows.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was changed and nothing is retried.
        """
        with self.errors_explained():
            check_all_rendered(self)
            return self._delete(context, self.begin(context), None)


class _RowStatementOperator(_DeletingOperator, SparkTaskOperator):
    """A DELETE or UPDATE with a predicate on rows."""

    def __init__(
        self,
        *,
        table: str,
        where: str,
        covers: str | None = None,
        max_rounds: int = 5,
        commit_message: str | None = None,
        **kwargs: Any,
    ) -> None:
        if "isolation" in kwargs:
            raise InvalidWriteError(
                "isolation is gone: a statement sees all that lands before it. Leave it out; name the partitions that "
                "matter by covers, or allow more rounds by max_rounds, where appends land all the time."
            )
        super().__init__(**kwargs)
        self.table = table
        self.where = where
        self.covers = covers
        self.max_rounds = max_rounds
        self.commit_message = commit_message
        check_table("table", table)
        check_message(commit_message)
        check_whole("max_rounds", max_rounds)

    def _statement(self) -> Statement:
        raise NotImplementedError

    def _check_now(self) -> None:
        """Refuse what is wrong as far as it is known when the DAG is parsed."""
        if all(is_final(value) for value in (self.where, self.covers, getattr(self, "set", None))):
            self._statement()

    def _covers(self) -> str | None:
        covers = self.covers
        if covers is not None and not isinstance(covers, str):
            raise InvalidWriteError(f"covers={covers!r} must be a predicate on partition columns. Nothing was changed.")
        return (covers or "").strip() or None

    def _change(self, context: Context, table: Table, on_rerun: OnStatementRerun) -> dict[str, Any]:
        from airflow_provider_onelake.steps.change import RowChange, describe_change

        statement = self._statement()
        done = RowChange(
            table=table,
            spark=self.spark,
            statement=statement,
            on_rerun=on_rerun,
            max_rounds=self.max_rounds,
            **self.who(context),
        ).carry_out()
        return self.tell(table, done.version, describe_change(statement, done))


class OneLakeDeleteOperator(_RowStatementOperator):
    """Delete the rows that a predicate matches, in one commit, whoever else writes the table at the same time.

    A predicate on partition columns alone takes whole files, without Spark, as :class:`OneLakeTruncateOperator` does.
    For any other predicate Spark runs Delta's own DELETE in *rounds*: on a private table over the files that it has not
    read yet. If others change or add files meanwhile, Spark runs again on these alone, and one commit publishes all.
    So the version that it makes is the DELETE done to the version before, and no commit of others makes it fail, unless
    they change the same files again and again.

    A retry after a commit whose answer was lost deletes nothing more. It is refused if a RESTORE has brought the rows
    back, or if the task asks for something else by then. A clear deletes again.

    The result in XCom is a dict:

    - ``table`` (str); ``status`` (str): ``done``, ``already_done`` (an earlier try did it) or ``nothing_to_do``;
      ``summary`` (str): one sentence.
    - ``version`` (int or None): the version that the commit made.
    - ``rows_deleted`` (int, or None if the statistics of a file do not say); ``files_removed`` (int or None);
      ``lost_races`` (int).
    - ``rounds`` (int): how many times Spark ran; 0 for whole files. Then ``bytes_removed`` (int or None) is there too,
      else ``files_added`` (int or None).

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param where: which rows go: a predicate in Spark SQL, as in ``month < '2019-01'`` or ``person_id = 17``. It has no
        subquery, and calls no function whose answer changes from run to run, such as ``rand()`` (templated).
    :param covers: a predicate on partition columns alone. No row of any other partition goes, Spark does not look at
        them, and what others do there does not matter. Default: all partitions (templated).
    :param max_rounds: after how many rounds that others have overtaken it gives up with ``RoundsUsedUpError``.
        Default: 5. Not templated.
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator.
    """

    template_fields: Collection[str] = ("table", "where", "covers", "commit_message")
    template_fields_renderers: ClassVar[dict[str, str]] = {"where": "sql", "covers": "sql"}
    ui_color = "#f4ece3"

    def __init__(self, *, table: str, where: str, **kwargs: Any) -> None:
        super().__init__(table=table, where=where, **kwargs)
        self._check_now()

    def execute(self, context: Context) -> dict[str, Any]:
        """Delete the rows.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was changed and nothing is retried.
        """
        from airflow_provider_onelake.steps.statement import of_whole_files

        with self.errors_explained():
            check_all_rendered(self)
            table = self.begin(context)
            where = of_whole_files(self._statement(), table.log.snapshot())
            if where is None:
                return self._change(context, table, OnStatementRerun.AGAIN)
            return {**self._delete(context, table, where), "rounds": 0}

    def _statement(self) -> Statement:
        where = self.where
        if not isinstance(where, str) or not where.strip():
            raise InvalidWriteError(
                f"{self.task_id}: where={where!r} must be a predicate, such as \"month = '2019-01'\". Nothing was "
                "changed. To delete all rows, use OneLakeTruncateOperator."
            )
        return Statement(operation=DELETE, where=where.strip(), covers=self._covers())


class OneLakeUpdateOperator(_RowStatementOperator):
    """Update the rows that a predicate matches, in one commit, whoever else writes the table at the same time.

    Spark runs Delta's own UPDATE in *rounds*, as for :class:`OneLakeDeleteOperator`. Each row is updated once, also if
    others rewrite its file while Spark is at work.

    A retry after a commit whose answer was lost updates nothing more. It is refused if a RESTORE has undone the commit,
    or if the task asks for something else by then.

    The result in XCom is a dict:

    - ``table`` (str); ``status`` (str): ``done``, ``already_done`` (an earlier try or start did it) or
      ``nothing_to_do``; ``summary`` (str): one sentence.
    - ``version`` (int or None): the version that the commit made.
    - ``rows_updated`` (int, or None if a part of what Spark did had to be done again); ``files_removed``,
      ``files_added`` (int or None); ``rounds`` (int): how many times Spark ran; ``lost_races`` (int).

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param set: by column, its new value in Spark SQL, as in ``{"fare": "fare / 100"}``. It has no subquery (templated).
    :param where: which rows are updated: a predicate in Spark SQL; ``true`` stands for all. It has no subquery, and
        calls no function whose answer changes from run to run (templated).
    :param covers: a predicate on partition columns alone. No row of any other partition is updated, Spark does not look
        at them, and what others do there does not matter. Default: all partitions (templated).
    :param on_rerun: what a clear does after the update was done: ``skip`` leaves the rows as they are, and is refused
        with ``RerunRefusedError`` if others have changed rows in these partitions since; ``again`` updates the rows
        that match now. After a RESTORE that has undone it, both update. Default: ``skip``. Not templated.
    :param max_rounds: after how many rounds that others have overtaken it gives up with ``RoundsUsedUpError``.
        Default: 5. Not templated.
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator.
    """

    template_fields: Collection[str] = ("table", "set", "where", "covers", "commit_message")
    template_fields_renderers: ClassVar[dict[str, str]] = {"where": "sql", "covers": "sql", "set": "json"}
    ui_color = "#f4ece3"

    def __init__(
        self,
        *,
        table: str,
        set: Mapping[str, str],  # noqa: A002 - SQL's own word
        where: str,
        on_rerun: str = OnStatementRerun.SKIP.value,
        **kwargs: Any,
    ) -> None:
        super().__init__(table=table, where=where, **kwargs)
        self.set = set
        self.on_rerun = on_rerun
        check_choice("on_rerun", on_rerun, OnStatementRerun)
        self._check_now()

    def execute(self, context: Context) -> dict[str, Any]:
        """Update the rows.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was changed and nothing is retried.
        """
        with self.errors_explained():
            check_all_rendered(self)
            return self._change(context, self.begin(context), OnStatementRerun(self.on_rerun))

    def _statement(self) -> Statement:
        if not isinstance(self.set, Mapping) or not self.set or not all(isinstance(name, str) for name in self.set):
            raise InvalidWriteError(
                f"{self.task_id}: set={self.set!r}: by column, its new value in Spark SQL, such as "
                '{"fare": "fare / 100"}. Nothing was changed.'
            )
        where = self.where.strip() if isinstance(self.where, str) else self.where
        return Statement(operation=UPDATE, where=where, covers=self._covers(), assignments=dict(self.set))
