"""What a seed stands for: which statements, beside whom, on which terms, and with how much bad luck."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

import attrs

from tests.simulation.scenario import (
    PARTITIONS,
    Column,
    CompactionPlan,
    ForeignPlan,
    draw_compaction,
    draw_faults,
    draw_foreign,
    draw_some,
    draw_table,
)
from tests.simulation.statements.records import Clauses, Deletes, Effect, Merges, Placed, Record, Updates, Where, Wipes
from tests.simulation.table import TablePlan
from tests.simulation.world import Faults

KEYS = 12
_DAY = 86_400.0


@attrs.frozen(kw_only=True)
class TaskPlan:
    """A task, and what becomes of its tries.

    :param start: seconds from the beginning.
    :param works: seconds that each Spark job takes.
    :param tries: how many a start of it has.
    :param lost_heartbeat: how likely a try is given up while it runs on, as a zombie.
    :param clears: seconds after which it is cleared, each time.
    :param hasty: whether a clear does not wait for what runs.
    :param again: whether a clear does it again, or skips what was done.
    """

    name: str
    start: float
    works: float
    tries: int
    lost_heartbeat: float
    clears: tuple[float, ...]
    hasty: bool
    again: bool

    def effect(self, task_start: int) -> Effect:
        """Return what a start of the task does to the rows of the table."""
        raise NotImplementedError


@attrs.frozen(kw_only=True)
class RowsPlan(TaskPlan):
    """A DELETE or UPDATE of rows."""

    updates: bool
    where: Where
    covers: tuple[int, ...] | None
    closes: bool
    into: int | None
    max_rounds: int

    def effect(self, task_start: int) -> Effect:
        if not self.updates:
            return Deletes(self.where, self.covers)
        return Updates(self.where, self.covers, self.name, self.closes, self.into)


@attrs.frozen(kw_only=True)
class WipePlan(TaskPlan):
    """A TRUNCATE, or a DELETE of whole partitions."""

    covers: tuple[int, ...] | None

    def effect(self, task_start: int) -> Effect:
        return Wipes(self.covers)


@attrs.frozen(kw_only=True)
class WriterPlan(TaskPlan):
    """A writer's task.

    :param sources: the partitions of its rows by their keys, for each source that there is.
    :param turns: which of the sources each start finds.
    """

    sources: tuple[Mapping[int, int], ...]
    turns: tuple[int, ...]

    def rows(self, task_start: int) -> dict[int, Placed]:
        """Return the rows that a start of the task stages, by their keys."""
        turn = self.turns[task_start]
        return {
            key: (partition, Record(key, True, (f"{self.name}s{turn}",)))
            for key, partition in self.sources[turn].items()
        }


@attrs.frozen(kw_only=True)
class MergePlan(WriterPlan):
    """A MERGE.

    :param keyed: whether its author names the keys, and not a condition.
    """

    clauses: Clauses
    keyed: bool

    def effect(self, task_start: int) -> Effect:
        return Merges(self.clauses, self.rows(task_start), self.name)


@attrs.frozen(kw_only=True)
class LoadPlan(WriterPlan):
    """A writer that appends, or overwrites the partitions of its rows."""

    overwrites: bool


@attrs.frozen(kw_only=True)
class Scenario:
    """Everything that a seed decides before the first step.

    :param hot: the partitions that most of it is about.
    :param first: the partitions of the first appends.
    """

    column: Column
    table: TablePlan
    coarse: bool
    faults: Faults
    sticky: float
    hot: tuple[int, ...]
    first: tuple[int, ...]
    tasks: tuple[TaskPlan, ...]
    foreign: tuple[ForeignPlan, ...]
    compactions: tuple[CompactionPlan, ...]
    vacuums: tuple[float, ...]
    checkpoints: tuple[float, ...]

    @classmethod
    def of(cls, random: Random) -> Scenario:
        """Draw a scenario."""
        slow = random.random() < 0.1
        # In a crowd, many change and append rows while a statement takes one round after the other.
        crowd = not slow and random.random() < 0.3
        table = draw_table(random)
        hot = random.choice((PARTITIONS[:1], PARTITIONS[:2], PARTITIONS[:2], PARTITIONS[2:], PARTITIONS))
        kinds = ("append", "append", "trim", "trim", "update") if crowd else _kinds(random, table, slow)
        statements = [_statement(random, f"s{n}", hot, slow, crowd) for n in range(random.choice((1, 1, 2, 2, 3)))]
        loads = [_load(random, f"w{n}", hot, slow) for n in range(random.choice((0, 0, 0, 1, 2)))]
        return cls(
            column=Column(random.choice(("string", "string", "timestamp", "integer"))),
            table=table,
            coarse=random.random() < 0.25,
            faults=draw_faults(random),
            sticky=random.choice((0.0, 0.3, 0.7, 0.9)),
            hot=hot,
            first=tuple(random.choice(hot) for _ in range(random.choice((1, 2, 3, 4)))),
            tasks=(*statements, *loads),
            foreign=tuple(
                _other(random, kinds, hot, slow, crowd) for _ in range(random.choice((0, 1, 2, 3, 5)) + 4 * crowd)
            ),
            compactions=tuple(draw_compaction(random, slow) for _ in range(random.choice((0, 0, 1, 2)))),
            vacuums=tuple(random.uniform(6.9, 20) * _DAY for _ in range(random.randrange(1, 4))) if slow else (),
            checkpoints=tuple(random.uniform(0.5, 8) * _DAY for _ in range(random.randrange(3))) if slow else (),
        )


def _kinds(random: Random, table: TablePlan, slow: bool) -> tuple[str, ...]:
    kinds = ["append"] * 5 + ["update"] * 4 + ["trim"] * 2 + ["delete"] * 2 + ["compact"] * 3
    kinds += ["overwrite", "overwrite dynamic", "overwrite all", "truncate"]
    kinds += ["erase"] * 5 * table.vectors
    if random.random() < 0.6:
        return tuple(kinds)
    kinds += ["add column", "add check", *["rename"] * (table.mapping != "none")]
    # Whoever restores files that a VACUUM has listed loses them, whatever we do.
    kinds += [] if slow else ["restore"] * 5 + ["replace"]
    return tuple(kinds)


def _other(random: Random, kinds: tuple[str, ...], hot: tuple[int, ...], slow: bool, crowd: bool) -> ForeignPlan:
    plan = draw_foreign(random, kinds, hot, slow)
    if not crowd:
        return plan
    return attrs.evolve(plan, start=random.uniform(0, 12), thinks=10 ** random.uniform(-2, -1), silent=False)


def _task(random: Random, name: str, slow: bool) -> dict[str, object]:
    return {
        "name": name,
        "start": random.uniform(0, 6 * _DAY) if slow else random.choice((0.0, random.uniform(0, 3))),
        "works": random.choice((0.0, random.uniform(0, 9 * _DAY))) if slow else 10 ** random.uniform(-2, 0.9),
        "tries": random.choice((1, 2, 3)),
        "lost_heartbeat": random.choice((0.0, 0.15, 0.4)),
        "clears": tuple(random.choice((0.0, 1.0, 10.0)) * random.random() for _ in range(random.choice((0, 0, 1, 2)))),
        "hasty": random.random() < 0.4,
        "again": random.random() < 0.6,
    }


def _statement(random: Random, name: str, hot: tuple[int, ...], slow: bool, crowd: bool) -> TaskPlan:
    task: dict[str, object] = _task(random, name, slow)
    covers = draw_some(random, hot) if random.random() < 0.4 else None
    kind = random.choice((*["delete"] * 2, *["update"] * 3, *["merge"] * 5, "wipe"))
    if crowd and random.random() < 0.6:
        kind = random.choice(("delete", "update"))
    if kind == "wipe":
        return WipePlan(**task, covers=covers)  # type: ignore[arg-type]
    if kind == "merge":
        return MergePlan(**task, **_source(random, task, hot), **_merge(random))  # type: ignore[arg-type]
    return RowsPlan(
        **task,  # type: ignore[arg-type]
        updates=kind == "update",
        where=_where(random),
        covers=covers,
        closes=random.random() < 0.4,
        into=random.choice(hot) if kind == "update" and random.random() < 0.25 else None,
        max_rounds=random.choice((2, 3, 5, 5)),
    )


def _where(random: Random) -> Where:
    first = random.randrange(KEYS)
    span = first, min(KEYS - 1, first + random.choice((0, 1, 3, 5)))
    return Where(random.randrange(2), random.choice((None, True, True, False)), span if random.random() < 0.4 else None)


def _merge(random: Random) -> dict[str, object]:
    upsert = random.random() < 0.4
    clauses = Clauses(
        by_partition=random.random() < 0.2,
        matched="replace" if upsert else random.choice(("replace", "mark", "mark", "delete", "")),
        only_open=not upsert and random.random() < 0.3,
        inserts=upsert or random.random() < 0.6,
        by_source="" if upsert else random.choice(("", "", "", "mark", "delete")),
    )
    if not clauses.matched and not clauses.by_source:
        clauses = attrs.evolve(clauses, inserts=True)
    return {"clauses": clauses, "keyed": random.random() < 0.85}


def _load(random: Random, name: str, hot: tuple[int, ...], slow: bool) -> LoadPlan:
    task: dict[str, object] = _task(random, name, slow)
    return LoadPlan(**task, **_source(random, task, hot), overwrites=random.random() < 0.3)  # type: ignore[arg-type]


def _source(random: Random, task: Mapping[str, object], hot: tuple[int, ...]) -> dict[str, object]:
    clears = task["clears"]
    assert isinstance(clears, tuple)

    def draw() -> dict[int, int]:
        keys = random.sample(range(KEYS), random.choice((1, 2, 2, 4)))
        return {key: random.choice(hot) for key in sorted(keys)}

    return {"sources": (draw(), draw()), "turns": tuple(random.choice((0, 0, 1)) for _ in range(1 + len(clears)))}
