"""What one commit publishes: one buffer, or the buffers of colleagues as one transaction (protocol: whole writes)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import cached_property, partial

import attrs

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import OnUnexpectedRows
from airflow_provider_onelake.exceptions import InvalidWriteError, UnexpectedRowsError
from airflow_provider_onelake.log.actions import Add, total_rows
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.modes import Mode, Range


@attrs.define(slots=False, frozen=True)
class Placed:
    """A buffer's files by partition, on a snapshot.

    :param buffer: that the files belong to.
    :param inside: files where the writer's rows may lie, by partition.
    :param outside: the other files, by partition.
    :param replaced: what the write replaces; ``None`` for nothing.
    """

    buffer: Buffer
    inside: dict[Partition, list[Add]]
    outside: dict[Partition, list[Add]]
    replaced: Range | None

    def replaces(self, partition: Partition) -> bool:
        """Say whether the write replaces what is in a partition.

        :param partition: typed.
        :raises InvalidWriteError: the answer is not known, because a value does not have its column's type.
        """
        return self.replaced is not None and self.replaced.covers(partition)

    @property
    def rows_unexpected(self) -> int | None:
        """Rows outside of what is expected of the writer, ``None`` where statistics do not say."""
        return total_rows(add for adds in self.outside.values() for add in adds)


@attrs.define(slots=False, frozen=True)
class Batch:
    """Buffers that become visible in one version.

    :param placed: the buffers, with their files by partition; all of one mode.
    """

    placed: tuple[Placed, ...]

    @property
    def buffers(self) -> tuple[Buffer, ...]:
        """The buffers."""
        return tuple(placed.buffer for placed in self.placed)

    @property
    def mode(self) -> Mode:
        """What the write does to what is there."""
        return self.placed[0].buffer.spec.mode

    @property
    def names(self) -> str:
        """The writers' keys, as messages list them."""
        return ", ".join(repr(buffer.spec.identity.key) for buffer in self.buffers)

    @property
    def read_version(self) -> int:
        """The oldest version that any of the writers was formed on."""
        return min(buffer.read_version for buffer in self.buffers)

    @property
    def finished(self) -> tuple[datetime, str]:
        """When the last writer finished; the second part settles ties, for every committer the same way."""
        return max((buffer.finished, buffer.spec.identity.app_id) for buffer in self.buffers)

    def replaces(self, partition: Partition) -> bool:
        """Say whether the batch replaces what is in a partition.

        :param partition: typed.
        """
        return any(placed.replaces(partition) for placed in self.placed)

    @property
    def predicates(self) -> list[str]:
        """The predicates of what the batch replaces; none where the partitions that get rows say it."""
        return [text for placed in self.placed if placed.replaced and (text := placed.replaced.text)]

    @cached_property
    def replaces_anything(self) -> bool:
        """Whether there is any partition that the batch replaces."""
        return any(placed.replaced is not None for placed in self.placed)


def place(buffers: Iterable[Buffer], snapshot: Snapshot) -> Batch:
    """Sort the files of buffers by partition.

    :param buffers: of one mode; more than one only where their writers are colleagues.
    :param snapshot: that the commit is decided on.
    :raises InvalidWriteError: the modes differ, or an overwrite meets an instant without a time zone (protocol: typed
        partition values).
    :raises UnexpectedRowsError: rows lie outside of what is expected of a writer, and it asked to be refused then.
    """
    placed = tuple(_place(buffer, snapshot) for buffer in buffers)
    modes = {p.buffer.spec.mode.name for p in placed}
    if len(modes) != 1:
        raise InvalidWriteError(
            f"Writers published together need one mode, and these have {', '.join(sorted(modes))}. Nothing was "
            "published."
        )
    return Batch(placed)


def _place(buffer: Buffer, snapshot: Snapshot) -> Placed:
    spec, partitioning = buffer.spec, snapshot.partitioning
    allowed = spec.range(snapshot)
    inside: dict[Partition, list[Add]] = {}
    outside: dict[Partition, list[Add]] = {}
    for add in buffer.adds:
        # Appends without `expected_partitions` and whole-table overwrites accept ambiguous partition values.
        read = partial(replaced_partition, partitioning) if allowed else read_partition(spec.mode, partitioning)
        partition = read(add["partitionValues"])
        side = inside if allowed is None or allowed.covers(partition) else outside
        side.setdefault(partition, []).append(add)
    replaces = inside or spec.allow_empty
    replaced = spec.mode.replaced(inside, partitioning, spec.identity.key) if replaces else None
    found = Placed(buffer, inside, outside, replaced)
    if outside and spec.on_unexpected_rows is OnUnexpectedRows.REFUSE:
        where = ", ".join(sorted(partitioning.describe(partition) for partition in outside))
        raise UnexpectedRowsError(
            f"Writer {spec.identity.key!r} produced {found.rows_unexpected} rows outside "
            f"{allowed.text if allowed else ''}: in {where}. Nothing was published, because "
            "on_unexpected_rows='refuse'; 'set_aside' publishes the others and reports these."
        )
    return found


def read_partition(mode: Mode, partitioning: Partitioning) -> Callable[[Mapping[str, str | None]], Partition]:
    """Return the function that reads a file's partition, as strictly as a mode needs it.

    :param mode: what the write does to what is there.
    """
    return partial(replaced_partition, partitioning) if mode.by_partition else partitioning.partition


def replaced_partition(partitioning: Partitioning, values: Mapping[str, str | None]) -> Partition:
    """Return a partition that an overwrite may have to replace.

    :param values: a file's ``partitionValues``.
    :raises InvalidWriteError: it holds an instant without a time zone, so the partition is not known (protocol: typed
        partition values).
    """
    partition = partitioning.partition(values)
    if partitioning.ambiguous(partition):
        raise InvalidWriteError(
            f"The partition {partitioning.describe(partition)} is spelled without a time zone, so an overwrite could "
            "replace the wrong one. Nothing was published. Rewrite that partition with "
            "spark.databricks.delta.write.utcTimestampPartitionValues=true, or append."
        )
    return partition
