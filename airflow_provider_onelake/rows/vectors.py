"""Which rows of a file a deletion vector leaves, for Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.actions import DeletionVector
from airflow_provider_onelake.log.vectors import hidden_rows

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_onelake.storage.stores import Store


def kept_rows(vector: DeletionVector, store: Store, rows: int, file: str) -> tuple[pa.Array, int]:
    """Return of each row of a file whether the vector leaves it, and how many bytes were fetched for that.

    :param vector: the descriptor in the file's ``add``.
    :param rows: how many rows the file has.
    :param file: what messages call the file.
    :raises CorruptLogError: the vector is damaged, or does not fit the file.
    :raises ReadRefusedError: the vector lies outside of the table's directory.
    :raises ObjectNotFoundError: the vector's file is gone.
    """
    import pyarrow as pa

    fetched = 0

    def read(path: str, start: int, end: int) -> bytes:
        nonlocal fetched
        data = store.get_range(path, start, end).data
        fetched = len(data)
        return data

    hidden = hidden_rows(vector, read, file)
    if hidden and hidden.max() >= rows:
        raise CorruptLogError(
            f"The deletion vector of {file} is damaged: it marks row {hidden.max()} of {rows}. Nothing was changed."
        )
    left = bytearray(b"\xff") * ((rows + 7) // 8)
    for row in hidden:
        # Arrow's bitmaps have the first row in the lowest bit.
        left[row >> 3] &= ~(1 << (row & 7))
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(bytes(left))]), fetched
