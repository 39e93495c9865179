"""Stores that hold, lose or count what passes through them on its way to a real one."""

from __future__ import annotations

import builtins
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from obstore.store import LocalStore

from airflow_provider_onelake.exceptions import AccessDeniedError, ObjectExistsError, StoreUnavailableError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.clock import Clock
from airflow_provider_onelake.storage.stores import ObjectInfo, ObjectStore, Part, Store


class PassingOn:
    """A store that passes every call on to another."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.concurrency = inner.concurrency

    def get(self, path: str) -> bytes:
        return self.inner.get(path)

    def get_range(self, path: str, start: int, end: int) -> Part:
        return self.inner.get_range(path, start, end)

    def head(self, path: str) -> ObjectInfo:
        return self.inner.head(path)

    def create(self, path: str, data: bytes) -> None:
        self.inner.create(path, data)

    def put(self, path: str, data: bytes) -> None:
        self.inner.put(path, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def directories(self, path: str) -> builtins.list[str]:
        return self.inner.directories(path)

    def delete(self, path: str) -> None:
        self.inner.delete(path)


class Broken(PassingOn):
    """A store on the local disk that does some things otherwise."""

    def __init__(self, path: Path, **otherwise: Any) -> None:
        super().__init__(ObjectStore(LocalStore(prefix=path), "the table"))
        self.__dict__.update(otherwise)


def refuse(*_: object, **__: object) -> Any:
    """What a store does that refuses access."""
    raise AccessDeniedError("Access was refused.")


def silent(*_: object, **__: object) -> Any:
    """What a store does that does not answer."""
    raise StoreUnavailableError("No answer.")


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
    """Does not answer the first puts into the table's log."""

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
    """Counts the calls that pass and the bytes read, and remembers which entries of the log were put, with what."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.calls: Counter[str] = Counter()
        self.bytes_read = 0
        self.puts: list[tuple[str, bytes]] = []

    def get(self, path: str) -> bytes:
        self.calls["get"] += 1
        data = super().get(path)
        self.bytes_read += len(data)
        return data

    def get_range(self, path: str, start: int, end: int) -> Part:
        self.calls["get_range"] += 1
        part = super().get_range(path, start, end)
        self.bytes_read += len(part.data)
        return part

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


class InRounds(PassingOn):
    """Takes several requests at once, and answers a round of them only when all of the round are under way.

    So requests are seen to be side by side, or in line, without measuring time. A request that waits for its round in
    vain is answered after some seconds, as a round of its own.

    :param sizes: of the rounds, in order; every later one has one request.
    """

    def __init__(self, inner: Store, *sizes: int, concurrency: int = 64) -> None:
        super().__init__(inner)
        self.concurrency = concurrency
        self.sizes = list(sizes)
        self.rounds: list[list[str]] = []
        self._filling: list[str] = []
        self._changed = threading.Condition()

    def seen(self) -> list[list[str]]:
        """The rounds, each in the order of its requests' names."""
        return [sorted(names) for names in self.rounds]

    @contextmanager
    def _in_its_round(self, name: str) -> Iterator[None]:
        with self._changed:
            joined = self._filling
            joined.append(name)
            if len(joined) >= (self.sizes[0] if self.sizes else 1) or not self._changed.wait_for(
                lambda: self._filling is not joined, timeout=10
            ):
                self._answer(joined)
        yield

    def _answer(self, joined: list[str]) -> None:
        self.rounds.append(joined)
        self.sizes, self._filling = self.sizes[1:], []
        self._changed.notify_all()

    def get(self, path: str) -> bytes:
        with self._in_its_round(f"get {path}"):
            return super().get(path)

    def get_range(self, path: str, start: int, end: int) -> Part:
        with self._in_its_round(f"get a range of {path}"):
            return super().get_range(path, start, end)

    def head(self, path: str) -> ObjectInfo:
        with self._in_its_round(f"head {path}"):
            return super().head(path)

    def create(self, path: str, data: bytes) -> None:
        with self._in_its_round(f"create {path}"):
            super().create(path, data)

    def put(self, path: str, data: bytes) -> None:
        with self._in_its_round(f"put {path}"):
            super().put(path, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        with self._in_its_round(f"list {prefix}"):
            return super().list(prefix, start_after)

    def delete(self, path: str) -> None:
        with self._in_its_round(f"delete {path}"):
            super().delete(path)


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


class KilledError(BaseException):
    """What a killed process meets wherever it would go on."""


def killed(*_: Any, **__: Any) -> Any:
    """What stands in for a call at which a process is killed."""
    raise KilledError


class Killed(PassingOn):
    """Kills its process at a call that writes, before or after it takes effect, and lets it do nothing more."""

    def __init__(self, inner: Store, after: int, *, effect: bool) -> None:
        super().__init__(inner)
        self.left = after
        self.effect = effect

    def create(self, path: str, data: bytes) -> None:
        self._write(lambda: super(Killed, self).create(path, data))

    def put(self, path: str, data: bytes) -> None:
        self._write(lambda: super(Killed, self).put(path, data))

    def delete(self, path: str) -> None:
        self._write(lambda: super(Killed, self).delete(path))

    def _write(self, call: Callable[[], None]) -> None:
        self.left -= 1
        if self.left == -1 and self.effect:
            call()
        if self.left < 0:
            raise KilledError
        call()
