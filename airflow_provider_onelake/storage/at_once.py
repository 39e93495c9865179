"""Several requests to a store at once, where nothing depends on their order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

_T = TypeVar("_T")
_H = TypeVar("_H", bound=Hashable)
_R = TypeVar("_R")


def each(store: Store, ask: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Yield what a function returns for each item, in the order of the items.

    A store that takes several requests at once is asked by as many threads, ahead of what the caller takes. Any other
    is asked only when the caller takes the next result, as by :func:`map`, so that the order of all requests is the
    order of the code.

    :param store: that the function asks.
    :param ask: called once for each item, for different ones at the same time. Its first error, in the order of the
        items, is raised.
    """
    items = list(items)
    threads = min(store.at_once, len(items))
    if threads < 2:
        yield from map(ask, items)
        return
    with ThreadPoolExecutor(threads, "requests") as pool:
        yield from pool.map(ask, items)


def ahead(store: Store, ask: Callable[[_H], _R], items: Iterable[_H]) -> Callable[[_H], _R]:
    """Begin to ask for each item, and return a function that waits for an item's answer.

    The caller goes on with other requests meanwhile. A store that takes one request at a time is asked only when the
    answer is wanted, so that the order of all requests is the order of the code.

    :param store: that the function asks.
    :param ask: called once for each item, for different ones at the same time. Its error is raised to whoever wants
        that item's answer.
    """
    items = list(items)
    if store.at_once < 2 or not items:
        return ask
    pool = ThreadPoolExecutor(min(store.at_once, len(items)), "requests")
    asked = {item: pool.submit(ask, item) for item in items}
    pool.shutdown(wait=False)
    return lambda item: asked[item].result()
