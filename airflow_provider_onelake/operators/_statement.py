"""What the operators of statements have in common: who does the statement, and what is told of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.hooks.context import start_of, task_run_of
from airflow_provider_onelake.observability.lineage import Lineage, lineage_of
from airflow_provider_onelake.operators._parameters import rendered_message
from airflow_provider_onelake.operators._spark_task import TableTaskOperator

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.table import Table


class StatementOperator(TableTaskOperator):
    """One statement on a table."""

    commit_message: str | None

    def who(self, context: Context) -> dict[str, Any]:
        """Return the parameters of a statement that say who does it.

        :param context: of the running task.
        """
        return {
            "run": task_run_of(context),
            "task_start": start_of(context, self.task_state(context)),
            "namespace": self.hook.namespace,
            "message": rendered_message(self.commit_message),
        }

    def tell(self, table: Table, version: int | None, result: Mapping[str, Any]) -> dict[str, Any]:
        """Show the commit, remember its lineage, and return the result for XCom.

        :param version: that the commit made. ``None`` where there is none, or it is not known.
        :param result: for XCom, without the table.
        """
        self.show_commit(version)
        if version is not None:
            lineage = Lineage(table=table.address, version=version)
            self._lineage = lineage_of(lambda: lineage.with_snapshot(table.log.snapshot()))
        return {"table": str(table), **result}
