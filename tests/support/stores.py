"""Stores that hold, lose or count what passes through them on its way to a real one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from airflow_provider_onelake.exceptions import ObjectExistsError, StoreUnavailableError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.clock import Clock
from airflow_provider_onelake.storage.stores import ObjectInfo, Store


class PassingOn:
    """A store that passes every call on to another."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def get(self, path: str) -> bytes:
        return self.inner.get(path)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        return self.inner.get_range(path, start, end)

    def head(self, path: str) -> ObjectInfo:
        return self.inner.head(path)

    def create(self, path: str, data: bytes) -> None:
        self.inner.create(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.inner.put(path, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def delete(self, path: str) -> None:
        self.inner.delete(path)


class LoserHeld(PassingOn):
    """Holds each put into the table's log until the next winner has committed, as long as there are winners.

    Counts the puts that the real store refused.
    """

    def __init__(self, inner: Store, *winners: Callable[[], object]) -> None:
        super().__init__(inner)
        self.winners = list(winners)
        self.refused = 0

    def create(self, path: str, data: bytes) -> None:
        ours = path.startswith(f"{LOG_DIRECTORY}/")
        if ours and self.winners:
            self.winners.pop(0)()
        try:
            super().create(path, data)
        except ObjectExistsError:
            self.refused += ours
            raise


class AnswerLost(PassingOn):
    """Does not answer the first puts into the table's log.

    :param times: how many of them.
    :param effect: whether they take effect all the same.
    """

    def __init__(self, inner: Store, times: int = 1, *, effect: bool) -> None:
        super().__init__(inner)
        self.times = times
        self.effect = effect

    def create(self, path: str, data: bytes) -> None:
        if not path.startswith(f"{LOG_DIRECTORY}/") or not self.times:
            return super().create(path, data)
        self.times -= 1
        if self.effect:
            super().create(path, data)
        raise StoreUnavailableError(f"no answer for {path}")


class Counted(PassingOn):
    """Counts the calls that pass, and remembers which entries of the table's log were put, with what."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.puts: list[tuple[str, bytes]] = []

    def get(self, path: str) -> bytes:
        self.calls["get"] += 1
        return super().get(path)

    def get_range(self, path: str, start: int, end: int) -> bytes:
        self.calls["get_range"] += 1
        return super().get_range(path, start, end)

    def head(self, path: str) -> ObjectInfo:
        self.calls["head"] += 1
        return super().head(path)

    def create(self, path: str, data: bytes) -> None:
        self.calls["create"] += 1
        if path.startswith(f"{LOG_DIRECTORY}/"):
            self.puts.append((path, data))
        super().create(path, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self.calls["list"] += 1
        return super().list(prefix, start_after)


class Unlisted(PassingOn):
    """Leaves a path out of its listings, as a disk may that is listed while the object is being put."""

    def __init__(self, inner: Store, path: str) -> None:
        super().__init__(inner)
        self.path = path

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return (info for info in super().list(prefix, start_after) if info.path != self.path)


class OffsetBlind(PassingOn):
    """Lists nothing from an offset, as OneLake has done by names."""

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return iter(()) if start_after is not None else super().list(prefix)


def through(store: Store, log: DeltaLog, clock: Clock | None = None) -> DeltaLog:
    """Another process's view of a table, through another store."""
    return DeltaLog(store, log.table, clock or log.clock)
