"""Old dates and times that a file has in another calendar than Arrow takes them for.

Up to version 2.4, Spark counted days before 15 October 1582 by the Julian calendar, and instants before 1900 by what
the clocks of a zone showed. Later versions do so if a session says it
(``spark.sql.parquet.datetimeRebaseModeInWrite=LEGACY``). The footer of such a file tells, and Spark moves the values
when it reads them. Arrow returns them as they are stored: other days, by up to ten and more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_VERSION, _ZONE = b"org.apache.spark.version", b"org.apache.spark.timeZone"
# The key that marks a file, and the first version whose files have the calendar of today without it.
_MARK, _SINCE = b"org.apache.spark.legacyDateTime", b"3.0.0"
_MARK_OF_INT96, _SINCE_OF_INT96 = b"org.apache.spark.legacyINT96", b"3.1.0"
_INT96 = "INT96"

# 15 October 1582 in days, and that day and 1 January 1900 in seconds since 1970. Where a zone's clocks went by the sun,
# they differ until then, if only by minutes.
_SAME_DAYS = -141427
_SAME_IN_UTC, _SAME_IN_ZONES = _SAME_DAYS * 86_400, -2_208_988_800
_UTC = (b"UTC", b"Etc/UTC", b"GMT", b"Z")
_IN_A_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@attrs.frozen
class OldCalendar:
    """Which values of a file are in the calendar of old.

    :param plain: whether dates and instants are, where no more is said.
    :param int96: whether instants of the physical type INT96 are.
    :param instants: in seconds since 1970, before which an instant may be another one.
    """

    plain: bool
    int96: bool
    instants: int

    @classmethod
    def of(cls, footer: pq.FileMetaData) -> OldCalendar | None:
        """Return what a footer says; ``None`` where all values are in the calendar of today."""
        told = footer.metadata or {}
        plain, int96 = _is_old(told, _MARK, _SINCE), _is_old(told, _MARK_OF_INT96, _SINCE_OF_INT96)
        if not plain and not int96:
            return None
        return cls(plain, int96, _SAME_IN_UTC if told.get(_ZONE) in _UTC else _SAME_IN_ZONES)

    def moves(self, column: pa.ChunkedArray, name: str, footer: pq.FileMetaData) -> bool:
        """Say whether Spark may move a value of a column when it reads it.

        :param column: as the file has it, nested or not.
        :param name: of the column in the file.
        """
        leaves = map(footer.schema.column, range(footer.num_columns))
        is_int96 = any(leaf.physical_type == _INT96 for leaf in leaves if f"{leaf.path}.".startswith(f"{name}."))
        return any(self._moves(leaf, is_int96) for chunk in column.chunks for leaf in _leaves(chunk))

    def _moves(self, leaf: pa.Array, is_int96: bool) -> bool:
        import pyarrow as pa

        if pa.types.is_date32(leaf.type):
            return self.plain and _has_less(leaf.cast(pa.int32()), _SAME_DAYS)
        if not pa.types.is_timestamp(leaf.type) or not (self.int96 if is_int96 else self.plain and leaf.type.tz):
            return False
        return _has_less(leaf.cast(pa.int64()), self.instants * _IN_A_SECOND[leaf.type.unit])


def _is_old(told: Mapping[bytes, bytes], mark: bytes, since: bytes) -> bool:
    # Spark compares the versions as texts too.
    return mark in told or told.get(_VERSION, since) < since


def _has_less(numbers: pa.Array, bound: int) -> bool:
    import pyarrow.compute as pc

    least = pc.min(numbers).as_py()
    return least is not None and least < bound


def _leaves(values: pa.Array) -> Iterator[pa.Array]:
    """Yield what a nested column holds, each in an array that is not nested."""
    import pyarrow as pa

    if pa.types.is_struct(values.type):
        for part in values.flatten():
            yield from _leaves(part)
    elif pa.types.is_map(values.type):
        for part in (values.keys, values.items):
            yield from _leaves(pa.ListArray.from_arrays(values.offsets, part).flatten())
    elif pa.types.is_list(values.type):
        yield from _leaves(values.flatten())
    else:
        yield values
