"""The descriptions of buffers, commits and compactions that tasks leave in XCom."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider_onelake.commit.publish import Publication
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.maintenance import compact, compaction
    from airflow_provider_onelake.staging.buffers import Buffer

_MOST_PARTITIONS = 50


def describe_buffer(buffer: Buffer, log: DeltaLog) -> dict[str, Any]:
    """Return what a complete buffer holds.

    :returns: plain JSON, with the first 50 partitions only.
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
        "reads_target": buffer.reads_target,
    }


def describe_publication(publication: Publication) -> dict[str, Any]:
    """Return how publishing one buffer ended.

    :returns: plain JSON.
    """
    result: dict[str, Any] = {
        "status": publication.status.value,
        "version": publication.version,
        "lost_races": publication.tally.lost_races,
        "conflicts": list(publication.conflicts),
        "decisions": [str(settlement) for settlement in publication.settlements],
        "rows_published": None,
        "files_removed": None,
        "rows_outside": 0,
    }
    if publication.entry is not None and publication.batch is not None:
        placed = publication.batch.placed[0]
        if publication.entry.rows == 0 and any(placed.inside.values()) and publication.settlements:
            # The policy set the write aside: the commit has the writer's txn and none of its files.
            result["status"] = "set_aside"
        result |= {
            "rows_published": publication.entry.rows,
            "files_removed": publication.entry.files_removed,
            "rows_outside": placed.rows_outside,
        }
    return result


def describe_compaction(plan: compaction.Plan, publication: compact.Publication | None) -> dict[str, Any]:
    """Return what a compaction did.

    :param publication: how the compaction ended; ``None`` if there was nothing to publish.
    :returns: plain JSON, with the first 50 partitions and counts of all.
    """
    reasons = {group.name: group.reason for group in plan.groups}
    groups = publication.groups if publication is not None else ()
    dropped = publication.dropped if publication is not None else ()
    rows: list[dict[str, Any]] = [
        {
            "partition": group.name,
            "reason": reasons.get(group.name, ""),
            "files_before": len(group.removed),
            "files_after": len(group.added),
            "bytes_before": sum(int(file["size"]) for file in group.removed),
            "bytes_after": sum(int(file["size"]) for file in group.added),
        }
        for group in groups
    ]
    totals = {
        key: sum(int(row[key]) for row in rows)
        for key in ("files_before", "files_after", "bytes_before", "bytes_after")
    }
    version = publication.version if publication is not None else None
    if rows:
        summary = (
            f"version {version}: {totals['files_before']} files of {size(totals['bytes_before'])} became "
            f"{totals['files_after']} of {size(totals['bytes_after'])}, in {len(rows)} partitions"
        )
    else:
        summary = "the compaction is dropped; the table is unchanged" if dropped else "nothing to compact"
    return {
        "status": publication.status.value if publication is not None else "nothing_to_do",
        "version": version,
        "summary": summary,
        **totals,
        "partitions": rows[:_MOST_PARTITIONS],
        "partitions_compacted": len(rows),
        "dropped": [{"partition": drop.partition, "reason": drop.reason} for drop in dropped[:_MOST_PARTITIONS]],
        "partitions_dropped": len(dropped),
        "left_out": [
            {"partition": left.partition, "files": left.files, "reason": left.reason}
            for left in plan.left_out[:_MOST_PARTITIONS]
        ],
        "partitions_left_out": len({left.partition for left in plan.left_out}),
        "lost_races": publication.tally.lost_races if publication is not None else 0,
    }


def size(count: int) -> str:
    """Return a number of bytes as people read it, such as ``3 MiB``."""
    number = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if number < 1024:
            return f"{number:.0f} {unit}"
        number /= 1024
    return f"{number:.1f} TiB"
