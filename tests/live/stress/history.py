"""Whether every version of a table is what a serial order of whole writes leaves.

Here a write is what it does to the rows of any table, and a version is its rows, as a reader of no package of ours sees
them. A write of ours that replaces partitions may come before writes that were committed earlier, where its policy says
so; everything else comes last. The judge knows the policies' words, and nothing of how a commit is decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations

import attrs

from tests.live.stress.shape import Row

State = frozenset[Row]
# Both clocks are the file system's, read in microseconds.
_TIE = 2e-6


@attrs.frozen
class Effect:
    """What a write does to the rows of any table.

    :param wipes: partitions that it empties, whatever was there.
    :param spares: rows that stay there all the same.
    :param changes: what it makes of a row: another one, or ``None`` where it deletes the row.
    :param puts: rows that it adds.
    """

    wipes: frozenset[str] = frozenset()
    spares: State = frozenset()
    changes: Callable[[Row], Row | None] | None = None
    puts: State = frozenset()

    def on(self, rows: State) -> State:
        """Return the table after it.

        :param rows: before.
        """
        if self.changes is not None:
            rows = frozenset(new for new in map(self.changes, rows) if new is not None)
        if self.wipes:
            rows = frozenset(row for row in rows if row[0] not in self.wipes or row in self.spares)
        return rows | self.puts


NOTHING = Effect()


@attrs.frozen
class Write:
    """One version's write.

    :param who: in words.
    :param effect: what it is, whole.
    :param finished: when, by the store's clock.
    :param policy: of a write of ours that replaces partitions; ``None`` for all others, which come last.
    :param read: the version that a write with a policy was formed on.
    :param load: that it is of; the writers of one load are rivals.
    """

    who: str
    effect: Effect
    finished: float = 0.0
    policy: str | None = None
    read: int = -1
    load: str | None = None

    @property
    def appends(self) -> bool:
        """Whether it only adds rows."""
        return not self.effect.wipes and self.effect.changes is None


@attrs.frozen
class Place:
    """Where a write may stand in the order, and what of it.

    :param at: how many of the writes so far come before it.
    :param effect: what it does there.
    """

    at: int
    effect: Effect


@attrs.frozen
class _Way:
    """Places that the rules allow, and what is wrong all the same, in words that follow the write's name."""

    places: list[Place]
    complaint: str | None = None


