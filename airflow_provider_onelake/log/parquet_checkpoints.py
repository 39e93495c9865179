"""The actions in a Parquet file of a checkpoint, of which only what is asked for is fetched and decoded.

A table of a million files has a checkpoint of some hundred megabytes. Who opens the table needs kilobytes of it, and
who replaces a partition needs the files of that partition. So columns of other actions are not fetched, and files in
other partitions never become Python objects.
"""

from __future__ import annotations

import io
import os.path
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.storage.ranged import RangedFile

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from airflow_provider_onelake.log.partitions import InPartitions
    from airflow_provider_onelake.storage.stores import Store

SMALL = 1 << 20
"""A file of fewer bytes is fetched whole, as one request costs less than several."""
# Parsed copies that only checkpoints have. A log entry has ``stats`` and ``partitionValues`` as texts instead.
STATS = "stats_parsed"
CHECKPOINT_ONLY = (STATS, "partitionValues_parsed")

# With 200,000 files, half as many rows at once need 7 MB less at their peak, for the same time; fewer need more time.
_ROWS_AT_ONCE = 4096
# Arrow reads a column from a ranged file in steps of so many bytes, so that it does not hold the whole column.
_STEP = 1 << 16


def open_parquet(store: Store, path: str, size: int | None) -> io.RawIOBase | io.BytesIO:
    """Open a file of a checkpoint.

    :param size: of the file in bytes; ``None`` where it is not known, so that the file is fetched whole.
    :raises ObjectNotFoundError: there is no such file.
    """
    return io.BytesIO(store.get(path)) if size is None or size < SMALL else RangedFile(store, path, size)


