"""The different rows of some Arrow columns, so that what is slow is done once for each of them and not once a row."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa


def distinct_rows(
    columns: Sequence[pa.Array], rows: int, read: Callable[[pa.Array], list[Any]] | None = None
) -> tuple[list[tuple[Any, ...]], pa.Array]:
    """Return the different rows of some columns, in the order in which they come first, and of each row which it is.

    :param rows: how many rows the columns have.
    :param read: returns an array's values. Default: those of Arrow.
    """
    import pyarrow.compute as pc

    # Take in column by column. To begin with, all rows are the same: the empty one.
    found: list[tuple[Any, ...]] = [()] if rows else []
    codes = numbers([0] * rows)
    for column in columns:
        encoded = column.dictionary_encode(null_encoding="encode")
        values = encoded.dictionary.to_pylist() if read is None else read(encoded.dictionary)
        both = pc.add(pc.multiply(codes, numbers([len(values)])[0]), encoded.indices).dictionary_encode()
        pairs = (divmod(code, len(values)) for code in both.dictionary.to_pylist())
        found = [(*found[before], values[added]) for before, added in pairs]
        codes = both.indices.cast("int64")
    return found, codes


def numbers(given: Iterable[int]) -> pa.Array:
    """Return an array of whole numbers, without pa.array(): that imports pandas if it is there, and takes a second."""
    import pyarrow as pa

    held = array("q", given)
    return pa.Array.from_buffers(pa.int64(), len(held), [None, pa.py_buffer(held)])


def where(met: Iterable[bool], codes: pa.Array) -> pa.Array:
    """Return which rows to keep.

    :param met: of each different row, whether to keep it.
    :param codes: of each row, which of the different ones it is.
    """
    return numbers(met).take(codes).cast("bool")
