"""The few operations of an object store that the protocol needs, implemented by obstore.

Every path is relative to the table's directory, with ``/`` between segments and none in front.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import attrs
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from airflow_provider_onelake.exceptions import (
    ObjectExistsError,
    ObjectNotFoundError,
    OneLakeError,
    StoreUnavailableError,
)
from airflow_provider_onelake.storage.errors import as_store_error

if TYPE_CHECKING:
    from obstore import ObjectMeta
    from obstore.store import ClientConfig, RetryConfig
    from obstore.store import ObjectStore as ObstoreStore

    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.credentials import Credentials
    from airflow_provider_onelake.storage.errors import Doing


@attrs.frozen
class ObjectInfo:
    """What a store says of one object.

    :param path: relative to the store's root.
    :param size: the object's size in bytes.
    :param modified: the store's own time of the last write, in UTC: one clock for all writers. It is the same whether
        the object was listed or asked for alone.
    :param listed: the same time as it was told. A store over the network may tell fractions of a second in a listing
        only. Default: ``modified``.
    """

    path: str
    size: int
    modified: datetime
    listed: datetime = attrs.field(default=attrs.Factory(lambda self: self.modified, takes_self=True), eq=False)


@attrs.frozen
class Part:
    """A range of an object's bytes.

    :param tag: changes when the object is replaced. Parts with different tags are not parts of one object.
    """

    data: bytes = attrs.field(repr=False)
    tag: str


class Store(Protocol):
    """An object store rooted at one table's directory."""

    concurrency: int
    """How many requests may be under way at the same time, where nothing depends on their order."""

    def get(self, path: str) -> bytes:
        """Return an object's content.

        :param path: relative to the root.
        :raises ObjectNotFoundError: there is no object at the path.
        :raises StoreUnavailableError: the store did not answer.
        """

    def get_range(self, path: str, start: int, end: int) -> Part:
        """Return a range of an object's bytes.

        :param path: relative to the root.
        :param start: of the first byte; inside of the object.
        :param end: of the byte after the last. If the object ends before it, the part is shorter.
        :raises ObjectNotFoundError: there is no object at the path.
        :raises StoreUnavailableError: the store did not answer.
        """

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time.

        :param path: relative to the root.
        :raises ObjectNotFoundError: there is no object at the path.
        :raises StoreUnavailableError: the store did not answer.
        """

    def create(self, path: str, data: bytes) -> None:
        """Put an object only if there is none at its path: exactly one of several callers succeeds.

        :param path: relative to the root.
        :param data: the whole content.
        :raises ObjectExistsError: an object is there already: another writer's, or this caller's from an earlier call.
        :raises StoreUnavailableError: the outcome is unknown.
        """

    def put(self, path: str, data: bytes) -> None:
        """Put an object; replace an existing one.

        :param path: relative to the root.
        :param data: the whole content.
        :raises StoreUnavailableError: the outcome is unknown.
        """

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Yield the objects below a directory, in the order of their paths.

        :param prefix: a directory, without the slash at its end.
        :param start_after: leave out this path and all that sort before it.
        :raises StoreUnavailableError: the store did not answer.
        """

    def directories(self, path: str) -> builtins.list[str]:
        """Return the names of the directories directly in a directory, in order; none where there is no directory.

        :param path: of the directory, without the slash at its end; empty for the root.
        :raises StoreUnavailableError: the store did not answer.
        """

    def delete(self, path: str) -> None:
        """Remove an object; it is no error if there is none.

        :param path: relative to the root.
        :raises StoreUnavailableError: the outcome is unknown.
        """


@runtime_checkable
class Syncing(Protocol):
    """A store that may lose what others have written, such as Spark, in a power cut: a local disk."""

    def sync(self, paths: Iterable[str]) -> None:
        """Have objects, and their names, on the disk itself; those that are not there are left out.

        :param paths: relative to the root.
        :raises OneLakeError: the disk failed.
        """


PATIENCE = 150.0
"""Seconds for which a request that gets no answer is tried again, unless a connection says otherwise. An outage of two
minutes does no harm."""

_AT_ONCE = 64
"""How many requests a store over the network takes at once: its answers are far away, and it serves many callers."""

