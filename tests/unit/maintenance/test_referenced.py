"""Which paths in the store the actions of a log stand for."""

from __future__ import annotations

from airflow_provider_onelake.log.vectors import deletion_vector_path
from airflow_provider_onelake.maintenance.referenced import lost_files, referenced
from tests.support.vectors import deletion_vector

# From Delta's own description of the format.
ON_DISK = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40, "cardinality": 6}
ON_DISK_PATH = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_a_file_is_referenced_with_its_deletion_vector() -> None:
    assert set(referenced([{"path": "a%20b", "deletionVector": ON_DISK}])) == {"a b", "a%20b", ON_DISK_PATH}
    assert set(referenced([{"path": "a", "deletionVector": deletion_vector([1])}])) == {"a"}
    absolute = {"storageType": "p", "pathOrInlineDv": "s3://b/t/x%20y.bin"}
    assert {"x y.bin", "t/x y.bin"} <= set(referenced([{"path": "a", "deletionVector": absolute}]))


def test_a_file_is_lost_with_its_deletion_vector() -> None:
    files = [{"path": "a%20b", "deletionVector": ON_DISK}, {"path": "s3://elsewhere/c"}]
    assert lost_files(files, {"a b", ON_DISK_PATH}) == []
    assert lost_files(files, {"a%20b", ON_DISK_PATH}) == []
    assert lost_files(files, {"a b"}) == [ON_DISK_PATH]
    assert lost_files(files, set()) == sorted(["a b", ON_DISK_PATH])


def test_a_relative_deletion_vector_is_found_by_its_uuid() -> None:
    # The example of the format's page.
    assert (
        deletion_vector_path("ab^-aqEH.-t@S}K{vb[*k^") == "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    assert deletion_vector_path("^-aqEH.-t@S}K{vb[*k^") == "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
