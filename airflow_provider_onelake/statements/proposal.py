"""What the proposals of all statements share: the live files that they look at, and what makes them change nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import NoReturn, TypeVar

from airflow_provider_onelake.commit.loop import Proposal, Tally, Transactions, View
from airflow_provider_onelake.exceptions import CommitContentionError, StatementRefusedError
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate, everything
from airflow_provider_onelake.log.replay import LiveFiles
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.statements.start import SameTable

_T = TypeVar("_T")


class StatementProposal(Proposal[_T]):
    """A statement on the live files of some partitions.

    :param transactions: of the table.
    :param operation: as Delta calls it.
    :param name: what messages call the statement.
    :param where: a predicate on partition columns, which says what is looked at; ``None`` for everything.
    """

    def __init__(self, transactions: Transactions, operation: str, name: str, where: str | None) -> None:
        self.name = name
        self._transactions = transactions
        self._log = transactions.log
        self._where = where
        self._same_table = SameTable(self._log, operation)
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

    def give_up(self, tally: Tally) -> NoReturn:
        """Change nothing.

        :raises CommitContentionError: always.
        """
        raise CommitContentionError(
            f"{self._log.table}: {tally.lost_races} of {tally.attempts} puts of {self.name} met another's commit, and "
            f"the budget of {self._transactions.backoff.budget:g} s is used up. Nothing was changed; a retry does it "
            "again."
        )

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

    def covers(self, split: Partitioning) -> Callable[[Partition], bool]:
        """Return what tells whether a partition is looked at.

        :raises InvalidWriteError: the predicate is not on partition columns.
        """
        return everything if self._where is None else PartitionPredicate.parse(self._where, split).covers

    def files(self, view: View) -> LiveFiles:
        """Return the live files that are looked at, followed from attempt to attempt."""
        split = view.snapshot.partitioning
        if self._live is not None and self._live[0] == split and view.complete:
            self._live[1].follow(view.winners)
        else:
            # Also where a column was renamed: the files are to be judged by the names of now.
            self._live = split, self._transactions.live_in(view.snapshot, self.covers(split))
        return self._live[1]
