"""A store behind which nothing can be written, such as one that OneLake only reads through a shortcut."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import ShortcutError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider_onelake.storage.stores import ObjectInfo, Part, Store


@attrs.define(slots=False, eq=False)
class ReadOnly:
    """A store behind which nothing can be written.

    :param inner: the store.
    :param why: what to say to who writes.
    """

    inner: Store
    why: str

    @property
    def at_once(self) -> int:
        """See :attr:`Store.at_once`."""
        return self.inner.at_once

    @at_once.setter
    def at_once(self, value: int) -> None:
        self.inner.at_once = value

    def get(self, path: str) -> bytes:
        """See :meth:`Store.get`."""
        return self.inner.get(path)

    def get_range(self, path: str, start: int, end: int) -> Part:
        """See :meth:`Store.get_range`."""
        return self.inner.get_range(path, start, end)

    def head(self, path: str) -> ObjectInfo:
        """See :meth:`Store.head`."""
        return self.inner.head(path)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """See :meth:`Store.list`."""
        return self.inner.list(prefix, start_after)

    def directories(self, path: str) -> builtins.list[str]:
        """See :meth:`Store.directories`."""
        return self.inner.directories(path)

    def create(self, path: str, data: bytes) -> None:
        """Refuse.

        :raises ShortcutError: always.
        """
        raise ShortcutError(self.why)

    def put(self, path: str, data: bytes) -> None:
        """Refuse.

        :raises ShortcutError: always.
        """
        raise ShortcutError(self.why)

    def delete(self, path: str) -> None:
        """Refuse.

        :raises ShortcutError: always.
        """
        raise ShortcutError(self.why)
