"""``make bench``: what this package costs beside other ways; about ten minutes on two cores, ``FULL=1`` an hour or more.

It prints every measurement when it has ended, and keeps all of them, and a page that tells them, under ``bench-results/``.
The exit status is 1 if a row or a commit is missing or there twice, whatever the speed.

``PAGE=1`` writes docs/performance.md instead, and README's figures with it. ``make bench ARGS="--only commits"`` measures
one part, without a page; ``ARGS="--report FILE"`` renders the page of a result that was kept.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console

from include.local import jars
from include.local.connect_server import free_port
from tests.benchmarks import commits, growth, loads, merges, overhead, races, report
from tests.benchmarks.machine import Observed
from tests.benchmarks.results import Result
from tests.benchmarks.tpch import OWN, SHARED
from tests.support.airflow_home import migrated_database, use_own_home
from tests.support.spark import Server

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local" / "bench"
RESULTS = ROOT / "bench-results"
DOCS, README = ROOT / "docs", ROOT / "README.md"
PARTS = ("races", "loads", "overhead", "merges", "commits", "growth")
SPARK_MEMORY = "4g"


@attrs.frozen(kw_only=True)
class Plan:
    """How much of each part is measured."""

    races: races.Plan
    loads: loads.Plan
    commits: commits.Plan
    growth: growth.Plan
    merges: merges.Plan
    tasks: int


SHORT = Plan(
    races=races.Plan(scale=0.1, writers=7),
    loads=loads.Plan(scale=0.1, warm_up_scale=0.01, kinds=(SHARED, OWN), writers=(7,), rounds=2, warm_ups=2),
    commits=commits.Plan(local={1: 200, 4: 60, 16: 20}, s3={1: 40, 4: 15, 16: 5}),
    growth=growth.Plan(versions=(100, 1_000, 10_000), files=(1_000, 10_000, 100_000)),
    merges=merges.Plan(rows=3_000_000, files=40, keys=20_000, rounds=2),
    tasks=2,
)
FULL = Plan(
    races=races.Plan(scale=1, writers=7),
    loads=loads.Plan(
        scale=1,
        warm_up_scale=0.01,
        kinds=(SHARED, OWN),
        writers=(2, 7, 28),
        rounds=4,
        warm_ups=3,
    ),
    commits=commits.Plan(local={1: 1000, 4: 300, 16: 100}, s3={1: 200, 4: 60, 16: 20}),
    growth=growth.Plan(versions=(100, 1_000, 10_000, 100_000), files=(1_000, 10_000, 100_000, 1_000_000)),
    merges=merges.Plan(rows=3_000_000, files=40, keys=20_000, rounds=4),
    tasks=5,
)

console = Console(highlight=False, soft_wrap=True)


def main(arguments: list[str]) -> int:
    """Measure, print, keep the samples, render the page.

    :returns: 0 if every row was there and no commit failed, whatever the speed.
    """
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--full", action="store_true", help="measure all sizes and ways")
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be given several times")
    parser.add_argument("--report", type=Path, metavar="FILE", help="measure nothing, render the page of a result")
    parser.add_argument("--page", action="store_true", help="write docs/performance.md, and README's figures with it")
    asked = parser.parse_args(arguments)
    if asked.report:
        return _report(Result.from_json(json.loads(asked.report.read_text())), page=asked.page)
    # The lines of the writers' logs, and of Spark's client, would hide the bench's own.
    os.environ |= {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR", "SPARK_CONNECT_LOG_LEVEL": "CRITICAL"}
    migrated_database(use_own_home())
    return _report(_measure(FULL if asked.full else SHORT, asked.only or PARTS, full=asked.full), page=asked.page)


def _measure(plan: Plan, parts: Collection[str], *, full: bool) -> Result:
    observed, found = Observed(), dict[str, Any]()
    kept = _file("bench")
    lakehouse = STATE / "lakehouse"

    def keep() -> Result:
        # After every part, as a run of all sizes takes long.
        rounds, warm_ups = plan.loads.rounds, plan.loads.warm_ups
        result = Result(machine=observed.end(full=full), rounds=rounds, warm_ups=warm_ups, **found)
        kept.write_text(json.dumps(result.to_json(), indent=1))
        return result

    if "races" in parts:
        found["races"] = races.measure(plan.races, _server, lakehouse, _say)
        keep()
    if {"loads", "overhead", "merges"} & set(parts):
        with _server() as server:
            if "loads" in parts:
                found["loads"] = loads.measure(plan.loads, server, lakehouse, _say)
                keep()
            if "overhead" in parts:
                found["tasks"] = overhead.measure(plan.tasks, server, lakehouse, _say)
                keep()
            if "merges" in parts:
                found["merges"] = merges.measure(plan.merges, server, lakehouse, _say)
    if "commits" in parts:
        found["commits"] = commits.measure(plan.commits, STATE / "commits", ROOT / ".local", _say)
        keep()
    if "growth" in parts:
        found["openings"], found["publishings"] = growth.measure(plan.growth, STATE / "growth", _say)
    result = keep()
    console.print(f"Samples: {kept.relative_to(ROOT)}")
    return result


def _report(result: Result, *, page: bool) -> int:
    for fault in result.faults:
        console.print(f"[red]WRONG[/] {fault}")
    if result.faults:
        return 1
    if result.is_whole:
        told = DOCS / "performance.md"
        if page:
            report.tell(result, README)
        else:
            RESULTS.mkdir(exist_ok=True)
            told = Path(shutil.copy(told, RESULTS))
        console.print(f"Page: {told}, {report.tell(result, told)} tables")
    return 0


def _say(line: str) -> None:
    console.print(f"{datetime.now(UTC):%H:%M:%S} {line}", markup=False)


def _file(name: str) -> Path:
    RESULTS.mkdir(exist_ok=True)
    return RESULTS / f"{name}-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"


@contextmanager
def _server() -> Iterator[Server]:
    server = Server(
        STATE / "spark",
        port=free_port(),
        ui_port=free_port(),
        memory=SPARK_MEMORY,
        jar_files=jars.resolve(ROOT / ".local"),
    )
    _say("Starting Spark Connect")
    server.start()
    try:
        yield server
    finally:
        server.stop()


if __name__ == "__main__":
    # Or a bench that is stopped would leave its servers behind.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Stopped."))
    started = time.monotonic()
    status = main(sys.argv[1:])
    console.print(f"{time.monotonic() - started:.0f} s in all")
    sys.exit(status)
