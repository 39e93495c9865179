"""Several requests to a store at once, where nothing depends on their order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)
_R = TypeVar("_R")

_REUSED = threading.local()


@contextmanager
def reused_threads(store: Store) -> Iterator[None]:
    """Keep the threads that ask a store from one use by the calling thread to the next, until the end.

    Starting a thread costs about as much as a request, and a commit that loses races asks a store many times.

    :param store: that is asked.
    """
    if store.concurrency < 2 or _reused_pool(store) is not None:
        yield
        return
    pool = ThreadPoolExecutor(store.concurrency, "requests")
    _REUSED.store, _REUSED.pool = store, pool
    try:
        yield
    finally:
        _REUSED.store = _REUSED.pool = None
        pool.shutdown(wait=False, cancel_futures=True)


def _reused_pool(store: Store) -> ThreadPoolExecutor | None:
    return _REUSED.pool if getattr(_REUSED, "store", None) is store else None


def map_concurrently(store: Store, ask: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Yield what a function returns for each item, in the order of the items.

    A store that takes several requests at once is asked by as many threads, ahead of what the caller takes. Any other
    is asked only when the caller takes the next result, as by :func:`map`, so that the order of all requests is the
    order of the code.

    :param store: that the function asks.
    :param ask: called once for each item, for different ones at the same time. Its first error, in the order of the
        items, is raised.
    """
    items = list(items)
    threads = min(store.concurrency, len(items))
    if threads < 2:
        yield from map(ask, items)
        return
    # The caller would only wait, so it asks for the first one itself if it can: of two requests, one needs a thread.
    mine = int(threads == len(items))
    reused = _reused_pool(store)
    pool = reused or ThreadPoolExecutor(threads - mine, "requests")
    try:
        others = pool.map(ask, items[mine:])
        yield from map(ask, items[:mine])
        yield from others
    finally:
        if reused is None:
            pool.shutdown(cancel_futures=True)


def map_in_windows(
    store: Store,
    ask: Callable[[_T], _R],
    items: Iterable[_T],
    most: int,
    weight: Callable[[_T], int] = lambda item: 0,
    heaviest: int = 0,
) -> Iterator[_R]:
    """Yield what a function returns for each item, in the order of the items, and never be far ahead of the caller.

    It is for results that are large: of a store that takes several requests at once, at most so many results are under
    way or wait to be taken. Items are taken as they are needed.

    :param store: that the function asks.
    :param ask: called once for each item, for different ones at the same time.
    :param most: how many items to be ahead.
    :param weight: returns what an item weighs, such as its bytes. Default: nothing.
    :param heaviest: what all items that are under way or wait may weigh together. One item may weigh more by itself.
    """
    most = min(store.concurrency, most)
    if most < 2:
        yield from map(ask, items)
        return
    pool = ThreadPoolExecutor(most, "requests")
    waiting: deque[tuple[Future[_R], int]] = deque()
    try:
        for item in items:
            heavy = weight(item)
            while waiting and sum(each for _, each in waiting) + heavy > heaviest:
                yield waiting.popleft()[0].result()
            waiting.append((pool.submit(ask, item), heavy))
            if len(waiting) >= most:
                yield waiting.popleft()[0].result()
        while waiting:
            yield waiting.popleft()[0].result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


@contextmanager
def prefetched(store: Store, ask: Callable[[_H], _R], items: Iterable[_H]) -> Iterator[Callable[[_H], _R]]:
    """Begin to ask for each item, and give a function that waits for an item's answer.

    The caller goes on with other requests meanwhile. A store that takes one request at a time is asked only when the
    answer is wanted, so that the order of all requests is the order of the code.

    What has not been asked at the end is not asked any more: else a process that wants no more answers could not end
    before it has them all.

    :param store: that the function asks.
    :param ask: called once for each item, for different ones at the same time. Its error is raised to whoever wants
        that item's answer.
    """
    items = list(items)
    if store.concurrency < 2 or not items:
        yield ask
        return
    reused = _reused_pool(store)
    pool = reused or ThreadPoolExecutor(min(store.concurrency, len(items)), "requests")
    asked: dict[_H, Future[_R]] = {}
    try:
        for item in items:
            asked[item] = pool.submit(ask, item)
        yield lambda item: asked[item].result()
    finally:
        for each in asked.values():
            each.cancel()
        if reused is None:
            pool.shutdown(wait=False)
