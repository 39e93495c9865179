"""The operator that tells audits what the writers of a load have staged, before it is published."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowSkipException
from airflow.sdk import TriggerRule

from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.links.onelake import LakehouseLink, TableLink
from airflow_provider_onelake.operators._load import LoadTaskOperator
from airflow_provider_onelake.operators._parameters import check_rendered
from airflow_provider_onelake.operators._writers_of_run import take_roll
from airflow_provider_onelake.texts import rows_in_words

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.table import Table

logger = logging.getLogger(__name__)


class OneLakeStagedOperator(LoadTaskOperator):
    """Name what the writers of a load have staged, for audits that stand between them and the load's reconciliation.

    It stands behind writers with ``publish="together"``, and before the audits and
    :class:`~airflow_provider_onelake.operators.reconcile.OneLakeReconcileOperator`. In a write group,
    :meth:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup.staged` adds it. If nothing waits to be
    published, as writers failed or their rows are in the table already, the task is skipped, and so are the audits.

    The result in XCom is a list with a dict for each writer whose rows wait:

    - ``writer`` (str): its key.
    - ``rows`` (int, or None without statistics), ``files`` and ``bytes`` (int): what it has staged.
    - ``buffer`` (str): where the rows are, relative to the table: ``OneLakeHook().table(…).staged(buffer).read()``
      reads them.
    - ``address`` (str): the same as a whole address. A Delta table lies there, which Spark and other engines can read.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param write_task_ids: the tasks of the writers. Default: the writers directly before this task. Not templated.
    :param onelake_conn_id: the connection of the lakehouse. Default: ``onelake_default``. Not templated.
    :param trigger_rule: Airflow's trigger rule. Default: ``all_done``, because what some writers have staged can be
        published if others have failed. Not templated.
    :param kwargs: the parameters of every operator.
    """

    operator_extra_links = (LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table",)
    ui_color = "#f3ead9"

    def __init__(
        self,
        *,
        table: str,
        write_task_ids: Sequence[str] | None = None,
        onelake_conn_id: str | None = None,
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.table = table
        self.write_task_ids = write_task_ids
        self.onelake_conn_id = onelake_conn_id or OneLakeHook.default_conn_name

    def execute(self, context: Context) -> list[dict[str, Any]]:
        """List the staged rows.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowSkipException: nothing waits to be published.
        """
        from airflow_provider_onelake.buffers.progress import newest_or_planned, progress_of

        with self.errors_explained():
            check_rendered("table", self.table)
            tasks = self.writers()
            roll = take_roll(context, [str(task.task_id) for task in tasks])
            table = self.begin(context)
            load = self.load_of(context, tasks, table.log)
            snapshot = newest_or_planned(table.log, map(load.writer, roll.named))
            if snapshot is None:
                raise AirflowSkipException(f"There is no table {table.name} yet, and nothing is staged for it.")
            roll, generations = self.started_generations(context, table.log, load, roll)
            found = progress_of(table.log, [load.writer(key) for key in roll.named], snapshot, generations or {})
            staged = [
                _described(table, key, one.complete[0])
                for key, one in zip(roll.named, found, strict=True)
                if one.complete
            ]
            if not staged:
                raise AirflowSkipException(f"Nothing of load {load.id} waits to be published.")
            for one in staged:
                rows, where = rows_in_words(one["rows"]), one["buffer"]
                logger.info("%s: writer %s has staged %s in %s", table.name, one["writer"], rows, where)
            return staged


def _described(table: Table, key: str, buffer: Buffer) -> dict[str, Any]:
    return {
        "writer": key,
        "rows": buffer.rows,
        "files": buffer.files,
        "bytes": buffer.bytes,
        "buffer": buffer.path,
        "address": str(table.address.child(buffer.path)),
    }
