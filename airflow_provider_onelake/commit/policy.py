"""What a true conflict means for a batch: the result equals running the writes in the order in which they finished.

Applied by reconcile only; a writer that publishes for itself leaves conflicts to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import attrs

from airflow_provider_onelake.commit.batch import Batch
from airflow_provider_onelake.commit.conflicts import Conflict
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.partitions import Partition, Partitioning
from airflow_provider_onelake.staging.spec import Mode


class Policy(StrEnum):
    """Who is seen, where two writes replaced the same partition."""

    LAST_WRITER_WINS = "last_writer_wins"
    FIRST_WRITER_WINS = "first_writer_wins"
    FAIL = "fail"


@attrs.frozen
class Settlement:
    """How one conflict was settled.

    :param partition: as people write it.
    :param winner_version: of the commit that got there first.
    :param winner: its writers, or its operation.
    :param outcome: ``replaced`` (the batch's rows are seen), ``kept`` (an append that finished later stays beside them)
        or ``set_aside`` (the winner's rows are seen).
    """

    partition: str
    winner_version: int
    winner: str
    outcome: str

    def to_json(self) -> Mapping[str, Any]:
        """Return the settlement for the log and XCom."""
        return attrs.asdict(self)

    def __str__(self) -> str:
        """Say it in a sentence."""
        verb = {
            "replaced": "is replaced: it finished earlier",
            "kept": "is kept: it appended later",
            "set_aside": "stays, and this writer's rows there are set aside",
        }[self.outcome]
        return f"{self.partition}: version {self.winner_version} ({self.winner}) {verb}"


@attrs.define
class Settled:
    """What the settlements add up to.

    :param yielded: partitions in which the batch changes nothing.
    :param kept: paths of winners' files that the batch does not remove.
    :param settlements: one for every conflict.
    """

    yielded: set[Partition] = attrs.field(factory=set)
    kept: set[str] = attrs.field(factory=set)
    settlements: list[Settlement] = attrs.field(factory=list)

    def still_removed(self, removable: Iterable[dict[str, Any]], partitioning: Partitioning) -> list[dict[str, Any]]:
        """Return the files that the batch removes after all.

        :param removable: what it would remove without conflicts.
        :param partitioning: of the table.
        """
        return [
            file
            for file in removable
            if file["path"] not in self.kept and partitioning.partition(file["partitionValues"]) not in self.yielded
        ]


def settle(
    batch: Batch,
    conflicts: Iterable[Conflict],
    policy: Policy,
    live: Iterable[Mapping[str, Any]],
    partitioning: Partitioning,
    table: str,
) -> Settled:
    """Apply a policy to the conflicts of a batch.

    :param batch: to publish.
    :param conflicts: found for it.
    :param policy: to apply.
    :param live: the files that the batch would remove.
    :param partitioning: of the table.
    :param table: what messages call the table.
    :raises ConflictError: the policy is ``fail``, or a winner does not say where it removed rows.
    """
    settled = Settled()
    live = list(live)
    live_paths = {file["path"] for file in live}
    for conflict in conflicts:
        if policy is Policy.FAIL or conflict.partition is None:
            raise ConflictError(
                f"In {table}, {conflict.describe(partitioning)}, which writers "
                f"{', '.join(repr(b.spec.identity.key) for b in batch.buffers)} replace on the ground of version "
                f"{batch.read_version}. Nothing was published and the buffers are kept: clear the writers to run them "
                "on the newest version, or reconcile with on_conflict='last_writer_wins' or 'first_writer_wins'."
            )
        outcome = _outcome(batch, conflict, policy, live_paths)
        if outcome == "set_aside":
            settled.yielded.add(conflict.partition)
        elif outcome == "kept":
            settled.kept.update(conflict.appended or ())
        settled.settlements.append(
            Settlement(partitioning.describe(conflict.partition), conflict.winner.version, conflict.name, outcome)
        )
    if settled.settlements and policy is Policy.FIRST_WRITER_WINS and batch.mode is Mode.OVERWRITE:
        # One write of the whole table: emptying what nobody else touched would leave neither writer's table.
        settled.yielded.update(partitioning.partition(file["partitionValues"]) for file in live)
        settled.yielded.update(partition for placed in batch.placed for partition in placed.inside)
    return settled


def _outcome(batch: Batch, conflict: Conflict, policy: Policy, live: set[str]) -> str:
    if policy is Policy.FIRST_WRITER_WINS:
        return "set_aside"
    if conflict.finished is not None and conflict.finished < batch.finished:
        return "replaced"
    # An append that finished later comes after this overwrite and stays beside its rows, if its files can still be told
    # from those of others: a compaction may have mixed them.
    if conflict.appended is not None and live.issuperset(conflict.appended):
        return "kept"
    return "set_aside"
