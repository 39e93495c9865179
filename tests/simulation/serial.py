"""Whether a table is what some serial order of whole writes makes of it.

Here a write is no longer files and actions, but what it does to the rows of any table, whatever it finds there. Writes
that overlap in time may come in any order that nobody forbids; the judge looks for one that leaves the rows that are
there. It does not know how production finds its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

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


@attrs.frozen
class Candidate:
    """A write, and where it may stand among those before it.

    :param write: what it does.
    :param read: the version that it was formed on: it comes after that, and what came between may come after it.
    :param after: versions that it must follow beside those.
    :param before: versions that it must precede.
    :param saw: by partition, the rows that it was computed from: it stands only where they are there.
    :param unseen: whether others have replaced all of it, so that it may stand before one that has not seen it.
    :param undoes: versions of which nothing is left after it: it may stand before what these landed behind, with them.
    """

    write: Write
    read: int
    after: frozenset[int] = frozenset()
    before: frozenset[int] = frozenset()
    saw: Mapping[int, frozenset[str]] = attrs.field(factory=dict)
    unseen: bool = False
    undoes: frozenset[int] = frozenset()


@attrs.define
class _Placed:
    write: Write
    read: int
    after: set[int]
    saw: Mapping[int, frozenset[str]]

    def may_stand_on(self, rows: Rows) -> bool:
        """Say whether the rows that the write was computed from are there, apart from those that it takes back."""
        drops = self.write.drops
        return all(rows[partition] - drops == there - drops for partition, there in self.saw.items())


class SerialOrder:
    """The writes of a table, in an order that explains every version of it so far.

    :param empty: the rows of a table before its first version.
    """

    def __init__(self, empty: Rows) -> None:
        self._empty = empty
        self._placed: list[_Placed] = []
        self._newest = Candidate(Write(), -1)
        self.states: list[Rows] = []
        self.order: list[int] = []

    def take_in(self, candidates: Sequence[Candidate], rows: Rows) -> Rows | None:
        """Find a place for the write of the next version.

        :param candidates: what it may have done, and where it may stand: each a way to read the rules where they leave
            it open, the likeliest first.
        :param rows: in the table, at its version.
        :returns: ``None`` where an order explains the rows; else the rows that the likeliest order leaves.
        """
        version = len(self._placed)
        before = self.states[-1] if self.states else self._empty
        self.states.append(rows)
        expected: Rows | None = None
        for candidate in candidates:
            left = candidate.write.on(before) if not candidate.before else None
            if left == rows and self._placeable(candidate).may_stand_on(before):
                self._place(candidate, [*self.order, version])
                return None
            found = self._search(version, candidate)
            if not isinstance(found, list) and candidate.unseen:
                for other in self._placed:
                    other.saw = {}
                found = self._search(version, candidate)
            if not isinstance(found, list) and candidate.undoes:
                for undone in candidate.undoes:
                    self._placed[undone].read = min(self._placed[undone].read, candidate.read)
                found = self._search(version, candidate)
            if isinstance(found, list):
                self._place(candidate, found)
                return None
            expected = expected or left or found
        return expected or rows

    @property
    def newest(self) -> Candidate:
        """What the newest version did, as it was explained."""
        return self._newest

    def _place(self, candidate: Candidate, order: list[int]) -> None:
        version, self._newest = len(self._placed), candidate
        self._placed.append(self._placeable(candidate))
        for later in candidate.before:
            self._placed[later].after.add(version)
        self.order = order

    @staticmethod
    def _placeable(candidate: Candidate) -> _Placed:
        floor = min(candidate.read, *(v - 1 for v in candidate.before)) if candidate.before else candidate.read
        return _Placed(candidate.write, floor, set(candidate.after), candidate.saw)

    def _search(self, version: int, candidate: Candidate) -> list[int] | Rows:
        """Look for an order that follows every rule and leaves the rows; else return what the first one leaves."""
        placed = [*self._placed, self._placeable(candidate)]
        base = self._base(placed, version)
        start = self.states[base] if base >= 0 else self._empty
        window = [v for v in self.order if v > base]
        at = next((i for i, v in enumerate(window) if v in candidate.before), len(window))
        preferred = (*window[:at], version, *window[at:])
        follows = {v: {x for x in preferred if x <= placed[v].read or x in placed[v].after} - {v} for v in preferred}
        for later in candidate.before:
            follows[later].add(version)
        goal = self.states[version]
        seen: set[tuple[frozenset[int], Rows]] = set()
        first: list[Rows] = []

        def go(left: tuple[int, ...], rows: Rows) -> list[int] | None:
            if not left:
                first.append(rows)
                return [] if rows == goal else None
            known = (frozenset(left), rows)
            if known in seen or len(seen) > _MOST_STATES:
                return None
            seen.add(known)
            for v in left:
                if follows[v].isdisjoint(left) and placed[v].may_stand_on(rows):
                    rest = go(tuple(x for x in left if x != v), placed[v].write.on(rows))
                    if rest is not None:
                        return [v, *rest]
            return None

        found = go(preferred, start)
        if found is not None:
            return [*(v for v in self.order if v <= base), *found]
        return first[0] if first else goal

    @staticmethod
    def _base(placed: Sequence[_Placed], version: int) -> int:
        """Return the newest version that all later ones follow."""
        base = placed[version].read
        while True:
            lowest = min((placed[v].read for v in range(base + 1, version + 1)), default=base)
            if lowest >= base:
                return base
            base = lowest


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
