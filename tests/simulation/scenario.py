"""What a seed stands for: who writes what, when, on which terms, and with how much bad luck."""

from __future__ import annotations

from random import Random
from typing import Any

import attrs

from airflow_provider_onelake.buffers.identity import Load
from airflow_provider_onelake.choices import OnMissingWriter, OnRerun, OnUnexpectedRows, Policy, PublishMode
from airflow_provider_onelake.modes import Append, Mode, Overwrite, OverwritePartitions, ReplaceWhere
from tests.simulation.table import TablePlan
from tests.simulation.world import Faults

NULL = 3
PARTITIONS = (0, 1, 2, NULL)

# Every way in which an engine may spell a partition's value (protocol: typed partition values).
_SPELLINGS: dict[str, tuple[tuple[str | None, ...], ...]] = {
    "string": (("p0",), ("p1",), ("p 2/é",), (None, "")),
    "timestamp": (
        ("2019-01-01T00:00:00.000000Z", "2019-01-01 01:00:00+01:00", "2018-12-31 19:00:00-05:00"),
        ("2019-02-01T00:00:00.000000Z", "2019-02-01 01:00:00+01:00"),
        ("2019-03-01T00:00:00.000000Z", "2019-03-01 00:00:00+00:00"),
        (None, ""),
    ),
    "integer": (("0", "-0"), ("1", "01"), ("2",), (None, "")),
}


@attrs.frozen
class Column:
    """The partition column."""

    type: str

    def spell(self, partition: int, random: Random) -> str | None:
        """Return a spelling of a partition's value."""
        return random.choice(_SPELLINGS[self.type][partition])

    def read(self, spelling: str | None) -> int:
        """Return the partition that a spelling stands for."""
        return next(i for i, ways in enumerate(_SPELLINGS[self.type]) if spelling in ways)

    def predicate(self, partitions: tuple[int, ...]) -> str:
        """Return SQL that is true for some partitions only."""
        values = [f"'{_SPELLINGS[self.type][p][0]}'" for p in partitions if p != NULL]
        if self.type == "integer":
            values = [value.strip("'") for value in values]
        elif self.type == "timestamp":
            values = [f"TIMESTAMP {value}" for value in values]
        parts = [f"part IN ({', '.join(values)})"] if values else []
        return " OR ".join([*parts, "part IS NULL"] if NULL in partitions else parts)


@attrs.frozen
class WriterPlan:
    """One writer of a load.

    :param sources: for each version of its source, how many rows it has in each partition.
    :param into: the partitions that it replaces or covers; ``None`` for anywhere.
    :param reads: whether it computes its rows from the table itself.
    :param named: the partitions that it declares to read; ``None`` where it declares nothing.
    """

    key: str
    name: str
    sources: tuple[dict[int, int], ...]
    into: tuple[int, ...] | None
    reads: bool = False
    named: tuple[int, ...] | None = None


@attrs.frozen
class Rerun:
    """What people do with a load that has run.

    :param kind: ``clear`` of some writers, or ``again``: the run is deleted and made again.
    :param writers: keys of those that are cleared.
    :param listed: the writers of the load by then; where the list has changed, all are cleared.
    :param source: the version of the source that is there by then.
    :param after: seconds since the reconciliation before.
    """

    kind: str
    writers: tuple[str, ...]
    listed: tuple[WriterPlan, ...]
    retries: int
    source: int
    after: float


@attrs.frozen(kw_only=True)
class LoadPlan:
    """One write group in one run.

    :param lone: whether it is one writer without a group, so that nobody reconciles it.
    :param one_by_one: whether its writers run one after another, as where there is one slot.
    :param before_reconcile: seconds between the last writer and reconcile.
    :param redeployed: seconds after which the DAG has other ``retries``, and how many; ``None`` if it has not.
    :param lost_heartbeat: how likely a try is given up while it runs on, as a zombie.
    :param hasty: whether reconcile and reruns do not wait for what runs.
    :param early: seconds at which a person runs reconcile by hand.
    """

    load: Load
    lone: bool
    one_by_one: bool
    mode: type[Mode]
    publish: PublishMode
    policy: Policy
    on_missing: OnMissingWriter
    on_rerun: OnRerun
    on_unexpected_rows: OnUnexpectedRows
    allow_empty: bool
    fingerprinted: bool
    writers: tuple[WriterPlan, ...]
    reruns: tuple[Rerun, ...]
    tries: int
    start: float
    before_reconcile: float
    redeployed: tuple[float, int] | None
    lost_heartbeat: float
    hasty: bool
    early: tuple[float, ...]

    @property
    def all_writers(self) -> tuple[WriterPlan, ...]:
        """Every writer that the load ever has."""
        return tuple({w.name: w for some in (self.writers, *(r.listed for r in self.reruns)) for w in some}.values())


