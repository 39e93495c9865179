"""Locks on paths: two operations wait for each other only if one path is the other, or lies below it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class PathLocks:
    """The paths that are being changed. All paths of one operation are taken together, so none waits for another."""

    def __init__(self) -> None:
        self._turn = threading.Condition()
        self._held: list[tuple[str, ...]] = []

    @contextmanager
    def hold(self, *paths: str) -> Iterator[None]:
        """Wait until nobody changes these paths, anything above or anything below, and keep others from it."""
        with self._turn:
            self._turn.wait_for(lambda: not any(_meet(one, other) for one in paths for other in self._all()))
            self._held.append(paths)
        try:
            yield
        finally:
            with self._turn:
                self._held.remove(paths)
                self._turn.notify_all()

    def _all(self) -> Iterator[str]:
        for paths in self._held:
            yield from paths


def _meet(one: str, other: str) -> bool:
    return one == other or one.startswith(f"{other}/") or other.startswith(f"{one}/")
