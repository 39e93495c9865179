"""A version kept for the tasks of a run."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import (
    InvalidReadError,
    StoreUnavailableError,
    VacuumRefusedError,
    ZombieWriterError,
)
from airflow_provider_onelake.log.actions import object_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import drop_ended_leases, pin_version, pinned_versions
from airflow_provider_onelake.maintenance.pinning import Hold, hold, let_go
from airflow_provider_onelake.storage.stores import ObjectInfo
from tests.support.changes import start_of
from tests.support.clocks import HeldClock
from tests.support.stores import KilledError, PassingOn, through
from tests.support.tables import foreign_append, make_table, newest


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"x": [1]})
    return log


def keep(log: DeltaLog, start: str = "first", owner: str = "dag/keep/run", **terms: Any) -> Hold:
    terms = {"lasts": timedelta(days=1), "task_start": start_of(owner, start), "asked": "the newest", **terms}
    return hold(log, lambda: newest(log).version, "me", owner=owner, **terms)


def kept(log: DeltaLog) -> list[int]:
    return [pinned.version for pinned in pinned_versions(log)]


def test_a_version_is_kept_until_its_holder_lets_go(log: DeltaLog) -> None:
    first, second = keep(log), keep(log, owner="dag/keep/another run")
    assert (first.version, second.version, kept(log)) == (1, 1, [1, 1])
    pin_version(log, 1, "people")
    assert let_go(log, first.holder) == 1
    assert let_go(log, first.holder) is None
    assert kept(log) == [1, 1]
    let_go(log, second.holder)
    assert [pinned.by for pinned in pinned_versions(log)] == ["people"]


def test_a_retry_finds_its_version_and_another_start_lets_go_of_it(log: DeltaLog) -> None:
    first = keep(log)
    foreign_append(log, {"x": [2]})
    assert keep(log).version == first.version == 1
    second = keep(log, "second")
    assert (second.version, kept(log)) == (2, [2])
    assert second.holder != first.holder


def test_an_old_process_leaves_what_a_newer_start_keeps(log: DeltaLog) -> None:
    keep(log, "second")
    foreign_append(log, {"x": [2]})
    with pytest.raises(ZombieWriterError, match=r"A newer start of this task keeps version 1 of .* keeps nothing"):
        keep(log, "first")
    assert kept(log) == [1]


def test_an_old_try_leaves_what_a_retry_keeps_that_was_asked_for_something_else(log: DeltaLog) -> None:
    keep(log, asked="version 1")
    foreign_append(log, {"x": [2]})
    assert keep(log, asked="the newest", try_number=2).version == 2
    assert kept(log) == [2]
    with pytest.raises(ZombieWriterError, match="keeps version 2"):
        keep(log, asked="version 1")
    assert kept(log) == [2]


def test_a_start_of_which_nobody_knows_whether_it_is_older_keeps_its_version(log: DeltaLog) -> None:
    """The run was deleted and made again, and one of the two does not say when it began."""
    keep(log, task_start=attrs.evolve(start_of("dag/keep/run", "first"), chain="another"))
    keep(log, "second")
    assert kept(log) == [1, 1]


def test_it_ends_by_itself_and_a_retry_begins_anew(log: DeltaLog) -> None:
    clock = HeldClock()
    held = through(log.store, log, clock)
    first = keep(held)
    assert first.until > clock.now()
    clock.forward(hours=12)
    assert first.until <= keep(held).until < clock.now() + timedelta(days=1)
    clock.sleep(timedelta(days=2).total_seconds())
    assert kept(held) == []
    foreign_append(log, {"x": [2]})
    assert keep(held).version == 2


def test_a_vacuum_that_drops_what_has_ended_leaves_what_is_kept_anew_meanwhile(log: DeltaLog) -> None:
    clock = HeldClock()
    held = through(log.store, log, clock)
    keep(held)
    clock.sleep(timedelta(days=2).total_seconds())

    class Meanwhile(PassingOn):
        def delete(self, path: str) -> None:
            assert keep(held).version == 1
            super().delete(path)

    drop_ended_leases(through(Meanwhile(log.store), log, clock))
    clock.sleep(-timedelta(days=2).total_seconds())
    assert kept(held) == [1]


def test_a_retry_that_cannot_look_leaves_what_another_try_has_kept(log: DeltaLog) -> None:
    class Unanswered(PassingOn):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            if not prefix:
                raise StoreUnavailableError("no answer")
            return super().list(prefix, start_after)

    keep(log)
    with pytest.raises(StoreUnavailableError):
        keep(through(Unanswered(log.store), log))
    assert kept(log) == [1]


def test_a_retry_of_a_try_that_was_killed_before_it_looked_looks(log: DeltaLog) -> None:
    class NoLook(PassingOn):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            if not prefix:
                raise KilledError
            return super().list(prefix, start_after)

    with pytest.raises(KilledError):
        keep(through(NoLook(log.store), log))
    (file,) = log.live_files(lambda add: True, 1)
    Path(log.table, object_path(file)).unlink()
    with pytest.raises(VacuumRefusedError, match="files are gone"):
        keep(log)


def test_what_is_wrong_is_refused(log: DeltaLog) -> None:
    with pytest.raises(InvalidReadError, match="above 0"):
        keep(log, lasts=timedelta())
    for holder in ("", "run", "lease0", None, 7):
        with pytest.raises(InvalidReadError, match="OneLakeKeepVersionOperator"):
            let_go(log, holder)  # type: ignore[arg-type]