@attrs.frozen
class ForeignPlan:
    """One commit of somebody else.

    :param kind: ``append``, ``overwrite`` (a partition, by a predicate), ``overwrite dynamic``, ``overwrite all``, ``truncate``, ``delete`` (a
        partition), ``trim`` and ``update`` (which write a file anew), ``erase`` (by a deletion vector), ``compact``, ``restore``, ``replace`` (by
        another table, in the same log), ``remake`` (the table is dropped and made again), ``add check``, ``add column``, and under column mapping
        ``rename``, ``rename partition`` or ``swap column`` (dropped, and added again).
    :param start: seconds from the beginning.
    :param thinks: seconds between its reading and its putting.
    :param blind: whether it says of its append that it is blind; ``None`` if it says nothing, as deltalake.
    :param silent: whether it puts no ``commitInfo``.
    :param hides: how it leaves out which partition a file was of that it removes: ``absent``, ``null`` or ``empty``; ``None`` if it does not.
    :param ahead: seconds by which its clock is ahead of all others.
    :param compacts: whether its engine compacts the partition right after it.
    """

    kind: str
    partition: int
    start: float
    thinks: float
    blind: bool | None
    silent: bool
    hides: str | None
    ahead: float
    compacts: bool


@attrs.frozen
class CompactionPlan:
    """One run of our own compaction.

    :param start: seconds from the beginning.
    :param works: seconds that Spark takes.
    :param waits: seconds until its result is published.
    """

    start: float
    works: float
    waits: float
    zorder_by: tuple[str, ...]


@attrs.frozen(kw_only=True)
class Scenario:
    """Everything that a seed decides before the first step."""

    column: Column
    table: TablePlan
    exists: bool
    coarse: bool
    faults: Faults
    sticky: float
    loads: tuple[LoadPlan, ...]
    foreign: tuple[ForeignPlan, ...]
    compactions: tuple[CompactionPlan, ...]
    vacuums: tuple[float, ...]
    checkpoints: tuple[float, ...]
    hands: tuple[float, ...]

    @classmethod
    def of(cls, random: Random) -> Scenario:
        """Draw a scenario."""
        # In a slow one, days go by between staging and publishing, and VACUUM runs.
        slow = random.random() < 0.12
        day = 86_400.0
        exists = random.random() < 0.8
        table = draw_table(random)
        if table.made_by_spark and not exists:
            table = TablePlan("none", False, table.in_commit_timestamps, table.vectors)
        # The fewer the partitions, the more everybody is in everybody's way.
        kinds = _kinds(random, table, slow)
        upkept = random.random() < 0.5
        hot = random.choice((PARTITIONS[:1], PARTITIONS[:2], PARTITIONS[2:], PARTITIONS))
        return cls(
            column=Column(random.choice(("string", "string", "timestamp", "integer"))),
            table=table,
            exists=exists,
            coarse=random.random() < 0.25,
            faults=draw_faults(random),
            sticky=random.choice((0.0, 0.3, 0.7, 0.9)),
            loads=tuple(_load(random, number, hot, slow) for number in range(random.choice((1, 1, 2, 2, 3)))),
            foreign=tuple(draw_foreign(random, kinds, hot, slow) for _ in range(random.choice((0, 1, 1, 2, 3, 4)))),
            compactions=tuple(draw_compaction(random, slow) for _ in range(random.choice((1, 2, 3)) if upkept else 0)),
            vacuums=tuple(random.uniform(6.9, 8.3) * day for _ in range(random.randrange(1, 4))) if slow else (),
            checkpoints=tuple(random.uniform(0.5, 4) * day for _ in range(random.randrange(3))) if slow else (),
            hands=(random.uniform(0.5, 20),) if random.random() < 0.1 else (),
        )


