"""Which commits are in conflict with a write: a commit's second question (docs/concepts/how-it-works.md).

A write that replaces is in conflict with a commit that changed rows in a partition that it replaces, or that replaced a
partition for which it has rows. Partitions are compared by typed values (protocol: typed partition values). Where the
log does not say what a commit did in a partition, the commit may have changed rows there, and has not replaced them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import PublishMode
from airflow_provider_onelake.exceptions import InvalidWriteError, LogGapError
from airflow_provider_onelake.history.undone import REPLACING_TABLE
from airflow_provider_onelake.log.actions import Add, Remove, total_rows
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate, everything
from airflow_provider_onelake.log.paths import unknown_in
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.types import struct_of
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.modes import MODES, Mode, OverwritePartitions
from airflow_provider_onelake.texts import rows_in_words
from airflow_provider_onelake.writes.batch import Batch, place, read_partition

# Operations that leave nothing of what was in the table before. Those that replace the table are seen here only where a
# RESTORE has brought the old definition back since; else the buffers do not fit the table any more.
_REPLACING_ALL = ("TRUNCATE", *REPLACING_TABLE)
Range = Callable[[Partition], bool | None]
"""Tells whether a commit replaced whatever was in a partition; ``None`` where the log does not say."""


@attrs.frozen
class Conflict:
    """A commit that changed rows in a partition that a batch replaces.

    :param partition: typed; ``None`` for a commit that does not say where it removed rows.
    :param winner: the commit.
    :param range: what the commit replaced, there and elsewhere.
    :param rows: how many rows it put there; ``None`` where statistics do not say, or it may have rewritten rows.
    """

    partition: Partition | None
    winner: Commit = attrs.field(repr=False)
    range: Range = attrs.field(repr=False, eq=False)
    rows: int | None = None

    def finished_before(self, batch: Batch) -> bool:
        """Say whether the winner finished before a batch did. If nobody knows when it finished, it did not.

        A writer's commit finished when Spark had ended its last append into a buffer; any other commit when its entry
        came into the store. Both times are the store's, so they compare.
        """
        if self.winner.writers:
            return max((writer.finished, writer.app_id) for writer in self.winner.writers) < batch.finished
        landed: datetime | None = self.winner.landed
        return landed is not None and (landed, "") < batch.finished

    def place(self, partitioning: Partitioning) -> str:
        """Describe the partition in which the winner changed rows."""
        return "a partition that it does not name" if self.partition is None else partitioning.describe(self.partition)

    def describe(self, partitioning: Partitioning) -> str:
        """Describe the conflict in a sentence: which version, whose it is, and what it did."""
        return stands(self.winner.version, self.winner.author, self.rows, self.place(partitioning))


def stands(version: int, author: str, rows: int | None, place: str) -> str:
    """Say which rows a commit put into a partition, and whose they are.

    :param rows: how many; ``None`` where statistics do not say.
    :param place: the partition, or several, as people write them.
    """
    return f"version {version} ({author}) {f'put {rows_in_words(rows)} into' if rows else 'changed rows in'} {place}"


def conflicts_of(batch: Batch, winners: Iterable[Commit], partitioning: Partitioning) -> list[Conflict]:
    """Return what other writers' commits did to the rows that a batch replaces, in the order of versions.

    A batch that only adds rows is in conflict with nothing. A commit that changes no rows is none: neither a
    compaction, whatever it is called, nor a write that was set aside.

    :param winners: the commits of others that count.
    :param partitioning: of the newest version.
    :raises InvalidWriteError: a partition value has not its column's type, so that the answer is not known.
    """
    if not batch.replaces_anything:
        return []
    winners = list(winners)
    # Only column mapping lets a column be renamed. A predicate of before may then mean other partitions.
    renamed = max((w.version for w in winners if partitioning.physical and w.metadata), default=-1)
    found: list[Conflict] = []
    for winner in winners:
        if winner.data_change:
            found += _with(winner, batch, partitioning, _replaced_range(winner, partitioning, winner.version < renamed))
    return found


def overtaken_by(log: DeltaLog, buffer: Buffer, snapshot: Snapshot) -> str | None:
    """Say which commit since a buffer's read version is in conflict with it, in words; ``None`` where none is.

    :param snapshot: the newest of the table.
    """
    if not buffer.spec.mode.replaces:
        return None
    try:
        commits = log.commits_between(buffer.read_version, snapshot.version)
    except LogGapError as error:
        return str(error)
    winners = (commit for commit in commits if not is_own(commit, [buffer]))
    conflicts = conflicts_of(place([buffer], snapshot), winners, snapshot.partitioning)
    return conflicts[0].describe(snapshot.partitioning) if conflicts else None


def is_own(winner: Commit, buffers: Sequence[Buffer]) -> bool:
    """Say whether a commit is of some buffers' writers, or of others of their load that are published with them."""
    own, prefix = {buffer.spec.identity.app_id for buffer in buffers}, buffers[0].spec.identity.load.prefix
    together = buffers[0].spec.publish is PublishMode.TOGETHER
    ids = [writer.app_id for writer in winner.all_writers]
    return bool(ids) and all(id_ in own or (together and id_.startswith(prefix)) for id_ in ids)


