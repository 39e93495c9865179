"""DELETE and UPDATE with a predicate on rows: Spark runs them in rounds, and one commit has the result of all rounds.

::

    the newest snapshot ─► drop the pieces whose files others have changed
                           │                        (where they have only hidden rows of theirs, the union stays)
                           ├─ live files that it concerns and no round has read? ─► a round over these alone, and
                           │                                                        again from the top
                           └─ none: put what all rounds did, at the next version

The statement maps every row by itself, so what it does to a table is what it does to each of its files. A round reads
the files of its shadow and no others. So version N + 1 is the statement done to version N as soon as every live file of
version N was read by a round, or is what a round has made of it, or has no row that the statement concerns (protocol:
statements map rows). What others did does not matter, only which files are there.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, Protocol

import attrs

from airflow_provider_onelake.buffers.buffer import lifetime
from airflow_provider_onelake.buffers.reads import last_that_may_have_read
from airflow_provider_onelake.buffers.shadow import MOST_FILES
from airflow_provider_onelake.choices import Isolation, OnStatementRerun
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
from airflow_provider_onelake.exceptions import (
    BufferLostError,
    ConflictError,
    RerunRefusedError,
    StatementRefusedError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.actions import Action, Add, FileKey, Remove, file_key
from airflow_provider_onelake.log.commits import CHANGE, FORMAT, STAGED, Commit
from airflow_provider_onelake.log.compatibility import unfit
from airflow_provider_onelake.log.schema import columns
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.types import name_of
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.statements.proposal import StatementProposal
from airflow_provider_onelake.statements.round_tables import Piece, Ran
from airflow_provider_onelake.statements.rounds import Rounds
from airflow_provider_onelake.statements.start import Asker, Earlier, Starts, find_earlier
from airflow_provider_onelake.statements.statement import UPDATE, Statement, StatementStatus
from airflow_provider_onelake.storage.clock import milliseconds, whole_number

logger = logging.getLogger(__name__)

MOST_ROUNDS = 5
"""How many times Spark may run a statement, unless its author says otherwise."""

RunRound = Callable[[int, Snapshot, Sequence[Add]], Ran]
"""Runs the statement on some files alone, with the number of the round, from 1, and the snapshot that has the files."""


@attrs.frozen
class TakenOver:
    """What a round of an earlier try has done.

    :param files: that it has read.
    """

    files: tuple[Add, ...] = attrs.field(repr=False)
    ran: Ran


TakeOver = Callable[[Snapshot], Iterable[TakenOver]]
"""Returns what rounds of earlier tries of the same start have done on a table of the same definition, in order."""

Concerned = Callable[[Snapshot], Callable[[Add], bool] | None]
"""Returns, for a snapshot, what says whether the statement may concern a row of a file; ``None`` where nobody knows."""


@attrs.frozen(kw_only=True)
class Changed:
    """How a DELETE or UPDATE ended.

    :param status: ``done``, ``already_done`` by an earlier try or start, or ``nothing_to_do`` as no row matches.
    :param version: of the table in which the statement stands; ``None`` where no row changed, or the log no longer
        says.
    :param rows: how many rows were deleted or updated; ``None`` where that is not known.
    :param files_removed: how many files are no longer in the table.
    :param files_added: how many new files are.
    :param files_united: to how many files others gave deletion vectors too, so that they got the union of both.
    :param rounds: how many times Spark ran, each time on files that it had not read before.
    :param lost_races: how many puts met another's commit.
    """

    status: StatementStatus
    version: int | None = None
    rows: int | None = 0
    files_removed: int | None = 0
    files_added: int | None = 0
    files_united: int = 0
    rounds: int = 0
    lost_races: int = 0


class AnyStatement(Protocol):
    """What rounds need to know of a statement."""

    @property
    def operation(self) -> str:
        """As Delta calls it."""

    @property
    def covers(self) -> str | None:
        """A predicate on partition columns; no other partitions are looked at."""

    @property
    def predicate(self) -> str:
        """What is true of the rows that it is done to, as people read it."""


@attrs.frozen
class Unseen:
    """Files that no round has read, and the snapshot that has them."""

    snapshot: Snapshot
    files: tuple[Add, ...]


@attrs.frozen(kw_only=True)
class StatementStart(Asker):
    """Who runs a DELETE or UPDATE. It also takes the parameters of an :class:`Asker`.

    :param on_rerun: what a clear does.
    """

    on_rerun: OnStatementRerun


def change(
    transactions: Transactions,
    statement: Statement,
    start: StatementStart,
    run_round: RunRound,
    *,
    isolation: Isolation = Isolation.SERIALIZABLE,
    most_rounds: int = MOST_ROUNDS,
    concerned: Concerned = lambda _: None,
    take_over: TakeOver = lambda _: (),
) -> Changed:
    """Do a statement to the rows of a table.

    :param run_round: runs it on some files.
    :param isolation: with ``write_serializable``, appends that did not read the table and that land after the last
        round count as later than the statement, if nothing but such appends came after them.
    :param most_rounds: after how many rounds it gives up.
    :param concerned: rules out files that have no row for which the predicate is true. Default: none are.
    :param take_over: returns what rounds of earlier tries have done. Default: nothing.
    :raises TableNotFoundError: there is no table.
    :raises InvalidWriteError: ``covers`` is no predicate on partition columns.
    :raises StatementRefusedError: the table is append-only, was made again meanwhile, or no longer has the definition
        under which Spark ran.
    :raises RerunRefusedError: the statement was done by an earlier start, is to be skipped, and rows that it may touch
        were changed since.
    :raises ZombieWriterError: a newer start of the task has done it.
    :raises ConflictError: others changed the rows in every round; nothing was changed.
    :raises BufferLostError: Spark's files became too old before they could be published.
    :raises UnsupportedFeatureError: the table has a feature outside the allow-list, or files with absolute paths.
    :raises CommitContentionError: others were faster in every attempt; nothing was changed.
    :raises StoreUnavailableError: the store did not answer until the budget was used up. A retry settles it.
    """
    return in_rounds(
        transactions, Change(transactions, statement, isolation, start, concerned), run_round, most_rounds, take_over
    )


def in_rounds(
    transactions: Transactions, proposal: Change, run_round: RunRound, most_rounds: int, take_over: TakeOver
) -> Changed:
    """Take a statement around the log until it is committed, with as many rounds as it needs.

    :param run_round: runs it on some files.
    :param most_rounds: after how many rounds of its own it gives up.
    :param take_over: returns what rounds of earlier tries have done.
    :raises OneLakeError: as for :func:`change`.
    """
    is_first, taken_over = True, 0
    while True:
        ended = transactions.commit(proposal)
        if isinstance(ended, Changed):
            return ended
        if is_first:
            is_first, taken_over = False, proposal.take_over(ended, take_over(ended.snapshot))
            if taken_over:
                continue
        if proposal.done.count - taken_over >= most_rounds:
            proposal.done.forget_vectors()
            raise ConflictError(
                f"{proposal.table}: Spark ran {proposal.name} {proposal.done.count} times, and each time others had "
                f"changed or added {len(ended.files)} files or more that it may concern before the result could be "
                f"published. Nothing was changed. Clear the task when fewer writers are at work{proposal.other_ways}."
            )
        proposal.done.take(ended.files, run_round(proposal.done.count + 1, ended.snapshot, ended.files))


class Change(StatementProposal["Changed | Unseen"]):
    """A statement that Spark runs in rounds, with all that its rounds have done so far."""

    other_ways = (
        "; or let it look at the partitions that matter alone (covers), allow more rounds (max_rounds), or let appends "
        "that land meanwhile count as later (isolation='write_serializable')"
    )
    """What else a person can do after too many rounds."""

    def __init__(
        self,
        transactions: Transactions,
        statement: AnyStatement,
        isolation: Isolation,
        start: StatementStart | None = None,
        concerned: Concerned = lambda _: None,
    ) -> None:
        super().__init__(transactions, statement.operation, str(statement), statement.covers)
        self.table = self._log.table
        self.done = Rounds(self._log, self.name, statement.operation, transactions.random)
        """What its rounds have read and done."""
        self._statement, self._isolation = statement, isolation
        self._author = start
        self._concerned = concerned
        # What it says of each file, under the definition of one snapshot.
        self._judged: tuple[Snapshot, Callable[[Add], bool] | None, dict[FileKey, bool]] | None = None
        self._starts = Starts(self._log, self.name, start) if start is not None else None
        self._first: Snapshot | None = None
        self._published = 0
        # The version of the first append that landed before the statement and counts as later.
        self._before: int | None = None
        self._put: Changed | None = None

    def take_over(self, unseen: Unseen, earlier: Iterable[TakenOver]) -> int:
        """Take in what rounds of earlier tries have done to files that are as they were, or that have the union since.

        :param unseen: all files that the statement looks at, as no round has read any yet.
        :param earlier: what they have done.
        :returns: how many rounds were taken over.
        """
        if self._is_undone(unseen.snapshot):
            return 0
        present = {file_key(file): file for file in unseen.files}
        for each in earlier:
            if self._can_take_over(each, present):
                self.done.take(each.files, each.ran)
                self._drop_lost(present)
        if count := self.done.count:
            table, name = self._log.table, self.name
            logger.info("%s: an earlier try ran %d rounds of %s, which are not run again", table, count, name)
        return count

    def _can_take_over(self, earlier: TakenOver, present: Mapping[FileKey, Add]) -> bool:
        """Say whether no round that was taken over has read any of the same files."""
        keys = map(file_key, earlier.files)
        return not any(key in self.done.files_read and key in present for key in keys)

    def _is_undone(self, snapshot: Snapshot) -> bool:
        """Say whether an earlier try has published what its rounds wrote, and a RESTORE has taken that back."""
        return self._start.id in snapshot.txns

    def decide(self, view: View) -> Put | Changed | Unseen:
        """Put what the rounds did, or ask for another round."""
        snapshot = view.snapshot
        if (ended := self._ended(view)) is not None:
            return ended
        self.check_table(snapshot)
        self._check_fits(snapshot)
        present = {file_key(file): file for file in self.files(view) if self._in_range(file, snapshot)}
        self._drop_lost(present, view)
        self._check_young(snapshot)
        unseen = self.done.unseen(present)
        if self._needs_round(unseen, view):
            self.count_lost(view)
            return self._round(unseen, snapshot)
        if not self.done.pieces:
            return self._without_change(self._nothing_to_do(), view)
        keys = set(map(file_key, unseen))
        self._before = min((version for key, version in self._later(view).items() if key in keys), default=None)
        self.check_not_append_only(snapshot)
        self.done.bring_vectors_home()
        return Put(self._entry(snapshot, view.txn_id))

    def committed(self, version: int, tally: Tally) -> Changed:
        """Return what was done.

        :param version: in which the statement stands.
        """
        assert self._put is not None
        lost_races = self.lost_races(tally)
        if self._put.status is StatementStatus.NOTHING_TO_DO:
            return attrs.evolve(self._put, lost_races=lost_races)
        self.done.keep_vectors()
        return attrs.evolve(self._put, version=version, lost_races=lost_races)

    def give_up(self, tally: Tally) -> NoReturn:
        """Change nothing.

        :raises CommitContentionError: always.
        """
        self.done.forget_vectors()
        super().give_up(tally)

    # -- what was done before -----------------------------------------------------------------------------------------

    @property
    def _start(self) -> StatementStart:
        assert self._author is not None
        return self._author

    def _ended(self, view: View) -> Put | Changed | None:
        """Return what was done before, or ``None``.

        :raises ZombieWriterError: a newer start of the task has done it.
        """
        snapshot = view.snapshot
        earlier = find_earlier(self._log, self._start.id, snapshot)
        if earlier is not None and not earlier.is_undone:
            return _already(earlier)
        self._forget_published(snapshot)
        assert self._starts is not None
        try:
            self._starts.check(snapshot)
        except ZombieWriterError:
            self.done.forget_vectors()
            raise
        return self._skipped(snapshot) if self._start.on_rerun is OnStatementRerun.SKIP else None

    def _forget_published(self, snapshot: Snapshot) -> None:
        """Forget all rounds once another try has published some of them, though a RESTORE has taken that back.

        A try takes over the rounds of another one, so it may have published files of ours, or this one may have taken
        over what was published since. None of these paths comes into the table again (protocol: no path twice).
        """
        known, self._published = self._published, snapshot.txns.get(self._start.id, 0)
        if self.done.ran and self._published != known:
            self.done.forget()
            self.done.forget_vectors()

    def _skipped(self, snapshot: Snapshot) -> Changed | None:
        """Return what an earlier start did, if it stands as it was; ``None`` if there is none, or it was undone."""
        earlier = find_earlier(self._log, self._start.task_id, snapshot)
        if earlier is None or earlier.is_undone:
            return None
        why: str | None
        if earlier.commit is None:
            why = "the log since then was cleaned up, so nobody knows what became of its rows"
        elif earlier.before is not None:
            why = f"version {earlier.before} appended rows that it may concern, and counts as later"
        else:
            in_range = self.covers(snapshot.partitioning)
            changed = next((commit for commit in earlier.later if _touches(commit, in_range, snapshot)), None)
            why = f"version {changed.version} ({changed.author}) changed rows that it may concern" if changed else None
        if why is None:
            return _already(earlier)
        at = "" if earlier.commit is None else f" in version {earlier.commit.version}"
        raise RerunRefusedError(
            f"An earlier start of this task did {self.name} to {self.table}{at}. It is not skipped, because {why}, "
            "and it is not done again, because that could change rows twice. Nothing was changed: set "
            "on_rerun='again' to do it to the rows as they are now, or mark the task as successful."
        )

    # -- the table as it is -------------------------------------------------------------------------------------------

    def _check_fits(self, snapshot: Snapshot) -> None:
        if self._first is None:
            self._first = snapshot
            if self.read_version is None:
                self.read_version = snapshot.version
            return
        reason = unfit(self._first, snapshot) or _redefined(self._first, snapshot)
        if reason is None and self._first.has_change_feed != snapshot.has_change_feed:
            reason = "its change data feed was switched"
        if reason is not None:
            self.done.forget_vectors()
            raise StatementRefusedError(
                f"{self.table} is no longer what {self.name} was begun on: {reason}. Nothing was changed: clear the "
                "task to run the statement under the new definition."
            )

    def _in_range(self, file: Add, snapshot: Snapshot) -> bool:
        """Say whether the statement may touch a file, or must know of it."""
        if self._judged is None or self._judged[0].metadata is not snapshot.metadata:
            self._judged = snapshot, self._concerned(snapshot), {}
        _, may_hold, known = self._judged
        if may_hold is None:
            return True
        key = file_key(file)
        if key not in known:
            known[key] = may_hold(file)
        return known[key]

    def _needs_round(self, unseen: list[Add], view: View) -> bool:
        return bool(unseen) and not self._all_later(unseen, view)

    def _drop_lost(self, present: dict[FileKey, Add], view: View | None = None) -> None:
        """Drop what was done to files that others have changed since.

        :param view: that the commit is decided on. Default: it is not known who has added the files that no round has
            read.
        """
        self.done.drop_lost(present)
        self.done.forget_unwanted_vectors()

    def _check_young(self, snapshot: Snapshot) -> None:
        oldest = self.done.oldest
        if oldest is not None and self._log.clock.now() - oldest >= lifetime(snapshot.retention_days):
            self.done.forget_vectors()
            raise BufferLostError(
                f"What Spark wrote for {self.name} is older than half of the retention of {self.table}, which is "
                f"{snapshot.retention_days:g} days, so a VACUUM may be about to delete it. Nothing was changed: clear "
                "the task to run it again."
            )

    def _all_later(self, unseen: list[Add], view: View) -> bool:
        """Say whether all unseen files came by appends that may count as later than the statement."""
        return self._later(view).keys() >= set(map(file_key, unseen))

    def _later(self, view: View) -> dict[FileKey, int]:
        """Return the files of appends that may count as later than the statement, each with the append's version."""
        if self._isolation is Isolation.SERIALIZABLE or not self.done.count or not view.complete:
            return {}
        last = last_that_may_have_read(view.winners)
        return {
            file_key(add): commit.version
            for commit in view.winners
            if commit.version > last and commit.blind_append and not commit.removes
            for add in commit.adds
        }

    def _round(self, unseen: list[Add], snapshot: Snapshot) -> Unseen:
        check_paths_relative(unseen, self.table)
        self.check_not_append_only(snapshot)
        if len(unseen) > MOST_FILES:
            raise StatementRefusedError(
                f"{self.name} would have to look at {len(unseen):,} files of {self.table}, and at most "
                f"{MOST_FILES:,} are taken. Nothing was changed: name the partitions that matter by covers, or compact "
                "the table first."
            )
        return Unseen(snapshot, tuple(unseen))

    def check_not_append_only(self, snapshot: Snapshot) -> None:
        """See :meth:`StatementProposal.check_not_append_only`. Vectors that are home already are of no use then."""
        if snapshot.append_only:
            self.done.forget_vectors()
        super().check_not_append_only(snapshot)

    # -- the commit ---------------------------------------------------------------------------------------------------

    def _entry(self, snapshot: Snapshot, txn_id: str) -> list[Action]:
        statement, now = self._statement, self._log.clock.now()
        pieces = self.done.pieces
        removed = [file for piece in pieces for file in piece.removed]
        again = [file for piece in pieces for file in piece.again]
        # Copies, because a put that loses its race gives the files other row ids the next time.
        added: list[Add] = [{**file} for piece in pieces for file in piece.added]
        staying = {file["path"] for file in again}
        united = sum(file["path"] in piece.united for piece in pieces for file in piece.removed)
        counted = self._counted(pieces, sum(file["path"] not in staying for file in removed), len(added))
        self._put = attrs.evolve(counted, files_united=united)
        info = commit_info(
            statement.operation,
            self._parameters(),
            snapshot,
            txn_id,
            now,
            blind=False,
            metrics=_counts(self._metrics(again)),
            isolation="Serializable" if self._isolation is Isolation.SERIALIZABLE else "WriteSerializable",
            told=self._message(),
        )
        more = {"filesUnited": united, "before": self._before}
        record = {**self._record(), **{name: value for name, value in more.items() if value}}
        info[STAGED] = {"format": FORMAT, CHANGE: record}
        tags = [dict(ran.tags) for ran, kept in self.done.ran if kept]
        if tags[0] and all(each == tags[0] for each in tags):
            info["tags"] = tags[0]
        stamped = stamp(info, added, snapshot, now)
        written = milliseconds(now)
        entry: list[Action] = [{"commitInfo": info}]
        entry += [*txns_of(self._turns(snapshot), now), *stamped]
        entry += [{"remove": remove_of(file, written, data_change=True)} for file in removed]
        entry += [{"add": {**file, "dataChange": True}} for file in (*again, *added)]
        entry += [{"cdc": file} for piece in pieces for file in piece.cdc]
        return entry

    def _nothing_to_do(self) -> Changed:
        return Changed(status=StatementStatus.NOTHING_TO_DO, rounds=self.done.count)

    def _without_change(self, ended: Changed, view: View) -> Put | Changed:
        """Return the result where there is nothing to do, or the commit that keeps an older start from doing more.

        :param ended: the result.
        """
        snapshot, now = view.snapshot, self._log.clock.now()
        turns = self._fence(snapshot)
        if not turns:
            return ended
        self.check_table(snapshot)
        self._put = ended
        info = commit_info(
            self._statement.operation,
            self._parameters(),
            snapshot,
            view.txn_id,
            now,
            blind=False,
            metrics=_counts(self._metrics([])),
            told=f"{self._message()}. {NOTHING}",
        )
        return Put(entry_of_nothing(info, self._fence_record(), turns, snapshot, now))

    def _fence(self, snapshot: Snapshot) -> Mapping[str, int]:
        """Return the ``txn`` actions where there is nothing to do; none where no older start may be at work."""
        assert self._starts is not None
        return self._starts.turns(snapshot, done=False) if self._starts.follows else {}

    def _fence_record(self) -> dict[str, object]:
        return self._record()

    def _counted(self, pieces: Iterable[Piece], files_removed: int, files_added: int) -> Changed:
        return Changed(
            status=StatementStatus.DONE,
            rows=self._rows(pieces),
            files_removed=files_removed,
            files_added=files_added,
            rounds=self.done.count,
        )

    def _turns(self, snapshot: Snapshot) -> dict[str, int]:
        """Return the versions of the ``txn`` actions by their application ids."""
        assert self._starts is not None
        return self._starts.turns(snapshot)

    def _parameters(self) -> dict[str, str]:
        return {"predicate": json.dumps([self._statement.predicate], ensure_ascii=False)}

    def _message(self) -> str:
        return of_task(self._start.by, self.name, self._start.message)

    def _record(self) -> dict[str, object]:
        assert self._starts is not None
        return {
            "rounds": self.done.count,
            "readVersion": self.read_version,
            "covers": self._statement.covers,
            **self._starts.record,
        }

    def _rows(self, pieces: Iterable[Piece]) -> int | None:
        if self._statement.operation == UPDATE:
            counts = [ran.rows_updated if len(kept) == len(ran.pieces) else None for ran, kept in self.done.ran if kept]
        else:
            counts = [piece.rows_gone for piece in pieces]
        return None if None in counts else sum(count or 0 for count in counts)

    def _metrics(self, again: Sequence[Add]) -> dict[str, int | None]:
        assert self._put is not None
        rows = "numUpdatedRows" if self._statement.operation == UPDATE else "numDeletedRows"
        return {
            rows: self._put.rows,
            "numRemovedFiles": self._put.files_removed,
            "numAddedFiles": self._put.files_added,
            "numDeletionVectorsAdded": len(again),
        }


