"""What a piece of work costs a Spark server: CPU seconds of its process and of its tasks, and Spark jobs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import psutil

from tests.benchmarks.samples import Sample

if TYPE_CHECKING:
    from tests.support.spark import Server


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
