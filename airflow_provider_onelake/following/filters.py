"""Which commits a watcher is told of. Knows nothing of Airflow."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.partitions import Partitioning, PartitionPredicate


@attrs.frozen
class CommitFilter:
    """A condition on commits; what is not given holds for all, and what is given holds together.

    :param operations: as the log spells them: ``WRITE``, ``MERGE``, ``OPTIMIZE``, ….
    :param partition: a predicate on partition columns: rows were added or removed where it holds.
    :param writer: a pattern, in which ``*`` stands for anything, that a ``txn`` id of the commit meets.
    :param data_change_only: leave out commits that change no rows, such as compaction's and VACUUM's.
    """

    operations: tuple[str, ...] = ()
    partition: str | None = None
    writer: str | None = None
    data_change_only: bool = False
    _predicates: dict[Any, PartitionPredicate] = attrs.field(factory=dict, init=False, repr=False, eq=False)

    def takes(self, commit: Commit, partitioning: Callable[[], Partitioning]) -> bool:
        """Say whether a commit is one of those.

        :param commit: of the table.
            One from before the table was partitioned as it is now cannot be judged, and is taken.
        :param partitioning: says how the table is partitioned; called only if a predicate has to be read.
        :raises InvalidWriteError: the predicate is no predicate on the table's partition columns.
        """
        if self.operations and commit.operation not in self.operations:
            return False
        if self.data_change_only and not commit.data_change:
            return False
        if self.writer is not None and not any(fnmatchcase(app_id, self.writer) for app_id in commit.txns):
            return False
        return self.partition is None or self._touched(self.partition, commit, partitioning)

    def _touched(self, text: str, commit: Commit, partitioning: Callable[[], Partitioning]) -> bool:
        files = [file for file in (*commit.adds, *commit.removes) if file.get("dataChange", True)]
        if not files:
            return False
        # Rather an event too many than one too few: a remove need not say where its file was, an old commit may be from
        # before the table was partitioned as it is now, and of some values nobody knows what they are.
        if any(file.get("partitionValues") is None for file in files):
            return True
        split = partitioning()
        known_as = {split.physical.get(name, name) for name in split.types}
        if any(file["partitionValues"].keys() != known_as for file in files):
            return True
        predicate = predicate_on(text, split, self._predicates)
        return any(predicate.judge(split.partition(file["partitionValues"])) is not False for file in files)


def predicate_on(text: str, split: Partitioning, known: dict[Any, PartitionPredicate]) -> PartitionPredicate:
    """Return a predicate read for a table, read once for each way in which the table was partitioned.

    :param text: in Spark SQL.
    :param split: how the table is partitioned now.
    :param known: what was read before, by partitioning.
    :raises InvalidWriteError: it is no predicate on partition columns.
    """
    from airflow_provider_onelake.log.partitions import PartitionPredicate

    key = tuple(split.types.items())
    if key not in known:
        known[key] = PartitionPredicate.parse(text, split)
    return known[key]
