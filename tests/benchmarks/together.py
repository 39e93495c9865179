"""Functions in processes of their own: several that begin together, or one whose memory is looked at."""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

_START_SECONDS = 300
_NEEDED = (
    "deltalake",
    "obstore.store",
    "pyarrow.parquet",
    "airflow_provider_onelake.writes.publish",
    "airflow_provider_onelake.log.checkpoints",
)

_T = TypeVar("_T")
_barriers: Mapping[int, Barrier] = {}


class Processes:
    """Processes that have imported all they need, and wait for work: so many as the largest of the numbers that are asked."""

    def __init__(self, numbers: Collection[int]) -> None:
        context = multiprocessing.get_context("spawn")
        self._barriers = {number: context.Barrier(number) for number in numbers}
        self._pool = context.Pool(max(numbers), _prepare, (self._barriers,))

    def together(self, do: Callable[..., _T], work: Sequence[Sequence[Any]]) -> list[_T]:
        """Call a function of a module in as many processes as there is work; it calls :func:`begin_together` with the number."""
        self._barriers[len(work)].reset()
        # Each call waits for all others, so that no process takes two of them.
        return self._pool.starmap(_run, [(do, len(work), args) for args in work], chunksize=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.close()
        self._pool.join()


def begin_together(processes: int) -> None:
    """Wait until so many processes have called this."""
    _barriers[processes].wait(_START_SECONDS)


def alone(do: Callable[..., _T], *args: Any) -> _T:
    """Call a function in a process of its own, which ends then, and return its answer."""
    with multiprocessing.get_context("spawn").Pool(1, _prepare, ({},)) as pool:
        return pool.apply(do, args)


def peak_memory() -> int:
    """The most memory that this process has held since :func:`forget_peak`, in bytes."""
    return _status("VmHWM")


def resident_memory() -> int:
    """The memory that this process holds, in bytes."""
    return _status("VmRSS")


def forget_peak() -> None:
    """Let the peak begin anew, where the system can do this; else it counts from the process's begin."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _run(do: Callable[..., _T], processes: int, args: Sequence[Any]) -> _T:
    try:
        return do(*args)
    except BaseException:
        # Or the others would wait for this one.
        _barriers[processes].abort()
        raise


def _status(name: str) -> int:
    # Not getrusage: its peak counts the process that this one was forked from.
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024


def _prepare(barriers: Mapping[int, Barrier]) -> None:
    global _barriers
    _barriers = barriers
    # What a task imports anyway is not the commit's.
    for module in _NEEDED:
        importlib.import_module(module)
