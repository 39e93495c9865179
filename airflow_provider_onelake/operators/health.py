"""The operator that looks for what is wrong with a table, or will be."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import InvalidWriteError, UnhealthyTableError
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._parameters import check_rendered
from airflow_provider_onelake.operators._spark_task import TableTaskOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

logger = logging.getLogger(__name__)

_SEVERITIES = ("error", "warning", "note")
# XCom is stored in Airflow's database.
_MOST_LISTED = 50


class OneLakeHealthOperator(TableTaskOperator):
    """Look for lost files, small files, a long log, abandoned buffers and waste. Nothing is changed; no Spark is asked.

    Every object in the table's directory is listed, twice. The task's log says each finding and what to do about it.

    The result in XCom is a dict:

    - ``table`` (str), ``version`` (int): what was looked at.
    - ``rows`` (int or None), ``files``, ``bytes``, ``partitions`` (int): what the table has.
    - ``log_entries`` (int): since ``checkpoint`` (int or None).
    - ``to_compact`` (int): files that a compaction would rewrite; ``to_vacuum``, ``bytes_to_vacuum`` (int or None):
      what a vacuum would delete, ``None`` where it is refused.
    - ``waiting``, ``abandoned`` (list of str): paths of buffers and compactions, up to 50 each.
    - ``findings`` (list of dict with ``severity``, ``what`` and ``todo``): the worst first, up to 50.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param fail_on: the severities that make the task red: ``error`` (readers fail, or rows are gone), ``warning`` (it
        costs time or money, and grows), ``note``. Default: ``("error",)``. Not templated.
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
        fail_on: Collection[str] = ("error",),
        onelake_conn_id: str = OneLakeHook.default_conn_name,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.fail_on = fail_on
        self.onelake_conn_id = onelake_conn_id
        strange = [] if isinstance(fail_on, str) else sorted(set(fail_on) - set(_SEVERITIES))
        if strange or isinstance(fail_on, str):
            raise InvalidWriteError(f"fail_on={fail_on!r} must be a list of {', '.join(_SEVERITIES)}.")

    def execute(self, context: Context) -> dict[str, Any]:
        """Look at the table.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowFailException: there is no table, or a finding has one of the severities of ``fail_on``. What was
            found is in XCom nevertheless, with the key ``health``.
        """
        from airflow_provider_onelake.maintenance.health import examine

        with self.errors_explained():
            check_rendered("table", self.table)
            table = self.begin(context)
            found = examine(table.log)
            for finding in found.findings:
                logger.log(finding.severity.level, "%s: %s. %s.", table.name, finding.what, finding.todo)
            result = found.to_json()
            for name in ("waiting", "abandoned", "findings"):
                del result[name][_MOST_LISTED:]
            context["ti"].xcom_push(key="health", value=result)
            bad = [finding for finding in found.findings if finding.severity in self.fail_on]
            if bad:
                more = f", and {len(bad) - 1} more" if len(bad) > 1 else ""
                raise UnhealthyTableError(
                    f"{table.name} at version {found.version}: {bad[0].what}{more}. Nothing was changed. {bad[0].todo}."
                )
        return result
