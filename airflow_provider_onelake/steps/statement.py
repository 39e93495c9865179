"""The steps of one statement on a table: name it, carry it out, say what it did."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import digest_of
from airflow_provider_onelake.log.partitions import PartitionPredicate
from airflow_provider_onelake.statements.delete import Deleted, delete
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.texts import counted, rows_in_words

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.claims import Start
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.statements.statement import Statement
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.task_run import TaskRun

logger = logging.getLogger(__name__)


@attrs.frozen(kw_only=True)
class Deletion:
    """One task's DELETE or TRUNCATE of one table.

    :param where: the predicate on partition columns; ``None`` is a TRUNCATE.
    :param run: the try of the task.
    :param task_start: the task's first start or last clear; all tries of it are one statement.
    :param namespace: of the deployment.
    :param message: of the task's author, for people who read the table's history.
    """

    table: Table
    where: str | None
    run: TaskRun
    task_start: Start
    namespace: str
    message: str | None = None

    def carry_out(self) -> Deleted:
        """Delete the rows.

        :raises TableNotFoundError: there is no table.
        :raises InvalidWriteError: the predicate is no predicate on partition columns.
        :raises StatementRefusedError: the rows are not deleted; the message says why.
        :raises ZombieWriterError: a newer start of the task has deleted them.
        """
        asked = "truncate" if self.where is None else f"where={digest_of(self.where.encode())}"
        asker = self.run.asker(self.table.log, f"delete/{asked}", self.task_start, self.namespace, self.message)
        done = delete(self.table.committer(), self.where, asker)
        logger.info("%s: %s", self.table.name, _summary(done))
        return done


def of_whole_files(statement: Statement, snapshot: Snapshot) -> str | None:
    """Return the predicate of a DELETE if it is on partition columns alone, so that whole files go; else ``None``.

    :raises InvalidWriteError: ``covers`` is no predicate on partition columns.
    """
    split, covers = snapshot.partitioning, statement.covers
    if covers is not None:
        PartitionPredicate.parse(covers, split)
    try:
        PartitionPredicate.parse(statement.where, split)
    except InvalidWriteError:
        return None
    # Each of them is a predicate by itself, and may end in a comment.
    return statement.where if covers is None else f"({statement.where}\n) AND ({covers}\n)"


def describe_deletion(done: Deleted) -> dict[str, Any]:
    """Return the result of a DELETE or TRUNCATE for XCom."""
    return {**attrs.asdict(done), "status": str(done.status), "summary": _summary(done)}


def _summary(done: Deleted) -> str:
    if done.status is StatementStatus.NOTHING_TO_DO:
        return "no row of the table matches; nothing to do"
    files = "an unknown number of files" if done.files_removed is None else counted(done.files_removed, "file")
    what = f"{rows_in_words(done.rows_deleted)} in {files}"
    if done.status is StatementStatus.ALREADY:
        where = "" if done.version is None else f" in version {done.version}"
        return f"an earlier try deleted {what}{where}"
    return f"version {done.version} is without {what}"
