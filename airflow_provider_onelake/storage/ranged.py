"""A file over an object of a store that fetches only those ranges of the object that are read."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import TYPE_CHECKING

import attrs

from airflow_provider_onelake.exceptions import StoreRefusedError, StoreUnavailableError

if TYPE_CHECKING:
    from airflow_provider_onelake.storage.stores import Store

TAIL = 1 << 16
"""How much of the file's end the first request fetches, in bytes. Arrow looks for a Parquet footer in as much."""
WINDOW = 4 << 20
"""The longest range that is fetched before it is read, in bytes; so much is held of each place where the file is
read."""
_HOLE = 1 << 17
"""Fetching so many bytes for nothing is cheaper than another request."""


@attrs.define(eq=False)
class _Chunk:
    """A range that is going to be read from its start to its end, at one place or at several.

    :param due: bytes of it that are yet to be read; the others are holes, or were read before.
    :param at: where the held bytes begin.
    """

    start: int
    end: int
    due: int
    at: int = 0
    held: memoryview = attrs.field(default=memoryview(b""), repr=False)


class RangedFile(io.RawIOBase):
    """An object of a store, as a file to read.

    :param path: of the object, relative to the store's root.
    :param size: of the object, as the store told it.
    """

    def __init__(self, store: Store, path: str, size: int) -> None:
        super().__init__()
        self._begin(store, path, size)
        self._end = self._fetch(self._tail, size) if size else memoryview(b"")

    def _begin(self, store: Store, path: str, size: int) -> None:
        self._store, self._path, self._size = store, path, size
        self._position = 0
        self._tag: str | None = None
        self._pieces: list[_Chunk] = []
        self._tail = max(0, size - TAIL)
        self.fetched = 0
        """How many bytes were fetched."""

    def again(self) -> RangedFile:
        """Return another file over the same object, with a position of its own. It does not fetch the end again."""
        other = RangedFile.__new__(RangedFile)
        io.RawIOBase.__init__(other)
        other._begin(self._store, self._path, self._size)
        other._end, other._tag = self._end, self._tag
        return other

    def expect(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Say what is going to be read, so that ranges that lie close together are fetched by one request.

        This changes only how many requests there are: other ranges can be read as well.

        :param ranges: first byte, and byte after the last; each is going to be read once, from its start to its end.
        """
        pieces: list[_Chunk] = []
        for start, end in sorted(ranges):
            if not 0 <= start < end <= self._size:
                continue
            last = pieces[-1] if pieces else None
            if last is not None and 0 <= start - last.end <= _HOLE and end - last.start <= WINDOW:
                last.end = end
                last.due += end - start
            else:
                pieces.append(_Chunk(start, end, end - start))
        self._pieces = pieces

    def read(self, size: int = -1) -> memoryview:
        """Return the next bytes; fewer only at the end of the file.

        :param size: how many; -1 for all that are left.
        """
        start = self._position
        end = self._size if size < 0 else min(self._size, start + size)
        if start >= end:
            return memoryview(b"")
        self._position = end
        if start >= self._tail:
            return self._end[start - self._tail : end - self._tail]
        piece = next((each for each in self._pieces if each.start <= start and end <= each.end), None)
        if piece is None:
            return self._fetch(start, end)
        if not piece.at <= start <= end <= piece.at + len(piece.held):
            piece.held = memoryview(b"")
            whole = piece.end - piece.start <= WINDOW
            piece.at = piece.start if whole else start
            piece.held = self._fetch(piece.at, piece.end if whole else min(piece.end, max(end, start + WINDOW)))
        found = piece.held[start - piece.at : end - piece.at]
        piece.due -= end - start
        if piece.due <= 0:
            self._pieces.remove(piece)
        return found

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See :meth:`io.IOBase.seek`."""
        self._position = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        return self._position

    def tell(self) -> int:
        """See :meth:`io.IOBase.tell`."""
        return self._position

    def readable(self) -> bool:
        """See :meth:`io.IOBase.readable`."""
        return True

    def seekable(self) -> bool:
        """See :meth:`io.IOBase.seekable`."""
        return True

    def _fetch(self, start: int, end: int) -> memoryview:
        try:
            part = self._store.get_range(self._path, start, end)
        except (StoreRefusedError, StoreUnavailableError):
            # Stores answer in many ways where a shorter object has no such range.
            self._check(self._store.head(self._path).size == self._size)
            raise
        self._check(len(part.data) == end - start and part.tag == (self._tag or part.tag))
        self._tag = part.tag
        self.fetched += len(part.data)
        return memoryview(part.data)

    def _check(self, same: bool) -> None:
        if not same:
            raise OSError(f"{self._path} was replaced or cut short while it was read")
