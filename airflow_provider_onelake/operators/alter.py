"""The operator that changes the definition of a table: its columns, comments, properties and CHECK constraints."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.operators._parameters import (
    check_all_rendered,
    check_message,
    check_rendered,
    check_whole,
)
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.operators._statement import StatementOperator
from airflow_provider_onelake.statements.alteration import Alteration
from airflow_provider_onelake.templates import is_final

if TYPE_CHECKING:
    from airflow.sdk import Context

_BY_NAME = ("rename_columns", "column_types", "column_comments", "set_properties", "add_checks")
_LISTS = ("drop_columns", "unset_properties", "drop_checks")


class OneLakeAlterOperator(StatementOperator, SparkTaskOperator):
    """Change the definition of a table, in one commit, whoever else writes the table at the same time.

    Spark runs its own ALTER TABLE statements in a private table that has the same definition, and what they make of it
    is committed to the table as one version; no file is written. If others change the definition meanwhile, or add
    files that a new CHECK must be asked of, Spark runs them again. What the table has already is left out, and Spark is
    not asked where nothing is left.

    The parts are done in this order: CHECK constraints are dropped; properties are unset, then set; columns are
    widened, commented on, dropped and renamed, each called by its name before; CHECK constraints are added. A field of
    a struct is called ``address.city``; a name with a dot in it stands in backticks.

    A retry after a commit whose answer was lost changes nothing more, unless a RESTORE has undone it, or the task asks
    for something else by then. A clear does what the table does not have, or not any more.

    The result in XCom is a dict:

    - ``table`` (str); ``status`` (str): ``done``, ``already_done`` (an earlier try did it) or ``nothing_to_do`` (the
      table is so); ``summary`` (str): one sentence.
    - ``version`` (int or None): the version that the commit made.
    - ``changes`` (list of str, or None if the log no longer says): the statements, without ``ALTER TABLE``.
    - ``features`` (list of str): the table features that the protocol got; readers and writers must know them now.
    - ``rounds`` (int): how many times Spark ran; ``lost_races`` (int).

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param rename_columns: the new name by column, which is none of another column that is renamed or dropped too. Needs
        column mapping by name (templated).
    :param drop_columns: columns that go; their values stay in the files until these are rewritten. One that is not
        there is no error. Needs column mapping by name (templated).
    :param column_types: a wider type by column, as in ``{"id": "BIGINT"}``. Needs ``delta.enableTypeWidening``
        (templated).
    :param column_comments: the comment by column; an empty text takes it away (templated).
    :param table_comment: the table's comment; an empty text takes it away. Default: it stays (templated).
    :param set_properties: values by name, as texts. ``delta.columnMapping.mode='name'``,
        ``delta.enableTypeWidening='true'`` and others raise the table's protocol, as Delta does it (templated).
    :param unset_properties: names of properties; one that is not set is no error (templated).
    :param add_checks: an expression in Spark SQL by the name of the CHECK constraint; it calls columns by their new
        names. A row for which it is NULL violates it (templated).
    :param drop_checks: names of CHECK constraints; one that is not there is no error. One that is in ``add_checks`` too
        is replaced (templated).
    :param max_rounds: after how many runs of Spark, each overtaken by others, the ALTER is given up with
        ``RoundsUsedUpError``. Default: 5. Not templated.
    :param commit_message: a text of at most 1,000 characters for people who read the table's history. It stands
        in the commit's ``userMetadata``, beside the DAG, the task and the run. Default: none (templated).
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator.
    """

    template_fields: Collection[str] = ("table", *_BY_NAME, *_LISTS, "table_comment", "commit_message")
    template_fields_renderers: ClassVar[dict[str, str]] = dict.fromkeys((*_BY_NAME, *_LISTS), "json")
    ui_color = "#e4e9f2"

    def __init__(
        self,
        *,
        table: str,
        rename_columns: Mapping[str, str] | None = None,
        drop_columns: Sequence[str] | None = None,
        column_types: Mapping[str, str] | None = None,
        column_comments: Mapping[str, str] | None = None,
        table_comment: str | None = None,
        set_properties: Mapping[str, str] | None = None,
        unset_properties: Sequence[str] | None = None,
        add_checks: Mapping[str, str] | None = None,
        drop_checks: Sequence[str] | None = None,
        max_rounds: int = 5,
        commit_message: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.rename_columns = rename_columns
        self.drop_columns = drop_columns
        self.column_types = column_types
        self.column_comments = column_comments
        self.table_comment = table_comment
        self.set_properties = set_properties
        self.unset_properties = unset_properties
        self.add_checks = add_checks
        self.drop_checks = drop_checks
        self.max_rounds = max_rounds
        self.commit_message = commit_message
        check_message(commit_message)
        check_whole("max_rounds", max_rounds)
        if all(is_final(getattr(self, name)) for name in (*_BY_NAME, *_LISTS, "table_comment")):
            self._alteration()

    def execute(self, context: Context) -> dict[str, Any]:
        """Alter the table.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a person has to act; nothing was changed and nothing is retried.
        """
        from airflow_provider_onelake.steps.alter import alter_table, describe_alter

        with self.errors_explained():
            check_all_rendered(self)
            asked, who = self._alteration(), self.who(context)
            table = self.begin(context)
            done = alter_table(table, self.spark, asked, self.max_rounds, **who)
            return self.tell(table, done.version, describe_alter(done))

    def _alteration(self) -> Alteration:
        given = {name: getattr(self, name) or () for name in (*_BY_NAME, *_LISTS)}
        for name, value in given.items():
            kind, what = (Mapping, "a dict") if name in _BY_NAME else (Sequence, "a list of names")
            if value and (isinstance(value, str) or not isinstance(value, kind)):
                raise InvalidWriteError(f"{name}={value!r} must be {what}. Nothing was changed.")
            # Airflow renders the values of a dict, and not its keys.
            check_rendered(name, list(value))
        asked: dict[str, Any] = {
            name: dict(value) if name in _BY_NAME else tuple(value) for name, value in given.items()
        }
        return Alteration(table_comment=self.table_comment, **asked)
