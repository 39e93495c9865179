"""A lease keeps a version while its holder lives, and no longer."""

from __future__ import annotations

import logging
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_provider_onelake.exceptions import StoreUnavailableError, VacuumRefusedError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.health import examine
from airflow_provider_onelake.maintenance.leases import Lease
from airflow_provider_onelake.maintenance.pinned_versions import (
    DIRECTORY,
    drop_ended_leases,
    oldest_pinned,
    pin_version,
    pinned_versions,
)
from airflow_provider_onelake.maintenance.vacuum import plan
from tests.support.ages import files, grow_old
from tests.support.clocks import HeldClock
from tests.support.stores import PassingOn
from tests.support.tables import foreign_append, foreign_commit

TEN = timedelta(minutes=10)


@pytest.fixture
def clock() -> HeldClock:
    return HeldClock()


@pytest.fixture
def held(log: DeltaLog, clock: HeldClock) -> DeltaLog:
    """A table with a version that a vacuum would take a file of, and with another clock."""
    version = foreign_append(log, {"2019-01": [1]})
    (add,) = log.live_files(lambda _: True, version)
    foreign_commit(log, [{"remove": {"path": add["path"], "deletionTimestamp": 1, "dataChange": True}}])
    grow_old(log)
    return DeltaLog(log.store, log.table, clock)


def records(log: DeltaLog) -> set[str]:
    return files(log, DIRECTORY)


def written(log: DeltaLog) -> float:
    (record,) = records(log)
    return Path(log.table, record).stat().st_mtime


def test_a_vacuum_spares_and_names_a_version_that_is_held_open(held: DeltaLog) -> None:
    assert len(plan(held).candidates) == 1
    lease = Lease.take(held, 1, "taxi.check", TEN)
    todo = plan(held)
    assert (todo.candidates, todo.spared_files) == ((), 1)
    assert str(todo.pinned[0]).startswith("version 1 (held open by taxi.check since 20")
    assert str(todo.pinned[0]).endswith("unless it is renewed)")
    assert "A vacuum spares version 1 (held open by taxi.check" in str(examine(held).findings)
    assert oldest_pinned(held) == 1
    lease.end()
    assert len(plan(held).candidates) == 1
    assert records(held) == set()


def test_it_ends_by_itself_after_its_holder_was_killed(held: DeltaLog, clock: HeldClock) -> None:
    Lease.take(held, 1, "taxi.check", TEN)
    # Clocks differ, so it counts five minutes longer than it says.
    clock.forward(minutes=14)
    assert [pinned.version for pinned in pinned_versions(held)] == [1]
    drop_ended_leases(held)
    assert len(records(held)) == 1
    clock.forward(minutes=2)
    assert (pinned_versions(held), len(plan(held).candidates)) == ([], 1)
    drop_ended_leases(held)
    assert records(held) == set()


def test_what_people_and_tasks_keep_without_a_lease_never_ends(held: DeltaLog, clock: HeldClock) -> None:
    pin_version(held, 1, "people")
    pin_version(held, 1, "taxi.restore", holder="a1")
    clock.forward(days=1000)
    drop_ended_leases(held)
    assert [pinned.by for pinned in pinned_versions(held)] == ["taxi.restore", "people"]
    assert {finding.todo for finding in examine(held).findings if "spares version" in finding.what} == {
        "Release it by release_versions of OneLakeVacuumOperator if nobody needs it any more"
    }


def test_it_is_renewed_when_a_third_of_its_time_is_over(held: DeltaLog, clock: HeldClock) -> None:
    lease = Lease.take(held, 1, "taxi.check", TEN)
    grow_old(held, DIRECTORY, days=1)
    before = written(held)
    clock.forward(minutes=3)
    lease.check()
    assert written(held) == before
    clock.forward(minutes=1)
    lease.check()
    assert written(held) > before
    assert [(pinned.version, pinned.by) for pinned in pinned_versions(held)] == [(1, "taxi.check")]


def test_a_renewal_moves_the_end(held: DeltaLog, clock: HeldClock, caplog: pytest.LogCaptureFixture) -> None:
    lease = Lease.take(held, 1, "taxi.check", TEN)
    for _ in range(3):
        clock.forward(minutes=9)
        lease.check()
    assert "was not renewed in time" not in caplog.text


