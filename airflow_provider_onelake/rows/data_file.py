"""One data file of a table: columns of its row groups, with the names and types that the table has now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.exceptions import ObjectNotFoundError, ReadRefusedError
from airflow_provider_onelake.log.actions import Add, is_absolute, object_path
from airflow_provider_onelake.log.parquet_checkpoints import chunk_ranges
from airflow_provider_onelake.rows.arrow import arrow_type, as_in_table, place_of
from airflow_provider_onelake.rows.calendars import OldCalendar
from airflow_provider_onelake.rows.layout import Layout
from airflow_provider_onelake.rows.vectors import kept_rows
from airflow_provider_onelake.storage.ranged import RangedFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_onelake.storage.stores import Store


@attrs.frozen(eq=False)
class ParquetFile:
    """A data file whose footer was read.

    :param add: by which the table has it.
    :param visible: of each row, whether the file's deletion vector leaves it; ``None`` where there is no vector.
    :param fetched: how many bytes were fetched to open it.
    """

    add: Add
    footer: pq.FileMetaData = attrs.field(repr=False)
    visible: pa.Array | None = attrs.field(repr=False)
    fetched: int
    _source: RangedFile = attrs.field(repr=False)
    _table: str

    @classmethod
    def open(cls, store: Store, add: Add, table: str) -> ParquetFile:
        """Read the footer of a file, and its deletion vector.

        :param store: of the table.
        :param table: what messages call the table.
        :raises ReadRefusedError: the file is gone, damaged, or outside of the table's directory.
        :raises CorruptLogError: the deletion vector is damaged.
        :raises StoreUnavailableError: the store did not answer.
        """
        if is_absolute(add["path"]):
            raise ReadRefusedError(
                f"{table} has a file outside of its directory, {add['path']}, as a shallow clone has: read it by "
                "Spark. Nothing was changed."
            )
        with _explaining(add, table):
            source = RangedFile(store, object_path(add), int(add["size"]))
            footer = _opened(source).metadata
            vector = add.get("deletionVector")
            kept, fetched = (
                kept_rows(vector, store, footer.num_rows, f"{object_path(add)} of {table}") if vector else (None, 0)
            )
        return cls(add, footer, kept, source.fetched + fetched, source, table)

    @property
    def groups(self) -> range:
        """The numbers of the file's row groups."""
        return range(self.footer.num_row_groups)

    def rows_of(self, group: int) -> int:
        """Return how many rows a row group has, also those that the deletion vector hides."""
        return int(self.footer.row_group(group).num_rows)

    def kept_of(self, group: int) -> pa.Array | None:
        """Return the part of :attr:`visible` that is of a row group."""
        if self.visible is None:
            return None
        return self.visible.slice(sum(self.rows_of(before) for before in range(group)), self.rows_of(group))

    def columns(self, group: int, names: Sequence[str], layout: Layout) -> tuple[dict[str, pa.ChunkedArray], int]:
        """Read columns of a row group, also the rows that the deletion vector hides.

        :param names: of columns of the table that are no partition columns.
        :param layout: of the table.
        :returns: the columns by name, and how many bytes were fetched.
        :raises ReadRefusedError: the file is gone or damaged, or has dates or times in another calendar.
        :raises StoreUnavailableError: the store did not answer.
        """
        import pyarrow as pa

        rows = self.rows_of(group)
        there = self._fields(names, layout)
        found: dict[str, pa.ChunkedArray] = {}
        source = self._source.again()
        with _explaining(self.add, self._table):
            if there:
                leaves = [field.name for field in there.values()]
                source.expect(chunk_ranges(self.footer, leaves, [group]))
                read = _opened(source, self.footer).read_row_group(group, columns=leaves, use_threads=False)
                self._check_calendar(group, {name: read.column(field.name) for name, field in there.items()}, layout)
                for name, field in there.items():
                    kind = layout.fields[name]["type"]
                    parts = [as_in_table(chunk, kind, layout.mapping) for chunk in read.column(field.name).chunks]
                    found[name] = pa.chunked_array(parts, arrow_type(kind))
            for name in names:
                if name not in there:
                    found[name] = pa.chunked_array([pa.nulls(rows, arrow_type(layout.fields[name]["type"]))])
        return found, source.fetched

    def size_of(self, group: int, names: Iterable[str], layout: Layout) -> int:
        """Return how many bytes columns of a row group have in the file."""
        leaves = [field.name for field in self._fields(names, layout).values()]
        return sum(end - start for start, end in chunk_ranges(self.footer, leaves, [group]))

    def _check_calendar(self, group: int, found: Mapping[str, pa.ChunkedArray], layout: Layout) -> None:
        """Refuse columns with values that Spark moves to another day or time.

        :param found: the columns of a row group as the file has them, by their names in the table.
        """
        calendar = OldCalendar.of(self.footer)
        if calendar is None:
            return
        kept, there = self.kept_of(group), self._fields(found, layout)
        for name, column in found.items():
            if calendar.moves(column if kept is None else column.filter(kept), there[name].name, self.footer):
                raise ReadRefusedError(
                    f"Column {name} in {object_path(self.add)} of {self._table} has dates before 1582 or times before "
                    "1900 in the calendar of Spark 2: Spark moves them when it reads them, and a read without Spark "
                    "would return other days. Nothing was changed. Read the other columns, or read the table by "
                    "Spark; or let Spark write these rows again, by an UPDATE."
                )

    def _fields(self, names: Iterable[str], layout: Layout) -> dict[str, pa.Field[Any]]:
        """Return the fields of the file that are these columns; a column that the file does not have is left out."""
        fields = list(self.footer.schema.to_arrow_schema())
        places = {name: place_of(fields, layout.fields[name], layout.mapping) for name in names}
        return {name: fields[at] for name, at in places.items() if at is not None}


def _opened(source: RangedFile, footer: Any = None) -> pq.ParquetFile:
    import pyarrow.parquet as pq

    # With pre_buffer, Arrow would read from several threads, and a file has one position. Spark's INT96 has
    # nanoseconds, whose years end in 2262, so take microseconds.
    return pq.ParquetFile(
        source,
        metadata=footer,
        page_checksum_verification=True,
        pre_buffer=False,
        coerce_int96_timestamp_unit="us",
    )


@contextmanager
def _explaining(add: Add, table: str) -> Iterator[None]:
    """Raise what goes wrong with a file's bytes as this package's errors."""
    import pyarrow as pa

    try:
        yield
    except ObjectNotFoundError as error:
        raise ReadRefusedError(
            f"{object_path(add)} of {table} is gone, or its deletion vector is: {error} A vacuum may have deleted it "
            "after a later version left it out. Read a later version; or keep the version while you read, by a frame "
            "or by keep_versions."
        ) from error
    # Arrow reports damage in several ways, see log/parquet_checkpoints.py.
    except (OSError, ValueError, OverflowError, MemoryError, KeyError, pa.ArrowException) as error:
        raise ReadRefusedError(
            f"{object_path(add)} of {table} cannot be read: {type(error).__name__}: {error}. Nothing was changed. If "
            "Spark cannot read it either, restore the file, or the table."
        ) from error
