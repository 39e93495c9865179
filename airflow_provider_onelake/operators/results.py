"""What a writer tells XCom about its buffer and its commit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.publish import Publication
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.staging.buffers import Buffer

_MOST_PARTITIONS = 50


def describe_buffer(buffer: Buffer, log: DeltaLog) -> dict[str, Any]:
    """Return what a complete buffer holds.

    :param buffer: of the writer.
    :param log: of the table.
    :returns: plain JSON; of the partitions the first ones only.
    """
    snapshot = log.snapshot()
    assert snapshot is not None
    split = snapshot.partitioning
    partitions = {split.describe(split.partition(add["partitionValues"])) for add in buffer.adds}
    return {
        "rows": buffer.rows,
        "files": buffer.files,
        "bytes": buffer.bytes,
        "partitions": sorted(partitions)[:_MOST_PARTITIONS],
        "finished": buffer.finished.isoformat(),
        "buffer": buffer.path,
        "read_version": buffer.read_version,
    }


def describe_publication(publication: Publication) -> dict[str, Any]:
    """Return how publishing one buffer ended.

    :param publication: of the buffer.
    :returns: plain JSON.
    """
    result: dict[str, Any] = {
        "status": publication.status.value,
        "version": publication.version,
        "lost_races": publication.lost_races,
        "conflicts": list(publication.conflicts),
        "rows_published": None,
        "files_removed": None,
        "rows_outside": 0,
    }
    if publication.entry is not None and publication.batch is not None:
        result |= {
            "rows_published": publication.entry.rows,
            "files_removed": publication.entry.files_removed,
            "rows_outside": publication.batch.placed[0].rows_outside,
        }
    return result
