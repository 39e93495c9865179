"""A shadow: a private Delta table over some files of the table, in which Spark's own OPTIMIZE rewrites them.

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

from airflow_provider_onelake.buffers.buffer import check_files
from airflow_provider_onelake.buffers.layout import compaction_path
from airflow_provider_onelake.buffers.shadow import ShadowInputs, shadow_inputs, shadow_log
from airflow_provider_onelake.exceptions import BufferInvalidError, CorruptLogError, ObjectNotFoundError
from airflow_provider_onelake.log.actions import (
    Action,
    Add,
    FileKey,
    dump_actions,
    file_key,
    total_rows,
    version_path,
)
from airflow_provider_onelake.log.commits import COMPACTION, Commit
from airflow_provider_onelake.log.values import Partition
from airflow_provider_onelake.storage.clock import milliseconds

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.maintenance.compaction import CompactionPlan
    from airflow_provider_onelake.storage.stores import Store

# The kinds of actions that a rewrite may hold. OPTIMIZE has no reason for any other kind, and it would be lost.
_KINDS = {"commitInfo", "add", "remove", "domainMetadata", "txn"}


@attrs.frozen
class CompactionShadow:
    """A shadow that Spark is to rewrite.

    :param path: relative to the table.
    :param attempt: id of the attempt, which is the shadow's table id too.
    :param snapshot: of the table, from which the shadow was made.
    :param plan: for the files that it holds.
    :param inputs: the table's ``add`` actions, by the key of each file in the shadow.
    """

    path: str
    attempt: str
    snapshot: Snapshot = attrs.field(repr=False)
    plan: CompactionPlan = attrs.field(repr=False)
    inputs: Mapping[FileKey, Add] = attrs.field(repr=False)


@attrs.frozen
class Rewritten:
    """What OPTIMIZE did in one partition.

    :param partition: typed.
    :param name: as people write it.
    :param removed: the table's ``add`` actions that the new files replace.
    :param added: the new ``add`` actions, as Spark wrote them.
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


def open_shadow(
    log: DeltaLog, snapshot: Snapshot, plan: CompactionPlan, table_uri: str, name: str, attempt: str
) -> CompactionShadow:
    """Make a shadow of the files that a plan rewrites.

    :param snapshot: that the plan was made on.
    :param plan: with something to do.
    :param table_uri: of the table, as Spark addresses it.
    :param name: of the task.
    :param attempt: new for every try.
    :raises ObjectExistsError: the attempt has a shadow already.
    :raises StoreUnavailableError: the store did not answer.
    """
    path = compaction_path(name, attempt)
    inputs = _inputs(plan, table_uri)
    actions = _version_0(snapshot, plan, inputs, name, attempt, milliseconds(log.clock.now()))
    log.store.create(f"{path}/{version_path(0)}", dump_actions(actions))
    return CompactionShadow(path, attempt, snapshot, plan, {key: file for key, (_, file) in inputs.items()})


def _inputs(plan: CompactionPlan, table_uri: str) -> ShadowInputs:
    """Return the files that a plan rewrites."""
    return shadow_inputs((file for group in plan.groups for file in group.inputs), table_uri)


def _version_0(
    snapshot: Snapshot,
    plan: CompactionPlan,
    inputs: ShadowInputs,
    name: str,
    attempt: str,
    now: int,
) -> list[Action]:
    told = {
        "name": name,
        "attempt": attempt,
        "readVersion": snapshot.version,
        "tableId": snapshot.table_id,
        "targetFileSize": plan.target_file_size,
        "zOrderBy": list(plan.zorder_by),
    }
    description = f"Shadow of {len(inputs)} files, for a compaction"
    return shadow_log(snapshot, inputs, attempt, description, {COMPACTION: told}, now)


def read_rewrite(store: Store, shadow: CompactionShadow) -> Rewrite | None:
    """Read what OPTIMIZE left, and check that it only moved rows.

    Only version 1 of the shadow counts; later versions are ignored.

    :returns: ``None`` where OPTIMIZE found nothing to do.
    :raises BufferInvalidError: version 1 is no rewrite of the shadow's files that keeps every row.
    :raises BufferLostError: a new file is gone or has another size.
    """
    try:
        commit = Commit.parse(1, store.get(f"{shadow.path}/{version_path(1)}"), shadow.path)
    except ObjectNotFoundError:
        return None
    except CorruptLogError as error:
        raise BufferInvalidError(str(error)) from error
    _check_only_moves(shadow, commit)
    present = {info.path: info for info in store.list(shadow.path)}
    advice = "no row is lost, the table keeps its files as they were."
    oldest = check_files(present, shadow.path, commit.adds, f"the compaction {shadow.path}", advice)
    split = shadow.snapshot.partitioning
    old = split.divided(shadow.inputs[file_key(remove)] for remove in commit.removes)
    new = split.divided(commit.adds)
    groups = []
    for partition in {**old, **new}:
        removed, added = tuple(old.get(partition, ())), tuple(new.get(partition, ()))
        before, after = total_rows(removed), total_rows(added)
        if before is None or before != after:
            raise _invalid(shadow, f"{split.describe(partition)} had {before} rows and has {after} now")
        groups.append(Rewritten(partition, split.describe(partition), removed, added))
    return Rewrite(tuple(groups), oldest, commit.info.get("tags") or {})


def _check_only_moves(shadow: CompactionShadow, commit: Commit) -> None:
    kinds = {kind for action in commit.actions for kind in action}
    removed = [file_key(remove) for remove in commit.removes]
    problems = [f"it has a {kind} action" for kind in sorted(kinds - _KINDS)]
    if unknown := [path for path, vector in removed if (path, vector) not in shadow.inputs]:
        problems.append(f"it removes {unknown[0]}, which is none of its files")
    if len(set(removed)) != len(removed) or len({add["path"] for add in commit.adds}) != len(commit.adds):
        problems.append("a file is in it twice")
    if commit.data_change:
        problems.append("a file is a change of data")
    if any(add.get("deletionVector") for add in commit.adds):
        problems.append("a new file has a deletion vector")
    if outside := [add["path"] for add in commit.adds if add["path"].startswith("/") or "://" in add["path"]]:
        problems.append(f"{outside[0]} lies outside of it")
    if problems:
        raise _invalid(shadow, "; ".join(problems))


def _invalid(shadow: CompactionShadow, problem: str) -> BufferInvalidError:
    return BufferInvalidError(
        f"Version 1 of the compaction {shadow.path} is no rewrite that could be published: {problem}. Nothing was "
        "published, and no row is lost: the table keeps its files as they were."
    )
