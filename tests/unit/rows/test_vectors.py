"""Deletion vectors in every form that the format knows, and damaged ones."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Sequence
from typing import Any

import pytest
from obstore.store import MemoryStore

from airflow_provider_onelake.exceptions import CorruptLogError, ObjectNotFoundError, ReadRefusedError
from airflow_provider_onelake.log.vectors import deletion_vector_path
from airflow_provider_onelake.rows.vectors import kept_rows
from airflow_provider_onelake.storage.stores import ObjectStore
from tests.support.vectors import deletion_vector, z85

MAGIC = 1681511377


def listed(*values: int) -> tuple[int, int, bytes]:
    return 0, len(values) - 1, struct.pack(f"<{len(values)}H", *values)


def bits(values: Sequence[int]) -> tuple[int, int, bytes]:
    content = bytearray(8192)
    for value in values:
        content[value >> 3] |= 1 << (value & 7)
    return 0, len(values) - 1, bytes(content)


def runs(*pairs: tuple[int, int]) -> tuple[int, int, bytes]:
    return (
        1,
        sum(more + 1 for _, more in pairs) - 1,
        struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *pair) for pair in pairs),
    )


def bitmap(containers: Sequence[tuple[int, tuple[int, int, bytes]]]) -> bytes:
    """A Roaring bitmap of containers by key."""
    size = len(containers)
    with_runs = any(is_runs for _, (is_runs, _, _) in containers)
    if with_runs:
        flags = bytearray((size + 7) // 8)
        for number, (_, (is_runs, _, _)) in enumerate(containers):
            flags[number >> 3] |= is_runs << (number & 7)
        data = struct.pack("<I", 12347 | (size - 1) << 16) + bytes(flags)
    else:
        data = struct.pack("<II", 12346, size)
    data += b"".join(struct.pack("<HH", key, less) for key, (_, less, _) in containers)
    if not with_runs or size >= 4:
        data += b"\0\0\0\0" * size  # offsets, which a reader in order does not need
    return data + b"".join(content for _, (_, _, content) in containers)


def serialized(*containers: tuple[int, tuple[int, int, bytes]], bitmaps: Sequence[tuple[int, bytes]] = ()) -> bytes:
    whole = list(bitmaps) or [(0, bitmap(containers))]
    return struct.pack("<iq", MAGIC, len(whole)) + b"".join(struct.pack("<I", high) + data for high, data in whole)


def inline(data: bytes, count: int | None = None) -> Any:
    vector = {"storageType": "i", "pathOrInlineDv": z85(data), "sizeInBytes": len(data)}
    return vector if count is None else {**vector, "cardinality": count}


def gone(vector: Any, rows: int, store: ObjectStore | None = None) -> list[int]:
    kept, _ = kept_rows(vector, store or ObjectStore(MemoryStore(), "t"), rows, "a file")
    assert len(kept) == rows
    return [row for row, is_kept in enumerate(kept.to_pylist()) if not is_kept]


MANY = list(range(0, 10_000, 2))


@pytest.mark.parametrize(
    ("data", "rows", "expected"),
    [
        pytest.param(serialized((0, listed(0, 3, 8))), 9, [0, 3, 8], id="a list"),
        pytest.param(serialized((0, bits(MANY))), 70_000, MANY, id="bits"),
        pytest.param(serialized((0, runs((1, 2), (7, 0)))), 9, [1, 2, 3, 7], id="runs"),
        pytest.param(
            serialized((0, listed(5)), (1, runs((0, 1))), (2, listed(9))),
            200_000,
            [5, 65_536, 65_537, 131_081],
            id="runs among lists, without offsets",
        ),
        pytest.param(
            serialized(*((key, runs((key, 0))) for key in range(5))),
            400_000,
            [key * 65_536 + key for key in range(5)],
            id="runs with offsets",
        ),
        pytest.param(serialized(bitmaps=[(0, bitmap([]))]), 3, [], id="nothing"),
    ],
)
def test_a_vector_hides_the_rows_that_it_marks(data: bytes, rows: int, expected: list[int]) -> None:
    assert gone(inline(data, len(expected)), rows) == expected
    assert gone(inline(data), rows) == expected


def test_the_form_that_other_tests_use_is_read() -> None:
    assert gone(deletion_vector([2, 4]), 6) == [2, 4]


def in_a_file(store: ObjectStore, data: bytes, *, before: bytes = b"\x01", checksum: int | None = None) -> Any:
    """A vector in a file, behind what the file has before it."""
    name = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    vector = {
        "storageType": "u",
        "pathOrInlineDv": f"ab{z85(name.bytes)}",
        "offset": len(before),
        "sizeInBytes": len(data),
    }
    crc = zlib.crc32(data) if checksum is None else checksum
    whole = before + struct.pack(">i", len(data)) + data + struct.pack(">I", crc)
    store.put(deletion_vector_path(str(vector["pathOrInlineDv"])), whole)
    return vector


def test_a_vector_in_a_file_is_read_alone() -> None:
    store = ObjectStore(MemoryStore(), "t")
    data = serialized((0, listed(1, 2)))
    vector = in_a_file(store, data, before=b"\x01" + b"x" * 500)
    kept, fetched = kept_rows(vector, store, 4, "a file")
    assert (kept.to_pylist(), fetched) == ([True, False, False, True], len(data) + 8)


GOOD = serialized((0, listed(1, 2)))


@pytest.mark.parametrize(
    ("vector", "message"),
    [
        pytest.param(inline(GOOD, 3), "marks 2 rows, and its log entry says 3", id="another count"),
        pytest.param(inline(serialized((0, listed(1, 9)))), "marks row 9 of 4", id="a row that the file has not"),
        pytest.param(inline(b"\0" * 16), "damaged: it begins with 00000000", id="another magic number"),
        pytest.param(inline(GOOD[:16] + b"\0\0\0\0" + GOOD[20:]), "damaged", id="another cookie"),
        pytest.param(inline(GOOD[:-4]), "damaged", id="cut short"),
        pytest.param(inline(GOOD[:8]), "damaged", id="cut very short"),
        pytest.param(inline(GOOD[:4]), "damaged", id="cut behind the magic number"),
        pytest.param(inline(b""), "begins with nothing", id="nothing"),
        pytest.param(inline(serialized((0, listed(3, 1)))), "damaged", id="not in order"),
        pytest.param(inline(serialized(bitmaps=[(0, bitmap([(0, listed(1))]))] * 2)), "damaged", id="twice the same"),
        pytest.param({"storageType": "i", "pathOrInlineDv": "~~~~~"}, "no Z85|damaged", id="no Z85"),
    ],
)
def test_a_damaged_vector_is_refused(vector: Any, message: str) -> None:
    with pytest.raises(CorruptLogError, match=message):
        gone(vector, 4)


def test_a_damaged_file_of_vectors_is_refused() -> None:
    store = ObjectStore(MemoryStore(), "t")
    with pytest.raises(CorruptLogError, match="another checksum"):
        gone(in_a_file(store, GOOD, checksum=1), 4, store)
    vector = in_a_file(store, GOOD)
    with pytest.raises(CorruptLogError, match="not as long as its log entry says"):
        gone({**vector, "sizeInBytes": len(GOOD) - 2}, 4, store)
    store.delete(deletion_vector_path(vector["pathOrInlineDv"]))
    with pytest.raises(ObjectNotFoundError):
        gone(vector, 4, store)


def test_a_vector_elsewhere_is_refused() -> None:
    with pytest.raises(ReadRefusedError, match="outside of the table's directory"):
        gone({"storageType": "p", "pathOrInlineDv": "file:/elsewhere", "sizeInBytes": 1}, 4)
