"""The steps of one ALTER: carry it out, by Spark in private tables, and say what it did."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.spark.base import AlterJob
from airflow_provider_onelake.statements.alter import Altered, alter
from airflow_provider_onelake.statements.round_tables import TableDefinition, read_definition
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.steps.private_tables import PrivateTables

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.log.actions import Add
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.statements.alteration import Alteration
    from airflow_provider_onelake.steps.spark import SparkWork
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)


def alter_table(
    table: Table,
    spark: SparkWork,
    asked: Alteration,
    max_rounds: int,
    *,
    run: TaskRun,
    task_start: Start,
    namespace: str,
    message: str | None = None,
) -> Altered:
    """Carry out one task's ALTER of one table.

    :param max_rounds: how many times Spark may run it before it gives up.
    :param run: the try of the task.
    :param task_start: the task's first start or last clear; all tries of it are one start.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    :raises OneLakeError: as :func:`~airflow_provider_onelake.statements.alter.alter`, and as an engine's ``alter``.
    """
    owner, name = run.owner(namespace), f"{namespace}/{run.dag}/{run.label}"
    of_try = {"doing": AlterJob.doing, "owner": owner, "attempt": run.attempt, "name": name}
    rounds = PrivateTables(table=table, spark=spark, operation="ALTER TABLE", **of_try)

    def in_shadow(number: int, snapshot: Snapshot, files: Sequence[Add], statements: Sequence[str]) -> TableDefinition:
        ran, told = rounds.open(number, snapshot, files)
        job = AlterJob(**told, label=f"ALTER TABLE of task {run.label}", statements=tuple(statements))
        spark.engine().alter(job)
        spark.check_not_stopped()
        return read_definition(table.log.store, ran)

    asker = run.asker(table.log, f"alter/ask={asked.digest}", task_start, namespace, message)
    try:
        done = alter(table.committer(), asked, asker, in_shadow, most_rounds=max_rounds)
    finally:
        rounds.close({"reason": "its definition was read, and no file of this is published"})
    logger.info("%s: %s", table.name, _summary(done))
    return done


def describe_alter(done: Altered) -> dict[str, Any]:
    """Return the result of an ALTER for XCom."""
    changes = None if done.changes is None else list(done.changes)
    return {**attrs.asdict(done), "changes": changes, "features": list(done.features), "summary": _summary(done)}


def _summary(done: Altered) -> str:
    what = "altered the table" if done.changes is None else "; ".join(done.changes) or "there was nothing to do"
    if done.status is StatementStatus.NOTHING_TO_DO:
        return "the table is as it was asked for; nothing to do"
    if done.status is StatementStatus.ALREADY:
        return f"an earlier try did it{'' if done.version is None else f' in version {done.version}'}: {what}"
    features = f"; readers and writers must know {', '.join(done.features)} now" if done.features else ""
    return f"version {done.version}: {what}{features}"
