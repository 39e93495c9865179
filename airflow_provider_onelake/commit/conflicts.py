"""Which commits that landed since the read version concern a batch: one rule a function.

The table of design.md ("What a commit decides"), row by row. A winner is another's commit; what it did is judged on the
partitions that the batch replaces, by typed value (protocol, rule 18).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import attrs

from airflow_provider_onelake.commit.batch import Batch, read_partition
from airflow_provider_onelake.exceptions import BufferDoesNotFitError, TerminalError
from airflow_provider_onelake.log.commits import Commit
from airflow_provider_onelake.log.fits import misfits
from airflow_provider_onelake.log.partitions import Partition, Partitioning, PartitionPredicate
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.staging.buffers import Buffer

# Operations whose new files hold nothing of the files that they remove.
_AFRESH = ("WRITE", "CREATE OR REPLACE TABLE AS SELECT", "REPLACE TABLE AS SELECT", "RESTORE", "CLONE")


@attrs.frozen
class Conflict:
    """A winner that changed rows in a partition that the batch replaces.

    :param partition: typed; ``None`` for a winner that does not say where it removed rows.
    :param winner: its commit.
    :param appended: the files that it put there, where all it did was to append.
    """

    partition: Partition | None
    winner: Commit = attrs.field(repr=False)
    appended: tuple[str, ...] | None

    @property
    def finished(self) -> tuple[datetime, str] | None:
        """When the winner's work was done, comparable with :attr:`Batch.finished`; ``None`` where nobody knows."""
        if self.winner.writers:
            return max((writer.finished, writer.app_id) for writer in self.winner.writers)
        return (self.winner.time, "") if self.winner.time is not None else None

    @property
    def name(self) -> str:
        """Who the winner was: its writers, or its operation."""
        return (
            ", ".join(writer.writer for writer in self.winner.writers) or self.winner.operation or "an unknown writer"
        )

    def describe(self, partitioning: Partitioning) -> str:
        """Say it in a sentence.

        :param partitioning: of the table.
        """
        where = "a partition that it does not name" if self.partition is None else partitioning.describe(self.partition)
        return f"version {self.winner.version} ({self.name}) changed {where}"


def check_fits(buffer: Buffer, snapshot: Snapshot, table: str) -> None:
    """Refuse a buffer whose files the table would no longer read rightly (protocol, rule 17).

    :param buffer: to publish.
    :param snapshot: that is committed against.
    :param table: what messages call the table.
    :raises BufferDoesNotFitError: saying what changed and what to do.
    :raises UnsupportedFeatureError: the table has got a feature outside the allow-list.
    """
    snapshot.check_supported(table)
    if buffer.table_id != snapshot.table_id:
        reasons = ["the table was replaced by another"]
    else:
        reasons = list(misfits(buffer.metadata, snapshot.metadata))
    if buffer.spec.mode != "append" and snapshot.append_only:
        reasons.append("it is append-only now")
    if reasons:
        raise BufferDoesNotFitError(
            f"{table} changed since writer {buffer.spec.identity.key!r} staged at version {buffer.read_version}: "
            f"{'; '.join(reasons)} (seen at version {snapshot.version}). Nothing was published. Clear "
            f"{buffer.spec.task or 'the writer'} to stage the rows again under the new definition."
        )


def check_no_path_twice(buffers: Iterable[Buffer], winners: Iterable[Commit], table: str) -> None:
    """Refuse to add a file that was ever in the table (protocol, rule 15).

    A buffer's files can have come in only after its read version, so the winners tell.

    :param buffers: to publish.
    :param winners: every commit since their read versions.
    :param table: what messages call the table.
    :raises TerminalError: a file was published before.
    """
    prefixes = tuple(f"{buffer.path}/" for buffer in buffers)
    for winner in winners:
        for add in winner.adds:
            if add["path"].startswith(prefixes):
                raise TerminalError(
                    f"{add['path']} came into {table} in version {winner.version} already; a file is published once. "
                    "Nothing was changed."
                )