@attrs.define
class History:
    """The versions of a table, judged one after another.

    :param problems: what is wrong, a sentence each.
    :param writes: of the versions so far; ``None`` where a version must not change a row.
    :param states: the versions' rows.
    :param landed: when the versions came into the store.
    :param order: the versions of the writes so far, in an order that explains the rows.
    :param before_others: how many writes came before others that were committed earlier.
    """

    problems: list[str] = attrs.field(factory=list)
    writes: list[Write | None] = attrs.field(factory=list)
    states: list[State] = attrs.field(factory=list)
    landed: list[float] = attrs.field(factory=list)
    order: list[int] = attrs.field(factory=list)
    before_others: int = 0
    _effects: dict[int, Effect] = attrs.field(factory=dict)
    # What each write of the order leaves; the first is the empty table.
    _left: list[State] = attrs.field(factory=lambda: [frozenset()])

    def take_in(self, write: Write | None, rows: State, landed: float = 0.0) -> None:
        """Judge the next version.

        :param write: of it; ``None`` where it must not change a row, such as a compaction.
        :param rows: that are there at it.
        :param landed: when it came into the store.
        """
        self.landed.append(landed)
        version = len(self.states)
        before = self.states[-1] if self.states else frozenset()
        self.states.append(rows)
        self.writes.append(write)
        if write is None:
            if rows != before:
                self._say(version, "no write of rows", before, rows)
            return
        ways = list(self._ways(write, version, before))
        # A way that nobody complains of, if one explains the rows.
        for way in sorted(ways, key=lambda way: way.complaint is not None):
            place = next((place for place in way.places if self._replayed(place)[-1] == rows), None)
            if place is not None:
                self.problems += [f"Version {version} ({write.who}) {way.complaint}"] if way.complaint else []
                self._put(version, place)
                return
        self.problems += [f"Version {version} ({write.who}) {way.complaint}" for way in ways if way.complaint][:1]
        likely = next((way.places[0] for way in ways if way.places), Place(len(self.order), NOTHING))
        self._say(version, write.who, self._replayed(likely)[-1], rows)
        # What follows is judged on top of what is there.
        everywhere = frozenset(row[0] for row in before | rows)
        self._put(version, Place(len(self.order), Effect(wipes=everywhere, puts=rows)))

    def touched(self, version: int) -> frozenset[str]:
        """Return the partitions whose rows a version changed.

        :param version: that was taken in.
        """
        before = self.states[version - 1] if version else frozenset()
        return frozenset(row[0] for row in before ^ self.states[version])

    def followers(self, version: int) -> Iterator[tuple[int, Write, Effect]]:
        """Yield the writes that come after a version's in the order, with what they did.

        :param version: of a write.
        """
        for other in self.order[self.order.index(version) + 1 :]:
            yield other, self._write(other), self._effects[other]

    def did(self, version: int) -> Effect:
        """Return what a version's write did, as far as it was published.

        :param version: of a write.
        """
        return self._effects[version]

    def _say(self, version: int, who: str, expected: State, rows: State) -> None:
        self.problems.append(
            f"Version {version} ({who}) is not what a serial order of whole writes leaves: it lacks "
            f"{_in_short(expected - rows)} and has too much {_in_short(rows - expected)}"
        )

    def _write(self, version: int) -> Write:
        write = self.writes[version]
        assert write is not None
        return write

    def _named(self, version: int) -> str:
        return f"version {version} ({self._write(version).who})"

    def _emptied(self, version: int) -> frozenset[str]:
        """Return the partitions that another engine's overwrite replaced, also where it found nothing."""
        write = self._write(version)
        return write.effect.wipes if write.policy is None else frozenset()

    def _moves(self, version: int) -> bool:
        """Whether a version may have put rows of others into files of its own."""
        write = self.writes[version]
        return write is None or write.effect.changes is not None

    # -- the order -----------------------------------------------------------------------------------------------------

    def _replayed(self, place: Place) -> list[State]:
        """Return what the writes from a place on leave."""
        left = [place.effect.on(self._left[place.at])]
        for version in self.order[place.at :]:
            left.append(self._effects[version].on(left[-1]))
        return left

    def _put(self, version: int, place: Place) -> None:
        self._left[place.at + 1 :] = self._replayed(place)
        self.before_others += place.at < len(self.order)
        self.order.insert(place.at, version)
        self._effects[version] = place.effect

    # -- what the policies demand ---------------------------------------------------------------------------------------

    def _ways(self, write: Write, version: int, before: State) -> Iterator[_Way]:
        """Yield what the rules allow, the likeliest first: they leave it open where rows cannot be told apart."""
        if write.policy is None:
            yield _Way([Place(len(self.order), write.effect)])
            return
        rivals, doubtful = self._rivals(version, write, before)
        # Rows of the load's other writers may lie in files of others by now: nobody can tell whose they are.
        for count in range(len(doubtful), -1, -1):
            for some in combinations(doubtful, count):
                yield self._settled(write, sorted({*rivals, *some}, key=self.order.index))

    def _settled(self, write: Write, rivals: list[int]) -> _Way:
        last = len(self.order)
        if not rivals:
            return _Way([Place(last, write.effect)])
        if write.policy == "last_writer_wins":
            return self._by_finish(write, rivals)
        if write.policy == "first_writer_wins":
            return _Way([Place(last, NOTHING)])
        why = f"passes over {self._named(rivals[0])}, a conflict, in spite of on_conflict={write.policy!r}"
        return _Way([Place(last, write.effect)], why)

    def _rivals(self, version: int, write: Write, before: State) -> tuple[list[int], list[int]]:
        """Return the versions that changed rows in what a write replaces, in the order, and those that may have."""
        own = frozenset(row[0] for row in write.effect.puts)
        rivals: list[int] = []
        doubtful: list[int] = []
        for other in self.order:
            there = self._write(other)
            if other > write.read:
                if self.touched(other) & write.effect.wipes or self._emptied(other) & own:
                    rivals.append(other)
            elif there.load == write.load and any(row[0] in write.effect.wipes for row in there.effect.puts & before):
                moved = any(other < v < version and self._moves(v) for v in range(len(self.writes)))
                (doubtful if moved else rivals).append(other)
        return rivals, doubtful

    def _by_finish(self, write: Write, rivals: list[int]) -> _Way:
        """Return the places just before the first rival that finished later; last, if none did."""
        floor = max((self.order.index(v) + 1 for v in self.order if v <= write.read), default=0)
        ends: list[int] = []
        for at, rival in enumerate(rivals):
            later = self._write(rival).finished - write.finished
            if rival > write.read and later > -_TIE:
                ends.append(at)
                if later > _TIE:
                    break
        else:
            ends.append(len(rivals))
        found = _Way([])
        for end in ends:
            unsaid = self._unsaid(write, rivals[end:])
            if unsaid is not None:
                why = f"should have been refused: {self._named(unsaid)} came later, and what it would do nobody knows"
                found = _Way(found.places, why)
                continue
            top = self.order.index(rivals[end]) if end < len(rivals) else len(self.order)
            bottom = max(floor, self.order.index(rivals[end - 1]) + 1 if end else 0)
            found.places.extend(Place(at, write.effect) for at in range(top, min(bottom, top) - 1, -1))
        return _Way(found.places, found.complaint if not found.places else None)

    def _unsaid(self, write: Write, later: list[int]) -> int | None:
        """Return a write of which nobody can say what it would do to the rows of an earlier one, if any."""
        replaced = frozenset[str]().union(*(self._effects[rival].wipes for rival in later))
        for rival in later:
            changed = (self.touched(rival) & write.effect.wipes) - replaced
            if changed and not self._write(rival).appends:
                return rival
        return None

    def _is_later(self, rival: int, write: Write, ties_are_later: bool) -> bool:
        ahead = self._write(rival).finished - write.finished
        return rival > write.read and (ahead > _TIE or (ahead >= -_TIE and ties_are_later))


def by_writer(rows: State) -> Mapping[tuple[str, str], int]:
    """Count rows by load and writer.

    :param rows: of a table.
    """
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        counts[row[1:3]] = counts.get(row[1:3], 0) + 1
    return counts


def _in_short(rows: State) -> str:
    counts: dict[str, int] = {}
    for part, load, writer, *_ in rows:
        name = f"{load}/{writer} in {part}"
        counts[name] = counts.get(name, 0) + 1
    return ", ".join(f"{name}: {count}" for name, count in sorted(counts.items())[:10]) or "nothing"