def _counts(metrics: Mapping[str, int | None]) -> dict[str, str]:
    return {name: str(count) for name, count in metrics.items() if count is not None}


def _touches(commit: Commit, in_range: Callable[[Partition], bool], snapshot: Snapshot) -> bool:
    """Say whether a commit changed rows of some partitions, as far as it tells; else it did."""
    split = snapshot.partitioning
    both: list[Add | Remove] = [*commit.adds, *commit.removes]
    files = [file for file in both if file.get("dataChange", True)]
    return any(not split.named_by(file) or in_range(split.partition(file["partitionValues"])) for file in files)


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


def _already(earlier: Earlier) -> Changed:
    if earlier.commit is None:
        return Changed(status=StatementStatus.ALREADY, rows=None, files_removed=None, files_added=None)
    metrics: Any = earlier.commit.info.get("operationMetrics") or {}
    record = (earlier.commit.info.get(STAGED) or {}).get(CHANGE) or {}

    rows = "numUpdatedRows" if earlier.commit.operation == UPDATE else "numDeletedRows"
    return Changed(
        status=StatementStatus.ALREADY,
        version=earlier.commit.version,
        rows=whole_number(metrics.get(rows)),
        files_removed=whole_number(metrics.get("numRemovedFiles")),
        files_added=whole_number(metrics.get("numAddedFiles")),
        files_united=whole_number(record.get("filesUnited")) or 0,
        rounds=whole_number(record.get("rounds")) or 0,
    )
