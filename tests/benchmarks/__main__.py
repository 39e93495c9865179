"""``make bench``: staged writers beside one Spark job, and commits per second; two to four minutes.

``make bench ARGS=--memory``: an input ten times the planned size instead, and what it costs in memory.
``make bench ARGS=--opening``: how long a table of 10,000 commits takes to open, beside one of 100.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import attrs
import psutil
from rich.console import Console
from rich.table import Table

from include.local import jars
from include.local.connect_server import free_port
from tests.benchmarks import opening
from tests.benchmarks.commits import Sample, measure, measure_bare
from tests.benchmarks.loads import WAYS, Load, remove
from tests.benchmarks.memory import Memory, measure_memory, megabytes
from tests.benchmarks.tpch import Totals, lineitem, totals
from tests.support.spark import Server

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local" / "bench"
RESULTS = ROOT / "bench-results"
REPEATS = 2
WARM_UPS = 3
WARM_UP_SCALE = 0.01
PLANNED_SCALE = 0.1
SPARK_MEMORY = "4g"
GOAL_RATIO = 1.15
GOAL_COMMITS = 150.0
COMMITS = {1: 200, 4: 60, 16: 20}

CAUSE = (
    "Why: lineitem is in the order of its keys, so every year is in every part of the file. The one job reads it once, "
    "seven writers read it seven times, as no statistics let them skip. And each writer is a Spark session of its own, "
    "for which the server compiles the same code again. Both cost processor time, and there are two cores."
)

console = Console(highlight=False)


def main(arguments: list[str]) -> int:
    """Measure, print, keep the raw samples.

    :param arguments: of the command line.
    :returns: 0 if every row was there and no commit failed, whatever the speed.
    """
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--memory", action="store_true", help="measure memory with ten times the planned input")
    parser.add_argument("--opening", action="store_true", help="measure how long short and long tables take to open")
    asked = parser.parse_args(arguments)
    if asked.opening:
        return _opening()
    if asked.memory:
        memory, right = _memory()
        _keep("memory", attrs.asdict(memory))
        return 0 if right else 1
    rates = _commits()
    loads, wanted = _loads()
    _keep(
        "bench",
        {
            "commits": {name: attrs.asdict(sample) for name, sample in rates.items()},
            "loads": [attrs.asdict(load) for load in loads],
        },
    )
    return 0 if _show_commits(rates) & _show_loads(loads, wanted) else 1


def _keep(name: str, raw: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    kept.write_text(json.dumps(raw, indent=1, default=str))
    console.print(f"Raw samples: {kept.relative_to(ROOT)}")


def _commits() -> dict[str, Sample]:
    rates = {}
    directory = STATE / "commits"
    for processes, each in COMMITS.items():
        remove(directory)
        with console.status(f"Commits by {processes} processes …"):
            rates[f"publish, {processes}"] = measure(directory, processes, each)
    with console.status("Bare create-only puts by 16 processes …"):
        rates["bare put, 16"] = measure_bare(directory, 16, 100)
    return rates


@contextmanager
def _server() -> Iterator[Server]:
    server = Server(
        STATE / "spark",
        port=free_port(),
        ui_port=free_port(),
        memory=SPARK_MEMORY,
        jar_files=jars.resolve(ROOT / ".local"),
    )
    with console.status("Starting Spark Connect …"):
        server.start()
    try:
        yield server
    finally:
        server.stop()


def _loads() -> tuple[list[Load], Totals]:
    with console.status("Making lineitem at scale 1 …"):
        source, little = lineitem(STATE), lineitem(STATE, WARM_UP_SCALE)
        wanted = totals(source)
    loads = []
    names = list(WAYS)
    with _server() as server:
        for number in range(WARM_UPS):
            for name in names:
                with console.status(f"Warming up, {number + 1} of {WARM_UPS}: {name} …"):
                    _load(server, name, little)
        for number in range(REPEATS):
            # Each way comes first once in a while.
            for name in names[number % 3 :] + names[: number % 3]:
                with console.status(f"Round {number + 1} of {REPEATS}: {name} …"):
                    loads.append(_load(server, name, source))
    return loads, wanted


def _load(server: Server, name: str, source: Path) -> Load:
    table = STATE / "tables" / name
    remove(table)
    used = _cpu_seconds(server)
    load = WAYS[name](server.remote, source, table)
    remove(table)
    return attrs.evolve(load, cpu_seconds=_cpu_seconds(server) - used)


def _cpu_seconds(server: Server) -> float:
    times = psutil.Process(server.pid).cpu_times()
    return float(times.user + times.system)


def _opening() -> int:
    with console.status("Making tables of 100 and of 10,000 commits …"):
        found = opening.measure(STATE / "tables" / "opening")
    table = Table("commits", "median ms", "times the first", title="Opening a table")
    for seen in found:
        table.add_row(f"{seen.commits:,}", f"{1000 * seen.median:.1f}", f"{seen.median / found[0].median:.2f}")
    console.print(table)
    _keep("opening", {"seconds": {str(seen.commits): seen.seconds for seen in found}})
    return 0


def _memory() -> tuple[Memory, bool]:
    planned, big = lineitem(STATE, PLANNED_SCALE), lineitem(STATE, 10 * PLANNED_SCALE)
    found = {}
    with _server() as server:
        # The planned size first: the server's own peaks only ever rise.
        for name, source in (("planned", planned), ("ten times", big)):
            with console.status(f"Loading {name} …"):
                found[name] = measure_memory(server, source, STATE / "tables" / "memory")
    table = Table("input", "rows", "s", "task", "(idle)", "commit", "Spark heap", "Spark process", title="Peak memory")
    for name, seen in found.items():
        sizes = (seen.task, seen.idle, seen.committer, seen.heap, seen.server)
        table.add_row(name, f"{seen.rows:,}", f"{seen.seconds:.0f}", *map(megabytes, sizes))
    console.print(table)
    return found["ten times"], found["ten times"].totals == totals(big)


def _show_commits(rates: dict[str, Sample]) -> bool:
    table = Table("processes", "commits/s", "lost races", "failed", "goal", title="Commits on one local table")
    right = True
    for name, sample in rates.items():
        goal = ""
        if name == "publish, 16":
            goal = f">= {GOAL_COMMITS:.0f}: {'met' if sample.per_second >= GOAL_COMMITS and not sample.failed else 'MISSED'}"
        right &= not sample.failed and sample.rows_found in (None, sample.rows_expected)
        table.add_row(name, f"{sample.per_second:.0f}", str(sample.lost_races), str(len(sample.failed)), goal)
    console.print(table)
    return right


def _show_loads(loads: list[Load], wanted: Totals) -> bool:
    ways: dict[str, list[Load]] = {}
    for load in loads:
        ways.setdefault(load.way, []).append(load)
    seconds = {way: statistics.median(load.seconds for load in found) for way, found in ways.items()}
    cpu = {way: statistics.median(load.cpu_seconds for load in found) for way, found in ways.items()}
    one = "one Delta job"
    table = Table(
        "way", "median s", "ratio", "CPU s", "CPU ratio", "files", "goal", title="lineitem, 6 M rows, seven partitions"
    )
    for way, found in ways.items():
        ratio, cpu_ratio = seconds[way] / seconds[one], cpu[way] / cpu[one]
        met = ratio <= GOAL_RATIO
        goal = f"<= {GOAL_RATIO}: {'met' if met else 'MISSED'}" if way == "staged" else ""
        table.add_row(
            way, f"{seconds[way]:.1f}", f"{ratio:.2f}", f"{cpu[way]:.0f}", f"{cpu_ratio:.2f}", str(found[0].files), goal
        )
    console.print(table)
    if seconds["staged"] > GOAL_RATIO * seconds[one]:
        console.print(CAUSE)
    wrong = [load for load in loads if load.totals != wanted]
    if wrong:
        console.print(f"[red]Other rows than {wanted}:[/] {wrong}")
    return not wrong


if __name__ == "__main__":
    started = time.monotonic()
    status = main(sys.argv[1:])
    console.print(f"{time.monotonic() - started:.0f} s in all")
    sys.exit(status)