def draw_faults(random: Random) -> Faults:
    if random.random() < 0.1:
        return Faults()

    def rate(most: float) -> float:
        return random.choice((0.0, 0.0, most / 4, most))

    return Faults(
        crash=rate(0.02),
        refused=rate(0.02),
        lost=rate(0.05),
        late=rate(0.04),
        delay=rate(0.06),
        torn=random.choice((0.0, 0.3)),
    )


def _load(random: Random, number: int, hot: tuple[int, ...], slow: bool) -> LoadPlan:
    modes = (Append, OverwritePartitions, ReplaceWhere)
    mode = random.choice((*modes, *modes, Overwrite))
    publish = random.choice((PublishMode.EACH, PublishMode.TOGETHER))
    count = random.choice((1, 2, 2, 3))
    lone = count == 1 and publish is PublishMode.EACH and random.random() < 0.6
    shared = draw_some(random, hot)
    keys = [f"w{i}" for i in range(count)]
    names = [f"writer {i}" for i in range(count)]
    twins = count > 1 and random.random() < 0.04
    if twins:
        keys[1] = keys[0]
    bounded = mode is ReplaceWhere or random.random() < 0.3
    own = random.random() < 0.4
    reading = random.random() < 0.1
    writers = []
    for i, key in enumerate(keys):
        into = ((hot[i % len(hot)],) if own else shared) if bounded else None
        reads = reading and random.random() < 0.7
        # Every third reads by the table's path. No chance is taken for it, so that seeds stand for what they did before.
        named = (None, hot[:1], PARTITIONS)[(number + i) % 3] if reads else None
        sources = _rows(random, into, hot), _rows(random, into, hot)
        writers.append(WriterPlan(key, names[i], sources, into, reads, named))
    appends = mode is Append
    reruns = 0 if twins else random.choice((0, 0, 1, 1, 2))
    # Of reconciliations at once, one may find more of a load's buffers than another.
    early = (0, 1, 2, 3) if publish is PublishMode.TOGETHER and not appends else (0, 0, 1, 2)
    early = (0,) if lone else early
    source = 0
    rerun = []
    listed = tuple(writers)
    for round_ in range(reruns):
        source = random.choice((source, 1))
        wait = random.choice((0.0, 1.0, 10.0)) * random.random()
        if not lone and random.random() < 0.2:
            more = WriterPlan(f"x{round_}", f"writer x{round_}", writers[0].sources, writers[0].into)
            listed = _changed(random, listed, more)
        kind = "again" if random.random() < 0.2 else "clear"
        cleared = draw_some(random, tuple(w.key for w in listed))
        rerun.append(Rerun(kind, cleared, listed, random.randrange(3), source, wait))
    hasty = random.random() < 0.2
    redeployed = (random.uniform(0, 3), random.randrange(3)) if random.random() < 0.2 else None
    tries = random.choice((1, 2, 3))
    # Airflow does not tell a retry from a clear where `retries` has fallen twice, or while another task was cleared.
    if rerun:
        redeployed = None
    if hasty:
        rerun = [attrs.evolve(one, retries=tries - 1) for one in rerun]
    return LoadPlan(
        load=Load("sim", f"dag{number}", "load", f"2019-0{number + 1}-01T00:00:00+00:00"),
        lone=lone,
        one_by_one=random.random() < 0.25,
        mode=mode,
        publish=publish,
        policy=random.choice((*[Policy.LAST_WRITER_WINS] * 6, *[Policy.FIRST_WRITER_WINS] * 2, Policy.FAIL)),
        on_missing=random.choice(list(OnMissingWriter)),
        on_rerun=random.choice(tuple(OnRerun) if appends else (OnRerun.REPLACE, OnRerun.SKIP)),
        on_unexpected_rows=random.choice((*[OnUnexpectedRows.SET_ASIDE] * 4, OnUnexpectedRows.REFUSE)),
        allow_empty=random.random() < 0.5,
        fingerprinted=random.random() < 0.9,
        writers=tuple(writers),
        reruns=tuple(rerun),
        tries=tries,
        start=random.choice((0.0, 0.0, random.uniform(0, 2))),
        before_reconcile=random.choice((0.0, 2.0, 3.0, 7.2, 7.6)) * 86_400 if slow else 0.0,
        redeployed=redeployed,
        lost_heartbeat=random.choice((0.0, 0.15, 0.4)),
        hasty=hasty,
        early=tuple(10 ** random.uniform(-1, 0.7) for _ in range(random.choice(early))),
    )