# For requests that obstore does not repeat by itself: the upper bounds, in seconds, of the first wait and of any wait.
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0

SILENCE = 20.0
"""Seconds without any data after which a request counts as unanswered."""

_MOST_TRIES = 10_000


def tries(patience: float) -> Retrying:
    """Return the tries of one request that the store may not answer, with longer and longer waits between them.

    :param patience: seconds from now after which there are no more tries.
    """
    return Retrying(
        retry=retry_if_exception_type(StoreUnavailableError),
        stop=stop_after_delay(patience),
        wait=wait_random_exponential(_FIRST_WAIT, _LONGEST_WAIT),
        reraise=True,
    )


def client_options(*, allow_http: bool) -> ClientConfig:
    """Return how obstore's requests are made.

    :param allow_http: whether they may go without TLS.
    """
    # The request for a large object may take long in total, but it must never be silent for long.
    return {
        "allow_http": allow_http,
        "connect_timeout": timedelta(seconds=5),
        "read_timeout": timedelta(seconds=SILENCE),
        "timeout": timedelta(seconds=120),
    }


def deltalake_retries(patience: float) -> dict[str, str]:
    """Return deltalake's options for requests that get no answer.

    :param patience: seconds for which a request is tried again.
    """
    return {
        "max_retries": str(_MOST_TRIES),
        "retry_timeout": f"{round(1000 * patience)}ms",
        "timeout": "120s",
        "connect_timeout": "5s",
    }


