"""A race for one new table, from nothing: a Spark a writer, which commits by itself, and this package.

Nothing is warm here: what Spark's start costs is a part of the figures.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from include.local import jars
from include.local.settings import from_environment
from tests.benchmarks import ours
from tests.benchmarks.loads import judge
from tests.benchmarks.ours import PARTITION, STEPS
from tests.benchmarks.results import OURS, SUBMITS, Race
from tests.benchmarks.spark_use import cpu_seconds
from tests.benchmarks.tpch import OWN, Share, Source, source
from tests.benchmarks.ways import remove

if TYPE_CHECKING:
    from tests.support.spark import Server

_SCRIPT = Path(__file__).with_name("submitted.py")
_MEMORY = "1g"
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


@attrs.frozen(kw_only=True)
class Plan:
    """What is raced for.

    :param scale: of lineitem; 1 for 6 M rows.
    :param writers: how many, each with a file of its own for a partition of its own.
    """

    scale: float
    writers: int


@attrs.frozen
class _Ended:
    """A writer whose rows are in.

    :param cpu: CPU seconds of its processes.
    """

    cpu: float
    failed: int
    faults: list[str]


def measure(
    plan: Plan, started: Callable[[], AbstractContextManager[Server]], state: Path, say: Callable[[str], None]
) -> list[Race]:
    """Race once by each way."""
    rows = source(state / "sources", plan.scale, OWN, plan.writers)
    found = []
    for race in (_submitted, _by_us):
        table = state / "Tables" / "race"
        remove(table)
        seen = race(rows, table, state, started)
        say(f"{plan.writers} writers race: {seen.way} took {seen.seconds:.0f} s, {seen.failed} jobs failed")
        found.append(seen)
        remove(table)
    return found


def _by_us(rows: Source, table: Path, state: Path, started: Callable[[], AbstractContextManager[Server]]) -> Race:
    faults: list[str] = []
    began = time.monotonic()
    with started() as server:
        ours.connect(state, server.remote)
        try:
            ours.load(table, rows.shares)
        except Exception as error:  # a failure is told like wrong rows
            faults.append(repr(error))
        seconds = time.monotonic() - began
        cpu = cpu_seconds(server.pid)
    return _race(OURS, rows, table, seconds, _Ended(cpu, 0, faults))


def _submitted(rows: Source, table: Path, state: Path, _: object) -> Race:
    directory = state / "submits"
    directory.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with ThreadPoolExecutor(len(rows.shares)) as pool:
        ended = list(pool.map(lambda share: _until_in(directory, share, table), rows.shares))
    seconds = time.monotonic() - began
    faults = [fault for writer in ended for fault in writer.faults]
    whole = _Ended(sum(writer.cpu for writer in ended), sum(writer.failed for writer in ended), faults)
    return _race(SUBMITS, rows, table, seconds, whole)


def _race(way: str, rows: Source, table: Path, seconds: float, ended: _Ended) -> Race:
    return Race(
        way=way,
        writers=len(rows.shares),
        rows=rows.totals.rows,
        seconds=seconds,
        jvm=ended.cpu,
        failed=ended.failed,
        faults=[*ended.faults, *judge(table, rows.totals, delta=True)[1]],
    )


def _until_in(state: Path, share: Share, table: Path) -> _Ended:
    """Submit a writer's job, and once more where it lost the race, as a scheduler does that retries at once."""
    cpu = 0.0
    for failed in range(_MOST_TRIES):
        log = state / f"{share.writer}-{failed + 1}.log"
        used, status = _submit(share, table, log)
        cpu += used
        if status == 0:
            return _Ended(cpu, failed, [])
        if not _LOST_RACE.search(log.read_text(errors="replace")):
            return _Ended(cpu, failed, [f"writer {share.writer} ended with status {status}: {log}"])
    return _Ended(cpu, _MOST_TRIES, [f"writer {share.writer} lost the race {_MOST_TRIES} times: {state}"])


def _submit(share: Share, table: Path, log: Path) -> tuple[float, int]:
    """Append a share by a ``spark-submit`` of its own.

    :returns: the CPU seconds of its process, and its exit status.
    """
    files = jars.resolve(from_environment().jars)
    command = [str(jars.spark_home() / "bin" / "spark-submit"), "--master", "local[2]"]
    command += ["--driver-memory", _MEMORY, "--jars", ",".join(map(str, files))]
    for name, value in _SETTINGS.items():
        command += ["--conf", f"{name}={value}"]
    command += [str(_SCRIPT), share.path.as_uri(), STEPS["dated"], table.as_uri(), PARTITION]
    with log.open("wb") as said:
        process = subprocess.Popen(
            command, cwd=log.parent, env=jars.environment(), stdin=subprocess.DEVNULL, stdout=said, stderr=said
        )
    # Not wait(): it does not tell what the process has used.
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return used.ru_utime + used.ru_stime, process.returncode
