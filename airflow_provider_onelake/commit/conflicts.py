"""Which commits that landed since the read version changed rows that a batch replaces.

A winner is a commit of another writer. Each winner is judged partition by partition, by typed values (protocol: typed
partition values).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import attrs

from airflow_provider_onelake.commit.batch import Batch, read_partition
from airflow_provider_onelake.exceptions import InvalidWriteError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate, everything
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.staging.modes import MODES, Mode
from airflow_provider_onelake.staging.published import REPLACING_TABLE

_REPLACING_ALL = ("TRUNCATE", *REPLACING_TABLE)


@attrs.frozen
class Conflict:
    """A winner that changed rows in a partition that the batch replaces.

    :param partition: typed; ``None`` for a winner that does not say where it removed rows.
    :param winner: the commit that changed the rows.
    :param replaced: whether it put its rows in place of whatever was there.
    """

    partition: Partition | None
    winner: Commit = attrs.field(repr=False)
    replaced: bool = False

    def finished_before(self, batch: Batch) -> bool:
        """Say whether the winner finished before a batch. Where its time is not known, it did not.

        A foreign commit finished when its log entry arrived in the store. The store's clock also says when a buffer
        was complete, at the same resolution, so both times compare.
        """
        if self.winner.writers:
            return max((writer.finished, writer.app_id) for writer in self.winner.writers) < batch.finished
        landed: datetime | None = self.winner.landed
        return landed is not None and (landed, "") < batch.finished

    def place(self, partitioning: Partitioning) -> str:
        """Describe the partition in which the winner changed rows."""
        return "a partition that it does not name" if self.partition is None else partitioning.describe(self.partition)

    def describe(self, partitioning: Partitioning) -> str:
        """Describe the conflict in a sentence."""
        return f"{version_name(self.winner.version)} ({self.winner.author}) changed {self.place(partitioning)}"


def version_name(version: int) -> str:
    """Return what messages call the version of a winner."""
    return f"version {version}"


@attrs.define(eq=False)
class KnownConflicts:
    """Finds conflicts from attempt to attempt, and looks at each winner once."""

    _on: tuple[Batch, Partitioning] | None = None
    _known: dict[int, tuple[Commit, list[Conflict]]] = attrs.field(factory=dict)

    def find(self, batch: Batch, winners: Iterable[Commit], snapshot: Snapshot) -> list[Conflict]:
        """Return what winners did to the rows that a batch replaces, in the order of versions."""
        partitioning = snapshot.partitioning
        same = self._on is not None and self._on[0] is batch and self._on[1] == partitioning
        before = self._known if same else {}
        self._known = {
            id(winner): before.get(id(winner)) or (winner, list(_conflicts_with(winner, batch, partitioning)))
            for winner in winners
        }
        self._on = (batch, partitioning)
        return [conflict for _, found in self._known.values() for conflict in found]


def _conflicts_with(winner: Commit, batch: Batch, partitioning: Partitioning) -> Iterator[Conflict]:
    if winner.only_moves_rows:
        return
    replaced = _replaced_by(winner, partitioning)
    changed = [file for file in (*winner.adds, *winner.removes) if file.get("dataChange", True)]
    named = [file for file in changed if partitioning.named_by(file)]
    if len(named) < len(changed):
        yield Conflict(None, winner)
    read = read_partition(batch.mode, partitioning)
    touched = {read(file["partitionValues"]) for file in named}
    touched |= {at for placed in batch.placed for at in placed.inside if replaced(at)}
    for partition in sorted(touched, key=lambda partition: tuple(map(str, partition))):
        if batch.replaces(partition):
            yield Conflict(partition, winner, replaced(partition))


def _replaced_by(winner: Commit, partitioning: Partitioning) -> Callable[[Partition], bool]:
    """Return a function that tells which partitions a winner replaced, whatever was in them, as far as the log says."""
    with_files = {partitioning.partition(add["partitionValues"]) for add in winner.adds if partitioning.named_by(add)}
    if winner.staged:
        texts = winner.staged.get("replaces", ())
        mode = MODES.get(str(winner.staged.get("mode")), Mode)
        try:
            return mode.replaced_by(texts, with_files, _named_then(winner, partitioning) if texts else partitioning)
        except InvalidWriteError:
            return lambda _: False
    parameters = winner.parameters
    if winner.operation in _REPLACING_ALL:
        return everything
    if winner.operation != "WRITE" or str(parameters.get("mode")) != "Overwrite":
        return lambda _: False
    if predicate := parameters.get("predicate"):
        try:
            judge = PartitionPredicate.parse(str(predicate), partitioning).judge_in_any_zone
        except InvalidWriteError:
            return lambda _: False
        return lambda partition: judge(partition) is True
    if not partitioning.types or str(parameters.get("isDynamicPartitionOverwrite")).lower() == "false":
        return everything
    return with_files.__contains__


def _named_then(winner: Commit, partitioning: Partitioning) -> Partitioning:
    """Return the partitioning with the columns' names of a winner's version: column mapping lets them change."""
    names = winner.partitioned_by or list(partitioning.types)
    if len(names) != len(partitioning.types):
        raise InvalidWriteError(f"Version {winner.version} is of a table that was partitioned otherwise.")
    return Partitioning(dict(zip(names, partitioning.types.values(), strict=True)))
