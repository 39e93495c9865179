"""A race for one new table, from nothing: a Spark a writer, which commits by itself, and this package.

Nothing is warm here: what Spark's start costs is a part of the figures.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from include.local import jars
from include.local.settings import from_environment
from tests.benchmarks import ours
from tests.benchmarks.loads import judge
from tests.benchmarks.ours import PARTITION, STEPS
from tests.benchmarks.samples import OURS, SUBMITS, Sample, cpu_seconds
from tests.benchmarks.tpch import OWN, SCALE, Share, Source, source

if TYPE_CHECKING:
    from tests.support.spark import Server

    Started = Callable[[], AbstractContextManager[Server]]

_SCRIPT = Path(__file__).with_name("submitted.py")
_MOST_TRIES = 10
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}
# What Delta says to a writer that another one was faster than. Anything else is a fault of the bench.
_LOST_RACE = re.compile(r"io\.delta\.exceptions\.\w*(?:Concurrent|Changed)\w*Exception")


def measure(started: Started, state: Path) -> Iterator[Sample]:
    """Race once by each way: so many writers, each with a file of its own for a partition of its own."""
    rows = source(state / "sources", SCALE, OWN)
    table = state / "Tables" / "race"
    for way, race in ((SUBMITS, _submitted), (OURS, _by_us)):
        shutil.rmtree(table, ignore_errors=True)
        began = time.monotonic()
        seconds, cpu, failed, faults = race(rows, table, state, started)
        wrong = [*faults, *judge(table, rows, delta=True)[1]]
        jobs = len(rows.shares) + failed
        yield {"way": way, "seconds": seconds - began, "jvm": cpu, "failed": failed, "jobs": jobs, "faults": wrong}
        shutil.rmtree(table, ignore_errors=True)


def _by_us(rows: Source, table: Path, state: Path, started: Started) -> tuple[float, float, int, list[str]]:
    """Return when the rows were in, the CPU seconds of Spark, how many jobs failed, and what is wrong."""
    faults: list[str] = []
    with started() as server:
        ours.connect(state, server.remote)
        try:
            ours.load(table, rows.shares)
        except Exception as error:  # a failure is told like wrong rows
            faults.append(repr(error))
        return time.monotonic(), cpu_seconds(server.pid), 0, faults


def _submitted(rows: Source, table: Path, state: Path, _: object) -> tuple[float, float, int, list[str]]:
    directory = state / "submits"
    directory.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(rows.shares)) as pool:
        ended = list(pool.map(lambda share: _until_in(directory, share, table), rows.shares))
    cpu, failed, faults = zip(*ended, strict=True)
    return time.monotonic(), sum(cpu), sum(failed), [fault for fault in faults if fault]


def _until_in(state: Path, share: Share, table: Path) -> tuple[float, int, str]:
    """Submit a writer's job, and once more where it lost the race, as a scheduler does that retries at once."""
    cpu = 0.0
    for failed in range(_MOST_TRIES):
        log = state / f"{share.writer}-{failed + 1}.log"
        used, status = _submit(share, table, log)
        cpu += used
        if status == 0:
            return cpu, failed, ""
        if not _LOST_RACE.search(log.read_text(errors="replace")):
            return cpu, failed, f"writer {share.writer} ended with status {status}: {log}"
    return cpu, _MOST_TRIES, f"writer {share.writer} lost the race {_MOST_TRIES} times: {state}"


def _submit(share: Share, table: Path, log: Path) -> tuple[float, int]:
    """Append a share by a ``spark-submit`` of its own, and return the CPU seconds of its process, and its exit status."""
    files = jars.resolve(from_environment().jars)
    command = [str(jars.spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-memory", "1g", "--jars", ",".join(map(str, files))]
    command += [word for name, value in _SETTINGS.items() for word in ("--conf", f"{name}={value}")]
    command += [str(_SCRIPT), share.path.as_uri(), STEPS["dated"], table.as_uri(), PARTITION]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=log.parent, env=jars.environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    # Not wait(): it does not tell what the process has used.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, process.returncode