def _with(winner: Commit, batch: Batch, partitioning: Partitioning, range_: Range) -> Iterator[Conflict]:
    files: list[Add | Remove] = [*winner.adds, *winner.removes]
    changed = [file for file in files if file.get("dataChange", True)]
    named = [file for file in changed if partitioning.named_by(file)]
    if len(named) < len(changed):
        yield Conflict(None, winner, range_)
    read = read_partition(batch.mode, partitioning)
    touched = {read(file["partitionValues"]) for file in named}
    own = {partition for placed in batch.placed for partition in placed.inside}
    met = [
        partition
        for partition in sorted(touched | own, key=_order)
        if (partition in touched or range_(partition) is not False) and batch.replaces(partition)
    ]
    put: dict[Partition, list[Add]] = defaultdict(list)
    for add in winner.adds if met and winner.operation == "WRITE" else ():
        put[read(add["partitionValues"])].append(add)
    for partition in met:
        yield Conflict(partition, winner, range_, total_rows(put[partition]) if winner.operation == "WRITE" else None)


def _nobody_knows(_: Partition) -> None:
    return None


def _nothing(_: Partition) -> bool:
    return False


def _replaced_range(winner: Commit, partitioning: Partitioning, renamed: bool) -> Range:
    """Return a function that tells which partitions a winner replaced, whatever was in them.

    :param renamed: whether a partition column may have another name since.
    """
    with_files = {partitioning.partition(add["partitionValues"]) for add in winner.adds if partitioning.named_by(add)}
    if not winner.staged:
        return _foreign_range(winner, with_files, partitioning, renamed)
    # A mode that a later release brings says what it replaced by predicates, or not at all.
    mode = MODES.get(str(winner.staged.get("mode")), Mode)
    texts = winner.staged.get("replaces", ())
    try:
        return mode.replaced_by(texts, with_files, _named_then(winner, partitioning) if texts else partitioning)
    except InvalidWriteError:
        # It is an odd record, or of a table that was partitioned otherwise: what brought the table back since counts.
        return _nothing


def _foreign_range(winner: Commit, with_files: set[Partition], partitioning: Partitioning, renamed: bool) -> Range:
    parameters = winner.parameters
    if winner.operation in _REPLACING_ALL:
        return everything
    if winner.operation != "WRITE" or str(parameters.get("mode")) != "Overwrite":
        return _nothing
    if str(parameters.get("isDynamicPartitionOverwrite")).lower() == "true":
        return OverwritePartitions.replaced_by((), with_files, partitioning)
    if parameters.get("predicate"):
        return _nobody_knows if renamed else _foreign_predicate(str(parameters["predicate"]), partitioning)
    if not partitioning.types or "isDynamicPartitionOverwrite" in parameters:
        return everything
    # The engine does not say whether the overwrite was dynamic. A dynamic one leaves other partitions alone.
    return lambda partition: True if partition in with_files else None


def _foreign_predicate(text: str, partitioning: Partitioning) -> Range:
    try:
        predicate = PartitionPredicate.parse(text, partitioning)
        # Times without a zone are in that of the engine's session, which it does not log.
        return _nobody_knows if "timestamp" in partitioning.types.values() else predicate.judge
    except InvalidWriteError:
        # A predicate that names data columns keeps the rows outside of it in each partition. One that names only
        # partition columns, as `month LIKE '0%'` does, replaces whole partitions, but nothing here can tell which.
        split = struct_of([{"name": name, "type": kind} for name, kind in partitioning.types.items()])
        return _nothing if unknown_in(text, split) else _nobody_knows


def _named_then(winner: Commit, partitioning: Partitioning) -> Partitioning:
    """Return the partitioning with the columns' names of a winner's version: column mapping lets them change.

    :raises InvalidWriteError: the table had other partition columns then; a RESTORE has brought these back since.
    """
    names = winner.partitioned_by or list(partitioning.types)
    if len(names) != len(partitioning.types):
        raise InvalidWriteError(f"Version {winner.version} is of a table that was partitioned by {', '.join(names)}.")
    return Partitioning(dict(zip(names, partitioning.types.values(), strict=True)))


def _order(partition: Partition) -> tuple[str, ...]:
    return tuple(map(str, partition))
