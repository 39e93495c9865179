"""Deletion vectors: where they lie, as the descriptors in a log name them, and which rows of a file they hide.

The format: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#deletion-vector-format
"""

from __future__ import annotations

import struct
import uuid
import zlib
from base64 import b85decode
from collections.abc import Callable
from typing import TYPE_CHECKING

from airflow_provider_onelake.exceptions import CorruptLogError, ReadRefusedError
from airflow_provider_onelake.log.actions import DeletionVector

if TYPE_CHECKING:
    from pyroaring import BitMap64

# Z85 is the base 85 of Python by another alphabet, which lacks five of Python's signs. The zeros make them no signs.
_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_B85 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_Z85_AS_B85 = bytes.maketrans(_Z85 + b";_`|~", _B85 + b"\0" * 5)
_UUID_IN_Z85 = 20
_MAGIC = struct.pack("<i", 1681511377)

ReadPart = Callable[[str, int, int], bytes]
"""Returns the bytes of a file, relative to the table, from one position to before another."""


def deletion_vector_path(text: str) -> str:
    """Return where a deletion vector of storage type ``u`` lies, relative to the table.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#derived-fields

    :param text: its ``pathOrInlineDv``: a random prefix, and a UUID in Z85.
    """
    prefix, encoded = text[:-_UUID_IN_Z85], text[-_UUID_IN_Z85:]
    name = f"deletion_vector_{uuid.UUID(bytes=from_z85(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def vector_home(vector: DeletionVector) -> str | None:
    """Return the path of the file of a vector, relative to the table; ``None`` for one inline, and one elsewhere."""
    return deletion_vector_path(vector["pathOrInlineDv"]) if vector["storageType"] == "u" else None


def without_prefix(text: str) -> str:
    """Return the ``pathOrInlineDv`` of the same file where it lies at the root of a table.

    Trino and Presto refuse a prefix that is not alphanumeric, so a vector in a directory is none that they can read.

    :param text: the ``pathOrInlineDv`` of a deletion vector of storage type ``u``.
    """
    return text[-_UUID_IN_Z85:]


def hidden_rows(vector: DeletionVector, read: ReadPart, file: str) -> BitMap64:
    """Return which rows of a file a deletion vector hides, by their positions in it.

    :param vector: the descriptor in the file's ``add``.
    :param file: what messages call the file.
    :raises CorruptLogError: the vector is damaged.
    :raises ReadRefusedError: the vector lies outside of the table's directory.
    """
    from pyroaring import BitMap64

    try:
        data = _data(vector, read, file)
        if data[:4] != _MAGIC:
            raise ValueError(f"it begins with {data[:4].hex() or 'nothing'}")
        rows = BitMap64.deserialize(data[4:])
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptLogError(f"The deletion vector of {file} is damaged: {error}. Nothing was changed.") from error
    said = vector.get("cardinality")
    if said is not None and said != len(rows):
        raise CorruptLogError(f"The deletion vector of {file} marks {len(rows)} rows, and its log entry says {said}.")
    return rows


def _data(vector: DeletionVector, read: ReadPart, file: str) -> bytes:
    kind, where, size = vector["storageType"], vector["pathOrInlineDv"], int(vector.get("sizeInBytes") or 0)
    if kind == "i":
        return from_z85(where)[: size or None]
    if kind != "u":
        raise ReadRefusedError(
            f"The deletion vector of {file} lies outside of the table's directory, as of a shallow clone: read the "
            "table by Spark. Nothing was changed."
        )
    # A file begins with a byte for its version. A vector is its length, the bitmap and the checksum.
    start = int(vector.get("offset") or 1)
    part = read(deletion_vector_path(where), start, start + 4 + size + 4)
    if len(part) != size + 8 or struct.unpack(">i", part[:4])[0] != size:
        raise CorruptLogError(f"The deletion vector of {file} is not as long as its log entry says.")
    data = part[4:-4]
    if zlib.crc32(data) != struct.unpack(">I", part[-4:])[0]:
        raise CorruptLogError(f"The deletion vector of {file} has another checksum than it was written with.")
    return data


def from_z85(text: str) -> bytes:
    """Return the bytes that a text stands for: five characters are four bytes.

    :raises ValueError: the text is no Z85.
    """
    return b85decode(text.encode().translate(_Z85_AS_B85))
