"""Several requests at once: results in order, as many at once as the store takes, and one by one where it takes one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
from obstore.store import MemoryStore

from airflow_provider_onelake.storage.concurrent import map_concurrently, map_in_windows, prefetched, reused_threads
from airflow_provider_onelake.storage.stores import ObjectStore


def taking(at_once: int) -> ObjectStore:
    return ObjectStore(MemoryStore(), "the table", concurrency=at_once)


@pytest.mark.parametrize("at_once", [1, 2, 9])
def test_results_come_in_the_order_of_the_items(at_once: int) -> None:
    assert list(map_concurrently(taking(at_once), lambda item: item * 2, range(50))) == list(range(0, 100, 2))
    assert list(map_concurrently(taking(at_once), lambda item: item, [])) == []


def test_a_store_that_takes_one_request_is_asked_as_results_are_taken() -> None:
    asked: list[int] = []
    results = map_concurrently(taking(1), asked.append, range(3))
    next(results)
    assert asked == [0]
    next(results)
    assert asked == [0, 1]


def test_a_store_that_takes_several_has_as_many_under_way_at_once() -> None:
    together = threading.Barrier(4, timeout=30)
    # Each waits until four are under way: with fewer threads, the barrier would break.
    assert list(map_concurrently(taking(4), lambda _: together.wait() >= 0, range(8))) == [True] * 8


@pytest.mark.parametrize("at_once", [1, 3])
def test_the_first_error_in_the_order_of_the_items_is_raised(at_once: int) -> None:
    def ask(item: int) -> int:
        if item >= 2:
            raise ValueError(item)
        return item

    results = map_concurrently(taking(at_once), ask, range(6))
    assert [next(results), next(results)] == [0, 1]
    with pytest.raises(ValueError, match="2"):
        next(results)


def test_answers_asked_for_ahead_are_begun_before_they_are_wanted() -> None:
    begun = threading.Barrier(4, timeout=30)

    def ask(item: int) -> int:
        begun.wait()
        return item * 2

    with prefetched(taking(4), ask, [1, 2, 3]) as answer:
        begun.wait()
        assert [answer(3), answer(1), answer(2), answer(1)] == [6, 2, 4, 2]


def test_a_store_that_takes_one_request_is_asked_when_the_answer_is_wanted() -> None:
    asked: list[int] = []
    with prefetched(taking(1), asked.append, [1, 2]) as answer:
        assert not asked
        answer(2)
    assert asked == [2]


def test_an_error_is_raised_to_whoever_wants_that_answer() -> None:
    def ask(item: int) -> int:
        if item == 2:
            raise ValueError(item)
        return item

    with prefetched(taking(3), ask, [1, 2]) as answer:
        assert answer(1) == 1
        with pytest.raises(ValueError, match="2"):
            answer(2)
    with prefetched(taking(3), ask, []) as answer:
        assert answer(1) == 1


@pytest.mark.parametrize("keeping", [reused_threads, nullcontext], ids=["kept", "new"])
@pytest.mark.parametrize("failing", [False, True])
def test_when_no_more_answers_are_wanted_nothing_more_is_asked(failing: bool, keeping: Any) -> None:
    two_are_asked, answered = threading.Barrier(3, timeout=30), threading.Event()
    asked: list[int] = []
    at_work: list[threading.Thread] = []
    store = taking(2)

    def ask(item: int) -> None:
        asked.append(item)
        at_work.append(threading.current_thread())
        two_are_asked.wait()
        assert answered.wait(30)

    with keeping(store), suppress(ConnectionError), prefetched(store, ask, range(100)):
        two_are_asked.wait()
        if failing:
            raise ConnectionError
    answered.set()
    # A process joins these threads when it ends.
    for thread in at_work:
        thread.join(30)
    assert sorted(asked) == [0, 1]


def test_threads_are_kept_while_that_is_wanted_and_no_longer() -> None:
    store, together = taking(3), threading.Barrier(3, timeout=30)

    def ask(_: int) -> threading.Thread:
        together.wait()
        return threading.current_thread()

    def asked() -> set[threading.Thread]:
        return set(map_concurrently(store, ask, range(3)))

    with reused_threads(store), reused_threads(store):
        first, second = asked(), asked()
    assert len(first) == 3
    assert first == second
    for thread in first - {threading.current_thread()}:
        thread.join(30)
        assert not thread.is_alive()
    assert asked() & first == {threading.current_thread()}


def test_who_is_asked_for_and_asks_for_several_waits_for_no_thread_that_waits() -> None:
    store = taking(2)

    def ask(item: int) -> list[int]:
        with prefetched(store, int, [item]) as answer:
            return [answer(item), *map_concurrently(store, int, range(3))]

    with reused_threads(store):
        assert list(map_concurrently(store, ask, range(9))) == [[item, 0, 1, 2] for item in range(9)]


def test_threads_of_one_store_ask_no_other() -> None:
    one, other = taking(2), taking(2)
    with reused_threads(one):
        kept = set(map_concurrently(one, lambda _: threading.current_thread(), range(9)))
        assert kept.isdisjoint(map_concurrently(other, lambda _: threading.current_thread(), range(9)))


def test_what_is_heavy_is_not_asked_for_ahead() -> None:
    taken: list[int] = []

    def items() -> Iterator[int]:
        for item in (6, 6, 20, 1, 1):
            taken.append(item)
            yield item

    found = map_in_windows(taking(8), str, items(), 8, lambda item: item, 10)
    assert (next(found), taken) == ("6", [6, 6])
    assert (next(found), taken) == ("6", [6, 6, 20])
    assert (next(found), taken) == ("20", [6, 6, 20, 1])
    assert list(found) == ["1", "1"]
