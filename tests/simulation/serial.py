"""Whether a table is what some serial order of whole writes makes of it.

Here a write is no longer files and actions, but what it does to the rows of any table, whatever it finds there. Writes
that overlap in time may come in any order that nobody forbids; the judge looks for one that leaves the rows that are
there. It does not know how production finds its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import attrs

# The rows of a table, by partition.
Rows = tuple[frozenset[str], ...]
_MOST_STATES = 20_000


@attrs.frozen
class Write:
    """What a write does to the rows of any table.

    :param wipes: partitions that it empties.
    :param spares: rows that stay there all the same.
    :param drops: rows that it takes away, wherever they are.
    :param renames: rows that it changes, wherever they are.
    :param puts: rows that it adds.
    """

    wipes: frozenset[int] = frozenset()
    spares: frozenset[str] = frozenset()
    drops: frozenset[str] = frozenset()
    renames: Mapping[str, str] = attrs.field(factory=dict)
    puts: Mapping[int, frozenset[str]] = attrs.field(factory=dict)

    def on(self, rows: Rows) -> Rows:
        """Return the table after it.

        :param rows: before.
        """
        if self.drops or self.renames:
            rows = tuple(frozenset(self.renames.get(row, row) for row in there - self.drops) for there in rows)
        if not self.wipes and not self.puts:
            return rows
        return tuple(
            (there & self.spares if partition in self.wipes else there) | self.puts.get(partition, frozenset())
            for partition, there in enumerate(rows)
        )


def difference(expected: Rows, rows: Rows) -> Iterator[str]:
    """Say in which partitions rows are not what they should be.

    :param expected: by an order.
    :param rows: that are there.
    """
    for partition, (should, there) in enumerate(zip(expected, rows, strict=True)):
        if should != there:
            yield f"partition {partition} lacks {sorted(should - there)} and has too much {sorted(there - should)}"


def by_partition(partitions: int, rows: Iterable[tuple[int, str]]) -> Rows:
    """Return rows by partition.

    :param partitions: how many there are.
    :param rows: each with its partition.
    """
    found: list[set[str]] = [set() for _ in range(partitions)]
    for partition, row in rows:
        found[partition].add(row)
    return tuple(frozenset(there) for there in found)
