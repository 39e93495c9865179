"""A store on which a commit is rehearsed, so that people see what it would do before it is done."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import ObjectExistsError, ObjectNotFoundError
from airflow_provider_onelake.storage.clock import Clock, SystemClock
from airflow_provider_onelake.storage.stores import ObjectInfo, Part

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store


@attrs.define(eq=False, repr=False)
class Rehearsal:
    """A :class:`~airflow_provider_onelake.storage.stores.Store` that reads another one and never changes it.

    What is put or deleted here is kept in memory, and is seen only by those who read here.

    :param store: that is read.
    :param clock: gives the times of what is put here. Default: the system's.
    """

    _store: Store
    _clock: Clock = attrs.field(factory=SystemClock)
    # Objects that were put here, with what a listing says of them; None for an object that was deleted here.
    _changed: dict[str, tuple[ObjectInfo, bytes] | None] = attrs.field(factory=dict, init=False)
    concurrency: int = attrs.field(
        default=attrs.Factory(lambda self: self._store.concurrency, takes_self=True), init=False
    )

    def get(self, path: str) -> bytes:
        """See :meth:`Store.get`."""
        return self._put_here(path)[1] if path in self._changed else self._store.get(path)

    def get_range(self, path: str, start: int, end: int) -> Part:
        """See :meth:`Store.get_range`."""
        if path not in self._changed:
            return self._store.get_range(path, start, end)
        info, data = self._put_here(path)
        return Part(data[start:end], info.modified.isoformat())

    def head(self, path: str) -> ObjectInfo:
        """See :meth:`Store.head`."""
        return self._put_here(path)[0] if path in self._changed else self._store.head(path)

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Store.create`."""
        try:
            self.head(path)
        except ObjectNotFoundError:
            self.put(path, data)
        else:
            raise ObjectExistsError(f"There is an object at {path} already.")

    def put(self, path: str, data: bytes) -> None:
        """See :meth:`Store.put`."""
        self._changed[path] = ObjectInfo(path, len(data), self._clock.now()), data

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See :meth:`Store.list`."""
        there = {info.path: info for info in self._store.list(prefix, start_after) if info.path not in self._changed}
        below = f"{prefix}/" if prefix else ""
        for path, change in self._changed.items():
            if change is not None and path.startswith(below) and (start_after is None or path > start_after):
                there[path] = change[0]
        yield from (there[path] for path in sorted(there))

    def directories(self, path: str) -> builtins.list[str]:
        """See :meth:`Store.directories`."""
        below = f"{path}/" if path else ""
        names = {info.path.removeprefix(below).partition("/") for info in self.list(path)}
        return sorted({name for name, slash, _ in names if slash})

    def delete(self, path: str) -> None:
        """See :meth:`Store.delete`."""
        self._changed[path] = None

    def _put_here(self, path: str) -> tuple[ObjectInfo, bytes]:
        found = self._changed[path]
        if found is None:
            raise ObjectNotFoundError(f"There is no object at {path}.")
        return found
