"""The engine of rounds: Spark runs a DELETE, UPDATE or MERGE in rounds, and one commit has the result of all rounds.

::

    the newest snapshot ─► drop the pieces whose files others have changed
                           ├─ is there a file that the statement has to read, and no round has read? ─► a round over
                           │                                            these alone, and again from the top
                           └─ no: put what all rounds did, at the next version

A round reads the files of its shadow and no others. What others did does not matter, only which files are there: so
version N + 1 is the statement done to version N (protocol: statements map rows). The statement answers three questions:
which files may concern it, when is a round enough, and what does the commit say.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import attrs

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.buffers.shadow import MOST_FILES
from airflow_provider_onelake.commit.entry import Entry, check_paths_relative
from airflow_provider_onelake.commit.loop import Put, Tally, Transactions, View
from airflow_provider_onelake.exceptions import (
    BufferLostError,
    OneLakeError,
    RoundsUsedUpError,
    StatementRefusedError,
    StoreUnavailableError,
)
from airflow_provider_onelake.log.actions import Add, FileKey, file_key
from airflow_provider_onelake.log.compatibility import unfit
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.types import name_of
from airflow_provider_onelake.statements.asker import Asker, Earlier
from airflow_provider_onelake.statements.proposal import StatementProposal
from airflow_provider_onelake.statements.round_tables import Ran
from airflow_provider_onelake.statements.rounds import Rounds
from airflow_provider_onelake.statements.statement import StatementStatus
from airflow_provider_onelake.storage.clock import whole_number

MOST_ROUNDS = 5
"""How many times Spark may run a statement, unless its author says otherwise."""

RunRound = Callable[[int, Snapshot, Sequence[Add]], Ran]
"""Runs the statement on some files alone, with the number of the round, from 1, and the snapshot that has the files."""


@attrs.frozen(kw_only=True)
class Changed:
    """How a statement ended.

    :param status: ``done``, ``already_done`` by an earlier try or start, or ``nothing_to_do`` as no row matches.
    :param version: of the table in which the statement stands; ``None`` where no row changed, or the log no longer
        says.
    :param rows: how many rows were deleted or updated; ``None`` where that is not known.
    :param files_removed: how many files are no longer in the table.
    :param files_added: how many new files are.
    :param rounds: how many times Spark ran, each time on files that it had not read before.
    :param lost_races: how many puts met another's commit.
    """

    status: StatementStatus
    version: int | None = None
    rows: int | None = 0
    files_removed: int | None = 0
    files_added: int | None = 0
    rounds: int = 0
    lost_races: int = 0


@attrs.frozen(kw_only=True)
class StatementCommit:
    """What the commit of a statement says.

    :param result: of the statement.
    :param parameters: of the operation.
    :param metrics: of the operation, besides the counts of the result; those that are ``None`` are left out.
    :param record: what the commit says of itself for this package, besides what all statements say.
    """

    result: Changed
    parameters: Mapping[str, str]
    metrics: Mapping[str, int | None]
    record: Mapping[str, object] = attrs.field(factory=dict)


class RowStatement(ABC):
    """A statement on rows, as the engine knows it.

    :param operation: as Delta calls it.
    :param name: what messages call the statement.
    :param covers: a predicate on partition columns; no other partitions are looked at. ``None`` for none.
    :param asker: who runs it.
    :param counts: fields of the result that are metrics of the commit, with the names that they have there.
    """

    result: type[Changed] = Changed
    """What says how it ended."""

    def __init__(self, operation: str, name: str, covers: str | None, asker: Asker, counts: Mapping[str, str]) -> None:
        self.operation, self.name, self.covers, self.asker, self.counts = operation, name, covers, asker, counts

    def settled(self, view: View) -> Changed | None:
        """Return how the statement ended before any round, or refuse it; ``None`` where it is to be done."""
        return None

    def already(self, earlier: Earlier) -> Changed:
        """Return what an earlier try or start has done, or refuse to call it done."""
        if earlier.nothing:
            return self.result(status=StatementStatus.NOTHING_TO_DO)
        commit = earlier.commit
        metrics: Any = (commit.info.get("operationMetrics") if commit is not None else None) or {}
        counted: dict[str, Any] = {field: whole_number(metrics.get(name)) for field, name in self.counts.items()}
        return self.result(
            status=StatementStatus.ALREADY,
            version=commit.version if commit is not None else None,
            rounds=whole_number(earlier.record.get("rounds")) or 0,
            **counted,
        )

    @abstractmethod
    def concerns(self, snapshot: Snapshot) -> Callable[[Add], bool] | None:
        """Return what says whether a file may concern the statement; ``None`` where nobody knows, so that each may.

        The first question. Asked once for each definition of the table.
        """

    def unread(self, done: Rounds, present: Mapping[FileKey, Add]) -> list[Add] | None:
        """Drop what does not hold any more, and return what the next round has to read; ``None`` if none is needed.

        The second question. A statement that maps rows needs a round over the files that no round has read.

        :param done: what the rounds have done.
        :param present: the live files that may concern the statement.
        """
        done.drop_lost(present)
        return done.unseen(present) or None

    @abstractmethod
    def says(self, done: Rounds, counted: Changed, snapshot: Snapshot) -> StatementCommit:
        """Return what the commit says. The third question.

        :param done: what the rounds have done.
        :param counted: the result, as far as files tell.
        :param snapshot: that is committed against.
        """


@attrs.frozen
class Unseen:
    """Files that a round has to read, and the snapshot that has them."""

    snapshot: Snapshot
    files: tuple[Add, ...]


def in_rounds(transactions: Transactions, statement: RowStatement, run_round: RunRound, most_rounds: int) -> Changed:
    """Take a statement around the log until it is committed, with as many rounds as it needs.

    :param run_round: runs it on some files.
    :param most_rounds: after how many rounds it gives up.
    :raises TableNotFoundError: there is no table.
    :raises InvalidWriteError: ``covers`` is no predicate on partition columns.
    :raises StatementRefusedError: the table is append-only, was made again meanwhile, or no longer has the definition
        under which Spark ran.
    :raises ZombieWriterError: a newer start is in the table.
    :raises RerunRefusedError: an earlier try of the start was asked for something else, or was taken back since.
    :raises RoundsUsedUpError: others changed the rows in every round; nothing was changed.
    :raises BufferLostError: Spark's files became too old before they could be published.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or files with absolute paths.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    proposal = _InRounds(transactions, statement)
    try:
        while True:
            ended = transactions.commit(proposal)
            if isinstance(ended, Changed):
                return ended
            done = proposal.done
            if done.count >= most_rounds:
                raise RoundsUsedUpError(
                    f"{transactions.log.table}: Spark ran {statement.name} {done.count} times, and each time others "
                    f"had changed or added {len(ended.files)} files or more that it may concern before the result "
                    "could be published. Nothing was changed. Clear the task when fewer writers are at work; or let it "
                    "look at the partitions that matter alone (covers), or allow more rounds (max_rounds)."
                )
            done.take(ended.files, run_round(done.count + 1, ended.snapshot, ended.files))
    except OneLakeError as error:
        # Without an answer, the commit that names the copies of vectors may stand.
        if not isinstance(error, StoreUnavailableError):
            proposal.done.forget_vectors()
        raise


