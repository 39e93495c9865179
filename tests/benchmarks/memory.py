"""What ten times the planned input costs in memory: of the writer's task, and of the Spark server."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import psutil

from tests.benchmarks import ours
from tests.benchmarks.together import alone, peak_memory
from tests.benchmarks.tpch import Share, Totals
from tests.benchmarks.ways import remove

if TYPE_CHECKING:
    from tests.support.spark import Server

_EVERY = 0.05
_MEBIBYTE = 1 << 20


@attrs.frozen
class Memory:
    """Peaks of one writer's load.

    :param seconds: of the whole load.
    :param idle: peak resident memory of the task's process when it has imported what it needs, in bytes.
    :param task: the same when the task has ended.
    :param heap: peak of the server's heap in use, in bytes, as Spark's status tells it.
    :param server: peak resident memory of the server's process, in bytes.
    :param totals: of the rows, read back.
    """

    seconds: float
    idle: int
    task: int
    heap: int
    server: int
    totals: Totals


def measure(server: Server, lakehouse: Path, source: Path) -> Memory:
    """Load a file by one writer, in a process of its own, and watch it and the server.

    :param server: that runs, with its status API.
    :param lakehouse: directory for the table, which is removed afterwards.
    :param source: lineitem, in Parquet.
    """
    from deltalake import DeltaTable

    table = lakehouse / "Tables" / "memory"
    remove(table)
    ours.connect(lakehouse, server.remote)
    with _Watch(server) as watch:
        began = time.monotonic()
        idle, task = alone(load, table, source)
        seconds = time.monotonic() - began
    totals = Totals.of(DeltaTable(str(table)).to_pyarrow_dataset())
    remove(table)
    return Memory(seconds, idle, task, watch.heap, watch.resident, totals)


def load(table: Path, source: Path) -> tuple[int, int]:
    """Load a file by one writer, and return this process's peaks before and after, in bytes."""
    # What a task imports anyway is not the load's.
    import pyspark.sql.connect.session  # noqa: F401

    import airflow_provider_onelake.operators.write  # noqa: F401

    idle = peak_memory()
    # With a filter that takes all, as writers of a shared source have one.
    ours.load(table, [Share("all", source, "true")])
    return idle, peak_memory()


class _Watch:
    """Samples the server's memory until it is left."""

    def __init__(self, server: Server) -> None:
        self.heap = self.resident = 0
        self._server = server
        self._process = psutil.Process(server.pid)
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> _Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        turn = 0
        while not self._done.wait(_EVERY):
            self.resident = max(self.resident, self._process.memory_info().rss)
            turn += 1
            # Spark notes the heap at its heartbeats; asking more often shows nothing more.
            if turn % 20 == 0:
                for executor in self._server.status("applications/{app}/executors"):
                    peaks = executor.get("peakMemoryMetrics") or {}
                    self.heap = max(self.heap, int(peaks.get("JVMHeapMemory", 0)))


def megabytes(size: int) -> str:
    """Return a size for people.

    :param size: in bytes.
    """
    return f"{size / _MEBIBYTE:,.0f} MiB"