def bodies_in(
    store: Store,
    path: str,
    size: int | None,
    kinds: Iterable[str],
    known: set[str],
    wanted: InPartitions | Below | None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the actions in a file of a checkpoint, as their kind and body.

    :param size: of the file in bytes, if it is known.
    :param kinds: the actions to read.
    :param known: gets the kinds of actions for which the file has a column.
    :param wanted: leave out ``add`` actions that do not meet it, as far as that saves work; those that are left may not
        meet it either. ``None`` for all.
    :raises ObjectNotFoundError: there is no such file.
    :raises CorruptLogError: the file cannot be read.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Arrow reports damage in several ways: a damaged page as OSError, a damaged text as UnicodeDecodeError, a map that
    # has a key twice as KeyError, the rest as errors of its own.
    damage = (OSError, ValueError, OverflowError, MemoryError, KeyError, pa.ArrowException)
    try:
        source = open_parquet(store, path, size)
        # Verify checksums: Spark writes one for every page.
        step = _STEP if isinstance(source, RangedFile) else 0
        # With pre_buffer, Arrow would fetch whole columns, and from several threads.
        file = pq.ParquetFile(source, page_checksum_verification=True, buffer_size=step, pre_buffer=False)
        schema = file.schema_arrow
        known.update(schema.names)
        present = [kind for kind in sorted(kinds) if kind in schema.names]
        leaves = [leaf for kind in present for leaf in _leaves(schema.field(kind))]
        if isinstance(source, RangedFile):
            source.expect(chunk_ranges(file.metadata, leaves))
        # A file has one position, so one thread reads it.
        batches = file.iter_batches(columns=leaves, batch_size=_ROWS_AT_ONCE, use_threads=False)
        while (batch := next(batches, None)) is not None:
            for kind in present:
                found = batch.column(kind).drop_null()
                if kind == "add" and wanted is not None:
                    found = _wanted_of(found, wanted)
                yield from ((kind, body) for body in found.to_pylist(maps_as_pydicts="strict"))
        if step:
            # Arrow keeps the memory that it has freed. Give it back.
            del file, batches
            pa.default_memory_pool().release_unused()
    except damage as error:
        raise CorruptLogError(f"{path} of a checkpoint cannot be read: {error} Nothing was changed.") from error


def _leaves(field: pa.Field[Any]) -> list[str]:
    """Return the columns of a file to decode for an action.

    Leave out the parsed copies of statistics and partition values: they may hold values that Python cannot represent (a
    date in the year 12100), and in a table of many columns they are most of the checkpoint. Decode only the row count
    of the parsed statistics, because a checkpoint may hold statistics in no other form.
    """
    names = [f"{field.name}.{child.name}" for child in field.type if child.name not in CHECKPOINT_ONLY]
    parsed = field.type.field(STATS) if field.type.get_field_index(STATS) >= 0 else None
    if parsed is not None and parsed.type.get_field_index("numRecords") >= 0:
        names.append(f"{field.name}.{STATS}.numRecords")
    return names


def chunk_ranges(
    footer: pq.FileMetaData, leaves: Iterable[str], groups: Iterable[int] | None = None
) -> Iterator[tuple[int, int]]:
    """Yield where the bytes of some columns lie in a file: the first byte, and the byte after the last.

    :param leaves: paths of columns, or of nested ones that hold them.
    :param groups: the row groups. Default: all.
    """
    prefixes = tuple(f"{leaf}." for leaf in leaves)
    for group in map(footer.row_group, range(footer.num_row_groups) if groups is None else groups):
        for column in map(group.column, range(group.num_columns)):
            if f"{column.path_in_schema}.".startswith(prefixes):
                start = min(column.dictionary_page_offset or column.data_page_offset, column.data_page_offset)
                yield start, start + column.total_compressed_size


def _wanted_of(adds: pa.StructArray, wanted: InPartitions | Below) -> pa.StructArray:
    """Leave out ``add`` actions that do not meet a condition; return all where that cannot be told without decoding."""
    import pyarrow.compute as pc

    spelled = _spellings(adds) if len(adds) and _are_well_formed(adds) else None
    if spelled is None:
        return adds
    # Texts of files that are left out are not decoded, so look for damaged ones here.
    adds.validate(full=True)
    if isinstance(wanted, Below):
        # One look at each path, however many directories there are. What they share need not end at a slash.
        shared = os.path.commonprefix(wanted.directories)  # noqa: RUF071
        return adds.filter(pc.starts_with(adds.field("path"), shared))
    spellings, codes = spelled
    return adds.filter(_numbers(map(wanted.meets, spellings)).take(codes).cast("bool"))


def _spellings(adds: pa.StructArray) -> tuple[list[dict[str, str | None]], pa.Array] | None:
    """Return the different ``partitionValues``, and of each file which of them it has.

    :returns: ``None`` where the maps are of different lengths, which no known engine writes, or have a key twice.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    maps = adds.field("partitionValues")
    begin, end = maps.offsets[0].as_py(), maps.offsets[-1].as_py()
    length, over = divmod(end - begin, len(adds))
    bounds = pc.min_max(pc.list_value_length(pa.ListArray.from_arrays(maps.offsets, maps.keys)))
    if over or bounds["min"].as_py() != length or bounds["max"].as_py() != length:
        return None
    columns = [
        pc.list_element(pa.FixedSizeListArray.from_arrays(texts.slice(begin, end - begin), length), nth)
        for nth in _numbers(range(length))
        for texts in (maps.keys, maps.items)
    ]
    found, codes = _distinct_rows(columns, len(adds))
    spellings = [dict(zip(texts[::2], texts[1::2], strict=True)) for texts in found]
    return (spellings, codes) if all(len(values) == length for values in spellings) else None


def _distinct_rows(columns: Sequence[pa.Array], rows: int) -> tuple[list[tuple[Any, ...]], pa.Array]:
    """Return the different rows of some columns, in the order in which they come first, and of each row which it is."""
    import pyarrow.compute as pc

    # Take in column by column. To begin with, all rows are the same: the empty one.
    found: list[tuple[Any, ...]] = [()]
    codes = _numbers([0] * rows)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist()
        both = pc.add(pc.multiply(codes, _numbers([len(values)])[0]), encoded.indices).dictionary_encode()
        pairs = (divmod(code, len(values)) for code in both.dictionary.to_pylist())
        found = [(*found[before], values[added]) for before, added in pairs]
        codes = both.indices.cast("int64")
    return found, codes


def _numbers(given: Iterable[int]) -> pa.Array:
    """Return an array of whole numbers, without pa.array(): that imports pandas if it is there, and takes a second."""
    import pyarrow as pa

    held = array("q", given)
    return pa.Array.from_buffers(pa.int64(), len(held), [None, pa.py_buffer(held)])


def _are_well_formed(adds: pa.StructArray) -> bool:
    """Say whether all ``add`` actions have what readers need. Where not, decode them all, to say which lacks what."""
    import pyarrow as pa
    import pyarrow.compute as pc

    types = {field.name: field.type for field in adds.type}
    maps = types.get("partitionValues", pa.null())
    if (types.get("path"), types.get("size")) != (pa.string(), pa.int64()) or not pa.types.is_map(maps):
        return False
    if (maps.key_type, maps.item_type) != (pa.string(), pa.string()):
        return False
    if any(adds.field(name).null_count for name in ("path", "size", "partitionValues")):
        return False
    if not pc.min(pc.binary_length(adds.field("path"))).as_py():
        return False
    if "deletionVector" not in types:
        return True
    vectors = adds.field("deletionVector").drop_null()
    return not len(vectors) or not any(
        vectors.type.get_field_index(part) < 0 or vectors.field(part).null_count
        for part in ("storageType", "pathOrInlineDv")
    )
