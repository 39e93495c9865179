"""What a task pays for the size of a table that it works on: for the length of its log, and for its files.

The tables have no data, only logs (``logs``). Each table's work runs in a process of its own, which has imported
everything before and sees the table for the first time.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import attrs

from tests.benchmarks import logs
from tests.benchmarks.results import Opening, Publishing
from tests.benchmarks.together import alone, forget_peak, peak_memory, resident_memory

if TYPE_CHECKING:
    from airflow_provider_onelake.table import Table

_OPENINGS = 9
_ROUNDS_OF_POKES = 5
_OVERWRITTEN = 7
"""Any month."""

_T = TypeVar("_T")


@attrs.frozen
class Plan:
    """Which sizes are measured.

    :param versions: of tables with long logs.
    :param files: of tables with many files.
    """

    versions: Sequence[int]
    files: Sequence[int]


def measure(plan: Plan, state: Path, say: Callable[[str], None]) -> tuple[list[Opening], list[Publishing]]:
    """Open tables with long logs, and commit to tables with many files.

    :param plan: which.
    :param state: directory for the tables.
    :param say: is told of every measurement when it has ended.
    """
    shutil.rmtree(state, ignore_errors=True)
    openings: list[Opening] = []
    for versions in plan.versions:
        say(f"Making a table of {versions:,} versions")
        openings.append(_opening(state / "versions", versions))
        say(_opening_line(openings[-1]))
    publishings: list[Publishing] = []
    for files in plan.files:
        say(f"Making a table of {files:,} files")
        for publishing in _publishings(state / "files", files):
            publishings.append(publishing)
            say(_publishing_line(publishing))
    return openings, publishings


def open_table(path: Path) -> Table:
    """Return a table as a task gets it from its hook."""
    from airflow_provider_onelake.storage.addresses import TableAddress
    from airflow_provider_onelake.storage.stores import PATIENCE
    from airflow_provider_onelake.table import Table

    return Table(TableAddress.parse(str(path)), None, PATIENCE)


def _opening(path: Path, versions: int) -> Opening:
    logs.long_log(path, versions)
    found = alone(open_and_poke, path, versions)
    shutil.rmtree(path)
    return found


def open_and_poke(path: Path, versions: int) -> Opening:
    """Open a table, and look at it again as a sensor does that waits for its next version."""
    from deltalake import DeltaTable

    from airflow_provider_onelake.following.watch import LIST_EVERY, Awaited, watch_for

    faults = []
    opens = []
    open_table(path).log.snapshot()
    for _ in range(_OPENINGS):
        seconds, snapshot = _timed(open_table(path).log.snapshot)
        opens.append(seconds)
        if snapshot.version != versions:
            faults.append(f"opened at version {snapshot.version}")
    found = len(DeltaTable(str(path)).file_uris())
    if found != min(versions, logs.LIVE):
        faults.append(f"{found} live files, and not {min(versions, logs.LIVE)}")
    watch = watch_for(open_table(path).log, Awaited(version=versions + 1))
    watch.poll()
    polls = []
    for _ in range(_ROUNDS_OF_POKES * LIST_EVERY):
        seconds, commits = _timed(watch.poll)
        polls.append(seconds)
        if commits or watch.met:
            faults.append("a poke saw a version that is not there")
    listings = polls[LIST_EVERY - 1 :: LIST_EVERY]
    pokes = [seconds for number, seconds in enumerate(polls) if (number + 1) % LIST_EVERY]
    deltalake = [_timed(lambda: DeltaTable(str(path)))[0] for _ in range(_OPENINGS)]
    return Opening(versions=versions, opens=opens, pokes=pokes, listings=listings, deltalake=deltalake, faults=faults)


def _publishings(path: Path, files: int) -> list[Publishing]:
    logs.wide_log(path, files)
    in_month = len(range(_OVERWRITTEN, files, logs.MONTHS))
    appended = alone(publish, path, files, "append", 0, files + 1)
    # The overwrite finds one file more, in the same month, and replaces it too.
    replaced = in_month + 1
    overwritten = alone(publish, path, files, "overwrite_partitions", replaced, files + 1 - replaced + 1)
    shutil.rmtree(path)
    return [appended, overwritten]


def publish(path: Path, files: int, mode: str, removed: int, files_after: int) -> Publishing:
    """Publish a buffer with one file into one month of a table.

    :param path: the table's directory.
    :param files: that the table had in the beginning.
    :param mode: of the write.
    :param removed: files that the commit has to replace.
    :param files_after: that the table has to have afterwards.
    """
    from deltalake import DeltaTable

    from airflow_provider_onelake.modes import Append, OverwritePartitions
    from tests.support.stores import Counted
    from tests.support.tables import EARLIER_LOAD, LOAD, local_log, stage, writer_spec

    # The overwrite is of a later load: in one load, it would keep what the append has brought.
    of_mode = {"append": (EARLIER_LOAD, Append()), "overwrite_partitions": (LOAD, OverwritePartitions())}
    load, what = of_mode[mode]
    spec = writer_spec(mode, load, mode=what)
    buffer = stage(local_log(path), spec, {logs.month(_OVERWRITTEN): [1, 2]})
    table = open_table(path)
    counted = Counted(table.log.store)
    table.log.store = counted
    committer = table.committer()
    forget_peak()
    before, used = resident_memory(), time.process_time()
    seconds, publication = _timed(lambda: committer.publish([buffer]))
    cpu, peak = time.process_time() - used, peak_memory() - before
    gone = sum("remove" in action for action in publication.entry.actions) if publication.entry is not None else -1
    faults = [] if gone == removed else [f"{gone} files were replaced instead of {removed}"]
    found = len(DeltaTable(str(path)).file_uris())
    if found != files_after:
        faults.append(f"{found} files are live instead of {files_after}")
    return Publishing(
        files=files,
        mode=mode,
        seconds=seconds,
        cpu=cpu,
        peak=peak,
        read=counted.bytes_read,
        requests=sum(counted.calls.values()),
        removed=gone,
        faults=faults,
    )


def _timed(do: Callable[[], _T]) -> tuple[float, _T]:
    begin = time.perf_counter()
    answer = do()
    return time.perf_counter() - begin, answer


def _opening_line(seen: Opening) -> str:
    wrong = f" WRONG: {seen.faults[:3]}" if seen.faults else ""
    return f"{seen.versions:,} versions: opened in {1000 * sorted(seen.opens)[len(seen.opens) // 2]:.1f} ms{wrong}"


def _publishing_line(seen: Publishing) -> str:
    wrong = f" WRONG: {seen.faults}" if seen.faults else ""
    return f"{seen.mode} beside {seen.files:,} files: {seen.cpu:.2f} CPU s, {seen.read:,} bytes read{wrong}"
