"""DELETE by partition columns, and TRUNCATE: whole files are removed, in one commit and without Spark.

Each attempt decides on the newest snapshot, so version N + 1 is the statement done to version N, whoever commits
meanwhile: rows that were appended a moment before go too, and rows that are appended a moment later stay. Nothing has
been computed from an older version, so no commit of others is a conflict.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum

import attrs

from airflow_provider_onelake.commit.checks import check_paths_relative
from airflow_provider_onelake.commit.earlier import SameTable, find_earlier
from airflow_provider_onelake.commit.entry import commit_info, remove_of, stamp
from airflow_provider_onelake.commit.transaction import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import of_task
from airflow_provider_onelake.exceptions import CommitContentionError, StatementRefusedError
from airflow_provider_onelake.log.actions import Action, Add, DataFile, Remove, total_rows
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.storage.clock import milliseconds


class Status(StrEnum):
    """How a statement ended."""

    DONE = "done"
    ALREADY = "already_done"
    NOTHING_TO_DO = "nothing_to_do"


@attrs.frozen(kw_only=True)
class Deleted:
    """How a statement ended.

    :param status: done now, done by an earlier try, or nothing to do as no file of the table matches.
    :param version: of the table in which the statement stands; ``None`` where nothing was put, or the log no longer
        says.
    :param rows_deleted: how many rows went; ``None`` where statistics, or the log, do not say.
    :param files_removed: how many files they were in, and ``bytes_removed`` the size of these. ``None`` where the log
        no longer says.
    :param lost_races: how many puts met another's commit.
    """

    status: Status
    version: int | None = None
    rows_deleted: int | None = 0
    files_removed: int | None = 0
    bytes_removed: int | None = 0
    lost_races: int = 0


def delete(
    transactions: Transactions, where: str | None, *, app_id: str, by: str, message: str | None = None
) -> Deleted:
    """Remove every file of the partitions that a predicate covers, or all files of the table.

    :param where: the predicate on partition columns, in Spark SQL. ``None`` is a TRUNCATE.
    :param app_id: the ``txn`` application id of this statement. A statement that finds it in the table does nothing,
        unless what it removed was brought back since.
    :param by: who asks; shown to people.
    :param message: of the author, for people who read the table's history. Default: none.
    :raises TableNotFoundError: there is no table.
    :raises InvalidWriteError: the predicate is no predicate on partition columns, or nobody knows what it means for a
        partition of the table.
    :raises StatementRefusedError: the table is append-only, or was made again meanwhile.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or files with absolute paths.
    :raises CorruptLogError: deltalake sees other live files than we do.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    return transactions.commit(_Delete(transactions, where, app_id, by, message))


@attrs.define(eq=False)
class _Delete(Proposal[Deleted]):
    """One call of :func:`delete`."""

    _transactions: Transactions
    _where: str | None
    _app_id: str
    _by: str
    _message: str | None
    _live: tuple[Partitioning, LiveFiles] | None = None
    _put: Deleted | None = None

    def __attrs_post_init__(self) -> None:
        self._log = self._transactions.log
        self._operation = "TRUNCATE" if self._where is None else "DELETE"
        self._same_table = SameTable(self._log, self._operation)
        self.name = self._operation if self._where is None else f"DELETE WHERE {self._where}"

    def look_ahead(self) -> AbstractContextManager[object]:
        """Let every snapshot tell whether the table was made again: rows must not go from another table."""
        self._log.doubt()
        return nullcontext()

    def decide(self, view: View) -> Put | Deleted:
        """Put a ``remove`` of every live file that matches."""
        snapshot, table = view.snapshot, self._log.table
        if (done := _done_before(self._log, self._app_id, snapshot)) is not None:
            return done
        self._same_table.check(snapshot)
        snapshot.check_supported(table)
        files = list(self._matching(view))
        if not files:
            return Deleted(status=Status.NOTHING_TO_DO)
        if snapshot.append_only:
            raise StatementRefusedError(
                f"{table} is append-only (delta.appendOnly), so its rows must not be deleted. Nothing was changed: "
                "unset the property first."
            )
        check_paths_relative(files, table)
        self._put = _counted(Status.DONE, None, files)
        return Put(self._entry(files, snapshot, view.txn_id))

    def committed(self, version: int, tally: Tally) -> Deleted:
        """Return what was deleted.

        :param version: in which the statement stands.
        """
        assert self._put is not None
        return attrs.evolve(self._put, version=version, lost_races=tally.lost_races)

    def give_up(self, tally: Tally) -> Deleted:
        """Change nothing.

        :raises CommitContentionError: always.
        """
        raise CommitContentionError(
            f"{self._log.table}: {tally.lost_races} of {tally.attempts} puts of the {self.name} met another's commit, "
            f"and the budget of {self._transactions.backoff.budget:g} s is used up. Nothing was changed; a retry goes "
            "on."
        )

    def _matching(self, view: View) -> Iterable[Add]:
        partitioning = view.snapshot.partitioning
        if self._live is not None and self._live[0] == partitioning and view.complete:
            self._live[1].follow(view.winners)
        else:
            # Also where a column was renamed: the files are to be judged by the names of now.
            covers = _everything if self._where is None else PartitionPredicate.parse(self._where, partitioning).covers
            self._live = partitioning, self._transactions.live_in(view.snapshot, covers)
        return self._live[1]

    def _entry(self, files: list[Add], snapshot: Snapshot, txn_id: str) -> list[Action]:
        assert self._put is not None
        now = self._log.clock.now()
        counted: Mapping[str, int | None] = {
            "numRemovedFiles": self._put.files_removed,
            "numRemovedBytes": self._put.bytes_removed,
            "numDeletedRows": self._put.rows_deleted,
        }
        info = commit_info(
            self._operation,
            {} if self._where is None else {"predicate": json.dumps([self._where], ensure_ascii=False)},
            snapshot,
            txn_id,
            now,
            blind=False,
            metrics={name: str(count) for name, count in counted.items() if count is not None},
            told=of_task(self._by, self.name, self._message),
        )
        stamped = stamp(info, [], snapshot, now)
        written = milliseconds(now)
        # The number rises where a RESTORE took an earlier try's effect back, as versions of a txn must.
        turn = snapshot.txns.get(self._app_id, 0) + 1
        entry: list[Action] = [{"commitInfo": info}]
        entry.append({"txn": {"appId": self._app_id, "version": turn, "lastUpdated": written}})
        entry += stamped
        entry += [{"remove": remove_of(file, written, data_change=True)} for file in files]
        return entry


def _everything(_: Partition) -> bool:
    return True


def _done_before(log: DeltaLog, app_id: str, snapshot: Snapshot) -> Deleted | None:
    """Return what an earlier try did; ``None`` if there is none, or if a RESTORE has undone it."""
    earlier = find_earlier(log, app_id, snapshot)
    if earlier is None or earlier.is_undone:
        return None
    if earlier.commit is None:
        # The log was cleaned up since, so nobody knows in which version the statement stands.
        return Deleted(status=Status.ALREADY, rows_deleted=None, files_removed=None, bytes_removed=None)
    return _counted(Status.ALREADY, earlier.commit.version, earlier.commit.removes)


def _counted(status: Status, version: int | None, files: Iterable[Add] | Iterable[Remove]) -> Deleted:
    counted: list[DataFile] = list(files)
    return Deleted(
        status=status,
        version=version,
        rows_deleted=total_rows(counted),
        files_removed=len(counted),
        bytes_removed=sum(int(str(file.get("size") or 0)) for file in counted),
    )
