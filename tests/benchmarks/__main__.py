"""``make bench``: what this package costs beside other ways; about ten minutes on two cores.

It prints every sample when it is taken, and keeps all of them, and a page that tells them, under ``bench-results/``. So two
trees are compared by the files that they leave. The exit status is 1 if a row or a commit is missing or there twice,
whatever the speed.

``PAGE=1`` writes docs/project/performance.md instead, and README's figures with it. ``make bench ARGS="--only commits"`` measures
one part, without a page.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from include.local import jars
from include.local.connect_server import free_port
from tests.benchmarks import commits, growth, loads, merges, races, report, tasks
from tests.benchmarks.machine import Observed
from tests.benchmarks.samples import Sample, line
from tests.support.airflow_home import migrated_database, use_own_home
from tests.support.spark import Server

ROOT = Path(__file__).resolve().parents[2]
STATE = ROOT / ".local" / "bench"
RESULTS = ROOT / "bench-results"
DOCS, README = ROOT / "docs" / "project", ROOT / "README.md"
PARTS = ("races", "loads", "tasks", "merges", "commits", "openings", "publishings")


def main(arguments: list[str]) -> int:
    """Measure, print, keep the samples, write the page, and return 0 if every row was there, whatever the speed."""
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--only", action="append", choices=PARTS, help="measure this part; may be given several times")
    parser.add_argument(
        "--page", action="store_true", help="write docs/project/performance.md, and README's figures with it"
    )
    asked = parser.parse_args(arguments)
    # The lines of the writers' logs, and of Spark's client, would hide the bench's own.
    os.environ |= {"AIRFLOW__LOGGING__LOGGING_LEVEL": "ERROR", "SPARK_CONNECT_LOG_LEVEL": "CRITICAL"}
    migrated_database(use_own_home())
    return tell(_measure(asked.only or PARTS), page=asked.page)


def _measure(parts: Collection[str]) -> dict[str, Any]:
    observed, result = Observed(), dict[str, Any]()
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / f"bench-{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    lakehouse = STATE / "lakehouse"

    def take(part: str, samples: Iterable[Sample]) -> None:
        if part in parts:
            for sample in samples:
                print(f"{datetime.now(UTC):%H:%M:%S} {part}: {line(sample)}", flush=True)
                result.setdefault(part, []).append(sample)
            kept.write_text(json.dumps(result | {"conditions": observed.conditions()}, indent=1))

    # Each part measures as its samples are taken.
    take("races", races.measure(_server, lakehouse))
    if {"loads", "tasks", "merges"} & set(parts):
        with _server() as server:
            take("loads", loads.measure(server, lakehouse))
            take("tasks", tasks.measure(server, lakehouse))
            take("merges", merges.measure(server, lakehouse))
    take("commits", commits.measure(STATE / "commits", ROOT / ".local"))
    take("openings", growth.openings(STATE / "growth"))
    take("publishings", growth.publishings(STATE / "growth"))
    print(f"Samples: {kept.relative_to(ROOT)}")
    return json.loads(kept.read_text())


def tell(result: Mapping[str, Any], *, page: bool) -> int:
    """Write the page of a result, if it has all parts and nothing is wrong; return 1 if a row is.

    :param page: docs/project/performance.md and README's figures. Else a copy is written.
    """
    samples = [(part, sample) for part in PARTS for sample in result.get(part, ())]
    wrong = [f"{part}: {line(sample)}" for part, sample in samples if sample["faults"]]
    if wrong:
        print(*wrong, sep="\n")
        return 1
    if all(part in result for part in PARTS):
        told = DOCS / "performance.md"
        if page:
            report.tell(result, README)
        else:
            RESULTS.mkdir(exist_ok=True)
            told = Path(shutil.copy(told, RESULTS))
        print(f"Page: {told}, {report.tell(result, told)} tables")
    return 0


@contextmanager
def _server() -> Iterator[Server]:
    state, files = STATE / "spark", jars.resolve(ROOT / ".local")
    server = Server(state, port=free_port(), ui_port=free_port(), memory="4g", jar_files=files)
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
    print(f"{time.monotonic() - started:.0f} s in all")
    sys.exit(status)
