"""The part of its own table that a writer reads, as a table of its own.

staged/<writer>/<attempt>/_reads/_delta_log/0  names the files of the partitions that the writer declares to read

It lies in the writer's buffer. Spark reads it under the name ``target``. So the query cannot have read another row of
the table through that name, and each of its reads is of one version (protocol: reads its target).
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from airflow_provider_onelake.buffers.layout import reads_path
from airflow_provider_onelake.buffers.shadow import MOST_FILES, open_shadow
from airflow_provider_onelake.exceptions import InvalidWriteError, ObjectExistsError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import StagedRecord, is_absolute
from airflow_provider_onelake.log.partitions import InPartitions

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import OpenBuffer
    from airflow_provider_onelake.log.delta_log import DeltaLog


def open_read_shadow(log: DeltaLog, buffer: OpenBuffer, table_uri: str) -> str:
    """Make the table that Spark reads for a buffer, or leave it as it is where the same attempt has made it before.

    :param buffer: of a writer that declares what it reads.
    :param table_uri: of the table, as Spark addresses it.
    :returns: the path of the table that is to be read, relative to the table.
    :raises InvalidWriteError: too many files would have to be named, or nobody knows whether the predicate holds for a
        partition.
    :raises UnsupportedFeatureError: the table names a file by an absolute path.
    :raises LogGapError: the log was cleaned up meanwhile.
    :raises StoreUnavailableError: the store did not answer; calling again is safe.
    """
    path, reads, version = reads_path(buffer.path), buffer.spec.reads, buffer.read_version
    assert reads is not None
    newest = log.snapshot()
    snapshot = newest if newest.version == version else log.snapshot_at(version)
    split = snapshot.partitioning
    read = reads.range(split)
    files = list(log.live_files(InPartitions(lambda values: read.covers(split.partition(values))), version))
    if len(files) > MOST_FILES:
        raise InvalidWriteError(
            f"reads={reads.where!r} names {len(files):,} files of {log.table}, and at most {MOST_FILES:,} are taken. "
            "Nothing was staged: name fewer partitions, or compact the table first."
        )
    if odd := next((file["path"] for file in files if is_absolute(file["path"])), None):
        raise UnsupportedFeatureError(
            f"{log.table} names its file {odd} by an absolute path, as shallow clones do, and `reads` does not take "
            "such files. Nothing was staged: leave `reads` out, and let the query read the table by its path."
        )
    record: StagedRecord = {"reads": {**reads.to_json(), "readVersion": version, "tableId": snapshot.table_id}}
    purpose = f"what a writer reads in version {version}"
    with suppress(ObjectExistsError):
        open_shadow(log, snapshot, files, table_uri, path, f"{buffer.spec.attempt}-reads", purpose, record)
    return path