def _changed(random: Random, listed: tuple[WriterPlan, ...], more: WriterPlan) -> tuple[WriterPlan, ...]:
    """Change the list that the writers are mapped over, so that they move to other tasks."""
    some = list(listed)
    how = random.randrange(3)
    if how == 0:
        some.insert(0, more)
    elif how == 1 and len(some) > 1:
        del some[0]
    else:
        some.reverse()
    return tuple(some)


def _rows(random: Random, into: tuple[int, ...] | None, hot: tuple[int, ...]) -> dict[int, int]:
    if random.random() < 0.08:
        return {}
    rows = {p: random.randrange(1, 4) for p in draw_some(random, into or hot)}
    if into is not None and random.random() < 0.15:
        rows.setdefault(random.choice(PARTITIONS), 1)
    return rows


def draw_table(random: Random) -> TablePlan:
    plain = random.random() < 0.5
    mapping, ids, stamps, vectors = (
        random.choice(("none", "name", "name", "id")),
        *(random.random() < 0.5 for _ in range(3)),
    )
    return TablePlan("none", False, False, False) if plain else TablePlan(mapping, ids, stamps, vectors)


def _kinds(random: Random, table: TablePlan, slow: bool) -> tuple[str, ...]:
    """What others do, if they do anything; often they leave the table's definition alone, for that ends many writers."""
    kinds = ["append"] * 4 + ["overwrite", "overwrite dynamic", "overwrite all", "truncate"]
    kinds += ["delete", "trim", "update", *["compact"] * 5, "add column", "add check"]
    kinds += ["erase"] * 3 * table.vectors
    if random.random() < 0.6:
        return tuple(kinds)
    if table.mapping != "none":
        kinds += ["rename", *["rename partition"] * 4, *["swap column"] * 4]
    kinds += ["erase"] * 4 * table.vectors
    # Whoever restores files that a VACUUM has listed loses them, whatever we do.
    kinds += [] if slow else ["restore"] * 2 + ["replace", "remake", "remake"]
    return tuple(kinds)


def draw_foreign(random: Random, kinds: tuple[str, ...], hot: tuple[int, ...], slow: bool) -> ForeignPlan:
    return ForeignPlan(
        kind=random.choice(kinds),
        partition=random.choice(hot),
        start=random.uniform(0, 8 * 86_400)
        if slow
        else random.choice((random.uniform(0, 2), 10 ** random.uniform(-1, 1.7))),
        thinks=10 ** random.uniform(-2, 0.7),
        blind=random.choice((True, True, None, None, False)),
        silent=random.random() < 0.1,
        hides=random.choice(("absent", "null", "empty")) if random.random() < 0.08 else None,
        ahead=random.choice((0.0, 0.0, random.uniform(-5, 5))),
        compacts=random.random() < 0.3,
    )


def draw_compaction(random: Random, slow: bool) -> CompactionPlan:
    day = 86_400.0
    return CompactionPlan(
        start=random.uniform(0, 8 * day)
        if slow
        else random.choice((random.uniform(0, 3), 10 ** random.uniform(0, 1.7))),
        works=random.choice((0.0, random.uniform(0, 4 * day) if slow else 10 ** random.uniform(-1, 1))),
        waits=random.choice((0.0, random.uniform(0, 4 * day) if slow else 10 ** random.uniform(-1, 1))),
        zorder_by=random.choice(((), (), ("id",))),
    )


def draw_some(random: Random, of: tuple[Any, ...]) -> tuple[Any, ...]:
    distinct = tuple(dict.fromkeys(of))
    return tuple(sorted(random.sample(distinct, random.randrange(1, len(distinct) + 1))))