def test_a_lease_that_was_not_renewed_in_time_is_taken_again_if_the_files_are_there(
    held: DeltaLog, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    lease = Lease.take(held, 1, "taxi.check", TEN)
    grow_old(held, DIRECTORY, days=1)
    clock.forward(minutes=20)
    assert pinned_versions(held) == []
    lease.check()
    assert "the lease on version 1 was not renewed in time" in caplog.text
    assert len(records(held)) == 1
    # By the store's clock it was written now; the holder's goes on from its own now.
    clock.instant -= timedelta(minutes=20)
    assert [pinned.version for pinned in pinned_versions(held)] == [1]


def test_a_vacuum_that_drops_ended_leases_leaves_one_that_is_taken_again_meanwhile(
    held: DeltaLog, clock: HeldClock
) -> None:
    lease = Lease.take(held, 1, "taxi.check", TEN)
    grow_old(held, DIRECTORY, days=1)
    clock.forward(minutes=20)

    class Meanwhile(PassingOn):
        def delete(self, path: str) -> None:
            lease.check()
            super().delete(path)

    drop_ended_leases(DeltaLog(Meanwhile(held.store), held.table, clock))
    assert len(records(held)) == 1
    clock.instant -= timedelta(minutes=20)
    assert [pinned.version for pinned in pinned_versions(held)] == [1]
    clock.instant += timedelta(minutes=20)
    lease.end()
    assert records(held) == set()


def test_a_lease_that_was_not_renewed_in_time_is_lost_where_a_vacuum_took_files(
    held: DeltaLog, clock: HeldClock
) -> None:
    lease = Lease.take(held, 1, "taxi.check", TEN)
    clock.forward(minutes=20)
    (gone,) = plan(held).candidates
    Path(held.table, gone.path).unlink()
    with pytest.raises(VacuumRefusedError, match=r"Version 1 of .* cannot be kept: 1 of its files are gone"):
        lease.check()
    assert records(held) == set()


def test_a_store_that_is_away_ends_no_lease_before_its_time(held: DeltaLog, clock: HeldClock) -> None:
    class Away(PassingOn):
        away = False

        def put(self, path: str, data: bytes) -> None:
            if self.away:
                raise StoreUnavailableError("away")
            super().put(path, data)

        def delete(self, path: str) -> None:
            if self.away:
                raise StoreUnavailableError("away")
            super().delete(path)

    store = Away(held.store)
    lease = Lease.take(DeltaLog(store, held.table, clock), 1, "taxi.check", TEN)
    store.away = True
    clock.forward(minutes=9)
    lease.check()
    clock.forward(minutes=2)
    with pytest.raises(StoreUnavailableError):
        lease.check()


def test_the_newest_version_is_held_without_a_look_at_its_files(held: DeltaLog) -> None:
    listed: list[str] = []

    class Listing(PassingOn):
        def list(self, prefix: str, start_after: str | None = None):  # type: ignore[no-untyped-def]
            listed.append(prefix)
            return super().list(prefix, start_after)

    Lease.take(DeltaLog(Listing(held.store), held.table, held.clock), 2, "taxi.check", TEN)
    assert "" not in listed
    assert [pinned.version for pinned in pinned_versions(held)] == [2]


def test_a_commit_that_comes_while_the_newest_version_is_taken_makes_it_look(held: DeltaLog, clock: HeldClock) -> None:
    """A vacuum that planned after that commit, and before the record was there, may be at work."""

    class Committing(PassingOn):
        def put(self, path: str, data: bytes) -> None:
            version = foreign_append(DeltaLog(self.inner, held.table, clock), {"2019-02": [2]})
            (add,) = DeltaLog(self.inner, held.table).live_files(lambda _: True, version)
            foreign_commit(DeltaLog(self.inner, held.table), [{"remove": {"path": add["path"], "dataChange": True}}])
            super().put(path, data)

    listed: list[str] = []

    class Listing(Committing):
        def list(self, prefix: str, start_after: str | None = None):  # type: ignore[no-untyped-def]
            listed.append(prefix)
            return super().list(prefix, start_after)

    lease = Lease.take(DeltaLog(Listing(held.store), held.table, clock), 2, "taxi.check", TEN)
    assert "" in listed
    assert [pinned.version for pinned in pinned_versions(held)] == [2]
    lease.end()
    assert records(held) == set()


def test_a_lease_that_has_ended_is_not_renewed(log: DeltaLog) -> None:
    lease = Lease.take(log, 0, "taxi.check", TEN)
    lease.end()
    lease.renew()
    lease.end()
    assert records(log) == set()


class Turns:
    """Time that passes when it is asked for, a few times."""

    def __init__(self, clock: HeldClock, minutes: list[float]) -> None:
        self.clock, self.minutes, self.waited = clock, minutes, [0.0]

    def __call__(self, seconds: float) -> bool:
        self.waited.append(seconds)
        if not self.minutes:
            return True
        self.clock.forward(minutes=self.minutes.pop(0))
        return False


def test_a_thread_renews_it_until_it_is_told_to_end(held: DeltaLog, clock: HeldClock) -> None:
    lease = Lease.take(held, 1, "taxi.check", TEN)
    grow_old(held, DIRECTORY, days=1)
    turns = Turns(clock, [3, 3])
    lease.renew_by_thread(turns).join()
    assert turns.waited[1:] == [200.0] * 3
    assert len(pinned_versions(held)) == 1
    lease.end()
    assert records(held) == set()


def test_a_renewal_that_fails_is_told_and_tried_again(
    held: DeltaLog, clock: HeldClock, caplog: pytest.LogCaptureFixture
) -> None:
    class AwayOnce(PassingOn):
        left = 0

        def put(self, path: str, data: bytes) -> None:
            self.left -= 1
            if self.left >= 0:
                raise StoreUnavailableError("away for a moment")
            super().put(path, data)

    store = AwayOnce(held.store)
    lease = Lease.take(DeltaLog(store, held.table, clock), 1, "taxi.check", TEN)
    grow_old(held, DIRECTORY, days=1)
    store.left = 1
    with caplog.at_level(logging.WARNING):
        lease.renew_by_thread(Turns(clock, [3, 3])).join()
    assert "the lease on version 1 was not renewed: away for a moment" in caplog.text
    assert len(pinned_versions(held)) == 1


def test_its_thread_ends_with_it(log: DeltaLog) -> None:
    lease = Lease.take(log, 0, "taxi.check", TEN)
    thread = lease.renew_by_thread()
    assert thread.daemon
    assert thread.is_alive()
    lease.end()
    thread.join()
