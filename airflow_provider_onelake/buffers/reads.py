"""Which part of its own table a writer reads, and which commits of others make what it computed out of date.

Protocol: reads its target.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.partitions import InPartitions, PartitionPredicate

if TYPE_CHECKING:
    from airflow_provider_onelake.log.actions import Add, Remove
    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.partitions import Partitioning

WHOLE = "true"
"""The predicate of a writer that reads the whole table."""


@attrs.frozen
class Reads:
    """The part of its own table that a writer declares to read.

    :param where: a predicate on partition columns, in Spark SQL.
    """

    where: str

    def to_json(self) -> dict[str, str]:
        """Return it as it stands in a buffer's version 0."""
        return {"where": self.where}

    @classmethod
    def from_json(cls, value: Any) -> Reads | None:
        """Read it back; ``None`` where the writer declares nothing."""
        return cls(value["where"]) if value else None

    def range(self, partitioning: Partitioning) -> PartitionPredicate:
        """Return the partitions that are read.

        :param partitioning: of the table.
        :raises InvalidWriteError: the predicate is not on partition columns.
        """
        return PartitionPredicate.parse(self.where, partitioning)


def read_changed(reads: Reads | None, commits: Sequence[Commit], partitioning: Partitioning) -> list[Commit]:
    """Return the commits that changed rows which a writer reads.

    :param reads: what the writer reads; ``None`` where nobody knows, so that every change of rows counts.
    :param commits: in the order of versions.
    :param partitioning: of the table.
    """
    changing = [commit for commit in commits if commit.data_change]
    return changing if reads is None or _redefine(commits) else _touching(reads, changing, partitioning)


def _redefine(commits: Sequence[Commit]) -> bool:
    """Say whether columns may have swapped their names, so that a predicate means other partitions now."""
    return any(commit.metadata for commit in commits)


def _touching(reads: Reads, commits: Sequence[Commit], partitioning: Partitioning) -> list[Commit]:
    """Return the commits that changed rows in the partitions that are read. Where that cannot be known, they did."""
    if not commits:
        return []
    read = reads.range(partitioning)
    inside = InPartitions(lambda values: read.judge(partitioning.partition(values)) is not False)

    def touches(file: Add | Remove) -> bool:
        if not file.get("dataChange", True):
            return False
        return not partitioning.named_by(file) or inside.meets(file.get("partitionValues") or {})

    return [commit for commit in commits if any(map(touches, commit.adds)) or any(map(touches, commit.removes))]
