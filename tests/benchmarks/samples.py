"""What the parts of the bench find: samples, which are plain dicts that JSON keeps; how they are taken, and read together.

A sample says what was measured, and its figures: ``seconds`` of wall time, ``cpu`` seconds of this process, ``jvm`` CPU
seconds of Spark. Its ``faults`` say which rows are wrong, or what failed.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from tests.support.spark import Server

Sample = dict[str, Any]

DELTA = "one Delta job"
PARQUET = "one Parquet job"
OURS = "this package"
AGAIN = "this package, table there"
APPENDS = "appends in one session"
SUBMITS = "`spark-submit` jobs that commit by themselves"
DELTA_MERGE = "Delta's own MERGE"


def line(sample: Mapping[str, Any]) -> str:
    """All that a sample says but its long lists, and what is wrong with it."""
    said = [
        f"{name} {value:,.3g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in sample.items()
        if isinstance(value, str | int | float)
    ]
    return ", ".join(said) + (f" WRONG: {'; '.join(sample['faults'][:3])}" if sample["faults"] else "")


def grouped(samples: Iterable[Sample], *names: str) -> dict[tuple[Any, ...], list[Sample]]:
    """Put samples that say the same under these names beside each other, in the order of their first."""
    found: dict[tuple[Any, ...], list[Sample]] = {}
    for sample in samples:
        found.setdefault(tuple(sample[name] for name in names), []).append(sample)
    return found


def median(samples: Iterable[Sample], name: str) -> float:
    """The median of a figure."""
    return statistics.median(sample[name] for sample in samples)


def turns(ends: Sequence[str], middle: Sequence[str], warm_ups: int, rounds: int) -> Iterator[tuple[int, str]]:
    """Yield in which order ways are measured, so that no way profits from its place, with the number of the round.

    A server gets warmer from one piece of work to the next. So every way is warmed up, in rounds of negative numbers;
    those that others are compared with are at both ends of a round, and every second round has the others reversed.
    """
    yield from ((number - warm_ups, way) for number in range(warm_ups) for way in (*ends, *middle))
    for number in range(rounds):
        between = reversed(middle) if number % 2 else middle
        yield from ((number, way) for way in (*ends, *between, *reversed(ends)))


def cpu_seconds(pid: int | None) -> float:
    """The CPU seconds that a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


def metered(server: Server, do: Callable[[], object]) -> Sample:
    """Do a piece of work, and return what it cost this process and the server, whose Spark's tasks are a part of ``jvm``."""
    seen = {what: {each["id"] for each in _status(server, what)} for what in ("job", "stage")}
    faults: list[str] = []
    jvm, cpu, seconds = cpu_seconds(server.pid), time.process_time(), time.monotonic()
    try:
        do()
    except Exception as error:  # every failure is told, and the others are measured all the same
        faults.append(repr(error))
    seconds, cpu, jvm = time.monotonic() - seconds, time.process_time() - cpu, cpu_seconds(server.pid) - jvm
    # The status follows the work by a moment.
    for _ in range(100):
        stages = _status(server, "stage", seen["stage"])
        if all(stage["status"] != "ACTIVE" for stage in stages):
            break
        time.sleep(0.1)
    else:
        faults.append("Spark still works on a stage, although the work has ended")
    tasks = sum(stage["executorCpuTime"] for stage in stages) / 1e9
    jobs = len(_status(server, "job", seen["job"]))
    return {"seconds": seconds, "cpu": cpu, "jvm": jvm, "tasks": tasks, "jobs": jobs, "faults": faults}


def _status(server: Server, what: str, but: frozenset[int] | set[int] = frozenset()) -> list[dict[str, Any]]:
    told = [{**each, "id": each[f"{what}Id"]} for each in server.status(f"applications/{{app}}/{what}s")]
    return [each for each in told if each["id"] not in but]
