"""The operator that has the checks of a load evaluated over the rows of all its writers, before they are published."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import TriggerRule
from airflow.sdk.exceptions import AirflowSkipException

from airflow_provider_onelake.hooks.task_run import TaskRun
from airflow_provider_onelake.lineage import Lineage, lineage_of
from airflow_provider_onelake.links.onelake import LakehouseLink, SparkUiLink, TableLink
from airflow_provider_onelake.operators._load import LoadTaskOperator
from airflow_provider_onelake.operators._roll import take_roll
from airflow_provider_onelake.operators._spark_task import SparkTaskOperator
from airflow_provider_onelake.operators._terms import check_rendered

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_provider_onelake.staging.load_verdict import LoadVerdict
    from airflow_provider_onelake.work.load_checks import LoadChecks


class OneLakeLoadChecksOperator(LoadTaskOperator, SparkTaskOperator):
    """Evaluate the checks of a load over the staged rows of all its writers together.

    A :class:`~airflow_provider_onelake.task_groups.write.OneLakeWriteTaskGroup` with ``checks`` and
    ``publish="together"`` adds it as the task ``checked``, between the writers and ``reconcile``. Its writers look at
    the group's checks about each row. Those about all rows are evaluated here: over the rows that wait, and over the
    rows that writers of the load have in the table already, if only some writers run again. Writers with checks of
    their own decide these themselves, and their rows count here too.

    If a check fails, the task fails, and ``reconcile`` publishes nothing of the load, unless all of its writers have
    ``on_failed_check="warn"``. If no check is about all rows, Spark is not asked. If nothing waits to be published, the
    task is skipped.

    The result in XCom, which is there when the task fails too:

    - ``load`` (str), ``table`` (str): the load and the table's address.
    - ``status`` (str): ``passed``, ``warned`` or ``refused``; ``nothing_to_check``.
    - ``writers`` (list of str): keys of the writers whose rows were looked at.
    - ``rows`` (int): how many rows these are; it is missing where there is nothing to check.
    - ``checks`` (list of dict): one for each check, with ``name``, ``sql``, ``each_row`` (``False``), ``passed`` (bool)
      and ``met`` (bool, or None where the condition is NULL). One that failed has ``done`` (str): ``refused`` or
      ``warned``.

    :param table: an address, or a path such as ``Tables/trips`` in the connection's lakehouse (templated).
    :param write_task_ids: the tasks of the writers. Default: the writers directly before this task. Not templated.
    :param trigger_rule: Airflow's trigger rule. Default: ``all_done``, because what some writers have staged can be
        published if others have failed. Not templated.
    :param kwargs: the connections and ``spark_timeout`` of a
        :class:`~airflow_provider_onelake.operators._spark_task.SparkTaskOperator`, and the parameters of every
        operator.
    """

    operator_extra_links = (SparkUiLink(), LakehouseLink(), TableLink())
    template_fields: Collection[str] = ("table",)
    ui_color = "#f3ead9"

    def __init__(
        self,
        *,
        table: str,
        write_task_ids: Sequence[str] | None = None,
        trigger_rule: str = TriggerRule.ALL_DONE,
        **kwargs: Any,
    ) -> None:
        super().__init__(trigger_rule=trigger_rule, **kwargs)
        self.table = table
        self.write_task_ids = write_task_ids

    def execute(self, context: Context) -> dict[str, Any]:
        """Evaluate the checks.

        :param context: of the running task.
        :returns: the result for XCom, as the class describes it.
        :raises AirflowSkipException: nothing waits to be published.
        :raises AirflowFailException: the rows fail a check, or a person has to act for another reason.
        """
        from airflow_provider_onelake.staging.standing import newest_or_planned
        from airflow_provider_onelake.work.load_checks import LoadChecks

        with self.errors_explained():
            check_rendered("table", self.table)
            tasks = self.writers()
            roll = take_roll(context, [str(task.task_id) for task in tasks])
            table = self.begin(context)
            load = self.load_of(context, tasks, table.log)
            if newest_or_planned(table.log, map(load.writer, roll.named)) is None:
                raise AirflowSkipException(f"There is no table {table.name} yet, and nothing is staged for it.")
            roll, generations = self.begun(context, table.log, load, roll)
            work = LoadChecks(
                table=table, spark=self.spark, load=load, run=TaskRun.of(context), namespace=self.hook.namespace
            )
            judged = work.judge(roll.named, generations or {})
            if not judged.waiting:
                raise AirflowSkipException(f"Nothing of load {load.id} waits to be published.")
            verdict = judged.verdict
            result = {"load": load.id, "table": str(table), **_told(verdict)}
            if verdict is None:
                self.log.info("%s: no check is about all rows of load %s, so Spark is not asked", table.name, load.id)
                return result
            self._tell(work, verdict)
            # Before a refusal is raised: Airflow stores what a task returns only if the task succeeds, and OpenLineage
            # asks for the lineage of a failed task too.
            context["ti"].xcom_push(key="return_value", value=result)
            lineage = Lineage(table=table.address)
            snapshot = table.log.snapshot()
            self._lineage = lineage_of(lambda: lineage.with_load_checks(verdict).with_snapshot(snapshot))
            if verdict.refused:
                raise verdict.refusal(load, str(table))
            return result

    def _tell(self, work: LoadChecks, verdict: LoadVerdict) -> None:
        for line in verdict.table_lines():
            self.log.info("%s", line)
        if verdict.failed and not verdict.refused:
            failed = "; ".join(map(str, verdict.failed))
            self.log.warning(
                "%s: rows of load %s fail checks, and are published: %s", work.table.name, work.load.id, failed
            )


def _told(verdict: LoadVerdict | None) -> dict[str, Any]:
    if verdict is None:
        return {"status": "nothing_to_check", "writers": [], "checks": []}
    status = "refused" if verdict.refused else "warned" if verdict.failed else "passed"
    return {"status": status, "writers": sorted(verdict.buffers), "rows": verdict.rows, "checks": verdict.told()}
