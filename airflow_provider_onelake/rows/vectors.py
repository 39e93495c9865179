"""Which rows of a file a deletion vector leaves.

The format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format, and for the bitmaps inside
https://github.com/RoaringBitmap/RoaringFormatSpec.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import CorruptLogError, ReadRefusedError
from airflow_provider_onelake.log.actions import DeletionVector
from airflow_provider_onelake.log.vectors import deletion_vector_path, from_z85

if TYPE_CHECKING:
    import pyarrow as pa

    from airflow_provider_onelake.storage.stores import Store

_MAGIC = 1681511377
_WITHOUT_RUNS, _WITH_RUNS = 12346, 12347
# With runs, offsets of containers are written only where there are at least so many of them.
_OFFSETS_FROM = 4
_CONTAINER = 1 << 16
# A container of more values is a bitmap, else it lists them.
_MOST_LISTED = 4096


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

    try:
        data, fetched = _bitmap(vector, store, file)
        gone = bytearray((rows + 7) // 8)
        count = _mark(data, gone, rows)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptLogError(f"The deletion vector of {file} is damaged: {error}. Nothing was changed.") from error
    said = vector.get("cardinality")
    if said is not None and said != count:
        raise CorruptLogError(f"The deletion vector of {file} marks {count} rows, and its log entry says {said}.")
    # Arrow's bitmaps, too, have the first row in the lowest bit.
    left = bytes(byte ^ 0xFF for byte in gone)
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(left)]), fetched


def _bitmap(vector: DeletionVector, store: Store, file: str) -> tuple[bytes, int]:
    kind, where, size = vector["storageType"], vector["pathOrInlineDv"], int(vector.get("sizeInBytes") or 0)
    if kind == "i":
        return from_z85(where)[: size or None], 0
    if kind != "u":
        raise ReadRefusedError(
            f"The deletion vector of {file} lies outside of the table's directory, as of a shallow clone: read the "
            "table by Spark. Nothing was changed."
        )
    # A file begins with a byte for its version. A vector is its length, the bitmap and the checksum.
    start = int(vector.get("offset") or 1)
    part = store.get_range(deletion_vector_path(where), start, start + 4 + size + 4).data
    if len(part) != size + 8 or struct.unpack(">i", part[:4])[0] != size:
        raise CorruptLogError(f"The deletion vector of {file} is not as long as its log entry says.")
    data = part[4:-4]
    if zlib.crc32(data) != struct.unpack(">I", part[-4:])[0]:
        raise CorruptLogError(f"The deletion vector of {file} has another checksum than it was written with.")
    return data, len(part)


def _mark(data: bytes, gone: bytearray, rows: int) -> int:
    """Set a bit for each row that a serialized vector marks, and return how many there are."""
    magic, bitmaps = struct.unpack_from("<iq", data)
    if magic != _MAGIC:
        raise ValueError(f"its magic number is {magic}")
    at, count = 12, 0
    for _ in range(bitmaps):
        (high,) = struct.unpack_from("<I", data, at)
        at += 4
        containers, at = _containers(data, at)
        for key, kind, content in containers:
            base = (high << 32) | (key << 16)
            for first, last in _ranges(kind, content):
                if base + last >= rows:
                    raise ValueError(f"it marks row {base + last} of {rows}")
                for row in range(base + first, base + last + 1):
                    gone[row >> 3] |= 1 << (row & 7)
                count += last - first + 1
    return count


def _containers(data: bytes, at: int) -> tuple[list[tuple[int, str, bytes]], int]:
    """Return the containers of one bitmap, as their key, kind and content, and where the bitmap ends."""
    (cookie,) = struct.unpack_from("<I", data, at)
    at += 4
    runs = b""
    if cookie & 0xFFFF == _WITH_RUNS:
        size = (cookie >> 16) + 1
        runs = data[at : at + (size + 7) // 8]
        at += len(runs)
    elif cookie == _WITHOUT_RUNS:
        (size,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError(f"a bitmap in it begins with {cookie}")
    keys = [struct.unpack_from("<HH", data, at + 4 * number) for number in range(size)]
    at += 4 * size
    if not runs or size >= _OFFSETS_FROM:
        at += 4 * size
    found = []
    for number, (key, less) in enumerate(keys):
        if runs and runs[number >> 3] >> (number & 7) & 1:
            (pairs,) = struct.unpack_from("<H", data, at)
            kind, at, length = "runs", at + 2, 4 * pairs
        elif less + 1 > _MOST_LISTED:
            kind, length = "bits", _CONTAINER // 8
        else:
            kind, length = "list", 2 * (less + 1)
        content = data[at : at + length]
        if len(content) != length:
            raise ValueError("it ends too early")
        found.append((key, kind, content))
        at += length
    return found, at


def _ranges(kind: str, content: bytes) -> Iterator[tuple[int, int]]:
    """Yield the values in a container, as the first and the last of each range."""
    if kind == "runs":
        for first, more in struct.iter_unpack("<HH", content):
            yield first, first + more
    elif kind == "list":
        for (value,) in struct.iter_unpack("<H", content):
            yield value, value
    else:
        for at, byte in enumerate(content):
            for bit in range(8) if byte else ():
                if byte >> bit & 1:
                    yield 8 * at + bit, 8 * at + bit
