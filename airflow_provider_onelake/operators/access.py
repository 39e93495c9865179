"""The operator that says what the connection's identity may do with a table, and which step decided."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import AccessDeniedError, InvalidWriteError
from airflow_provider_onelake.fabric.access_report import Right
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import check_rendered, terminal_errors_fail
from airflow_provider_onelake.operators._spark_task import TableTaskOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

_RIGHTS = tuple(str(right) for right in Right)


class OneLakeAccessOperator(TableTaskOperator):
    """Say what the connection's identity may do with a table, and which step decided: a role, a rule, ….

    Run it by hand when a store has refused something. A writer needs no such task before it: its own first write says
    the same before Spark is asked. Scratch objects are put below the table and deleted; nothing of the table is
    changed.

    The result in XCom is a dict: ``table`` (str); ``notes`` (list of str): what could not be asked; and ``rights``: a
    dict by ``read``, ``write``, ``commit`` (a create-only put) and ``delete``, each with ``allowed`` (bool, None if it
    is not known), ``step``, ``name``, ``why``, ``found`` and ``ask_for`` (str or None).

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param need: the rights without which the task is red: ``read``, ``write``, ``commit``, ``delete``. A right of which
        it is not known whether it is there does not make it red. Default: all four. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param kwargs: the parameters of every operator.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table",)
    ui_color = "#ece7e1"

    def __init__(
        self,
        *,
        table: str,
        need: Collection[str] = _RIGHTS,
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        if "principal" in kwargs:
            raise InvalidWriteError(
                "OneLakeAccessOperator has no `principal` any more: use the connection of that identity, by "
                "onelake_conn_id=…. Nothing was asked."
            )
        super().__init__(**kwargs)
        self.table = table
        self.need = need
        self.onelake_conn_id = onelake_conn_id
        if isinstance(need, str) or set(need) - set(_RIGHTS):
            raise InvalidWriteError(f"{self.task_id}: need={need!r}: a list of {', '.join(_RIGHTS)}.")

    def execute(self, context: Context) -> dict[str, Any]:
        """Ask.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: a right of ``need`` is missing. What was found is in XCom nevertheless, with the
            key ``access``.
        """
        with terminal_errors_fail(self.hook):
            check_rendered("table", self.table)
            report = self.fabric.check_access(self.table)
            for decision in report.decisions:
                logger.log(logging.INFO if decision.allowed else logging.WARNING, "%s: %s", self.table, decision)
            for note in report.notes:
                logger.warning("%s: %s", self.table, note)
            result = report.to_json()
            context["ti"].xcom_push(key="access", value=result)
            missing = [str(each) for each in report.refused if each.right in self.need]
            if missing:
                raise AccessDeniedError(f"{self.hook.in_short(self.table)}: {' '.join(missing)} Nothing was changed.")
        return result
