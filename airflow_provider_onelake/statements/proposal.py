"""What the proposals of all statements share: who asks, the live files that they look at, and what refuses them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import attrs

from airflow_provider_onelake.commit.entry import Entry
from airflow_provider_onelake.commit.loop import Proposal, Put, Tally, Transactions, View
from airflow_provider_onelake.commit.words import NOTHING, of_task
from airflow_provider_onelake.exceptions import StatementRefusedError
from airflow_provider_onelake.log.actions import StagedRecord
from airflow_provider_onelake.log.commits import CHANGE
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate, everything
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.statements.asker import Asker, Earlier

_T = TypeVar("_T")


def covered(where: str | None, split: Partitioning) -> Callable[[Partition], bool]:
    """Return what tells whether a statement looks at a partition.

    :param where: a predicate on partition columns; ``None`` for everything.
    :param split: how the table is partitioned.
    :raises InvalidWriteError: the predicate is not on partition columns.
    """
    return everything if where is None else PartitionPredicate.parse(where, split).covers


class StatementProposal(Proposal[_T]):
    """A statement on the live files of some partitions.

    :param transactions: of the table.
    :param asker: who runs it.
    :param operation: as Delta calls it.
    :param name: what messages call the statement.
    :param where: a predicate on partition columns, which says what is looked at; ``None`` for everything.
    """

    def __init__(
        self, transactions: Transactions, asker: Asker, operation: str, name: str, where: str | None = None
    ) -> None:
        self.name = name
        self.asker = asker
        self._transactions = transactions
        self._log = transactions.log
        self._operation = operation
        self._where = where
        self._same_table = _SameTable(self._log, operation)
        self._live: tuple[Partitioning, LiveFiles] | None = None
        # Each round is followed by a transaction of its own, whose tally begins anew.
        self._lost_before = 0

    def look_ahead(self) -> AbstractContextManager[object]:
        """Let every snapshot tell whether the table was made again: rows must not go from another table."""
        self._log.doubt()
        return nullcontext()

    def count_lost(self, view: View) -> None:
        """Remember the lost races of a transaction that ends without a put, because Spark has to run first.

        :param view: on which that was decided.
        """
        self._lost_before += view.tally.lost_races

    def lost_races(self, tally: Tally) -> int:
        """Return how many puts met another's commit, over all transactions of the statement.

        :param tally: of the last one.
        """
        return self._lost_before + tally.lost_races

    def done_before(self, snapshot: Snapshot) -> Earlier | None:
        """Return the commit of an earlier try of the same start; ``None`` where there is none.

        :raises ZombieWriterError: a newer start is in the table.
        :raises RerunRefusedError: the earlier try was asked for something else, or a RESTORE has taken that back.
        """
        return self.asker.done_before(self._log, self.name, snapshot)

    def entry(self, record: Mapping[str, object], more: StagedRecord | None = None, **what: Any) -> Entry:
        """Return the entry of the statement's commit, which says who asked.

        :param record: what the commit says of the statement.
        :param more: what it says besides.
        :param what: the other fields of an :class:`Entry`.
        """
        asker = self.asker
        statement = {"statement": asker.statement} if asker.statement else {}
        return Entry(
            **{
                "operation": self._operation,
                "message": of_task(asker.by, self.name, asker.message),
                "record": {CHANGE: {**statement, **record}, **(more or {})},
                "txns": {asker.app_id: asker.generation},
                **what,
            }
        )

    def nothing(self, entry: Entry, snapshot: Snapshot) -> Put | None:
        """Return the commit that keeps an older try or start from doing more; ``None`` where none may be at work.

        An older one decides on a version behind this commit, and finds its ``txn`` there; or it has committed before,
        and this one is decided anew on what that left (protocol: nothing to do).

        :param entry: of a statement that has found nothing to do.
        """
        if not self.asker.follows(snapshot):
            return None
        record: dict[str, Any] = {**entry.record.get(CHANGE, {}), "nothing": True}
        return Put(attrs.evolve(entry, record={CHANGE: record}, message=f"{entry.message}. {NOTHING}"), snapshot)

    def check_table(self, snapshot: Snapshot) -> None:
        """Refuse a table that was made again, and one with features that we do not know."""
        self._same_table.check(snapshot)
        snapshot.check_supported(self._log.table)

    def check_not_append_only(self, snapshot: Snapshot) -> None:
        """Refuse to change rows of a table that is append-only."""
        if snapshot.append_only:
            raise StatementRefusedError(
                f"{self._log.table} is append-only (delta.appendOnly), so its rows must not be changed. Nothing was "
                "changed: unset the property first."
            )

    def files(self, view: View) -> LiveFiles:
        """Return the live files that are looked at, followed from attempt to attempt."""
        split = view.snapshot.partitioning
        if self._live is not None and self._live[0] == split and view.complete:
            self._live[1].follow(view.winners)
        else:
            # Also where a column was renamed: the files are to be judged by the names of now.
            self._live = split, self._transactions.live_in(view.snapshot, covered(self._where, split))
        return self._live[1]


@attrs.define
class _SameTable:
    """Refuses to change another table that was made at the same place (protocol: same table).

    Unlike a write, a statement has no read version whose entry it could check instead.
    """

    _log: DeltaLog
    _operation: str
    _anchor: tuple[int, str | None, str] | None = None

    def check(self, snapshot: Snapshot) -> None:
        """Remember the table at the first call, and compare with it at every later one.

        :raises StatementRefusedError: the table was replaced, or dropped and made again, since the first call.
        """
        if self._anchor is None:
            self._anchor = snapshot.version, self._log.digest(snapshot.version), snapshot.table_id
        version, digest, table_id = self._anchor
        now = self._log.digest(version)
        # An entry that was cleaned up behind a checkpoint tells nothing.
        entry_changed = digest is not None and now is not None and now != digest
        if snapshot.version < version or entry_changed or snapshot.table_id != table_id:
            raise StatementRefusedError(
                f"{self._log.table} was replaced, or dropped and made again, while this {self._operation} was at work. "
                "The new table was not changed: look at it, and clear this task if its rows are to be changed too."
            )
