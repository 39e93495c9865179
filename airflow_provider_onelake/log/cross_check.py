"""A second opinion on which files are live, before any of them is removed (protocol: verbatim remove)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, Add, object_path
from airflow_provider_onelake.log.distinct import distinct_rows, where
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.values import Partition, PartitionValue, date_of, time_of
from airflow_provider_onelake.storage.errors import SignInError, as_store_error

# Deltalake's error text for a partition value that is no value of its column's type.
_UNREADABLE = "Failed to parse value"

# Raises if deltalake sees other live files than we do, in some partitions of a version.
CrossCheck = Callable[[int, Partitioning, Callable[[Partition], bool], Iterable[Add]], None]


def deltalake_cross_check(table_uri: str, storage_options: Callable[[], Mapping[str, str]] = dict) -> CrossCheck:
    """Return a cross-check that asks deltalake.

    :param table_uri: the table's address as deltalake wants it.
    :param storage_options: returns the current credentials, as deltalake wants them. Default: none.
    """

    def check(
        version: int,
        partitioning: Partitioning,
        touches: Callable[[Partition], bool],
        files: Iterable[Add],
    ) -> None:
        from deltalake import DeltaTable
        from deltalake.exceptions import DeltaError

        try:
            table = DeltaTable(table_uri, version=version, storage_options=dict(storage_options()))
            listed = table.get_add_actions()
        except (OSError, SignInError) as error:
            raise as_store_error(error, LOG_DIRECTORY, table_uri) from error
        except DeltaError as error:
            way_out = (
                "Remove the rows of that partition, or restore the table, with Spark; an append is possible."
                if _UNREADABLE in str(error)
                else "Where it finds no files, the store may list nothing from an offset, as OneLake has done by names "
                "and not by GUIDs: write the connection's lakehouse as onelake://<workspace GUID>/<item GUID>."
            )
            raise CorruptLogError(
                f"deltalake cannot read version {version} of {table_uri}, so nobody could check which files are live: "
                f"{error}. Nothing was removed. {way_out}"
            ) from error
        theirs = {object_path({"path": path}) for path in _paths(listed, partitioning, touches)}
        ours = {object_path(file) for file in files}
        if ours != theirs:
            raise CorruptLogError(
                f"At version {version} of {table_uri} our replay and deltalake disagree about {len(ours ^ theirs)} "
                f"live files, such as {min(ours ^ theirs)}. Nothing was removed. Please report the table's log."
            )

    return check


def _paths(listed: Any, partitioning: Partitioning, touches: Callable[[Partition], bool]) -> Iterator[str]:
    """Yield the paths of the files in some partitions; those of other partitions never become Python objects.

    :param listed: deltalake's table of files: one column for each field of an add.
    """
    import pyarrow as pa

    for batch in pa.RecordBatchReader.from_stream(listed):
        columns = []
        if partitioning.types:
            partitions = batch.column("partition")
            # Use flatten(): only it makes a field null in the rows where the whole struct is null.
            named = dict(zip((field.name for field in partitions.type), partitions.flatten(), strict=True))
            columns = [named[name] for name in partitioning.types]
        found, codes = distinct_rows(columns, batch.num_rows, _values)
        yield from batch.column("path").filter(where(map(touches, found), codes)).to_pylist()


def _values(column: Any) -> list[PartitionValue]:
    import pyarrow as pa

    # Read dates and times as numbers, because Python's types do not cover all of Spark's years.
    if pa.types.is_date32(column.type):
        return [None if days is None else date_of(days) for days in column.cast(pa.int32()).to_pylist()]
    if pa.types.is_timestamp(column.type):
        micros = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return [None if each is None else time_of(each, column.type.tz) for each in micros]
    return [_plain(value) for value in column.to_pylist()]


def _plain(value: Any) -> PartitionValue:
    if isinstance(value, float) and math.isnan(value):
        return math.nan
    plain: PartitionValue = None if value in ("", b"") else value
    return plain
