"""Which files of a table may hold a row with one of the keys of the source of a MERGE, as far as statistics tell.

A file that cannot hold one is neither shown to Spark nor looked at when it comes or goes. So in doubt a file may.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

import attrs

from airflow_provider_onelake.log.actions import Add
from airflow_provider_onelake.log.bounds import bounds_of
from airflow_provider_onelake.log.partitions import compared_as
from airflow_provider_onelake.log.schema import Column, columns
from airflow_provider_onelake.log.types import INTEGERS, name_of

if TYPE_CHECKING:
    from airflow_provider_onelake.buffers.buffer import Buffer
    from airflow_provider_onelake.log.snapshot import Snapshot


@attrs.frozen
class _Key:
    """A key column with the least and the greatest value that the source has in it.

    :param column: of the table, whose name statistics know.
    """

    column: Column
    least: Any
    greatest: Any


@attrs.define(eq=False)
class KeyRange:
    """A condition on files of a table: whether a file may hold a key of the source.

    :param _partitions: of key columns that are partition columns: their place, and the values that the source has.
    """

    _snapshot: Snapshot
    _keys: Sequence[_Key]
    _partitions: Sequence[tuple[int, frozenset[Any]]]

    @classmethod
    def of(cls, source: Buffer, snapshot: Snapshot, keys: Iterable[str]) -> KeyRange:
        """Read what a source has in its key columns.

        :param source: its files with their statistics.
        :param snapshot: of the table.
        """
        table = {name.lower(): column for name, column in columns(snapshot.metadata).items()}
        given = {name.lower(): column for name, column in columns(source.metadata).items()}
        split = snapshot.partitioning
        places = {name.lower(): place for place, name in enumerate(split.types)}
        found: list[_Key] = []
        partitions: list[tuple[int, frozenset[Any]]] = []
        for key in (name.strip().lower() for name in keys):
            column, mine = table.get(key), given.get(key)
            if column is None or mine is None or column.type != mine.type:
                continue
            if any(compared_as(each) != each.type for each in (column, mine)):
                # Spark takes 'ab' and 'ab   ' for one CHAR(5), and collated texts for equal that differ.
                continue
            if key in places:
                if not source.spec.mode.own_columns:
                    values = {split.partition(add["partitionValues"])[places[key]] for add in source.adds}
                    if all(map(_is_plain, values)):
                        partitions.append((places[key], frozenset(values)))
            elif (bounds := _bounds(source.adds, mine)) is not None:
                found.append(_Key(column, *bounds))
        return cls(snapshot, found, partitions)

    def __call__(self, file: Add) -> bool:
        """Say whether a file may hold a key of the source.

        :param file: the raw ``add``.
        """
        partition = self._snapshot.partitioning.partition(file["partitionValues"])
        if any(_is_plain(partition[place]) and partition[place] not in known for place, known in self._partitions):
            return False
        said = bounds_of(file, {place: key.column for place, key in enumerate(self._keys)})
        return not any(
            (_is_plain(said[place].low) and said[place].low > key.greatest)
            or (_is_plain(said[place].high) and said[place].high < key.least)
            for place, key in enumerate(self._keys)
        )


def _is_plain(value: Any) -> bool:
    """Say whether engines agree on what a value is, and on which others it equals."""
    return isinstance(value, (str, int, date)) and not isinstance(value, datetime)


def _bounds(files: Iterable[Add], column: Column) -> tuple[Any, Any] | None:
    """Return the least and the greatest value of a column in some files; ``None`` where statistics do not say."""
    kind = name_of(column.type)
    if not (kind in INTEGERS or kind in ("string", "date")):
        return None
    said = [bounds_of(file, {0: column})[0] for file in files]
    values: list[Any] = [value for bounds in said for value in (bounds.low, bounds.high)]
    # Python compares texts by code points, as Spark does by their bytes in UTF-8.
    return (min(values), max(values)) if values and all(map(_is_plain, values)) else None
