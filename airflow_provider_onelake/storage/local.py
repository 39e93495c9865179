"""Local disk."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import unquote

import attrs

from airflow_provider_onelake.exceptions import AccessDeniedError, AddressError, OneLakeError, StoreFullError
from airflow_provider_onelake.storage.addresses import Spelling, TableAddress, clean, refuse, shown_name
from airflow_provider_onelake.storage.kinds import StoreKind
from airflow_provider_onelake.storage.preflight import SCRATCH
from airflow_provider_onelake.storage.spark import SparkAccess
from airflow_provider_onelake.storage.stores import ObjectStore, Store

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.credentials import Credentials


@attrs.define(slots=False, eq=False, repr=False)
class _Directory(ObjectStore):
    """A directory of this machine, where an object may leave the directory that it was in.

    :param root: the table's or lakehouse's directory.
    """

    root: Path = attrs.field(kw_only=True)

    def delete(self, path: str) -> None:
        """See :meth:`Store.delete`. The directory of the preflight goes with the last object in it."""
        super().delete(path)
        if path.rpartition("/")[0] == SCRATCH:
            with suppress(OSError):  # It is not empty, or gone already.
                (self.root / SCRATCH).rmdir()


class Local(StoreKind):
    """A directory of this machine, or one that is mounted."""

    name = "local"
    title = "local disk"
    schemes = ("", "file")
    forms = ("/a/local/path", "file:///path")
    any_parent = True
    unsafe_log_stores: ClassVar = {
        "LocalLogStore": "two Spark processes claim most versions twice (measured: 2,399 of 2,500)"
    }

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
            raise OneLakeError(f"{root.path} is a file, and no directory. Correct the address.")
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
        return _Directory(LocalStore(prefix=path), str(address), root=path)

    def for_deltalake(self, address: TableAddress, credentials: Credentials | None, patience: float) -> dict[str, str]:
        """No option is needed."""
        return {}

    def for_spark(self, address: TableAddress, credentials: Credentials | None, patience: float) -> SparkAccess:
        """Spark needs nothing."""
        return SparkAccess()
