"""Files of deletion vectors that we write, and where they lie."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.vectors import (
    deletion_vector_path,
    from_z85,
    hidden_rows,
    vector_home,
)
from tests.support.changes import ChangeByHand, change_of, three_files
from tests.support.tables import live
from tests.support.vectors import deletion_vector, z85


def test_the_vector_of_the_protocols_example_lies_at_the_root() -> None:
    name = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    vector: Any = {"storageType": "u", "pathOrInlineDv": "^-aqEH.-t@S}K{vb[*k^", "offset": 1, "sizeInBytes": 40}
    assert vector_home(vector) == f"deletion_vector_{name}.bin"


def test_a_damaged_vector_is_refused(tmp_path: Path) -> None:
    log = three_files(tmp_path / "t")
    change_of(log, ChangeByHand(vectors=True)).carry_out()
    vector = next(file["deletionVector"] for file in live(log) if "deletionVector" in file)
    content = bytearray(log.store.get(str(vector_home(vector))))

    def read(path: str, start: int, end: int) -> bytes:
        return bytes(content[start:end])

    assert len(hidden_rows(vector, read, "a file")) == vector["cardinality"]
    content[vector["offset"] + 10] ^= 1
    with pytest.raises(CorruptLogError, match="another checksum"):
        hidden_rows(vector, read, "a file")


def test_a_prefix_is_a_directory_and_a_vector_in_the_log_has_no_file() -> None:
    text = z85(uuid.UUID(int=7).bytes)
    assert deletion_vector_path(f"ab{text}") == f"ab/deletion_vector_{uuid.UUID(int=7)}.bin"
    assert vector_home(deletion_vector([1])) is None  # type: ignore[arg-type]
    assert from_z85(text) == uuid.UUID(int=7).bytes
