"""Versions that somebody asked to keep are on record beside the table."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import VacuumRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import (
    DIRECTORY,
    oldest_pinned,
    pin_version,
    pinned_versions,
    release_version,
)
from tests.support.stores import PassingOn, through
from tests.support.tables import foreign_append, local_log


def test_a_version_is_kept_until_it_is_released(log: DeltaLog) -> None:
    first, second = foreign_append(log, {"2019-01": [1]}), foreign_append(log, {"2019-01": [2]})
    assert (pinned_versions(log), oldest_pinned(log)) == ([], None)
    pin_version(log, second, "dag.b")
    kept = pin_version(log, first, "dag.a")
    assert [(kept.version, kept.by) for kept in pinned_versions(log)] == [(first, "dag.a"), (second, "dag.b")]
    assert oldest_pinned(log) == first
    assert str(kept).startswith(f"version {first} (kept by dag.a since 20")
    release_version(log, first)
    release_version(log, first)
    assert oldest_pinned(log) == second


def test_of_two_that_ask_for_a_version_the_first_is_on_record(log: DeltaLog) -> None:
    first = pin_version(log, 0, "dag.a")
    assert pin_version(log, 0, "dag.b") == first
    assert pinned_versions(log) == [first]


def test_a_task_has_a_record_of_its_own(log: DeltaLog) -> None:
    pin_version(log, 0, "dag.a", holder="a1")
    pin_version(log, 0, "people")
    assert {kept.by for kept in pinned_versions(log)} == {"dag.a", "people"}
    release_version(log, 0, holder="a1")
    assert [kept.by for kept in pinned_versions(log)] == ["people"]
    pin_version(log, 0, "dag.a", holder="a1")
    release_version(log, 0)
    assert [(kept.by, kept.held) for kept in pinned_versions(log)] == [("dag.a", True)]
    release_version(log, 0, holder="a1")
    assert pinned_versions(log) == []


def test_files_that_go_before_the_record_is_there_are_found(log: DeltaLog) -> None:
    """A vacuum that planned before the record was there deletes a file while the record is put."""
    version = foreign_append(log, {"a b": [1]})

    class Deleting(PassingOn):
        def create(self, path: str, data: bytes) -> None:
            super().create(path, data)
            self.delete(next(info.path for info in self.list("month=a b")))

    with pytest.raises(VacuumRefusedError, match="1 of its files are gone"):
        pin_version(through(Deleting(log.store), log), version, "dag.a")
    assert pinned_versions(log) == []


@pytest.mark.parametrize("version", [-1, 1, 99])
def test_a_version_that_the_table_does_not_have_is_refused(log: DeltaLog, version: int) -> None:
    with pytest.raises(VacuumRefusedError, match=f"has no version {version}.* newest is 0"):
        pin_version(log, version, "dag.a")
    assert pinned_versions(log) == []


def test_where_there_is_no_table_nothing_can_be_kept(tmp_path: Path) -> None:
    with pytest.raises(VacuumRefusedError, match="newest is none"):
        pin_version(local_log(tmp_path / "none"), 0, "dag.a")


def test_a_version_whose_files_are_gone_is_refused(log: DeltaLog) -> None:
    version = foreign_append(log, {"a b": [1], "2019-02": [2]})
    pin_version(log, version, "dag.a")
    release_version(log, version)
    log.store.delete(next(info.path for info in log.store.list("month=a b")))
    with pytest.raises(VacuumRefusedError, match="1 of its files are gone, such as month=a b/part"):
        pin_version(log, version, "dag.a")
    assert pinned_versions(log) == []


def test_a_record_that_cannot_be_read_keeps_all_the_same(log: DeltaLog) -> None:
    foreign_append(log, {"2019-01": [1]})
    log.store.put(f"{DIRECTORY}/{1:020d}.json", b"{")
    log.store.put(f"{DIRECTORY}/notes.txt", b"?")
    assert [(kept.version, kept.by) for kept in pinned_versions(log)] == [(1, "somebody")]
