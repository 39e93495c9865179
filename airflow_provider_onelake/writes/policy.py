"""What a policy makes of a write's conflicts: the write is done whole, or left out whole, or refused.

This is the third question that a commit asks (docs/concepts/how-it-works.md). Writes count in the order of the log, so
a write is done on top of what stands, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import attrs

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.exceptions import ConflictError, OutOfDateError
from airflow_provider_onelake.log.actions import Add, total, total_rows
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.texts import listed, rows_in_words
from airflow_provider_onelake.writes.batch import Batch
from airflow_provider_onelake.writes.conflicts import Conflict, stands


class Outcome(StrEnum):
    """How one conflict was settled."""

    REPLACED = "replaced"
    SUPERSEDED = "superseded"
    SET_ASIDE = "set_aside"


_SENTENCES: Mapping[Outcome, str] = {
    Outcome.REPLACED: "{winner}, and is replaced there",
    Outcome.SUPERSEDED: "all of it is superseded, {whole}: {winner}, and finished later",
    Outcome.SET_ASIDE: "all of it is set aside, {whole}: {winner}, and was there first",
}
_MOST_PLACES = 3


@attrs.frozen
class Settlement:
    """How the conflicts of a write with one commit were settled.

    :param partition: those in conflict, as people write them.
    :param winner_version: the version of the commit that landed first.
    :param winner: its writers with their DAG, group and run, or its operation.
    :param outcome: ``replaced`` (the write is done on top of it), ``superseded`` or ``set_aside`` (the write is left
        out whole).
    :param rows: how many rows the commit had put there; ``None`` where statistics do not say.
    :param whole: what of the write is left out: its rows and their partitions, as people write them. Empty for nothing.
    """

    partition: str
    winner_version: int
    winner: str
    outcome: Outcome
    rows: int | None = None
    whole: str = ""

    def to_json(self) -> Mapping[str, Any]:
        """Return the settlement for the log and XCom."""
        return {**attrs.asdict(self), "outcome": self.outcome.value}

    @classmethod
    def of(cls, commit: Commit) -> tuple[Settlement, ...]:
        """Return what a commit of ours records of how its conflicts were settled; empty for every other commit.

        Outcomes of earlier releases that are none any more are passed over.
        """
        known = {field.name for field in attrs.fields(cls)}
        found = []
        for record in commit.staged.get("settlements") or ():
            with suppress(KeyError, TypeError, ValueError):
                said = {name: value for name, value in dict(record).items() if name in known}
                found.append(cls(**{**said, "outcome": Outcome(said["outcome"])}))
        return tuple(found)

    @property
    def what_stands(self) -> str:
        """Say what the commit did: which version, whose it is, and where."""
        return stands(self.winner_version, self.winner, self.rows, self.partition)

    def __str__(self) -> str:
        """Say it in a sentence."""
        return _SENTENCES[self.outcome].format(winner=self.what_stands, whole=self.whole or "every row")


def left_out_as(settlements: Iterable[Settlement]) -> Outcome:
    """Say how a policy has left out a write: because of later commits, or of an earlier one."""
    outcomes = {settlement.outcome for settlement in settlements}
    return Outcome.SUPERSEDED if Outcome.SUPERSEDED in outcomes else Outcome.SET_ASIDE


@attrs.frozen
class Settled:
    """What a policy has made of a write's conflicts.

    :param left_out: whether the write is left out whole, so that it changes nothing.
    :param settlements: one for every conflict that decided it.
    """

    left_out: bool = False
    settlements: tuple[Settlement, ...] = ()


@attrs.frozen
class Contest:
    """A write and its conflicts.

    :param conflicts: in the order of versions.
    :param winners: every commit since the read version, of whomever.
    :param removable: the live files that the write would remove.
    :param times_count: whether times of the log and of the buffers compare. Those of a log that was copied do not.
    :param table: what messages call the table.
    """

    batch: Batch
    conflicts: Sequence[Conflict]
    winners: Sequence[Commit]
    removable: Sequence[Add]
    partitioning: Partitioning
    times_count: bool
    table: str

    def later(self) -> list[Conflict]:
        """Return the conflicts with commits that finished after the write."""
        return [c for c in self.conflicts if not (self.times_count and c.finished_before(self.batch))]

    def is_replaced_by(self, later: Sequence[Conflict]) -> bool:
        """Say whether some commits together replaced each partition in which the write has rows or would remove some.

        Where a RESTORE came, nobody knows whether it took back what they put there.
        """
        read = self.partitioning.partition
        concerned = {read(file["partitionValues"]) for file in self.removable}
        concerned.update(*(placed.inside for placed in self.batch.placed))
        if any(winner.operation == "RESTORE" for winner in self.winners):
            return False
        return all(any(conflict.range(partition) for conflict in later) for partition in concerned)

    def settled(self, conflicts: Sequence[Conflict], outcome: Outcome) -> Settled:
        """Return the record of conflicts that were settled in one way."""
        by_winner: dict[int, list[Conflict]] = {}
        for conflict in conflicts:
            by_winner.setdefault(conflict.winner.version, []).append(conflict)
        left_out = outcome is not Outcome.REPLACED
        whole = self._whole if left_out else ""
        found = []
        for version, ones in by_winner.items():
            places = listed([one.place(self.partitioning) for one in ones], _MOST_PLACES)
            rows = total(one.rows for one in ones)
            found.append(Settlement(places, version, ones[0].winner.author, outcome, rows, whole))
        return Settled(left_out, tuple(found))

    @property
    def _whole(self) -> str:
        """The rows of the write and their partitions, as people write them."""
        adds = [add for placed in self.batch.placed for adds in placed.inside.values() for add in adds]
        names = sorted({self.partitioning.describe(one) for placed in self.batch.placed for one in placed.inside})
        where = f" in {listed(names, _MOST_PLACES)}" if names and self.partitioning.types else ""
        return rows_in_words(total_rows(adds)) + where

    def refusal(
        self, kind: type[ConflictError], conflicts: Sequence[Conflict], more: str = "", ways: str = ""
    ) -> ConflictError:
        """Return the error that refuses the write.

        :param conflicts: that stand in its way.
        :param more: what else is to be said of each of their commits.
        :param ways: what a person may do besides clearing the writers.
        """
        read, load = self.batch.read_version, self.batch.buffers[0].spec.identity.load
        ground = f"version {read}" if read >= 0 else "no table"
        stand = [f"{one.what_stands}{more}" for one in self.settled(conflicts, Outcome.REPLACED).settlements]
        if any(conflict.winner.staged.get("load") == load.id for conflict in conflicts):
            ways += "; writers of one load that replace one partition meet in every run, so give each its own"
        return kind(
            f"In {self.table}, {listed(stand, _MOST_PLACES, '; ')}. Writers {self.batch.names} replace these rows, and "
            f"were formed on {ground}. Nothing of them was published, and their buffers are kept: clear the writers to "
            f"run them on the newest version, where they replace what stands there{ways}."
        )


def settle(contest: Contest, policy: Policy) -> Settled:
    """Apply a policy to the conflicts of a write.

    :raises ConflictError: the policy is ``fail``.
    :raises OutOfDateError: the policy is ``last_writer_wins``, and commits in conflict finished after the write but did
        not replace all of it. Its rows have to be staged anew.
    """
    if not contest.conflicts:
        return Settled()
    if policy is Policy.FAIL:
        ways = ", or leave them out by `onelake reconcile --on-conflict first_writer_wins`"
        raise contest.refusal(ConflictError, contest.conflicts, ways=ways)
    if policy is Policy.FIRST_WRITER_WINS:
        return contest.settled(contest.conflicts, Outcome.SET_ASIDE)
    later = contest.later()
    if not later:
        return contest.settled(contest.conflicts, Outcome.REPLACED)
    if contest.is_replaced_by(later):
        replacing = [one for one in later if one.partition is not None and one.range(one.partition)]
        return contest.settled(replacing or later, Outcome.SUPERSEDED)
    more = ", and finished later" if contest.times_count else ", and the table was copied since"
    raise contest.refusal(OutOfDateError, later, more)
