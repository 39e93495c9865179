"""A compaction's shadow: a private Delta table over some files of the table, which Spark's own OPTIMIZE rewrites.

staged/compaction-<hash>/<attempt>/_delta_log/0    the table's definition and some of its files, by absolute path
staged/compaction-<hash>/<attempt>/….parquet       written by OPTIMIZE
staged/compaction-<hash>/<attempt>/_delta_log/1    what OPTIMIZE did, if there was anything to do

V-Order, Z-order, clustering and row ids come from Delta itself, and Spark never touches the shared log
(:mod:`airflow_provider_onelake.buffers.shadow`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.buffers.layout import compaction_path
from airflow_provider_onelake.buffers.shadow import Shadow, open_shadow, read_shadow, shadow_invalid
from airflow_provider_onelake.log.actions import Add, StagedRecord, total_rows
from airflow_provider_onelake.log.commits import COMPACTION
from airflow_provider_onelake.log.values import Partition

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.maintenance.compaction import CompactionPlan
    from airflow_provider_onelake.storage.stores import Store


@attrs.frozen
class Rewritten:
    """What OPTIMIZE did in one partition.

    :param partition: typed.
    :param name: as people write it.
    :param removed: the table's ``add`` actions that the new files replace.
    :param added: the new ``add`` actions, by their paths in the table.
    """

    partition: Partition
    name: str
    removed: tuple[Add, ...] = attrs.field(repr=False)
    added: tuple[Add, ...] = attrs.field(repr=False)


@attrs.frozen
class Rewrite:
    """What OPTIMIZE left in a shadow.

    :param groups: one for every partition that changed.
    :param oldest: the store's time of the oldest new file.
    :param tags: of Spark's ``commitInfo``; one says, for example, that row ids were kept.
    """

    groups: tuple[Rewritten, ...]
    oldest: datetime | None
    tags: Mapping[str, str] = attrs.field(factory=dict)


def shadow_of_plan(
    log: DeltaLog, snapshot: Snapshot, plan: CompactionPlan, table_uri: str, name: str, attempt: str
) -> Shadow:
    """Make a shadow of the files that a plan rewrites.

    :param snapshot: that the plan was made on.
    :param plan: with something to do.
    :param table_uri: of the table, as Spark addresses it.
    :param name: of the task.
    :param attempt: new for every try.
    :raises ObjectExistsError: the attempt has a shadow already.
    :raises StoreUnavailableError: the store did not answer.
    """
    record: StagedRecord = {
        COMPACTION: {
            "name": name,
            "attempt": attempt,
            "readVersion": snapshot.version,
            "tableId": snapshot.table_id,
            "targetFileSize": plan.target_file_size,
            "zOrderBy": list(plan.zorder_by),
        }
    }
    files = [file for group in plan.groups for file in group.inputs]
    return open_shadow(log, snapshot, files, table_uri, compaction_path(name, attempt), attempt, "a compaction", record)


def read_rewrite(store: Store, shadow: Shadow) -> Rewrite | None:
    """Read what OPTIMIZE left, and check that it only moved rows.

    :returns: ``None`` where OPTIMIZE found nothing to do.
    :raises BufferInvalidError: version 1 is no rewrite of the shadow's files that keeps every row.
    :raises BufferLostError: a new file is gone or has another size.
    """
    left = read_shadow(store, shadow)
    if left is None:
        return None
    if left.again or left.commit.data_change:
        raise shadow_invalid(shadow, "a file is a change of data, or is there again")
    split = shadow.snapshot.partitioning
    old, new = split.divided(left.removed), split.divided(left.new)
    groups = []
    for partition in {**old, **new}:
        removed, added = tuple(old.get(partition, ())), tuple(new.get(partition, ()))
        before, after = total_rows(removed), total_rows(added)
        if before is None or before != after:
            raise shadow_invalid(shadow, f"{split.describe(partition)} had {before} rows and has {after} now")
        groups.append(Rewritten(partition, split.describe(partition), removed, added))
    return Rewrite(tuple(groups), left.oldest, left.commit.info.get("tags") or {})
