"""Settle the conflicts of a batch, so that the table equals some order of whole writes that the policy allows.

A batch is one write. It is published as if it had come before some winners and after all others, or not at all. Only
the policies with ``per_partition`` in their names settle every partition by itself.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from functools import cached_property
from itertools import dropwhile
from typing import Any

import attrs

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.commit.batch import Batch, read_partition
from airflow_provider_onelake.commit.conflicts import (
    Conflict,
    Effect,
    as_text,
    left_to_others,
    may_replace,
    origins,
    replaced_all,
    serial_order,
    version_name,
)
from airflow_provider_onelake.commit.followers import Placed, missed_by
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.actions import Add, object_path
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.staging.published import UNDOING

_SPARED_SOME = (
    ", after they had finished and would have left the rows of only some of them alone, as it knew the others for no "
    "colleagues"
)


class Outcome(StrEnum):
    """How one conflict was settled."""

    REPLACED = "replaced"
    KEPT = "kept"
    SPARED = "spared"
    SUPERSEDED = "superseded"
    SET_ASIDE = "set_aside"


_SENTENCES: Mapping[Outcome, str] = {
    Outcome.REPLACED: "is replaced: it counts earlier",
    Outcome.KEPT: "is kept: it appended later",
    Outcome.SPARED: "is kept: it came later, and would have left this writer's rows alone as a colleague's",
    Outcome.SUPERSEDED: "replaced the partition later, so this writer's rows there are not published",
    Outcome.SET_ASIDE: "stays, and this writer's rows there are set aside",
}


@attrs.frozen
class Settlement:
    """How one conflict was settled.

    :param partition: as people write it.
    :param winner_version: the version of the commit that landed first; -1 where the log has it no more.
    :param winner: its writers, or its operation.
    :param outcome: ``replaced`` (the batch's rows are seen), ``kept`` (an append that finished later stays beside
        them), ``spared`` (the winner replaced the partition later, but would have left the batch's rows alone, as it
        took their writers for colleagues), ``superseded`` (the winner replaced the partition later) or ``set_aside``
        (the batch yields).
    :param values: of the partition's columns, as text; ``None`` for a winner that does not say where it removed rows.
    """

    partition: str
    winner_version: int
    winner: str
    outcome: Outcome
    values: tuple[str | None, ...] | None = None

    def to_json(self) -> Mapping[str, Any]:
        """Return the settlement for the log and XCom."""
        values = list(self.values) if self.values is not None else None
        return {**attrs.asdict(self), "outcome": self.outcome.value, "values": values}

    @classmethod
    def of(cls, commit: Commit) -> tuple[Settlement, ...]:
        """Return what a commit of ours records of how its conflicts were settled; empty for every other commit."""
        found = []
        for record in commit.staged.get("settlements", ()):
            with suppress(KeyError, TypeError, ValueError):
                found.append(
                    cls(record["partition"], record["winner_version"], record["winner"], Outcome(record["outcome"]))
                )
        return tuple(found)

    def __str__(self) -> str:
        """Say it in a sentence."""
        return f"{self.partition}: {version_name(self.winner_version)} ({self.winner}) {_SENTENCES[self.outcome]}"


@attrs.define
class Settled:
    """The result of settling all conflicts of a batch.

    :param set_aside: whether the whole batch is left out, so that it changes nothing in any partition.
    :param yielded: partitions in which the batch changes nothing.
    :param kept: paths, as the store names them, of the winners' files that the batch does not remove.
    :param before: the version of the first winner that counts as later than the batch; ``None`` where the batch counts
        last.
    :param superseded: whether a later winner replaced all that the batch replaces, also where neither of them has rows.
    :param settlements: one for every conflict.
    """

    set_aside: bool = False
    superseded: bool = False
    yielded: set[Partition] = attrs.field(factory=set)
    kept: set[str] = attrs.field(factory=set)
    before: int | None = None
    settlements: list[Settlement] = attrs.field(factory=list)

    def yields(self, partition: Partition) -> bool:
        """Say whether the batch changes nothing in a partition.

        :param partition: typed.
        """
        return self.set_aside or partition in self.yielded

    def still_removed(self, removable: Iterable[Add], partitioning: Partitioning) -> list[Add]:
        """Return the files that the batch still removes after its conflicts were settled.

        :param removable: the files that it would remove without conflicts.
        """
        return [
            file
            for file in removable
            if object_path(file) not in self.kept and not self.yields(partitioning.partition(file["partitionValues"]))
        ]


@attrs.frozen
class Contest:
    """A batch, and what is known of its winners.

    :param conflicts: with winners that changed its rows, in the order in which the winners' writes count.
    :param order: versions of the rivals' commits, in the order in which their writes count.
    :param commits: every commit since the read version, in the order of versions.
    :param removable: the live files that the batch would remove without conflicts.
    :param table: what messages call the table.
    :param known: by the versions of the load's commits, the keys of the batch's writers whose rows the commit would
        have left alone, as it took them for colleagues. The lists of writers need not agree: a commit that knew a
        writer may be a rival for it, and one that did not know it may be a colleague's.
    :param seen: versions of the winners that count before what the batch was formed on.
    """

    batch: Batch
    conflicts: Sequence[Conflict]
    order: Sequence[int]
    commits: Sequence[Commit]
    removable: Sequence[Add]
    partitioning: Partitioning
    table: str
    known: Mapping[int, frozenset[str]] = attrs.field(factory=dict)
    seen: Collection[int] = frozenset()

    @cached_property
    def writers(self) -> Mapping[Partition, frozenset[str]]:
        """The keys of the writers that have rows in a partition, for every partition in which the batch has rows."""
        found: dict[Partition, frozenset[str]] = {}
        for placed in self.batch.placed:
            for partition in placed.inside:
                found[partition] = found.get(partition, frozenset()) | {placed.buffer.spec.identity.key}
        return found

    def is_earlier(self, conflict: Conflict) -> bool:
        """Say whether a winner counts before the batch.

        A winner that finished earlier does. So do one that the batch was formed on top of, and whoever counts before
        such a winner, whenever they finished. Where a winner's time is not known, it does not.
        """
        if conflict.winner.version <= self.batch.read_version or conflict.winner.version in self.seen:
            return True
        return conflict.finished is not None and conflict.finished < self.batch.finished

    def spared(self, conflict: Conflict) -> bool | None:
        """Say whether a winner would have left the batch's rows in a partition alone.

        :returns: ``None`` where it would have left only some of them alone.
        """
        known = self.known.get(conflict.winner.version, frozenset())
        writers = self.writers.get(conflict.partition, frozenset()) if conflict.partition is not None else frozenset()
        return bool(known) if writers <= known else None if writers & known else False

    def error(self, conflict: Conflict, why: str, ways: str) -> ConflictError:
        """Return the error that refuses the batch because of a conflict.

        :param conflict: that cannot be settled.
        :param why: words that follow the description of the conflict, or nothing.
        :param ways: what a person may do besides clearing the writers, or nothing.
        """
        read = self.batch.read_version
        ground = f"version {read}" if read >= 0 else "no table"
        return ConflictError(
            f"In {self.table}, {conflict.describe(self.partitioning)}, which writers {self.batch.names} replace on the "
            f"ground of {ground}{why}. Nothing was published and the buffers are kept: clear "
            f"the writers to run them on the newest version{ways}."
        )

    def settlement(self, conflict: Conflict, outcome: Outcome) -> Settlement:
        """Return the record of how a conflict was settled."""
        values = as_text(conflict.partition) if conflict.partition is not None else None
        return Settlement(
            conflict.place(self.partitioning), conflict.winner.version, conflict.winner.author, outcome, values
        )


def settle(contest: Contest, policy: Policy) -> Settled:
    """Apply a policy to the conflicts of a batch.

    :raises ConflictError: the policy is ``fail``, or it cannot settle a conflict.
    """
    if not contest.conflicts:
        return Settled()
    match policy:
        case Policy.FAIL:
            ways = ", or reconcile with on_conflict='last_writer_wins' or 'first_writer_wins'"
            raise contest.error(contest.conflicts[0], "", ways)
        case Policy.FIRST_WRITER_WINS:
            found = [contest.settlement(conflict, Outcome.SET_ASIDE) for conflict in contest.conflicts]
            return Settled(set_aside=True, settlements=found)
        case Policy.LAST_WRITER_WINS:
            return _by_completion(contest)
    return _per_partition(contest, policy)


def _by_completion(contest: Contest) -> Settled:
    """Place the batch just before the first winner that finished later, and publish it as if it had landed there.

    The batch replaces the rows of winners that count as earlier. A winner that counts as later must do the same after
    any other write: an append does, and so does a write that replaces a whole partition. A DELETE does not: the log
    does not say which of the batch's rows it would have deleted, in any partition. A RESTORE would have taken all of
    them back.
    """
    first = next((conflict for conflict in contest.conflicts if not contest.is_earlier(conflict)), None)
    if first is None:
        found = [contest.settlement(conflict, Outcome.REPLACED) for conflict in contest.conflicts]
        return Settled(settlements=found)
    later = set(contest.order[contest.order.index(first.winner.version) :])
    predicates = contest.batch.predicates
    settled = Settled(before=first.winner.version)
    # A later winner replaced these partitions as a whole, so it does not matter what other winners did there.
    hidden: dict[int, set[Partition]] = defaultdict(set)
    for conflict in contest.conflicts:
        replaced = conflict.winner.version in later and conflict.effect is Effect.REPLACED
        if replaced and conflict.partition is not None and contest.spared(conflict) is False:
            hidden[conflict.winner.version].add(conflict.partition)
    settled.yielded = set().union(*hidden.values())
    settled.superseded = bool(predicates) and any(
        replaced_all(commit, predicates, contest.partitioning)
        for commit in contest.commits
        if commit.version in later and not contest.known.get(commit.version)
    )
    _yield_to_superseded(contest, settled, later, hidden)
    no_rows_left = contest.writers.keys() <= settled.yielded
    for conflict in contest.conflicts:
        known = conflict.effect is not Effect.CHANGED or (no_rows_left and conflict.winner.operation not in UNDOING)
        if conflict.winner.version not in later:
            outcome = Outcome.REPLACED
        elif contest.is_earlier(conflict) and _has_no_place(conflict.winner):
            raise contest.error(
                conflict,
                "; it was settled partition by partition, and so counts before one commit and after a later one",
                ", or reconcile with on_conflict='last_writer_wins_per_partition'",
            )
        elif conflict.effect is Effect.APPENDED:
            outcome = Outcome.KEPT
        elif conflict.effect is Effect.REPLACED and contest.spared(conflict):
            outcome = Outcome.SPARED
        elif conflict.partition in settled.yielded and known:
            outcome = Outcome.SUPERSEDED
        else:
            unknown = ", after they had finished: what it would have done to their rows, the log does not say"
            raise contest.error(
                conflict,
                _SPARED_SOME if conflict.effect is Effect.REPLACED else unknown,
                ", or reconcile with on_conflict='first_writer_wins' to leave their rows out",
            )
        settled.settlements.append(contest.settlement(conflict, outcome))
    _tell_files_apart(contest, settled, first, later)
    left = contest.writers.keys() - settled.yielded
    removed = settled.still_removed(contest.removable, contest.partitioning)
    if left or removed:
        # All commits that count after the batch, or may: from the first winner on that finished later.
        ordered = serial_order(contest.commits)
        since = ordered[[commit.version for commit in ordered].index(first.winner.version) :]
        _check_nobody_undid(contest, first, later, since, left)
        changed = {contest.partitioning.partition(file["partitionValues"]) for file in removed}
        placed = Placed(contest.writers.keys(), contest.writers.keys() | settled.yielded | changed, hidden)
        _check_nobody_missed(contest, first, later, since, placed)
    return settled


def _yield_to_superseded(
    contest: Contest, settled: Settled, later: set[int], hidden: dict[int, set[Partition]]
) -> None:
    """Yield the partitions that a later winner would have replaced, had it not been superseded there itself.

    A colleague may have superseded it, so that nobody else is in conflict with the batch there. The batch counts before
    the winner all the same, and would have lost its rows to it, unless the winner took their writers for colleagues.

    :raises ConflictError: a winner would have left only some of the batch's rows in a partition alone.
    """
    for commit in contest.commits:
        if commit.version not in later or not (commit.data_change or commit.staged.get("replaces")):
            # Nothing was ever seen of a write that was superseded whole: it counts nowhere.
            continue
        gone = left_to_others(commit, (Outcome.SUPERSEDED,))
        for partition in sorted(contest.writers.keys() - settled.yielded, key=str):
            conflict = Conflict(partition, commit, Effect.REPLACED)
            spared = contest.spared(conflict)
            if as_text(partition) not in gone or spared:
                continue
            if spared is None:
                raise contest.error(conflict, _SPARED_SOME, "")
            settled.yielded.add(partition)
            hidden[commit.version].add(partition)
            settled.settlements.append(contest.settlement(conflict, Outcome.SUPERSEDED))


def _check_nobody_undid(
    contest: Contest, first: Conflict, later: set[int], since: Sequence[Commit], left: Collection[Partition]
) -> None:
    """Refuse if a commit that counts after the batch, without being in conflict with it, would have taken it back.

    A RESTORE would have. So would a colleague that was published with a list of writers that lacks the batch's: it
    would not have left their rows alone where it replaced rows.

    :param left: partitions in which rows of the batch are to be seen.
    :raises ConflictError: there is such a commit.
    """
    for commit in since:
        if commit.version in later and commit.operation in UNDOING:
            how = f"({commit.operation}) came after that and would have taken their work back"
        elif _replaced_as_strangers(contest, commit, left):
            how = f"({commit.author}), which came after that, was published without them and would have replaced them"
        else:
            continue
        raise contest.error(first, f", after they had finished, and version {commit.version} {how}", "")


def _check_nobody_missed(
    contest: Contest, first: Conflict, later: set[int], since: Sequence[Commit], placed: Placed
) -> None:
    """Refuse if a commit that must count after the batch would have met its rows, and has not.

    :raises ConflictError: there is such a commit.
    """
    certain = {conflict.winner.version for conflict in contest.conflicts if conflict.winner.version in later}
    missed = missed_by(placed, since, certain | placed.hidden.keys(), contest.partitioning)
    if missed is not None:
        commit, what = missed
        who = f"version {commit.version} ({commit.author}), which came after that,"
        raise contest.error(first, f", after they had finished, and {who} {what}", "")


def _replaced_as_strangers(contest: Contest, commit: Commit, left: Collection[Partition]) -> bool:
    """Say whether a commit of colleagues replaced partitions without knowing of all writers that have rows there."""
    if commit.version not in contest.known or commit.version in contest.order:
        return False
    known = contest.known[commit.version]
    unknown = [partition for partition in left if not contest.writers[partition] <= known]
    gone = left_to_others(commit, (Outcome.SUPERSEDED,)) if commit.data_change else ()
    return may_replace(commit, unknown, contest.partitioning) or any(as_text(p) in gone for p in unknown)


def _tell_files_apart(contest: Contest, settled: Settled, first: Conflict, later: set[int]) -> None:
    """Keep the files of later winners, and refuse if older rows would be kept with them.

    :raises ConflictError: a file holds later and older rows, or a write that replaced a partition left old rows there.
    """
    read = read_partition(contest.batch.mode, contest.partitioning)
    changed = {(c.winner.version, c.partition) for c in contest.conflicts if c.effect is Effect.CHANGED}
    new, mixed = origins(later, changed, contest.commits, read)
    for file in contest.removable:
        if object_path(file) in mixed:
            why = f", after they had finished; {file['path']} may hold older rows beside its own, as some were moved"
            raise contest.error(first, why, "")
        if object_path(file) in new:
            settled.kept.add(object_path(file))
        elif read(file["partitionValues"]) in settled.yielded:
            why = f", after they had finished, and left older rows there, such as those of {file['path']}"
            raise contest.error(first, why, "")


def _per_partition(contest: Contest, policy: Policy) -> Settled:
    """Settle every conflict by itself, so that a batch may be seen in one partition and not in another."""
    settled = Settled()
    live = {file["path"] for file in contest.removable}
    for conflict in contest.conflicts:
        if conflict.partition is None:
            raise contest.error(conflict, "", "")
        outcome = Outcome.SET_ASIDE
        if policy is Policy.LAST_WRITER_WINS_PER_PARTITION:
            if contest.is_earlier(conflict):
                outcome = Outcome.REPLACED
            elif conflict.effect is Effect.APPENDED and live.issuperset(conflict.appended):
                # All files that the winner appended are still live, so no compaction has mixed them with others.
                outcome = Outcome.KEPT
                settled.kept.update(object_path({"path": path}) for path in conflict.appended)
        if outcome is Outcome.SET_ASIDE:
            settled.yielded.add(conflict.partition)
        settled.settlements.append(contest.settlement(conflict, outcome))
    if policy is Policy.LAST_WRITER_WINS_PER_PARTITION:
        later = list(dropwhile(lambda one: one.outcome is Outcome.REPLACED, settled.settlements))
        # If the batch has replaced a winner after these too, no one place is right for all of its partitions.
        if later and all(one.outcome is not Outcome.REPLACED for one in later):
            settled.before = later[0].winner_version
    elif not contest.batch.mode.by_partition:
        # An overwrite replaces the whole table. If it emptied only the partitions without winners, it would leave a
        # table that neither write produced.
        settled.set_aside = True
    return settled


def _has_no_place(commit: Commit) -> bool:
    """Say whether a write counts before one winner and after a later one, as its partitions were settled one by one."""
    outcomes = {settlement.outcome for settlement in Settlement.of(commit)}
    return commit.staged.get("before") is None and Outcome.REPLACED in outcomes and len(outcomes) > 1
