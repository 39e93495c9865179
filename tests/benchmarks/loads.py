"""The same rows loaded in several ways, and what each costs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from tests.benchmarks import order, ours
from tests.benchmarks.results import PARQUET, Load
from tests.benchmarks.spark_use import Meter
from tests.benchmarks.tpch import Source, Totals, source
from tests.benchmarks.ways import ENDS, INTO_TABLES, MIDDLE, WAYS, create, remove

if TYPE_CHECKING:
    from tests.support.spark import Server

Say = Callable[[str], None]


@attrs.frozen(kw_only=True)
class Plan:
    """What is loaded, and how often.

    :param scale: of lineitem; 1 for 6 M rows.
    :param writers: how many; one number after the other.
    """

    scale: float
    warm_up_scale: float
    kinds: Sequence[str]
    writers: Sequence[int]
    rounds: int
    warm_ups: int


def measure(plan: Plan, server: Server, state: Path, say: Say) -> list[Load]:
    """Load by every way."""
    ours.connect(state, server.remote)
    found = []
    for kind in plan.kinds:
        for writers in plan.writers:
            say(f"{writers} writers, {kind} source: warming up")
            for load in _of_one_source(plan, server, state, kind, writers):
                say(_line(load))
                found.append(load)
    return found


def _of_one_source(plan: Plan, server: Server, state: Path, kind: str, writers: int) -> Iterator[Load]:
    files = state / "sources"
    little, whole = (source(files, scale, kind, writers) for scale in (plan.warm_up_scale, plan.scale))
    for way in order.warm_ups(ENDS, MIDDLE, plan.warm_ups):
        load = _once(server, state, little, writers, way, 0)
        # The figures of a warm-up mean nothing, but its rows have to be right.
        if load.faults:
            yield load
    for number, ways in enumerate(order.rounds(ENDS, MIDDLE, plan.rounds)):
        for way in ways:
            yield _once(server, state, whole, writers, way, number)


def _once(server: Server, state: Path, rows: Source, writers: int, way: str, number: int) -> Load:
    table = state / "Tables" / way.replace(",", "").replace(" ", "-")
    remove(table)
    if way in INTO_TABLES:
        create(rows, table)
    faults: list[str] = []
    meter, used, began = Meter(server), time.process_time(), time.monotonic()
    try:
        WAYS[way](server, rows, table)
    except Exception as error:  # every failure is told, and the others are measured all the same
        faults.append(repr(error))
    seconds, client = time.monotonic() - began, time.process_time() - used
    use = meter.read()
    files, wrong = judge(table, rows.totals, delta=way != PARQUET)
    remove(table)
    return Load(
        source=rows.kind,
        writers=writers,
        way=way,
        round=number,
        rows=rows.totals.rows,
        seconds=seconds,
        jvm=use.jvm,
        tasks=use.tasks,
        jobs=use.jobs,
        client=client,
        data_files=files,
        faults=[*faults, *wrong],
    )


def judge(table: Path, wanted: Totals, *, delta: bool) -> tuple[int, list[str]]:
    """Count a table's files, and compare its rows with the source's."""
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    try:
        if delta:
            read = DeltaTable(str(table))
            files, data = len(read.file_uris()), read.to_pyarrow_dataset()
        else:
            files, data = len(list(table.rglob("*.parquet"))), ds.dataset(table, partitioning="hive")
        found = Totals.of(data)
    except Exception as error:
        return 0, [f"the rows cannot be read: {error!r}"]
    return files, [] if found == wanted else [f"has {found}, and the source {wanted}"]


def _line(load: Load) -> str:
    wrong = f" WRONG: {'; '.join(load.faults)}" if load.faults else ""
    return (
        f"{load.writers} writers, {load.source} source, round {load.round + 1}: {load.way} took {load.seconds:.1f} s, "
        f"JVM {load.jvm:.1f} CPU s, tasks {load.tasks:.1f}; {load.jobs} Spark jobs{wrong}"
    )
