"""Local disk."""

from __future__ import annotations

import errno
import os
import re
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import (
    AccessDeniedError,
    AddressError,
    ObjectExistsError,
    OneLakeError,
    StoreFullError,
    StoreRefusedError,
    UnsafeStoreError,
)
from airflow_provider_onelake.storage.addresses import (
    STAGED_DIRECTORY,
    Spelling,
    TableAddress,
    clean,
    refuse,
    shown_name,
)
from airflow_provider_onelake.storage.credentials import Credentials, credentials_for
from airflow_provider_onelake.storage.kinds import StoreKind
from airflow_provider_onelake.storage.preflight import SCRATCH
from airflow_provider_onelake.storage.spark import SparkAccess
from airflow_provider_onelake.storage.stores import ObjectStore, Store

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.credentials import Fields


_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
# What some mounts say of fsync on a directory; they have no such call.
_NO_SYNC = (errno.EINVAL, errno.EBADF, errno.ENOTSUP, errno.ENOSYS)

# What mounts say of a hard link that they cannot make. The draft is ours, so it is no missing right.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)


@attrs.frozen(kw_only=True)
class LocalDisk(Credentials):
    """How a local disk is written to, which needs no sign-in.

    :param fsync: whether what is put is on the disk itself when the put returns, so that it survives a power cut.
    """

    fsync: bool = True


@attrs.define(slots=False, eq=False, repr=False)
class LocalDirectory(ObjectStore):
    """A directory of this machine.

    obstore leaves objects in the operating system's memory, from where a power cut takes the content of a file whose
    name is on the disk already.

    :param root: the table's or lakehouse's directory.
    """

    root: Path = attrs.field(kw_only=True)

    def delete(self, path: str) -> None:
        """See :meth:`Store.delete`. The directory of the preflight goes with the last object in it."""
        super().delete(path)
        if path.rpartition("/")[0] == SCRATCH:
            with suppress(OSError):  # It is not empty, or gone already.
                (self.root / SCRATCH).rmdir()


@attrs.define(slots=False, eq=False, repr=False)
class SyncedDirectory(LocalDirectory):
    """A directory of this machine, whose objects are on the disk itself when a put returns.

    So puts are made here: the content is written and synced under another name before it gets its own, and then the
    directory is synced.
    """

    _known: set[Path] = attrs.field(factory=set, init=False)

    def sync(self, paths: Iterable[str]) -> None:
        """See :meth:`Syncing.sync`."""
        files = [self.root / path for path in paths]
        for path in files:
            with self._explaining(str(path), "write"), suppress(FileNotFoundError, NotADirectoryError):
                self._sync(path)
        for path in sorted({file.parent for file in files}):
            with self._explaining(str(path), "write"), suppress(FileNotFoundError, NotADirectoryError):
                self._sync_directory(path)

    def _put_new(self, path: str, data: bytes) -> None:
        with self._written(path, data) as (draft, file):
            try:
                os.link(draft, file)
            except FileExistsError as error:
                if not file.is_file():
                    raise StoreRefusedError(
                        f"There is no file at {path} in {self._name}, where one is to be, but a directory or a broken "
                        "link. Nothing was changed: delete it, and clear this task."
                    ) from error
                raise ObjectExistsError(f"There is {path} in {self._name} already.") from error
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
                raise UnsafeStoreError(
                    f"There are no hard links on the mount of {self._name}, and nothing is put create-only without, so "
                    "that two writers could overwrite each other's commits. Nothing was written: use another mount or "
                    f"store. ({error})"
                ) from error

    def _replace(self, path: str, data: bytes) -> None:
        with self._written(path, data) as (draft, file):
            draft.replace(file)

    @contextmanager
    def _written(self, path: str, data: bytes) -> Iterator[tuple[Path, Path]]:
        """Write an object's content under another name; after the block gave it its own, sync the directory."""
        if any(name in ("", ".", "..") or _CONTROL.search(name) for name in path.split("/")):
            raise StoreRefusedError(f"{path!r} can be no object of {self._name}. Nothing was done.")
        file = self.root / path
        # obstore's listings leave out such a name, which ends in # and digits: that of a put of obstore's own.
        draft = file.with_name(f"{file.name}#{uuid.uuid4().int}")
        try:
            with _opened_new(draft) as content:
                content.write(data)
                content.flush()
                os.fsync(content.fileno())
            yield draft, file
        finally:
            draft.unlink(missing_ok=True)
        self._sync_directory(file.parent)

    def _sync_directory(self, directory: Path) -> None:
        """Sync a directory, and once also those above it, which may be new: up to the one that the root is in."""
        self._sync(directory)
        if directory not in self._known and directory.is_relative_to(self.root):
            self._known.add(directory)
            if directory == self.root:
                self._sync(directory.parent)
            else:
                self._sync_directory(directory.parent)

    def _sync(self, path: Path) -> None:
        """Have a file that others wrote, or the names in a directory, on the disk itself."""
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except PermissionError:
            # It is another user's, so it cannot be synced alone.
            os.sync()
            return
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in _NO_SYNC:
                raise
        finally:
            os.close(descriptor)