class _InRounds(StatementProposal["Changed | Unseen"]):
    """One call of :func:`in_rounds`, with all that its rounds have done so far."""

    def __init__(self, transactions: Transactions, statement: RowStatement) -> None:
        super().__init__(transactions, statement.asker, statement.operation, statement.name, statement.covers)
        self.done = Rounds(self._log, statement.operation)
        """What its rounds have read and done."""
        self._statement = statement
        # What the statement says of each file, under the definition of one snapshot.
        self._judged: tuple[Snapshot, Callable[[Add], bool] | None, dict[FileKey, bool]] | None = None
        self._first: Snapshot | None = None
        self._put: Changed | None = None

    def decide(self, view: View) -> Put | Changed | Unseen:
        """Put what the rounds did, or ask for another round."""
        snapshot = view.snapshot
        if (earlier := self.done_before(snapshot)) is not None:
            return self._statement.already(earlier)
        if (settled := self._statement.settled(view)) is not None:
            return settled
        self.check_table(snapshot)
        self._check_fits(snapshot)
        present = {file_key(file): file for file in self.files(view) if self._may_concern(file, snapshot)}
        unread = self._statement.unread(self.done, present)
        self.done.forget_unwanted_vectors()
        self._check_young(snapshot)
        if unread is not None:
            self.count_lost(view)
            return self._round(unread, snapshot)
        entry = self._entry(snapshot)
        if not self.done.pieces:
            assert self._put is not None
            return self.nothing(entry, snapshot) or self._put
        self.check_not_append_only(snapshot)
        self.done.bring_vectors_home()
        return Put(entry, snapshot)

    def committed(self, version: int, tally: Tally) -> Changed:
        """Return what was done.

        :param version: in which the statement stands.
        """
        assert self._put is not None
        found = self._put.status is not StatementStatus.NOTHING_TO_DO
        self.done.keep_vectors()
        return attrs.evolve(self._put, version=version if found else None, lost_races=self.lost_races(tally))

    def _check_fits(self, snapshot: Snapshot) -> None:
        if self._first is None:
            self._first, self.read_version = snapshot, snapshot.version
            return
        reason = unfit(self._first, snapshot) or _redefined(self._first, snapshot)
        if reason is None and self._first.has_change_feed != snapshot.has_change_feed:
            reason = "its change data feed was switched"
        if reason is not None:
            raise StatementRefusedError(
                f"{self._log.table} is no longer what {self.name} was begun on: {reason}. Nothing was changed: clear "
                "the task to run the statement under the new definition."
            )

    def _may_concern(self, file: Add, snapshot: Snapshot) -> bool:
        if self._judged is None or self._judged[0].metadata is not snapshot.metadata:
            self._judged = snapshot, self._statement.concerns(snapshot), {}
        _, may_concern, known = self._judged
        if may_concern is None:
            return True
        key = file_key(file)
        if key not in known:
            known[key] = may_concern(file)
        return known[key]

    def _check_young(self, snapshot: Snapshot) -> None:
        oldest = self.done.oldest
        if oldest is not None and self._log.clock.now() - oldest >= lifetime(snapshot.retention_days):
            raise BufferLostError(
                f"What Spark wrote for {self.name} is older than half of the retention of {self._log.table}, which is "
                f"{snapshot.retention_days:g} days, so a VACUUM may be about to delete it. Nothing was changed: clear "
                "the task to run it again."
            )

    def _round(self, unread: list[Add], snapshot: Snapshot) -> Unseen:
        check_paths_relative(unread, self._log.table)
        self.check_not_append_only(snapshot)
        if len(unread) > MOST_FILES:
            raise StatementRefusedError(
                f"{self.name} would have to look at {len(unread):,} files of {self._log.table}, and at most "
                f"{MOST_FILES:,} are taken. Nothing was changed: name the partitions that matter by covers, or compact "
                "the table first."
            )
        return Unseen(snapshot, tuple(unread))

    def _entry(self, snapshot: Snapshot) -> Entry:
        pieces, rounds, counts = self.done.pieces, self.done.count, self._statement.counts
        removed = [file for piece in pieces for file in piece.removed]
        again: list[Add] = [{**file, "dataChange": True} for piece in pieces for file in piece.again]
        added: list[Add] = [{**file, "dataChange": True} for piece in pieces for file in piece.added]
        staying = {file["path"] for file in again}
        counted = Changed(
            status=StatementStatus.DONE if pieces else StatementStatus.NOTHING_TO_DO,
            files_removed=sum(file["path"] not in staying for file in removed),
            files_added=len(added),
            rounds=rounds,
        )
        said = self._statement.says(self.done, counted, snapshot)
        self._put = said.result
        tags = [dict(ran.tags) for ran, kept in self.done.ran if kept]
        return self.entry(
            {
                "rounds": rounds,
                "readVersion": self.read_version,
                **said.record,
            },
            parameters=said.parameters,
            metrics={**{name: getattr(said.result, field) for field, name in counts.items()}, **said.metrics},
            tags=tags[0] if tags and all(each == tags[0] for each in tags) else {},
            removed=removed,
            with_row_ids=again,
            added=added,
            cdc=[file for piece in pieces for file in piece.cdc],
        )


def _redefined(before: Snapshot, now: Snapshot) -> str | None:
    """Say which column has another name or type: the statement's texts mean something else then.

    Under a wider type an expression may have another result, so one statement would do two things to the table.
    """
    there = {column.physical_name: column for column in columns(now.metadata).values()}
    for name, column in columns(before.metadata).items():
        found = there.get(column.physical_name, column)
        if found.name != name:
            return f"column {name} is called {found.name} now"
        if found.type != column.type:
            return f"column {name} is {name_of(found.type)} now, not {name_of(column.type)}"
    return None