@attrs.define(slots=False, eq=False, repr=False)
class ObjectStore:
    """A :class:`Store` of any kind that obstore speaks to.

    :param store: obstore's own store, rooted at the table's directory.
    :param name: what messages call it.
    :param creating: obstore's store for create-only puts, which must not try again by itself. Default: ``store``.
    :param patience: seconds during which a create-only put whose outcome is unknown is tried again. Default: 0.
    :param deleting: deletes an object, for a store that refuses obstore's way to delete. Default: obstore deletes.
    :param concurrency: how many requests may be under way at the same time. Default: 1, as a local disk answers soon.
    :param over_http: whether the store is asked over HTTP: it lists objects in the order of their paths, and tells of
        one object's time whole seconds. Default: no, as a local disk.
    """

    _store: ObstoreStore
    _name: str
    _creating: ObstoreStore = attrs.field(default=attrs.Factory(lambda self: self._store, takes_self=True))
    _patience: float = 0.0
    _deleting: Callable[[str], None] | None = None
    concurrency: int = 1
    _over_http: bool = False

    @classmethod
    def remote(
        cls,
        opened: Callable[[RetryConfig], ObstoreStore],
        name: str,
        patience: float,
        deleting: Callable[[str], None] | None = None,
    ) -> ObjectStore:
        """Make a store that is reached over the network.

        :param opened: returns obstore's store that repeats requests as it is told.
        :param name: what messages call it.
        :param patience: seconds for which a request that gets no answer is tried again.
        :param deleting: as above.
        """
        # obstore tries again after 5xx, 429 and a refused or dropped connection. After a time-out, it repeats only
        # requests that are safe to repeat.
        again: RetryConfig = {
            "max_retries": _MOST_TRIES,
            "retry_timeout": timedelta(seconds=patience),
            "backoff": {"init_backoff": timedelta(seconds=0.1), "max_backoff": timedelta(seconds=5), "base": 2},
        }
        # For create-only puts, obstore must not retry by itself: a repeated put would meet its own object, and we could
        # not tell that from a lost race.
        return cls(opened(again), name, opened({"max_retries": 0}), patience, deleting, _AT_ONCE, over_http=True)

    def get(self, path: str) -> bytes:
        """See :meth:`Store.get`."""
        with self._explaining(path):
            return bytes(self._store.get(path).bytes())

    def get_range(self, path: str, start: int, end: int) -> Part:
        """See :meth:`Store.get_range`."""
        with self._explaining(path):
            # obstore's get_range returns no tag.
            found = self._store.get(path, options={"range": (start, end)})
            return Part(bytes(found.bytes()), found.meta["e_tag"] or found.meta["last_modified"].isoformat())

    def head(self, path: str) -> ObjectInfo:
        """See :meth:`Store.head`."""
        with self._explaining(path):
            return self._info(self._store.head(path))

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Store.create`.

        If the answer is lost, the put is tried again, still create-only, so it takes effect at most once. If the second
        try meets an object with the same bytes, the first try is taken to have succeeded. A caller that must know who
        put the object needs unique bytes, as every commit has (protocol: create-only).
        """
        for attempt in tries(self._patience):
            with attempt:
                try:
                    with self._explaining(path, "write"):
                        self._put_new(path, data)
                except ObjectExistsError:
                    if attempt.retry_state.attempt_number == 1 or not self._has(path, data):
                        raise

    def put(self, path: str, data: bytes) -> None:
        """See :meth:`Store.put`."""
        with self._explaining(path, "write"):
            self._replace(path, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See :meth:`Store.list`."""
        with self._explaining(prefix, "list"):
            chunks = self._store.list(prefix, offset=start_after, chunk_size=1000)
            found = (self._info(meta) for chunk in chunks for meta in chunk)
            # A caller who takes the first objects only must not pay for all of them, so pages are asked for as they are
            # taken. A disk lists in any order, so all of it must be known first.
            yield from found if self._over_http else sorted(found, key=lambda info: info.path)

    def directories(self, path: str) -> builtins.list[str]:
        """See :meth:`Store.directories`."""
        with self._explaining(path, "list"):
            found = self._store.list_with_delimiter(path or None)["common_prefixes"]
        return sorted(name.rstrip("/").rpartition("/")[2] for name in found)

    def delete(self, path: str) -> None:
        """See :meth:`Store.delete`."""
        if self._deleting is not None:
            self._deleting(path)
            return
        with self._explaining(path, "delete"), suppress(FileNotFoundError):
            self._store.delete(path)

    def _put_new(self, path: str, data: bytes) -> None:
        self._creating.put(path, data, mode="create", use_multipart=False)

    def _replace(self, path: str, data: bytes) -> None:
        self._store.put(path, data, mode="overwrite", use_multipart=False)

    def _has(self, path: str, data: bytes) -> bool:
        try:
            return self.get(path) == data
        except ObjectNotFoundError:
            return False

    def _info(self, meta: ObjectMeta) -> ObjectInfo:
        listed = meta["last_modified"]
        return ObjectInfo(
            meta["path"], meta["size"], listed.replace(microsecond=0) if self._over_http else listed, listed
        )

    @contextmanager
    def _explaining(self, path: str, doing: Doing = "read") -> Iterator[None]:
        """Raise obstore's errors as this package's."""
        try:
            yield
        except OneLakeError:
            raise
        except Exception as error:
            raise as_store_error(error, path, self._name, doing) from error


def open_store(address: TableAddress, credentials: Credentials | None = None, patience: float | None = None) -> Store:
    """Open the store that holds a table.

    A request that gets a busy answer (429, 503) or none is tried again, with growing waits, for ``patience`` seconds. A
    try that is running when they end is the last one, and may take twenty seconds more.

    :param credentials: for the same kind of store. Default: what the environment of this process offers.
    :param patience: seconds for which a request that gets no answer is tried again. Default: :data:`PATIENCE`.
    :returns: a store rooted at the table's directory; a local directory is made if there is none.
    :raises CredentialsError: the credentials are for another kind of store, or need an extra that is not installed.
    :raises AddressError: a file stands where the address names a directory.
    :raises AccessDeniedError: this process has no right to make the local directory.
    :raises StoreFullError: the local directory cannot be made for another reason, such as a full disk.
    """
    return address.kind.open(address, credentials, PATIENCE if patience is None else patience)


def deltalake_options(
    address: TableAddress, credentials: Credentials | None = None, patience: float | None = None
) -> dict[str, str]:
    """Return deltalake's storage options. They hold a key or token that will expire: call this for every table opened.

    :param credentials: for the same kind of store. Default: what the environment of this process offers.
    :param patience: see :func:`open_store`.
    :raises CredentialsError: as for :func:`open_store`.
    :raises SignInError: the credentials yielded no token.
    """
    return address.kind.for_deltalake(address, credentials, PATIENCE if patience is None else patience)
