"""The partitions of a table as people are shown them: how large each is, and what a compaction would do there."""

from __future__ import annotations

from typing import Any

from airflow_provider_onelake.log.actions import total_rows
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance import compaction
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.view.tables import keep_sums

MOST_PARTITIONS = 500
"""How many partitions are shown at most, the largest first."""


def partitions_of(log: DeltaLog) -> dict[str, Any]:
    """Return the largest partitions of a table's newest version.

    The newest checkpoint and the entries after it are read, and no data file.

    :returns: ``version``, ``rows``, ``files``, ``bytes``, ``health`` and ``why`` (as the list of tables says it),
        ``to_compact``, ``partitions`` (how many there are) and ``largest``: for each of at most
        :data:`MOST_PARTITIONS` partitions ``name``, ``rows``, ``files``, ``bytes`` and ``to_compact``, the number of
        small or half-deleted files that a compaction would rewrite. ``rows`` is ``None`` where statistics do not say.
    :raises TableNotFoundError: there is no table.
    """
    snapshot = log.snapshot()
    files = list(log.live_files(lambda _: True, snapshot.version))
    split = snapshot.partitioning.divided(files)
    todo = compaction.plan(files, snapshot, compaction.CompactionTerms(), writers_in_flight(log, snapshot).why_needed)
    small: dict[Any, int] = {}
    for group in todo.groups:
        small[group.partition] = small.get(group.partition, 0) + len(group.inputs)
    sizes = {partition: compaction.bytes_of(there) for partition, there in split.items()}
    largest = sorted(split, key=lambda partition: -sizes[partition])[:MOST_PARTITIONS]
    to_compact = sum(small.values())
    return {
        "version": snapshot.version,
        **keep_sums(log, snapshot.version, files, to_compact),
        "to_compact": to_compact,
        "partitions": len(split),
        "largest": [
            {
                "name": snapshot.partitioning.describe(partition),
                "rows": total_rows(split[partition]),
                "files": len(split[partition]),
                "bytes": sizes[partition],
                "to_compact": small.get(partition, 0),
            }
            for partition in largest
        ],
    }
