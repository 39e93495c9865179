"""Where deletion vectors lie: their files, as the descriptors in a log name them."""

from __future__ import annotations

import struct
import uuid

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_UUID_IN_Z85 = 20


def deletion_vector_path(text: str) -> str:
    """Return where a deletion vector of storage type ``u`` lies, relative to the table.

    https://github.com/delta-io/delta/blob/master/PROTOCOL.md#derived-fields

    :param text: its ``pathOrInlineDv``: a random prefix, and a UUID in Z85.
    """
    prefix, encoded = text[:-_UUID_IN_Z85], text[-_UUID_IN_Z85:]
    name = f"deletion_vector_{uuid.UUID(bytes=from_z85(encoded))}.bin"
    return f"{prefix}/{name}" if prefix else name


def from_z85(text: str) -> bytes:
    """Return the bytes that a text stands for: five characters are four bytes.

    :raises ValueError: the text is no Z85.
    """
    data = bytearray()
    for start in range(0, len(text), 5):
        value = 0
        for character in text[start : start + 5]:
            value = value * 85 + _Z85.index(character)
        try:
            data += struct.pack(">I", value)
        except struct.error as error:
            raise ValueError(f"{text[start : start + 5]!r} is no Z85") from error
    return bytes(data)


def without_prefix(text: str) -> str:
    """Return the ``pathOrInlineDv`` of the same file where it lies at the root of a table.

    Trino and Presto refuse a prefix that is not alphanumeric, so a vector in a directory is none that they can read.

    :param text: the ``pathOrInlineDv`` of a deletion vector of storage type ``u``.
    """
    return text[-_UUID_IN_Z85:]
