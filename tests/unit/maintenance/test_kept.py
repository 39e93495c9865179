"""Versions that somebody asked to keep are on record beside the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import VacuumRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.kept import (
    DIRECTORY,
    keep_from,
    keep_version,
    kept_versions,
    lost_files,
    referenced,
    release_version,
)
from tests.support.tables import foreign_append, local_log
from tests.support.vectors import deletion_vector

# From Delta's own description of the format.
ON_DISK = {"storageType": "u", "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^", "sizeInBytes": 40, "cardinality": 6}
ON_DISK_PATH = "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"


def test_a_version_is_kept_until_it_is_released(log: DeltaLog) -> None:
    first, second = foreign_append(log, {"2019-01": [1]}), foreign_append(log, {"2019-01": [2]})
    assert (kept_versions(log), keep_from(log)) == ([], None)
    keep_version(log, second, "dag.b")
    kept = keep_version(log, first, "dag.a")
    assert [(kept.version, kept.by) for kept in kept_versions(log)] == [(first, "dag.a"), (second, "dag.b")]
    assert keep_from(log) == first
    assert str(kept).startswith(f"version {first} (kept by dag.a since 20")
    release_version(log, first)
    release_version(log, first)
    assert keep_from(log) == second


def test_of_two_that_ask_for_a_version_the_first_is_on_record(log: DeltaLog) -> None:
    first = keep_version(log, 0, "dag.a")
    assert keep_version(log, 0, "dag.b") == first
    assert kept_versions(log) == [first]


@pytest.mark.parametrize("version", [-1, 1, 99])
def test_a_version_that_the_table_does_not_have_is_refused(log: DeltaLog, version: int) -> None:
    with pytest.raises(VacuumRefusedError, match=f"has no version {version}.* newest is 0"):
        keep_version(log, version, "dag.a")
    assert kept_versions(log) == []


def test_where_there_is_no_table_nothing_can_be_kept(tmp_path: Path) -> None:
    with pytest.raises(VacuumRefusedError, match="newest is none"):
        keep_version(local_log(tmp_path / "none"), 0, "dag.a")


def test_a_version_whose_files_are_gone_is_refused(log: DeltaLog) -> None:
    version = foreign_append(log, {"a b": [1], "2019-02": [2]})
    keep_version(log, version, "dag.a")
    release_version(log, version)
    log.store.delete(next(info.path for info in log.store.list("month=a b")))
    with pytest.raises(VacuumRefusedError, match="1 of its files are gone, such as month=a b/part"):
        keep_version(log, version, "dag.a")
    assert kept_versions(log) == []


def test_a_record_that_cannot_be_read_keeps_all_the_same(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1]})
    log.store.put(f"{DIRECTORY}/{1:020d}.json", b"{")
    log.store.put(f"{DIRECTORY}/notes.txt", b"?")
    assert [(kept.version, kept.by) for kept in kept_versions(log)] == [(1, "somebody")]


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
