"""Reads the rows of a table at a version: chooses files, reads columns, leaves out what is deleted or not wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import InvalidReadError, ReadRefusedError
from airflow_provider_onelake.log.history import version_at
from airflow_provider_onelake.rows.arrow import constant_column
from airflow_provider_onelake.rows.choice import Chosen, ReadReport, choose
from airflow_provider_onelake.rows.data_file import ParquetFile
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.where import Where
from airflow_provider_onelake.storage.clock import instant_given
from airflow_provider_onelake.storage.concurrent import map_in_windows

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_onelake.log.actions import Add
    from airflow_provider_onelake.log.delta_log import DeltaLog
    from airflow_provider_onelake.log.snapshot import Snapshot
    from airflow_provider_onelake.storage.stores import Store

logger = logging.getLogger(__name__)

# How many footers, and how many row groups, are read ahead on a store over the network.
_AHEAD = 8
# How many bytes of files are read ahead. Decompressed, they may be several times as many in memory.
_AHEAD_BYTES = 1 << 28
_ROWS_IN_A_BATCH = 1 << 16


class Rows(Iterator["pa.RecordBatch"]):
    """The rows of a table at a version, as an iterator of Arrow record batches that is gone through once.

    Everything that reads Arrow streams takes it, such as ``pyarrow.table(rows)``. If it is not gone through to its end,
    :meth:`close` it, or use it in a ``with``.

    :param schema: of the batches.
    :param report: what is read and what is skipped; its numbers of rows are complete when the iterator is at its end.
    :param batches: the batches.
    """

    def __init__(self, schema: pa.Schema, report: ReadReport, batches: Iterator[pa.RecordBatch]) -> None:
        self.schema = schema
        self.report = report
        self._batches = batches

    @property
    def version(self) -> int:
        """The version of the table that is read."""
        return self.report.version

    def __iter__(self) -> Rows:
        return self

    def __next__(self) -> pa.RecordBatch:
        return next(self._batches)

    def read_all(self) -> pa.Table:
        """Return all rows that were not taken yet as one table in memory."""
        import pyarrow as pa

        return pa.Table.from_batches(list(self), self.schema)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the rows as an Arrow stream: https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html."""
        import pyarrow as pa

        return pa.RecordBatchReader.from_batches(self.schema, self).__arrow_c_stream__(requested_schema)

    def close(self) -> None:
        """Read no more."""
        close = getattr(self._batches, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@attrs.frozen
class ReadRequest:
    """What a read returns of a table.

    :param layout: of the version that is read.
    :param names: of the columns, as the table spells them.
    :param where: the condition; ``None`` for all rows.
    :param schema: of the rows.
    """

    layout: Layout
    names: Sequence[str]
    where: Where | None
    schema: pa.Schema = attrs.field(repr=False)

    @property
    def needed(self) -> frozenset[str]:
        """The columns that are returned, and those of the condition."""
        return frozenset(self.names) | (self.where.names if self.where is not None else frozenset())

    @classmethod
    def of(cls, layout: Layout, columns: Sequence[str] | None, where: str | None, table: str) -> ReadRequest:
        """Check what a caller asks for.

        :param layout: of the version that is read.
        :param columns: as the caller spells them; ``None`` for all.
        :param where: the condition, as text.
        :param table: what messages call the table.
        :raises InvalidReadError: a column is unknown, or the condition means nothing.
        :raises UnsupportedFeatureError: a column is of a type that we cannot read.
        """
        names = layout.chosen(columns, table)
        condition = None if where is None else Where.parse(where, layout.compared_as)
        if condition is not None:
            layout.schema(sorted(condition.names))
        return cls(layout, names, condition, layout.schema(names))


def read_rows(
    log: DeltaLog,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    version: int | None = None,
    timestamp: datetime | str | None = None,
) -> Rows:
    """Read rows of a table, see :meth:`~airflow_provider_onelake.table.Table.read`.

    :param log: of the table.
    """
    snapshot = snapshot_of(log, version, timestamp)
    asked = ReadRequest.of(Layout.of(snapshot.metadata), columns, where, log.table)
    report = ReadReport(table=log.address, version=snapshot.version)
    files = log.live_files(lambda _: True, snapshot.version)
    chosen = choose(files, asked.layout, asked.where, report, log.table)
    open_file = partial(ParquetFile.open, log.store, table=log.table)
    return Rows(asked.schema, report, batches(log.store, chosen, asked, report, open_file))


def snapshot_of(log: DeltaLog, version: int | None, timestamp: datetime | str | None) -> Snapshot:
    """Return the snapshot that a read is of.

    :param version: of the table. Default: the newest, or that of ``timestamp``.
    :param timestamp: the version of that time, with a time zone; as text in ISO 8601.
    :raises InvalidReadError: both are given, or the time is none.
    :raises TableNotFoundError: there is no table.
    :raises ReadRefusedError: there is no such version.
    :raises LogGapError: the log no longer reaches back to it.
    :raises UnsupportedFeatureError: the version has a feature that we do not read.
    """
    newest = log.snapshot()
    if version is not None and timestamp is not None:
        raise InvalidReadError(f"Give version={version!r} or timestamp={timestamp!r}, not both. Nothing was read.")
    if timestamp is not None:
        version = version_at(log, newest, instant_given(timestamp, InvalidReadError))
    if version is not None and (isinstance(version, bool) or not isinstance(version, int)):
        raise InvalidReadError(f"version={version!r}: a whole number. Nothing was read.")
    if version is not None and not 0 <= version <= newest.version:
        raise ReadRefusedError(f"{log.table} has no version {version}; its newest is {newest.version}.")
    return newest if version in (None, newest.version) else log.snapshot_at(version)


def batches(
    store: Store,
    chosen: Sequence[Chosen],
    asked: ReadRequest,
    report: ReadReport,
    open_file: Callable[[Add], ParquetFile],
    columns_of: Callable[
        [ParquetFile, int, Sequence[str], Layout], tuple[dict[str, pa.ChunkedArray], int]
    ] = ParquetFile.columns,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows that are asked for, in batches of a moderate size.

    :param store: of the table.
    :param chosen: the files to read.
    :param report: gets what was read.
    :param open_file: returns a file; several threads call it.
    :param columns_of: returns columns of a row group of a file; several threads call it. Default: they are fetched.
    """
    # Import it before threads do, as half imported modules have failed in threads.
    import pyarrow.compute
    import pyarrow.parquet  # noqa: F401

    def opened(file: Chosen) -> tuple[Chosen, ParquetFile]:
        return file, open_file(file.add)

    def groups() -> Iterator[tuple[Chosen, ParquetFile, int]]:
        for file, data in map_in_windows(store, opened, chosen, _AHEAD):
            report.bytes_fetched += data.fetched
            report.rows_read += data.footer.num_rows
            yield from ((file, data, group) for group in data.groups)

    def read(piece: tuple[Chosen, ParquetFile, int]) -> tuple[pa.Table, int]:
        file, data, group = piece
        fetched = 0

        def fetch(names: Sequence[str]) -> Mapping[str, pa.ChunkedArray]:
            nonlocal fetched
            columns, more = columns_of(data, group, names, asked.layout)
            fetched += more
            return columns

        return _wanted_rows(file, data.rows_of(group), data.kept_of(group), fetch, asked), fetched

    def size(piece: tuple[Chosen, ParquetFile, int]) -> int:
        file, data, group = piece
        return data.size_of(group, asked.needed - file.partition.keys(), asked.layout)

    for table, fetched in map_in_windows(store, read, groups(), _AHEAD, size, _AHEAD_BYTES):
        report.bytes_fetched += fetched
        report.rows += table.num_rows
        yield from table.to_batches(max_chunksize=_ROWS_IN_A_BATCH)
    logger.info("Read %s", report)


def _wanted_rows(
    file: Chosen,
    rows: int,
    visible: pa.Array | None,
    fetch: Callable[[Sequence[str]], Mapping[str, pa.ChunkedArray]],
    asked: ReadRequest,
) -> pa.Table:
    """Return the rows of a file, or of a part of it, that are not deleted and are asked for.

    :param rows: how many rows there are.
    :param visible: which of them the deletion vector leaves; ``None`` for all.
    :param fetch: returns columns that are no partition columns. It is called for those of the condition first, and for
        others only if a row is wanted.
    """
    import pyarrow as pa

    read: dict[str, Any] = {}
    if asked.where is not None and file.filtered:
        needed = asked.where.names
        read.update(_columns([name for name in asked.layout.fields if name in needed], file, rows, fetch, asked.layout))
        visible = _kept_by(asked.where, read, rows, visible)
    if visible is not None and not visible.true_count:
        return asked.schema.empty_table()
    read.update(_columns([name for name in asked.names if name not in read], file, rows, fetch, asked.layout))
    table = pa.Table.from_arrays([read[name] for name in asked.names], schema=asked.schema)
    return table if visible is None else table.filter(visible)


def _columns(
    names: Sequence[str],
    file: Chosen,
    rows: int,
    fetch: Callable[[Sequence[str]], Mapping[str, pa.ChunkedArray]],
    layout: Layout,
) -> dict[str, Any]:
    in_file = [name for name in names if name not in file.partition]
    found: dict[str, Any] = dict(fetch(in_file)) if in_file else {}
    for name in names:
        if name in file.partition:
            found[name] = constant_column(file.partition[name], layout.columns[name].type, rows)
    return found


def _kept_by(where: Where, columns: Mapping[str, Any], rows: int, kept: pa.Array | None) -> pa.Array:
    """Return of each row whether it is left by a deletion vector and a condition.

    :param columns: those that the condition names.
    :param kept: what the deletion vector leaves; ``None`` for all rows.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if columns:
        # Bring the columns into equal pieces.
        pieces = pa.table(dict(columns)).to_batches()
        found = [
            where.evaluate(dict(zip(piece.schema.names, piece.columns, strict=True)), len(piece)) for piece in pieces
        ]
    else:
        found = [where.evaluate({}, rows)]
    holds = pa.concat_arrays([pa.array([], pa.bool_()), *found]).fill_null(False)
    return holds if kept is None else pc.and_(holds, kept)
