"""What a task pays for the size of a table that it works on: for the length of its log, and for its files.

The tables have no data, only logs (``logs``). Each table's work runs in a process of its own, which has imported
everything before and sees the table for the first time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.benchmarks import logs
from tests.benchmarks.samples import Sample
from tests.benchmarks.together import alone, forget_peak, peak_memory, resident_memory

if TYPE_CHECKING:
    from airflow_provider_onelake.table import Table

_VERSIONS = (100, 1_000, 10_000)
_FILES = (1_000, 10_000, 100_000)
_OPENINGS = 9
_ROUNDS_OF_POKES = 5
_OVERWRITTEN = 7
"""Any month."""


def openings(state: Path) -> Iterator[Sample]:
    """Open tables with long logs."""
    for versions in _VERSIONS:
        path = state / "versions"
        shutil.rmtree(path, ignore_errors=True)
        logs.long_log(path, versions)
        yield alone(open_and_poke, path, versions)
        shutil.rmtree(path)


def publishings(state: Path) -> Iterator[Sample]:
    """Commit to tables with many files."""
    for files in _FILES:
        path = state / "files"
        shutil.rmtree(path, ignore_errors=True)
        logs.wide_log(path, files)
        yield alone(publish, path, files, "append", 0, files + 1)
        # The overwrite finds one file more, in the same month, and replaces it too.
        replaced = len(range(_OVERWRITTEN, files, logs.MONTHS)) + 1
        yield alone(publish, path, files, "overwrite_partitions", replaced, files + 1 - replaced + 1)
        shutil.rmtree(path)


def open_and_poke(path: Path, versions: int) -> Sample:
    """Open a table, and look at it again as a sensor does that waits for its next version; all in seconds.

    Every twentieth look of a sensor lists the log.
    """
    from deltalake import DeltaTable

    from airflow_provider_onelake.following.watch import LIST_EVERY, Awaited, watch_for

    faults = []
    _open(path).log.snapshot()
    opens = [_timed(_open(path).log.snapshot) for _ in range(_OPENINGS)]
    faults += [f"opened at version {seen.version}" for _, seen in opens if seen.version != versions]
    found, live = len(DeltaTable(str(path)).file_uris()), min(versions, logs.LIVE)
    if found != live:
        faults.append(f"{found} live files, and not {live}")
    watch = watch_for(_open(path).log, Awaited(version=versions + 1))
    watch.poll()
    polls = []
    for _ in range(_ROUNDS_OF_POKES * LIST_EVERY):
        seconds, commits = _timed(watch.poll)
        polls.append(seconds)
        if commits or watch.met:
            faults.append("a poke saw a version that is not there")
    return {
        "versions": versions,
        "opens": [seconds for seconds, _ in opens],
        "pokes": [seconds for number, seconds in enumerate(polls) if (number + 1) % LIST_EVERY],
        "listings": polls[LIST_EVERY - 1 :: LIST_EVERY],
        "deltalake": [_timed(lambda: DeltaTable(str(path)))[0] for _ in range(_OPENINGS)],
        "faults": faults,
    }


def publish(path: Path, files: int, mode: str, removed: int, files_after: int) -> Sample:
    """Publish a buffer with one file into one month of a table, which has to replace so many files, and to leave so many."""
    from deltalake import DeltaTable

    from airflow_provider_onelake.modes import Append, OverwritePartitions
    from tests.support.stores import Counted
    from tests.support.tables import EARLIER_LOAD, LOAD, local_log, stage, writer_spec

    # The overwrite is of a later load: in one load, it would keep what the append has brought.
    of_mode = {"append": (EARLIER_LOAD, Append()), "overwrite_partitions": (LOAD, OverwritePartitions())}
    load, what = of_mode[mode]
    buffer = stage(local_log(path), writer_spec(mode, load, mode=what), {logs.month(_OVERWRITTEN): [1, 2]})
    table = _open(path)
    counted = table.log.store = Counted(table.log.store)
    committer = table.committer()
    forget_peak()
    before, used = resident_memory(), time.process_time()
    seconds, publication = _timed(lambda: committer.publish([buffer]))
    cpu, peak = time.process_time() - used, peak_memory() - before
    gone = publication.entry.files_removed if publication.entry is not None else -1
    faults = [] if gone == removed else [f"{gone} files were replaced instead of {removed}"]
    found = len(DeltaTable(str(path)).file_uris())
    if found != files_after:
        faults.append(f"{found} files are live instead of {files_after}")
    return {
        "mode": mode,
        "files": files,
        "removed": gone,
        "seconds": seconds,
        "cpu": cpu,
        "peak": max(0, peak),
        "read": counted.bytes_read,
        "requests": sum(counted.calls.values()),
        "faults": faults,
    }


def _open(path: Path) -> Table:
    """Return a table as a task gets it from its hook."""
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.stores import PATIENCE
    from airflow_provider_onelake.table import Table

    return Table(TableAddress.parse(str(path)), None, PATIENCE)


def _timed(do: Callable[[], Any]) -> tuple[float, Any]:
    begin = time.perf_counter()
    answer = do()
    return time.perf_counter() - begin, answer