def _opened_new(path: Path) -> BinaryIO:
    """Open a new file to write; make its directory where there is none, again if somebody deletes it meanwhile."""
    while True:
        try:
            return path.open("xb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)


class Local(StoreKind):
    """A directory of this machine, or one that is mounted."""

    name = "local"
    schemes = ("", "file")
    forms = ("/a/local/path", "file:///path")
    any_parent = True

    def parse(self, spelled: Spelling) -> TableAddress:
        """See :meth:`StoreKind.parse`."""
        text, path = spelled.text, spelled.path
        if spelled.scheme:
            if spelled.authority not in ("", "localhost"):
                host = shown_name(spelled.authority)
                refuse(text, f"it names the host {host}", "a local path is written file:///path")
            if not path.startswith("/"):
                refuse(text, "it is relative", "a local path is written file:///path")
            path = unquote(path)
        return TableAddress(self, f"/{clean(text, path[1:])}")

    def check_inside(self, text: str, address: TableAddress, root: TableAddress) -> None:
        """Refuse a symbolic link that leads out of the lakehouse."""
        real, base = os.path.realpath(address.path), os.path.realpath(root.path)
        if os.path.commonpath([real, base]) != base or real == base:
            refuse(text, f"a symbolic link leads to {real}, a path outside the lakehouse {base}", "remove the link")

    def check_is_there(self, root: TableAddress, *, to_write: bool = False) -> None:
        """See :meth:`StoreKind.check_is_there`."""
        path = Path(root.path)
        if path.is_dir():
            return
        if path.exists():
            raise OneLakeError(f"There is a file, and no directory, at {root.path}. Correct the address.")
        todo = "Make it, or correct the address" if to_write else "Correct the address"
        raise OneLakeError(f"There is no directory {root.path}. {todo}.")

    def spark_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.spark_uri`."""
        return f"file://{address.path}"

    def manifest_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.manifest_uri`."""
        # As Delta's own GENERATE spells it.
        return f"file:{address.path}"

    def deltalake_uri(self, address: TableAddress) -> str:
        """See :meth:`StoreKind.deltalake_uri`."""
        return address.path

    def asset_address(self, path: str) -> str:
        """See :meth:`StoreKind.asset_address`."""
        return path

    def credentials_of(self, fields: Fields) -> LocalDisk | None:
        """See :meth:`StoreKind.credentials_of`. There is something to say only where nothing is to be synced."""
        return None if fields.filled(flags=["fsync"]).get("fsync", True) else LocalDisk(fsync=False)

    def open(self, address: TableAddress, credentials: Credentials | None, patience: float) -> Store:
        """Make the directory if there is none."""
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
        for name in ("_delta_log", STAGED_DIRECTORY):
            if (path / name).is_symlink():
                raise AddressError(
                    f"There is a symbolic link at {path}/{name}, so what is written there would go elsewhere. Nothing "
                    "was done: put the directory itself there, or give the address of the table that the link leads to."
                )
        fsync = credentials_for(address, credentials, LocalDisk).fsync
        kind = SyncedDirectory if fsync else LocalDirectory
        return kind(LocalStore(prefix=path), str(address), root=path)

    def for_deltalake(self, address: TableAddress, credentials: Credentials | None, patience: float) -> dict[str, str]:
        """No option is needed."""
        return {}

    def for_spark(self, address: TableAddress, credentials: Credentials | None, patience: float) -> SparkAccess:
        """Spark needs nothing."""
        return SparkAccess()
