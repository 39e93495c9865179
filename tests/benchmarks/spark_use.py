"""What a piece of work costs a Spark server: CPU seconds of its process and of its tasks, and Spark jobs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import attrs
import psutil

if TYPE_CHECKING:
    from tests.support.spark import Server

_SETTLE_SECONDS = 10
_NANOSECONDS = 1e9


def cpu_seconds(pid: int | None) -> float:
    """Return the CPU seconds that a process has used so far."""
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@attrs.frozen
class Use:
    """What a piece of work cost.

    :param jvm: CPU seconds of the server's process.
    :param tasks: CPU seconds of Spark's tasks among them.
    """

    jvm: float
    tasks: float
    jobs: int


class Meter:
    """Reads the server's counters at its begin and at its end."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._job = self._newest("jobs", "jobId")
        self._stage = self._newest("stages", "stageId")
        self._cpu = cpu_seconds(server.pid)

    def read(self) -> Use:
        """Return what the server did since this was made. Call it as soon as the work has ended."""
        jvm = cpu_seconds(self._server.pid) - self._cpu
        # The status follows the work by a moment.
        until = time.monotonic() + _SETTLE_SECONDS
        while any(stage["status"] == "ACTIVE" for stage in self._after("stages", "stageId", self._stage)):
            if time.monotonic() > until:
                raise RuntimeError("Spark still works on a stage, although the load has ended.")
            time.sleep(0.1)
        stages = self._after("stages", "stageId", self._stage)
        jobs = self._after("jobs", "jobId", self._job)
        return Use(jvm, sum(stage["executorCpuTime"] for stage in stages) / _NANOSECONDS, len(jobs))

    def _newest(self, what: str, key: str) -> int:
        return max((seen[key] for seen in self._server.status(f"applications/{{app}}/{what}")), default=-1)

    def _after(self, what: str, key: str, last: int) -> list[dict[str, Any]]:
        return [seen for seen in self._server.status(f"applications/{{app}}/{what}") if seen[key] > last]
