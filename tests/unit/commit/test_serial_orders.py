"""Under ``last_writer_wins``, every table that is published is what some order of whole operations leaves.

Here operations are done to rows, not to files: each one can be done again to any table, and then does what it would have
done there. A DELETE looks for its key, a MERGE for a match, and a writer that reads the table keeps what it has seen in
the row that it writes. So an order in which somebody would have seen other rows leaves another table.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from itertools import permutations
from random import Random
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.choices import Policy
from airflow_provider_onelake.commit.batch import place
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.actions import Action
from airflow_provider_onelake.log.commits import FORMAT, Commit, PublishedWriter
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.identity import Load
from airflow_provider_onelake.staging.modes import Mode, Overwrite, OverwritePartitions, ReplaceWhere
from airflow_provider_onelake.staging.spec import WriteSpec
from tests.unit.commit.test_properties import METADATA, NOON, SNAPSHOT, add, live_after, paths, settle_and_build

_PLACES = (0, 1, 2)
_KEYS = (0, 1, 2)


@attrs.frozen(order=True)
class Row:
    """A row of the small world.

    :param name: tells it apart, and says what has become of it and what its writer had seen.
    :param key: by which statements find it.
    :param place: its partition.
    """

    name: str
    key: int
    place: int


Table = frozenset[Row]


@attrs.frozen
class Deed:
    """What an operation does to any table.

    :param kind: of the operation.
    :param rows: that it adds.
    :param key: that a statement looks for; ``None`` for every key.
    :param places: the partitions that a write replaces, that a writer computes its rows from, or that a statement of
        ours says to be about.
    """

    kind: str
    rows: tuple[Row, ...] = ()
    key: int | None = 0
    places: tuple[int, ...] = ()

    def on(self, table: Table) -> Table:
        """Return the table after it."""
        hit = {row for row in table if self.key in (row.key, None) and (not self.places or row.place in self.places)}
        match self.kind:
            case "append":
                return table | {*self.rows}
            case "delete" | "rewrite":
                return table - hit
            case "update":
                return (table - hit) | {attrs.evolve(row, name=row.name + "'", key=1 - row.key) for row in hit}
            case "move":
                return (table - hit) | {attrs.evolve(row, name=row.name + "'", place=self.rows[0].place) for row in hit}
            case "merge":
                changed = {attrs.evolve(row, name=row.name + "*") for row in hit}
                return (table - hit) | (changed or {attrs.evolve(self.rows[0], key=self.key)})
            case "insert":
                there = {row.key for row in table if not self.places or row.place in self.places}
                return table | {row for row in self.rows if row.key not in there}
            case "reader" | "select":
                seen = "+".join(sorted(row.name for row in table if not self.places or row.place in self.places))
                return table | {attrs.evolve(row, name=f"{row.name}({seen})") for row in self.rows}
        kept = {row for row in table if row.place not in self.places}
        return frozenset(kept | {row for row in self.rows if row.place in self.places})


_KINDS = (
    "append",
    "delete",
    "rewrite",
    "update",
    "move",
    "merge",
    "insert",
    "reader",
    "select",
    "overwrite",
    "overwrite",
    "replace",
    "truncate",
)


def _info(deed: Deed, version: int, finished: datetime) -> dict[str, Any]:
    """Return what stands in the log of an operation.

    A ``reader`` is a writer of ours, a ``select`` one of another engine. An ``insert`` is a MERGE that only inserts.
    """
    predicate = f"p IN ({', '.join(map(str, deed.places))})"
    match deed.kind:
        case "append":
            return {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": True}
        case "select":
            return {"operation": "WRITE", "operationParameters": {"mode": "Append"}, "isBlindAppend": False}
        case "overwrite":
            dynamic = {"mode": "Overwrite", "isDynamicPartitionOverwrite": "true"}
            return {"operation": "WRITE", "operationParameters": dynamic}
        case "replace":
            return {"operation": "WRITE", "operationParameters": {"mode": "Overwrite", "predicate": predicate}}
        case "rewrite":
            by_key = {"mode": "Overwrite", "predicate": f"id = {deed.key}"}
            return {"operation": "WRITE", "operationParameters": by_key}
        case "reader":
            writer = PublishedWriter(f"a{version}", f"r{version}", 1, f"b{version}", finished, 1, "", reads=predicate)
            staged = {"format": FORMAT, "mode": "append", "load": f"l{version}", "writers": [writer.to_json()]}
            return {
                "operation": "WRITE",
                "operationParameters": {"mode": "Append", "partitionBy": '["p"]'},
                "isBlindAppend": False,
                "staged": staged,
            }
    covered = {"staged": {"format": FORMAT, "change": {"covers": predicate}}} if deed.places else {}
    if deed.kind == "delete" and deed.key is None:
        covered = {"operationParameters": {"predicate": json.dumps([predicate])}}
    if deed.kind in ("merge", "insert"):
        matched = [{"actionType": "update"}] if deed.kind == "merge" else []
        covered["operationParameters"] = {"matchedPredicates": json.dumps(matched)}
    return {"operation": {"move": "UPDATE", "insert": "MERGE"}.get(deed.kind, deed.kind.upper()), **covered}


def _rows(random: Random, name: str, most: int) -> tuple[Row, ...]:
    places = sorted(random.sample(_PLACES, random.randint(1, most)))
    return tuple(Row(f"{name}{place}", random.choice(_KEYS), place) for place in places)


def _deed(random: Random, version: int) -> Deed:
    kind = random.choice(_KINDS)
    rows = _rows(random, str(version), 1 if kind in ("move", "merge", "reader", "select") else 2)
    places: tuple[int, ...] = ()
    match kind:
        case "overwrite":
            places = tuple(row.place for row in rows)
        case "delete" | "update" | "move" | "merge" | "insert" if random.random() < 0.5:
            places = tuple(sorted(random.sample(_PLACES, random.randint(1, 2))))
        case "reader" | "replace":
            places = tuple(sorted(random.sample(_PLACES, random.randint(1, 2))))
        case "truncate":
            rows, places = (), _PLACES
    return Deed(kind, rows, random.choice(_KEYS), places)


@attrs.define
class World:
    """A log and the rows of its files: one file for each row."""

    files: dict[str, Row] = attrs.field(factory=dict)
    commits: list[Commit] = attrs.field(factory=list)
    deeds: list[Deed] = attrs.field(factory=list)

    @classmethod
    def of(cls, keys: Iterable[int | None], *deeds: Deed) -> World:
        """Return a table to which some operations were done.

        :param keys: of its first rows, one for each partition; ``None`` for an empty one.
        """
        world = cls()
        rows = (Row(f"0{place}", key, place) for place, key in enumerate(keys) if key is not None)
        world.do(Deed("append", tuple(rows)))
        for deed in deeds:
            world.do(deed)
        return world

    def do(self, deed: Deed) -> None:
        """Commit what an operation does to the newest rows. A statement that finds nothing is not in the log."""
        live = {self.files[file["path"]]: file["path"] for file in live_after(self.commits)}
        before = frozenset(live)
        after = deed.on(before)
        if before == after:
            return
        version = len(self.commits)
        finished = NOON + timedelta(minutes=version)
        actions: list[Action] = [{"commitInfo": _info(deed, version, finished)}]
        for n, row in enumerate(sorted(after - before)):
            self.files[f"{version}-{n}"] = row
            actions.append({"add": add(f"{version}-{n}", str(row.place))})
        for row in sorted(before - after):
            gone = {"path": live[row], "partitionValues": {"p": str(row.place)}, "dataChange": True}
            actions.append({"remove": gone})
        self.commits.append(Commit(version, actions, modified=finished))
        self.deeds.append(deed)

    def publish(self, deed: Deed, mode: Mode, read: int, finished: datetime) -> bool:
        """Publish a batch that was formed on a version, and say whether anything of it is seen.

        :param finished: when its rows were staged.
        :raises ConflictError: it was refused.
        """
        version = len(self.commits)
        spec = WriteSpec(identity=Load("n", "d", "g", f"r{version}").writer("w"), attempt="a-w", mode=mode)
        adds = tuple(add(f"{row.name}.parquet", str(row.place)) for row in deed.rows)
        buffer = Buffer(spec.buffer, spec, read, "t", METADATA, adds, finished, NOON)
        batch = place([buffer], SNAPSHOT)
        winners, before = self.commits[read + 1 :], self.commits[: read + 1]
        _, _, entry = settle_and_build(batch, winners, Policy.LAST_WRITER_WINS, before)
        self.files |= {f"{buffer.path}/{row.name}.parquet": row for row in deed.rows}
        self.commits.append(Commit(version, entry.actions, modified=NOON + timedelta(minutes=version)))
        seen = bool(paths(entry, "add") or paths(entry, "remove"))
        # Where nothing of it was ever seen, it may as well count nowhere.
        self.deeds += [deed] if seen else []
        return seen

    @property
    def has_an_order(self) -> bool:
        """Whether an order of all that was done leaves the rows that are there."""
        first, *others = self.deeds
        rows = frozenset(self.files[file["path"]] for file in live_after(self.commits))
        return any(rows == table for table in _tables(others, first.on(frozenset())))


def _tables(deeds: Iterable[Deed], start: Table) -> Iterator[Table]:
    """Yield what every order of operations leaves."""
    for order in permutations(deeds):
        table = start
        for deed in order:
            table = deed.on(table)
        yield table


def _late(random: Random, world: World) -> str:
    """Publish a batch late, and return what became of it."""
    version = len(world.commits)
    rows = _rows(random, f"{version}B", 3)
    mode = random.choice([Overwrite(), OverwritePartitions(), OverwritePartitions(), ReplaceWhere("p IN (0, 1)")])
    filled = tuple(row.place for row in rows)
    places = {"overwrite": _PLACES, "overwrite_partitions": filled, "replace_where": (0, 1)}[mode.name]
    read = random.randrange(min(version, 2))
    finished = NOON + timedelta(minutes=read + random.randrange(min(3, version - read)), seconds=30)
    try:
        return "published" if world.publish(Deed("late", rows, places=places), mode, read, finished) else "unseen"
    except ConflictError:
        return "refused"


def _judged(seed: int) -> Counter[str]:
    """Return what became of the batches of a seed."""
    random = Random(seed)
    world = World.of(random.choices(_KEYS, k=len(_PLACES)))
    became: Counter[str] = Counter()
    for step in range(random.randint(3, 6)):
        if step > 1 and random.random() < 0.4:
            became[_late(random, world)] += 1
            assert world.has_an_order, (seed, [commit.staged.get("before") for commit in world.commits], world.deeds)
        else:
            world.do(_deed(random, len(world.commits)))
    return became


@pytest.mark.parametrize("part", range(4))
def test_what_is_published_is_what_an_order_of_whole_operations_leaves(part: int) -> None:
    became = sum((_judged(seed) for seed in range(part * 1_000, (part + 1) * 1_000)), Counter[str]())
    assert min(became[what] for what in ("published", "refused", "unseen")) > 100, became


# -- who has missed the rows of a batch that counts before a winner ----------------------------------------------------

A, B, C, D, E, F = range(6)


def _overwrites(**keys: int) -> Deed:
    rows = tuple(Row(f"by {name}", key, "abcdef".index(name)) for name, key in keys.items())
    return Deed("overwrite", rows, places=tuple(row.place for row in rows))


def _reads(*places: int, into: int) -> Deed:
    return Deed("reader", (Row("r", 9, into),), places=places)


_UNSEEN = {
    "a DELETE that hit the winner": ([0, 0, 0, 0, 0], [_overwrites(b=2, c=3), Deed("delete", key=3)]),
    "a DELETE of partitions of which nobody had seen the rows": (
        [0, 0, 0, None, 0],
        [_overwrites(b=2, c=3), Deed("delete", key=None, places=(C, D))],
    ),
    "an overwrite by a data column that hit the winner": (
        [0, 0, 0, 0, 0],
        [_overwrites(b=2, c=3), Deed("rewrite", key=3)],
    ),
    "a MERGE that would have found what the winner removed": (
        [0, 4, 0, 0, 0],
        [_overwrites(b=2), Deed("merge", (Row("m", 4, C),), key=4)],
    ),
    "a reader of the winner": ([0, 0, 0, 0, 0], [_overwrites(b=2), _reads(A, B, into=C)]),
    "a reader of the winner, before another winner hid the rows": (
        [0, 0, 0, 0, 0],
        [_overwrites(b=2), _reads(A, B, into=C), _overwrites(a=2)],
    ),
    "a reader that writes what a reader of the winner did not find": (
        [0, 0, 0, 0, 0],
        [_overwrites(b=2), _reads(B, C, into=E), _reads(A, into=C)],
    ),
    "a reader that writes where the winner would have emptied the partition": (
        [0, 0, 3, 0, 0],
        [Deed("delete", key=3), Deed("replace", (Row("by b", 2, B),), places=(B, C)), _reads(A, into=C)],
    ),
    "an append that says that it has read the table": (
        [0, 0, 0, 0, 0],
        [Deed("append", (Row("by b", 2, B),)), Deed("select", (Row("r", 9, C),))],
    ),
    "a MERGE that inserts nothing where it found the winner's row": (
        [0, 0, 0, 0, 0],
        [Deed("append", (Row("by b", 2, B),)), Deed("insert", (Row("m", 2, C), Row("n", 3, E)))],
    ),
    "a DELETE that would have left nothing for an UPDATE of the winner's rows": (
        [0, 0, 3, 0, 3],
        [
            Deed("append", (Row("by b", 2, B), Row("by c", 2, C))),
            Deed("update", key=None, places=(C,)),
            Deed("delete", key=3),
        ],
    ),
    "an overwrite by a data column that would have left nothing for an UPDATE of the winner's rows": (
        [0, 0, 3, 0, 3],
        [
            Deed("append", (Row("by b", 2, B), Row("by c", 2, C))),
            Deed("update", key=None, places=(C,)),
            Deed("rewrite", key=3),
        ],
    ),
    "a DELETE that would have left nothing for a reader of the winner, whose source was replaced since": (
        [0, 0, 3, 0, 0, 3],
        [
            Deed("append", (Row("by b", 2, B), Row("by c", 2, C))),
            _reads(C, into=E),
            _overwrites(c=2),
            Deed("delete", key=3),
        ],
    ),
    "a reader of an overwrite that would have left nothing for an UPDATE of the winner's rows": (
        [0, 0, 3, 0, 0, 0],
        [
            Deed("append", (Row("by b", 2, B), Row("by c", 3, C))),
            Deed("move", (Row("x", 0, E),), key=3, places=(C,)),
            Deed("replace", (Row("n", 5, F),), places=(C, F)),
            _reads(A, F, into=F),
        ],
    ),
}
# With rows of keys that statements look for. It was staged before all that was done since, and is published after it.
_BATCH = Deed("batch", (Row("Ba", 3, A), Row("Bb", 3, B), Row("Bd", 4, D)), places=(A, B, D))
_EARLY = NOON + timedelta(seconds=30)


@pytest.mark.parametrize(("keys", "deeds"), _UNSEEN.values(), ids=_UNSEEN.keys())
def test_a_write_does_not_count_before_those_that_have_missed_it(keys: list[int | None], deeds: list[Deed]) -> None:
    world = World.of(keys, *deeds)
    with pytest.raises(
        ConflictError, match=r"which came after that, (computed its rows from|looked for rows of) the table"
    ):
        world.publish(_BATCH, OverwritePartitions(), 0, _EARLY)


def test_a_write_does_not_count_before_a_merge_that_has_found_rows_which_it_removes() -> None:
    merge = Deed("insert", (Row("m", 3, C), Row("n", 0, C)))
    world = World.of([1, 0, 2], Deed("replace", (Row("by c", 1, C),), places=(A, C)), merge)
    late = Deed("batch", (Row("Ba", 3, A),), places=(A, B, C))
    with pytest.raises(ConflictError, match="which came after that, looked for rows of the table"):
        world.publish(late, Overwrite(), 0, _EARLY)
