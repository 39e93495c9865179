"""Settle the conflicts of a batch: it is put on top of its winners whole, or it is set aside whole, or it is refused.

The order of the log is the order in which writes count. So there is one question: whether the batch may still come now.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import StrEnum
from typing import Any

import attrs

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.commit.batch import Batch
from airflow_provider_onelake.commit.conflicts import Conflict, version_name
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.staging.published import UNDOING


class Outcome(StrEnum):
    """How one conflict was settled."""

    REPLACED = "replaced"
    SUPERSEDED = "superseded"
    SET_ASIDE = "set_aside"


_SENTENCES: Mapping[Outcome, str] = {
    Outcome.REPLACED: "is replaced: it finished earlier",
    Outcome.SUPERSEDED: "replaced the partition and finished later, so this writer's rows are not published",
    Outcome.SET_ASIDE: "stays, and this writer's rows are set aside",
}


@attrs.frozen
class Settlement:
    """How one conflict was settled.

    :param partition: as people write it.
    :param winner_version: the version of the commit that landed first.
    :param winner: its writers, or its operation.
    """

    partition: str
    winner_version: int
    winner: str
    outcome: Outcome

    def to_json(self) -> Mapping[str, Any]:
        """Return the settlement for the log and XCom."""
        return {**attrs.asdict(self), "outcome": self.outcome.value}

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


@attrs.frozen
class Settled:
    """The result of settling all conflicts of a batch.

    :param set_aside: whether the batch is left out, so that it changes nothing.
    :param settlements: one for every conflict that decided it.
    """

    set_aside: bool = False
    settlements: tuple[Settlement, ...] = ()


def settle(
    batch: Batch,
    conflicts: Sequence[Conflict],
    removable: Sequence[Add],
    policy: Policy,
    partitioning: Partitioning,
    table: str,
) -> Settled:
    """Apply a policy to the conflicts of a batch.

    :param removable: the live files that the batch would remove.
    :raises ConflictError: the policy is ``fail``; or the batch is late, and not all of it was replaced since.
    """

    def error(conflict: Conflict, why: str, ways: str) -> ConflictError:
        return ConflictError(
            f"In {table}, {conflict.describe(partitioning)}, which writers {batch.names} replace on the ground of "
            f"version {batch.read_version}{why}. Nothing was published and the buffers are kept: clear the writers to "
            f"run them on the newest version{ways}."
        )

    def settled(some: Sequence[Conflict], outcome: Outcome) -> Settled:
        said = (Settlement(c.place(partitioning), c.winner.version, c.winner.author, outcome) for c in some)
        return Settled(outcome is not Outcome.REPLACED, tuple(said))

    if not conflicts:
        return Settled()
    if policy is Policy.FAIL:
        raise error(conflicts[0], "", ", or reconcile with on_conflict='last_writer_wins' or 'first_writer_wins'")
    if policy is Policy.FIRST_WRITER_WINS:
        return settled(conflicts, Outcome.SET_ASIDE)
    # A late write is not put on top of what finished after it.
    later = [conflict for conflict in conflicts if not conflict.finished_before(batch)]
    if not later:
        return settled(conflicts, Outcome.REPLACED)
    place = partitioning.partition
    concerned = {at for placed in batch.placed for at in placed.inside} | {
        place(f["partitionValues"]) for f in removable
    }
    undone = any(conflict.winner.operation in UNDOING for conflict in later)
    if not undone and concerned <= {conflict.partition for conflict in later if conflict.replaced}:
        return settled(later, Outcome.SUPERSEDED)
    raise error(
        next((c for c in later if not c.replaced), later[0]),
        ", and finished later than they did",
        ", or reconcile with on_conflict='first_writer_wins' to leave their rows out",
    )
