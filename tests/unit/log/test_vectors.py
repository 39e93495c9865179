"""Files of deletion vectors that we write, and where they lie."""

from __future__ import annotations

import uuid

import pytest
from pyroaring import BitMap64

from airflow_provider_onelake.exceptions import CorruptLogError
from airflow_provider_onelake.log.vectors import (
    VectorFile,
    deletion_vector_path,
    from_z85,
    hidden_rows,
    to_z85,
    vector_home,
)
from tests.support.vectors import deletion_vector


def test_a_file_has_several_vectors_under_a_name_without_a_prefix() -> None:
    name = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    wanted = [BitMap64([3, 4, 7, 11, 18, 29]), BitMap64(range(100_000)), BitMap64(), BitMap64([1, 1 << 33])]
    file = VectorFile(name)
    assert not file.has_vectors
    written = [file.add(rows) for rows in wanted]
    assert file.has_vectors
    # The descriptor that the protocol gives as an example.
    assert (written[0]["pathOrInlineDv"], written[0]["offset"]) == ("^-aqEH.-t@S}K{vb[*k^", 1)
    assert (written[0]["storageType"], written[0]["cardinality"]) == ("u", 6)
    assert file.path == f"deletion_vector_{name}.bin" == vector_home(written[0])

    def read(path: str, start: int, end: int) -> bytes:
        assert path == file.path
        return bytes(file.content[start:end])

    assert [hidden_rows(vector, read, "a file") for vector in written] == wanted
    file.content[written[1]["offset"] + 20] ^= 1
    with pytest.raises(CorruptLogError, match="another checksum"):
        hidden_rows(written[1], read, "a file")


def test_a_prefix_is_a_directory_and_a_vector_in_the_log_has_no_file() -> None:
    text = to_z85(uuid.UUID(int=7).bytes)
    assert deletion_vector_path(f"ab{text}") == f"ab/deletion_vector_{uuid.UUID(int=7)}.bin"
    assert vector_home(deletion_vector([1])) is None  # type: ignore[arg-type]
    assert from_z85(text) == uuid.UUID(int=7).bytes