def find_conflicts(batch: Batch, winners: Iterable[Commit], snapshot: Snapshot) -> Iterator[Conflict]:
    """Yield what winners did to the rows that a batch replaces; an append replaces nothing and has no conflicts.

    :param batch: to publish.
    :param winners: every commit since the read version, but for colleagues' and the batch's own.
    :param snapshot: that is committed against.
    """
    if not batch.replaces_anything:
        return
    for winner in winners:
        yield from winner_replaced_range(batch, winner, snapshot.partitioning)
        if winner.data_change:
            yield from winner_changed_files(batch, winner, snapshot.partitioning)


def stale_reads(buffer: Buffer, winners: Iterable[Commit]) -> Iterator[Commit]:
    """Yield the commits that changed rows after a writer that reads the table was formed (protocol, rule 19).

    What the writer read, nobody knows, so that any change of rows counts, wherever it is; and as any does, its reads
    need not be pinned to one version: without a change since the read version, all of them gave the same rows.

    :param buffer: to publish.
    :param winners: every commit since the read version, but for colleagues' and the batch's own.
    """
    if buffer.reads_target:
        yield from (winner for winner in winners if winner.version > buffer.read_version and winner.data_change)


def winner_changed_files(batch: Batch, winner: Commit, partitioning: Partitioning) -> Iterator[Conflict]:
    """Yield the partitions of the batch in which a winner added or removed rows.

    Compaction and other commits without a change of data never count.

    :param batch: to publish.
    :param winner: that changed data.
    :param partitioning: of the table.
    """
    changed = [file for file in winner.removes if file.get("dataChange", True)]
    if any(file.get("partitionValues") is None for file in changed):
        yield Conflict(None, winner, None)
        return
    read = read_partition(batch.mode, partitioning)
    removed = {read(file["partitionValues"]) for file in changed}
    added: dict[Partition, list[str]] = {}
    for add in winner.adds:
        if add.get("dataChange", True):
            added.setdefault(read(add["partitionValues"]), []).append(add["path"])
    for partition in sorted(removed | added.keys(), key=_order):
        if batch.replaces(partition):
            blind = winner.blind_append and partition not in removed
            yield Conflict(partition, winner, tuple(added[partition]) if blind else None)


def winner_replaced_range(batch: Batch, winner: Commit, partitioning: Partitioning) -> Iterator[Conflict]:
    """Yield the batch's partitions that a ``replace_where`` of ours emptied, though it found no file there.

    :param batch: to publish.
    :param winner: whose record names the ranges that it replaced.
    :param partitioning: of the table.
    """
    texts = winner.staged.get("replaces", ())
    # They name the columns as the winner's version had them; under column mapping, a rename may have come since.
    said = (winner.info.get("operationParameters") or {}).get("partitionBy") if texts else None
    names = json.loads(said) if said else partitioning.types
    then = Partitioning(dict(zip(names, partitioning.types.values(), strict=True)))
    ranges = [PartitionPredicate.parse(text, then) for text in texts]
    own = {partition for placed in batch.placed for partition in placed.inside}
    touched: set[Any] = {partitioning.partition(file["partitionValues"]) for file in winner.adds}
    for partition in sorted(own - touched, key=_order):
        if batch.replaces(partition) and any(range_.covers(partition) for range_ in ranges):
            yield Conflict(partition, winner, None)


def rewritten_file(commit: Commit, directories: tuple[str, ...]) -> str | None:
    """Return a file of some directories whose rows a commit moved into files of its own, if any.

    A compaction does, and so does an UPDATE, a MERGE or a DELETE of some rows without deletion vectors. Whose rows are
    in the new files can no longer be told by their paths.

    :param commit: to look at.
    :param directories: of buffers, with the slash at their ends.
    """
    added = {add["path"] for add in commit.adds}
    moves = bool(added) and not commit.writers and commit.operation not in _AFRESH
    return next(
        (
            file["path"]
            for file in commit.removes
            if file["path"].startswith(directories)
            # A file that is added again has another deletion vector, and is the same file.
            and (not file.get("dataChange", True) or (moves and file["path"] not in added))
        ),
        None,
    )


def _order(partition: Partition) -> tuple[str, ...]:
    return tuple(str(value) for value in partition)
