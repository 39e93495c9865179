"""Which commits a watcher reports. This module knows nothing of Airflow."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider_onelake.log.commits import Commit
    from airflow_provider_onelake.log.partitions import Partitioning


@attrs.frozen
class CommitFilter:
    """A condition on commits: a commit must meet every field that is given.

    :param operations: the wanted operations as the log spells them: ``WRITE``, ``MERGE``, ``OPTIMIZE``, ….
    :param partition: a predicate on partition columns; the commit must have added or removed rows where it holds.
    :param writer: a pattern, in which ``*`` stands for anything; a ``txn`` id of the commit must match it.
    :param data_change_only: leave out commits that change no rows, such as compaction's and VACUUM's.
    """

    operations: tuple[str, ...] = ()
    partition: str | None = None
    writer: str | None = None
    data_change_only: bool = False

    def takes(self, commit: Commit, partitioning: Callable[[], Partitioning]) -> bool:
        """Say whether a commit meets the condition.

        :param commit: the commit. A commit from before the table got its present partitioning cannot be judged by the
            predicate, so it is taken.
        :param partitioning: returns the table's partitioning; it is called only if a predicate has to be read.
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
        from airflow_provider_onelake.log.partitions import PartitionPredicate

        files = [file for file in (*commit.adds, *commit.removes) if file.get("dataChange", True)]
        if not files:
            return False
        # In doubt, take the commit, because one event too many does less harm than one too few: a remove need not name
        # its partition, an old commit may have another partitioning, and some partition values cannot be known.
        if any(file.get("partitionValues") is None for file in files):
            return True
        split = partitioning()
        known_as = {split.physical.get(name, name) for name in split.types}
        if any(file["partitionValues"].keys() != known_as for file in files):
            return True
        predicate = PartitionPredicate.parse(text, split)
        return any(predicate.judge(split.partition(file["partitionValues"])) is not False for file in files)
