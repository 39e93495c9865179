"""A thousand schedules of writers, committers, reconciliations and others, on every one of which the rules hold.

More: ``make simulate``. The seeds in ``seeds.txt`` are kept, as each shows a seeded bug.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.log import delta_log
from airflow_provider_onelake.storage.stores import Store
from airflow_provider_onelake.writes import publish
from tests.simulation.runner import simulate
from tests.simulation.schedules import Schedules

T = TypeVar("T")
R = TypeVar("R")

# What must have happened in a thousand schedules, or they prove little.
NOT_VACUOUS = """appends taken back, buffers closed by hand, buffers reused, checkpoints, compactions dropped,
    compactions published, crashes, crashes right after a commit, creations raced, deliberate reruns,
    files deleted by VACUUM, foreign: add again, foreign: compact, foreign: delete, foreign: erase,
    foreign: overwrite, foreign: overwrite all, foreign: overwrite dynamic, foreign: remake, foreign: rename,
    foreign: rename partition, foreign: replace, foreign: restore, foreign: trim, foreign: truncate,
    foreign: update, histories of appends only, lost answers to commits, lost races, late effects,
    log entries cleaned up, mapped lists changed, partitions dropped: an input is gone, replaced, rows got ids,
    runs deleted and made again, declared reads published, declared reads published beside others,
    self-reads published, set aside, staged anew, superseded whole, taking back refused, timestamps judged,
    told: deleted, told: restored_away, told: some rows are there, told: superseded, torn listings,
    writers of a load one after another, writers published, writers set_aside, writers skipped, writers superseded,
    zombies"""

NOT_VACUOUS_IN_NEW_TABLES = """foreign: remake, lost answers to commits,
    new tables made by others, reconciled: nothing_to_do, replaced, staged again for another's new table,
    tables made with rows, writers nothing_to_do"""


@pytest.mark.promise
@pytest.mark.parametrize("seed", Schedules.LOADS.kept)
def test_a_kept_schedule_holds(seed: int) -> None:
    Schedules.LOADS.hold([seed])


@pytest.mark.promise
def test_every_row_is_there_once_in_a_table_that_the_first_of_them_make() -> None:
    # The last shows an append that makes the table and was not known for an append.
    counters = Schedules.NEW_TABLES.hold([*range(19), 217])
    assert counters["tables made with rows"]


@pytest.mark.costs("Two hundred schedules of new tables")
def test_every_row_is_there_once_in_two_hundred_new_tables() -> None:
    counters = Schedules.NEW_TABLES.hold(range(100, 300))
    assert not [name for name in NOT_VACUOUS_IN_NEW_TABLES.split(",") if not counters[name.strip()]]


@pytest.mark.promise
def test_every_row_is_there_once_whatever_happens() -> None:
    Schedules.LOADS.hold(range(100))


@pytest.mark.costs("A thousand schedules")
def test_every_row_is_there_once_in_a_thousand_schedules() -> None:
    counters = Schedules.LOADS.hold(range(1000))
    assert not [name for name in NOT_VACUOUS.split(",") if not counters[name.strip()]]


@contextmanager
def asked_now(store: Store, ask: Callable[[T], R], items: Iterable[T]) -> Iterator[Callable[[T], R]]:
    """What stands in for ``prefetched``: it asks before the caller goes on, where a store of one request asks last."""
    answers: dict[T, R | OneLakeError] = {}
    for item in items:
        try:
            answers[item] = ask(item)
        except OneLakeError as error:
            answers[item] = error

    def answer(item: T) -> R:
        found = answers[item]
        if isinstance(found, OneLakeError):
            raise found
        return found

    # Without items, nothing was asked ahead, and the function is for any item.
    yield answer if answers else ask


@pytest.mark.parametrize(
    "schedules", [pytest.param(range(20), marks=pytest.mark.promise), range(20, 200)], ids=["first", "more"]
)
def test_every_row_is_there_once_where_answers_are_asked_for_ahead(
    monkeypatch: pytest.MonkeyPatch, schedules: range
) -> None:
    # Side by side, an answer is of any time between the first request and the moment in which it is wanted. The tests
    # above try the latest of these times, and this one the earliest.
    for module in (delta_log, publish):
        monkeypatch.setattr(module, "prefetched", asked_now)
    Schedules.LOADS.hold(schedules)


@pytest.mark.promise
def test_a_seed_tells_the_same_history_again() -> None:
    assert str(simulate(7)) == str(simulate(7))
