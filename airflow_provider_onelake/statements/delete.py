"""DELETE by partition columns, and TRUNCATE: whole files are removed, in one commit and without Spark.

Each attempt decides on the newest snapshot, so version N + 1 is the statement done to version N, whoever commits
meanwhile: rows that were appended a moment before go too, and rows that are appended a moment later stay. Nothing has
been computed from an older version, so no commit of others is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

import attrs

from airflow_provider_onelake.commit.entry import Entry, check_paths_relative
from airflow_provider_onelake.commit.loop import Put, Tally, Transactions, View
from airflow_provider_onelake.log.actions import Add, DataFile, Remove, total_rows
from airflow_provider_onelake.statements.asker import Asker, Earlier
from airflow_provider_onelake.statements.proposal import StatementProposal
from airflow_provider_onelake.statements.statement import StatementStatus


@attrs.frozen(kw_only=True)
class Deleted:
    """How a statement ended.

    :param status: done now, done by an earlier try, or nothing to do as no file of the table matches.
    :param version: of the table in which the statement stands; ``None`` where no row changed, or the log no longer
        says.
    :param rows_deleted: how many rows went; ``None`` where statistics, or the log, do not say.
    :param files_removed: how many files they were in, and ``bytes_removed`` the size of these. ``None`` where the log
        no longer says.
    :param lost_races: how many puts met another's commit.
    """

    status: StatementStatus
    version: int | None = None
    rows_deleted: int | None = 0
    files_removed: int | None = 0
    bytes_removed: int | None = 0
    lost_races: int = 0


def delete(transactions: Transactions, where: str | None, asker: Asker) -> Deleted:
    """Remove every file of the partitions that a predicate covers, or all files of the table.

    :param where: the predicate on partition columns, in Spark SQL. ``None`` is a TRUNCATE.
    :param asker: who runs it. A start that finds itself in the table does nothing.
    :raises TableNotFoundError: there is no table.
    :raises InvalidWriteError: the predicate is no predicate on partition columns, or nobody knows what it means for a
        partition of the table.
    :raises StatementRefusedError: the table is append-only, or was made again meanwhile.
    :raises ZombieWriterError: a newer start of the task is in the table.
    :raises RerunRefusedError: an earlier try of the start did it, and a RESTORE has taken that back.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or files with absolute paths.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    return transactions.commit(_Delete(transactions, where, asker))


class _Delete(StatementProposal[Deleted]):
    """One call of :func:`delete`."""

    def __init__(self, transactions: Transactions, where: str | None, asker: Asker) -> None:
        operation = "TRUNCATE" if where is None else "DELETE"
        super().__init__(transactions, asker, operation, operation if where is None else f"DELETE WHERE {where}", where)
        self._put = Deleted(status=StatementStatus.NOTHING_TO_DO)

    def decide(self, view: View) -> Put | Deleted:
        """Put a ``remove`` of every live file that matches."""
        snapshot = view.snapshot
        if (earlier := self.done_before(snapshot)) is not None:
            return _already(earlier)
        self.check_table(snapshot)
        files: list[Add] = list(self.files(view))
        self._put = _counted(StatementStatus.DONE if files else StatementStatus.NOTHING_TO_DO, None, files)
        if not files:
            return self.nothing(self._entry(files), snapshot) or self._put
        self.check_not_append_only(snapshot)
        check_paths_relative(files, self._log.table)
        return Put(self._entry(files), snapshot)

    def committed(self, version: int, tally: Tally) -> Deleted:
        """Return what was deleted.

        :param version: in which the statement stands.
        """
        found = self._put.status is not StatementStatus.NOTHING_TO_DO
        return attrs.evolve(self._put, version=version if found else None, lost_races=tally.lost_races)

    def _entry(self, files: list[Add]) -> Entry:
        return self.entry(
            {},
            parameters={} if self._where is None else {"predicate": json.dumps([self._where], ensure_ascii=False)},
            metrics={
                "numRemovedFiles": self._put.files_removed,
                "numRemovedBytes": self._put.bytes_removed,
                "numDeletedRows": self._put.rows_deleted,
            },
            removed=files,
        )


def _already(earlier: Earlier) -> Deleted:
    if earlier.nothing:
        return Deleted(status=StatementStatus.NOTHING_TO_DO)
    if earlier.commit is None:
        # The log was cleaned up since, so nobody knows in which version the statement stands.
        return Deleted(status=StatementStatus.ALREADY, rows_deleted=None, files_removed=None, bytes_removed=None)
    return _counted(StatementStatus.ALREADY, earlier.commit.version, earlier.commit.removes)


def _counted(status: StatementStatus, version: int | None, files: Iterable[Add] | Iterable[Remove]) -> Deleted:
    counted: list[DataFile] = list(files)
    return Deleted(
        status=status,
        version=version,
        rows_deleted=total_rows(counted),
        files_removed=len(counted),
        bytes_removed=sum(int(str(file.get("size") or 0)) for file in counted),
    )
