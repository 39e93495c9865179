"""The few operations of an object store that the protocol stands on, and obstore behind them.

Every path is relative to the table's directory, with ``/`` between segments and none in front.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn, Protocol

import attrs

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    ObjectExistsError,
    ObjectNotFoundError,
    StoreFullError,
    StoreUnavailableError,
    UnsupportedStoreError,
)

if TYPE_CHECKING:
    from obstore.store import ObjectStore as ObstoreStore

    from airflow_provider_onelake.storage.addresses import TableAddress


@attrs.frozen
class ObjectInfo:
    """What a listing says of one object.

    :param path: relative to the store's root.
    :param size: in bytes.
    :param modified: the store's own time of the last write, in UTC: one clock for all writers.
    """

    path: str
    size: int
    modified: datetime


class Store(Protocol):
    """An object store rooted at one table's directory."""

    def get(self, path: str) -> bytes:
        """Return an object's content.

        :param path: relative to the root.
        :raises ObjectNotFoundError: there is none.
        :raises StoreUnavailableError: the store did not answer.
        """

    def head(self, path: str) -> ObjectInfo:
        """Return an object's size and time.

        :param path: relative to the root.
        :raises ObjectNotFoundError: there is none.
        :raises StoreUnavailableError: the store did not answer.
        """

    def create(self, path: str, data: bytes) -> None:
        """Put an object only if there is none at its path: exactly one of several callers succeeds.

        :param path: relative to the root.
        :param data: the whole content.
        :raises ObjectExistsError: somebody else's object, or this caller's own whose answer was lost, is there.
        :raises StoreUnavailableError: the outcome is unknown.
        """

    def put(self, path: str, data: bytes) -> None:
        """Put an object, over an existing one too.

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

    def delete(self, path: str) -> None:
        """Remove an object; that there is none is no error.

        :param path: relative to the root.
        :raises StoreUnavailableError: the outcome is unknown.
        """


# What the operating system says through obstore when a disk is full or must not be written.
_NO_ROOM = (errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EFBIG)


class ObjectStore:
    """A :class:`Store` of any kind that obstore speaks to.

    :param store: obstore's own store, rooted at the table's directory.
    :param name: what messages call it.
    """

    def __init__(self, store: ObstoreStore, name: str) -> None:
        self._store = store
        self._name = name

    def get(self, path: str) -> bytes:
        """See :meth:`Store.get`."""
        import obstore

        try:
            return bytes(obstore.get(self._store, path).bytes())
        except Exception as error:
            self._raise(error, path)

    def head(self, path: str) -> ObjectInfo:
        """See :meth:`Store.head`."""
        import obstore

        try:
            meta = obstore.head(self._store, path)
        except Exception as error:
            self._raise(error, path)
        return ObjectInfo(meta["path"], meta["size"], meta["last_modified"])

    def create(self, path: str, data: bytes) -> None:
        """See :meth:`Store.create`."""
        self._put(path, data, create=True)

    def put(self, path: str, data: bytes) -> None:
        """See :meth:`Store.put`."""
        self._put(path, data, create=False)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See :meth:`Store.list`."""
        import obstore

        try:
            found = [
                ObjectInfo(meta["path"], meta["size"], meta["last_modified"])
                for chunk in obstore.list(self._store, prefix, offset=start_after, chunk_size=1000)
                for meta in chunk
            ]
        except Exception as error:
            self._raise(error, prefix)
        # Local disks list in any order; object stores in this one already.
        yield from sorted(found, key=lambda info: info.path)

    def delete(self, path: str) -> None:
        """See :meth:`Store.delete`."""
        import obstore

        try:
            obstore.delete(self._store, path)
        except FileNotFoundError:
            return
        except Exception as error:
            self._raise(error, path)

    def _put(self, path: str, data: bytes, *, create: bool) -> None:
        import obstore

        try:
            obstore.put(self._store, path, data, mode="create" if create else "overwrite", use_multipart=False)
        except Exception as error:
            self._raise(error, path)

    def _raise(self, error: Exception, path: str) -> NoReturn:
        from obstore import exceptions

        where = f"{path} in {self._name}"
        if isinstance(error, FileNotFoundError):
            raise ObjectNotFoundError(f"There is no {where}.") from error
        if isinstance(error, exceptions.AlreadyExistsError):
            raise ObjectExistsError(f"There is {where} already.") from error
        text = str(error)
        if isinstance(error, OSError | exceptions.BaseError) and any(f"os error {n})" in text for n in _NO_ROOM):
            raise StoreFullError(
                f"Cannot write {where}: the disk is full or read-only. Nothing was published; make room or make it "
                f"writable, and clear this task. ({text})"
            ) from error
        if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError | PermissionError) or (
            f"os error {errno.EACCES})" in text or f"os error {errno.EPERM})" in text
        ):
            raise AccessDeniedError(
                f"Access to {where} was refused. Check the rights of the connection. ({text})"
            ) from error
        raise StoreUnavailableError(f"{self._name} did not answer for {path}: {text}") from error


def open_store(address: TableAddress) -> Store:
    """Open the store that holds a table.

    :param address: of the table.
    :returns: a store rooted at the table's directory; a local directory is made if there is none.
    :raises UnsupportedStoreError: this version does not write to that kind of store.
    :raises AddressError: a file stands where the address wants a directory.
    :raises AccessDeniedError: the local directory must not be made.
    :raises StoreFullError: the local directory cannot be made.
    """
    if address.kind != "local":
        raise UnsupportedStoreError(
            f"{address} is on {address.kind}; this version writes to local disk only. Use a path or a file:// address."
        )
    from obstore.store import LocalStore

    path = Path(f"/{address.path.lstrip('/')}")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise AddressError(f"The directory {path} cannot be made: a file is in its way ({error}).") from error
    except PermissionError as error:
        raise AccessDeniedError(f"The directory {path} cannot be made: {error}") from error
    except OSError as error:
        raise StoreFullError(f"The directory {path} cannot be made: {error}") from error
    return ObjectStore(LocalStore(prefix=path), str(address))
