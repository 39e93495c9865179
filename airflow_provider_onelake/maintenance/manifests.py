"""Symlink manifests: lists of a table's files for engines that read Hive tables, and know nothing of Delta.

Athena, Presto and Redshift Spectrum read a manifest as a SymlinkTextInputFormat table: one file for each partition,
with the address of a data file in each line. They are the manifests of Delta's ``GENERATE symlink_format_manifest``
(https://docs.delta.io/latest/presto-integration.html), made without Spark.

A manifest lists whole files. So a table cannot have any whose rows are partly deleted by a deletion vector, nor one
whose columns have other names in the files than in the table (column mapping).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import LogGapError, OneLakeError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import is_absolute, object_path
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.schema import column_mapping, flag, partition_columns
from airflow_provider_onelake.maintenance.manifest_progress import ManifestProgress
from airflow_provider_onelake.storage.concurrent import map_concurrently

if TYPE_CHECKING:
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

DIRECTORY = "_symlink_format_manifest"
"""The directory inside a table that holds its manifests."""

ENABLED = "delta.compatibility.symlinkFormatManifest.enabled"
"""The table property that asks every writer to keep the manifests up to date."""

_NULL = "__HIVE_DEFAULT_PARTITION__"
# Hive escapes these characters in the names of partition directories: org.apache.hadoop.hive.common.FileUtils.
_ESCAPES = {code: f"%{code:02X}" for code in (*range(1, 0x20), 0x7F, *map(ord, "\"#%'*/:=?\\{[]^"))}
# Each round follows the commits that came during the last one. Whoever made them writes manifests as well.
_MOST_ROUNDS = 10

# The values of the partition columns as an entry spells them, in the order of the columns.
_Spelled = tuple[str | None, ...]


@attrs.frozen
class Manifests:
    """What was done to a table's manifests.

    :param version: of the table that they list.
    :param files: data files in the manifests that were looked at.
    :param written: the manifests that were put, by their paths.
    :param deleted: the manifests of partitions that are gone.
    """

    version: int
    files: int
    written: tuple[str, ...] = attrs.field(repr=False)
    deleted: tuple[str, ...] = attrs.field(repr=False)


def generate(log: DeltaLog, address: str) -> Manifests:
    """Write the manifests of all partitions of the newest version, and delete those of partitions that are gone.

    Commits that come meanwhile are followed, so that the manifests are those of the newest version in the end. A reader
    may see the partitions of two versions meanwhile, but each partition as it was in one of them.

    :param address: of the table, as the lines of the manifests begin.
    :raises TableNotFoundError: there is no table.
    :raises UnsupportedFeatureError: a manifest would lie.
    """
    snapshot = log.snapshot()
    snapshot.check_supported(log.table)
    return _write(log, address, snapshot, None, ManifestProgress.read(log, snapshot))


def follow_commits(log: DeltaLog, address: Callable[[], str]) -> Callable[[Snapshot, int], None]:
    """Return what keeps the manifests up to date after each commit, where the table's property asks for it.

    Delta's Spark does this by itself after its own commits only.

    :param address: returns the address of the table, as the lines of the manifests begin.
    :returns: a function that gets the snapshot before a commit and the commit's version. It never fails: the commit
        stands, so that it warns instead.
    """

    def update(snapshot: Snapshot, version: int) -> None:
        if version and not flag(snapshot.metadata, ENABLED):
            return
        try:
            newest = log.snapshot()
            # The first version brings rows and the property at once.
            if not flag(newest.metadata, ENABLED):
                return
            followed = ManifestProgress.read(log, newest)
            is_first = next(iter(log.store.list(DIRECTORY)), None) is None
            after = None if is_first else followed.complete
            done = _write(log, address(), newest, _touched_since(log, after, newest), followed)
        except OneLakeError as error:
            logger.warning(
                "%s: version %d is committed, but its symlink manifests were not brought up to date, so engines that "
                "read them see older rows. The next commit writes them, or OneLakeManifestOperator. %s",
                log.table,
                version,
                error,
            )
            return
        logger.info(
            "%s: the symlink manifests are those of version %d: %d written, %d deleted",
            log.table,
            done.version,
            len(done.written),
            len(done.deleted),
        )

    return update


def _write(
    log: DeltaLog, address: str, snapshot: Snapshot, touched: Collection[_Spelled] | None, followed: ManifestProgress
) -> Manifests:
    """Write manifests until no commit has come meanwhile.

    :param touched: the partitions whose manifests are written, by their spellings; ``None`` for all.
    :param followed: how far the manifests had come.
    """
    files = 0
    written: dict[str, None] = {}
    deleted: dict[str, None] = {}
    for _ in range(_MOST_ROUNDS):
        lines = _lines(log, address, snapshot, touched)
        files = sum(map(len, lines.values()))
        gone = _gone(log, lines, touched, snapshot)
        if lines or gone:
            followed.begin(snapshot.version)
        for _ in map_concurrently(log.store, partial(_put, log.store), lines.items()):
            pass
        for _ in map_concurrently(log.store, log.store.delete, gone):
            pass
        for path in lines:
            written[path] = deleted.pop(path, None)
        for path in gone:
            deleted[path] = written.pop(path, None)
        # A slower writer may have put an older manifest over a newer one. So whoever wrote looks again afterwards.
        newest = log.snapshot()
        if newest.version == snapshot.version:
            followed.end(snapshot.version)
            break
        touched = _touched_since(log, snapshot.version, newest)
        snapshot = newest
    return Manifests(snapshot.version, files, tuple(written), tuple(deleted))


def _touched_since(log: DeltaLog, version: int | None, snapshot: Snapshot) -> set[_Spelled] | None:
    """Return the partitions that got or lost files after a version; ``None`` where nobody knows.

    Nobody does where a commit does not name one by the columns of now.
    """
    if version is None:
        return None
    try:
        commits = log.commits_between(version, snapshot.version)
    except LogGapError:
        return None
    touched: set[_Spelled] = set()
    columns = set(partition_columns(snapshot.metadata))
    for file in (file for commit in commits for file in (*commit.adds, *commit.removes)):
        values = file.get("partitionValues")
        # The manifests of other partition columns lie in other directories, and all of them are out of date.
        if values is None or values.keys() != columns:
            return None
        touched.add(_spelled(values, snapshot))
    return touched


def _lines(
    log: DeltaLog, address: str, snapshot: Snapshot, touched: Collection[_Spelled] | None
) -> dict[str, list[str]]:
    """Return the lines of each manifest, by its path.

    :raises UnsupportedFeatureError: a manifest would lie.
    """
    if column_mapping(snapshot.metadata) != "none":
        raise UnsupportedFeatureError(
            f"{log.table} has column mapping, so its files call the columns by other names, which engines that read "
            "manifests would look for in vain. No manifest was written."
        )
    wanted = InPartitions(lambda values: touched is None or _spelled(values, snapshot) in touched)
    found: dict[str, list[str]] = {}
    for file in log.live_files(wanted, snapshot.version):
        if file.get("deletionVector"):
            raise UnsupportedFeatureError(
                f"{file['path']} of {log.table} has a deletion vector at version {snapshot.version}: engines that read "
                "manifests would see its deleted rows. No manifest was written. REORG TABLE … APPLY (PURGE) by Spark "
                "rewrites such files; switch delta.enableDeletionVectors off before."
            )
        path = object_path(file)
        line = path if is_absolute(file["path"]) else f"{address}/{path}"
        found.setdefault(_manifest(_spelled(file["partitionValues"], snapshot), snapshot), []).append(line)
    return found


def _gone(
    log: DeltaLog, lines: Mapping[str, object], touched: Collection[_Spelled] | None, snapshot: Snapshot
) -> list[str]:
    """Return the paths of the manifests of partitions that have no files any more."""
    if touched is None:
        return [info.path for info in log.store.list(DIRECTORY) if info.path not in lines]
    return [path for values in touched if (path := _manifest(values, snapshot)) not in lines]


def _spelled(values: Mapping[str, str | None], snapshot: Snapshot) -> _Spelled:
    # An empty text is NULL (protocol: typed partition values).
    return tuple(values.get(name) or None for name in partition_columns(snapshot.metadata))


def _manifest(values: _Spelled, snapshot: Snapshot) -> str:
    named = zip(partition_columns(snapshot.metadata), values, strict=True)
    parts = (f"{name.translate(_ESCAPES)}={(value or _NULL).translate(_ESCAPES)}" for name, value in named)
    return "/".join((DIRECTORY, *parts, "manifest"))


def _put(store: Store, manifest: tuple[str, list[str]]) -> None:
    path, lines = manifest
    store.put(path, "".join(f"{line}\n" for line in sorted(lines)).encode())
