"""``make bench``: staged writers beside one Spark job, and commits per second; two to four minutes."""

from __future__ import annotations

import json
import statistics
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from include.local import jars
from include.local.connect_server import ConnectServer, free_port
from tests.benchmarks.commits import Sample, measure, measure_bare
from tests.benchmarks.loads import WAYS, Load, remove
from tests.benchmarks.tpch import lineitem

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local" / "bench"
RESULTS = ROOT / "bench-results"
REPEATS = 2
GOAL_RATIO = 1.15
GOAL_COMMITS = 150.0
COMMITS = {1: 200, 4: 60, 16: 20}

console = Console(highlight=False)


def main() -> int:
    """Measure, print, keep the raw samples.

    :returns: 0 if every row was there and no commit failed, whatever the speed.
    """
    began = datetime.now(UTC)
    rates = _commits()
    loads = _loads()
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / f"{began:%Y%m%dT%H%M%SZ}.json"
    raw = {
        "commits": {name: attrs.asdict(sample) for name, sample in rates.items()},
        "loads": [attrs.asdict(load) for load in loads],
    }
    kept.write_text(json.dumps(raw, indent=1, default=str))
    right = _show_commits(rates) & _show_loads(loads)
    console.print(f"Raw samples: {kept.relative_to(ROOT)}")
    return 0 if right else 1


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


def _loads() -> list[Load]:
    with console.status("Making lineitem at scale 1 …"):
        source = lineitem(STATE)
    server = ConnectServer(
        STATE / "spark", port=free_port(), ui_port=free_port(), memory="4g", jar_files=jars.resolve(ROOT / ".local")
    )
    loads = []
    with console.status("Starting Spark Connect …"):
        server.start()
        server.wait_ready()
    try:
        names = list(WAYS)
        for repeat in range(-1, REPEATS):
            # Each way comes first once in a while; one uncounted load warms the server up.
            for name in ["parquet"] if repeat < 0 else names[repeat % 3 :] + names[: repeat % 3]:
                table = STATE / "tables" / name
                remove(table)
                with console.status(f"{'Warming up' if repeat < 0 else f'Round {repeat + 1} of {REPEATS}'}: {name} …"):
                    load = WAYS[name](server.remote, source, table)
                remove(table)
                if repeat >= 0:
                    loads.append(load)
    finally:
        server.stop()
    return loads


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


def _show_loads(loads: list[Load]) -> bool:
    ways: dict[str, list[Load]] = {}
    for load in loads:
        ways.setdefault(load.way, []).append(load)
    medians = {way: statistics.median(load.seconds for load in found) for way, found in ways.items()}
    one_job = medians["one Delta job"]
    table = Table(
        "way", "median s", "x one Delta job", "files", "MB", "goal", title="lineitem, 6 M rows, seven partitions"
    )
    for way, found in ways.items():
        ratio = medians[way] / one_job
        goal = f"<= {GOAL_RATIO}: {'met' if ratio <= GOAL_RATIO else 'MISSED'}" if way == "staged" else ""
        size = found[0].bytes / 1e6
        table.add_row(way, f"{medians[way]:.1f}", f"{ratio:.2f}", str(found[0].files), f"{size:.0f}", goal)
    console.print(table)
    totals: set[Any] = {load.totals for load in loads}
    if len(totals) != 1:
        console.print(f"[red]The ways do not hold the same rows:[/] {totals}")
    return len(totals) == 1


if __name__ == "__main__":
    started = time.monotonic()
    status = main()
    console.print(f"{time.monotonic() - started:.0f} s in all")
    sys.exit(status)
