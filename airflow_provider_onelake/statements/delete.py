"""DELETE by partition columns, and TRUNCATE: whole files are removed, in one commit and without Spark.

Each attempt decides on the newest snapshot, so version N + 1 is the statement done to version N, whoever commits
meanwhile: rows that were appended a moment before go too, and rows that are appended a moment later stay. Nothing has
been computed from an older version, so no commit of others is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime

import attrs

from airflow_provider_onelake.commit.entry import (
    check_paths_relative,
    commit_info,
    entry_of_nothing,
    remove_of,
    stamp,
    txns_of,
)
from airflow_provider_onelake.commit.loop import Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import NOTHING, of_task
from airflow_provider_onelake.log.actions import Action, Add, CommitInfo, DataFile, Remove, total_rows
from airflow_provider_onelake.log.commits import CHANGE, FORMAT, STAGED
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.statements.proposal import StatementProposal
from airflow_provider_onelake.statements.start import Asker, Starts, find_earlier
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.storage.clock import milliseconds


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
    :param asker: who runs it. A start that finds itself in the table does nothing, unless what it removed was brought
        back since.
    :raises TableNotFoundError: there is no table.
    :raises InvalidWriteError: the predicate is no predicate on partition columns, or nobody knows what it means for a
        partition of the table.
    :raises StatementRefusedError: the table is append-only, or was made again meanwhile.
    :raises ZombieWriterError: a newer start of the task has done it.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or files with absolute paths.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    return transactions.commit(_Delete(transactions, where, asker))


class _Delete(StatementProposal[Deleted]):
    """One call of :func:`delete`."""

    def __init__(self, transactions: Transactions, where: str | None, asker: Asker) -> None:
        self._operation = "TRUNCATE" if where is None else "DELETE"
        name = self._operation if where is None else f"DELETE WHERE {where}"
        super().__init__(transactions, self._operation, name, where)
        self._asker = asker
        self._starts = Starts(self._log, self.name, asker)
        self._put: Deleted | None = None

    def decide(self, view: View) -> Put | Deleted:
        """Put a ``remove`` of every live file that matches."""
        snapshot = view.snapshot
        if (done := _done_before(self._log, self._asker.id, snapshot)) is not None:
            return done
        self._starts.check(snapshot)
        self.check_table(snapshot)
        files: list[Add] = list(self.files(view))
        if not files:
            self._put = Deleted(status=StatementStatus.NOTHING_TO_DO)
            return Put(self._entry_of_nothing(snapshot, view.txn_id)) if self._starts.follows else self._put
        self.check_not_append_only(snapshot)
        check_paths_relative(files, self._log.table)
        self._put = _counted(StatementStatus.DONE, None, files)
        return Put(self._entry(files, snapshot, view.txn_id))

    def committed(self, version: int, tally: Tally) -> Deleted:
        """Return what was deleted.

        :param version: in which the statement stands.
        """
        assert self._put is not None
        found = self._put.status is not StatementStatus.NOTHING_TO_DO
        return attrs.evolve(self._put, version=version if found else None, lost_races=tally.lost_races)

    def _entry(self, files: list[Add], snapshot: Snapshot, txn_id: str) -> list[Action]:
        assert self._put is not None
        now = self._log.clock.now()
        counted: Mapping[str, int | None] = {
            "numRemovedFiles": self._put.files_removed,
            "numRemovedBytes": self._put.bytes_removed,
            "numDeletedRows": self._put.rows_deleted,
        }
        metrics = {name: str(count) for name, count in counted.items() if count is not None}
        info = self._info(snapshot, txn_id, now, self._message, metrics)
        info[STAGED] = {"format": FORMAT, CHANGE: self._starts.record}
        stamped = stamp(info, [], snapshot, now)
        written = milliseconds(now)
        entry: list[Action] = [{"commitInfo": info}]
        entry += [*txns_of(self._starts.turns(snapshot), now), *stamped]
        entry += [{"remove": remove_of(file, written, data_change=True)} for file in files]
        return entry

    def _entry_of_nothing(self, snapshot: Snapshot, txn_id: str) -> list[Action]:
        now = self._log.clock.now()
        info = self._info(snapshot, txn_id, now, f"{self._message}. {NOTHING}", {})
        return entry_of_nothing(info, self._starts.record, self._starts.turns(snapshot, done=False), snapshot, now)

    @property
    def _message(self) -> str:
        return of_task(self._asker.by, self.name, self._asker.message)

    def _info(
        self, snapshot: Snapshot, txn_id: str, now: datetime, told: str, metrics: Mapping[str, str]
    ) -> CommitInfo:
        parameters = {} if self._where is None else {"predicate": json.dumps([self._where], ensure_ascii=False)}
        return commit_info(self._operation, parameters, snapshot, txn_id, now, blind=False, metrics=metrics, told=told)


def _done_before(log: DeltaLog, app_id: str, snapshot: Snapshot) -> Deleted | None:
    """Return what an earlier try did; ``None`` if there is none, or if a RESTORE has undone it."""
    earlier = find_earlier(log, app_id, snapshot)
    if earlier is None or earlier.is_undone:
        return None
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
