"""What ten times the planned input costs in memory: of the task, of its commit, and of the Spark server."""

from __future__ import annotations

import multiprocessing
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from tests.benchmarks.loads import publish, remove, stage
from tests.benchmarks.tpch import Totals

if TYPE_CHECKING:
    from tests.support.spark import Server

_EVERY = 0.05
_MEBIBYTE = 1 << 20


@attrs.frozen
class Memory:
    """Peaks of one writer's load.

    :param rows: loaded.
    :param seconds: of the whole load.
    :param task: peak resident memory of the task's process, in bytes.
    :param idle: of the same process when it has imported all that it needs, in bytes.
    :param committer: peak of a process that reads the buffer and publishes it, in bytes.
    :param heap: peak of the server's heap in use, in bytes, as Spark's status tells it.
    :param server: peak resident memory of the server's process, in bytes.
    :param totals: of the rows, read back.
    """

    rows: int
    seconds: float
    task: int
    idle: int
    committer: int
    heap: int
    server: int
    totals: Totals


def measure_memory(server: Server, source: Path, table: Path) -> Memory:
    """Load a file with one writer, in processes of their own, and watch them.

    :param server: that runs, with its status API.
    :param source: lineitem, in Parquet.
    :param table: to make; it is removed afterwards.
    """
    from deltalake import DeltaTable

    remove(table)
    assert server.pid is not None
    with _Watch(server) as watch:
        began = time.monotonic()
        staged = _in_process(_stage, server.remote, source, table)
        committed = _in_process(_commit, table, staged["path"])
        seconds = time.monotonic() - began
    totals = Totals.of(DeltaTable(str(table)).to_pyarrow_dataset())
    remove(table)
    return Memory(
        totals.rows, seconds, staged["peak"], staged["idle"], committed["peak"], watch.heap, watch.resident, totals
    )


class _Watch:
    """Samples the server's memory until it is left."""

    def __init__(self, server: Server) -> None:
        import psutil

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


def _in_process(do: Any, *args: Any) -> dict[str, Any]:
    context = multiprocessing.get_context("spawn")
    answers = context.SimpleQueue()
    process = context.Process(target=_answer, args=(do, args, answers))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{do.__name__} ended with status {process.exitcode}")
    answer: dict[str, Any] = answers.get()
    return answer


def _answer(do: Any, args: tuple[Any, ...], answers: Any) -> None:
    answers.put({**do(*args), "peak": _peak()})


def _stage(remote: str, source: Path, table: Path) -> dict[str, Any]:
    # What a task imports anyway is not the load's.
    import deltalake  # noqa: F401
    import pyspark.sql.connect.session  # noqa: F401

    idle = _peak()
    buffer, _ = stage(remote, source, table, None)
    return {"idle": idle, "path": buffer.path}


def _commit(table: Path, path: str) -> dict[str, Any]:
    from airflow_provider_onelake.staging.buffers import read_buffer
    from tests.support.tables import local_log

    publish(table, read_buffer(local_log(table).store, path))
    return {}


def _peak() -> int:
    # Not getrusage: its peak counts the process that this one was forked from.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def megabytes(size: int) -> str:
    """Return a size for people.

    :param size: in bytes.
    """
    return f"{size / _MEBIBYTE:,.0f} MiB"
