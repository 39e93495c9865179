"""Commits per second by 1, 4 and 16 processes on one local table, beside a bare loop of create-only PUTs.

Every process publishes small buffers that were staged beforehand, the way the provider does: with deltalake's word on
what is removed, and with checkpoints.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from multiprocessing.synchronize import Barrier

    from airflow_provider_onelake.commit.transaction import Backoff

_START_SECONDS = 120
_COUNTS = ("attempts", "lost_races", "cpu")


@attrs.frozen
class Sample:
    """One measured run.

    :param processes: that committed at the same time.
    :param commits: that they were to make.
    :param seconds: from the common start to the end of the last process.
    :param failed: commits that were not made, and why.
    :param attempts: PUTs tried.
    :param lost_races: PUTs that met another's commit.
    :param cpu_seconds: of all processes together, in that time.
    :param latencies: seconds of every commit, sorted.
    :param rows_expected: in the buffers.
    :param rows_found: in the table, read by deltalake; ``None`` where there is no table.
    """

    processes: int
    commits: int
    seconds: float
    failed: list[str] = attrs.field(factory=list)
    attempts: int = 0
    lost_races: int = 0
    cpu_seconds: float = 0.0
    latencies: list[float] = attrs.field(factory=list, repr=False)
    rows_expected: int = 0
    rows_found: int | None = None

    @property
    def per_second(self) -> float:
        """Commits made per second."""
        return (self.commits - len(self.failed)) / self.seconds


def measure(
    directory: Path, processes: int, each: int, *, checkpoints: bool = True, backoff: Backoff | None = None
) -> Sample:
    """Let processes publish into one table of their own.

    :param directory: for the table; it must not exist, and is removed afterwards.
    :param processes: that publish at the same time.
    :param each: commits of one process.
    :param checkpoints: whether one is written every hundred versions, as in production.
    :param backoff: between attempts; ``None`` for the package's own.
    """
    paths, rows = _stage(directory, processes, each)
    terms = (str(directory), checkpoints, backoff)
    answers = _at_once([(_publish, (*terms, paths[number::processes])) for number in range(processes)])
    found, versions = _read(directory)
    failed = [why for answer in answers for why in answer["failed"]]
    if versions != processes * each - len(failed):
        failed.append(f"the log has {versions} versions")
    shutil.rmtree(directory)
    return Sample(
        processes,
        processes * each,
        max(answer["end"] for answer in answers) - min(answer["begin"] for answer in answers),
        failed,
        sum(answer["attempts"] for answer in answers),
        sum(answer["lost_races"] for answer in answers),
        sum(answer["cpu"] for answer in answers),
        sorted(seconds for answer in answers for seconds in answer["latencies"]),
        rows,
        found,
    )


def measure_bare(directory: Path, processes: int, each: int) -> Sample:
    """Let processes put entries create-only at the next free version, without reading or deciding anything.

    :param directory: for the entries; it must not exist, and is removed afterwards.
    :param processes: that put at the same time.
    :param each: entries of one process.
    """
    directory.mkdir(parents=True)
    answers = _at_once([(_put, (str(directory), each)) for _ in range(processes)])
    landed = len(list(directory.glob("*.json")))
    shutil.rmtree(directory)
    failed = [] if landed == processes * each else [f"{landed} entries landed"]
    return Sample(
        processes,
        processes * each,
        max(answer["end"] for answer in answers) - min(answer["begin"] for answer in answers),
        failed,
        sum(answer["attempts"] for answer in answers),
        sum(answer["attempts"] for answer in answers) - processes * each,
        sum(answer["cpu"] for answer in answers),
    )


def _stage(directory: Path, processes: int, each: int) -> tuple[list[str], int]:
    from tests.support.tables import make_table, stage, writer_spec

    log = make_table(directory)
    paths = []
    for number in range(processes * each):
        rows: dict[str | None, list[int]] = {f"2019-{number % 12 + 1:02d}": [2 * number, 2 * number + 1]}
        paths.append(stage(log, writer_spec(f"writer-{number}"), rows).path)
    return paths, 2 * len(paths)


def _read(directory: Path) -> tuple[int, int]:
    from deltalake import DeltaTable

    table = DeltaTable(str(directory))
    column = table.to_pyarrow_table(columns=["id"]).column("id").to_pylist()
    # A row that is there twice must not stand in for one that is missing.
    return len(set(column)) if len(set(column)) == len(column) else -1, table.version()


def _at_once(work: list[tuple[Any, tuple[Any, ...]]]) -> list[dict[str, Any]]:
    """Run functions in processes of their own, which begin their measured part together."""
    context = multiprocessing.get_context("spawn")
    barrier, answers = context.Barrier(len(work)), context.SimpleQueue()
    running = [context.Process(target=_run, args=(do, args, barrier, answers)) for do, args in work]
    for process in running:
        process.start()
    collected = [answers.get() for _ in running]
    for process in running:
        process.join()
    return collected


def _run(do: Any, args: tuple[Any, ...], barrier: Barrier, answers: Any) -> None:
    try:
        answers.put(do(*args, lambda: barrier.wait(_START_SECONDS)))
    except BaseException as error:
        barrier.abort()
        answers.put({"begin": 0.0, "end": 1e9, "failed": [repr(error)], "latencies": [], **dict.fromkeys(_COUNTS, 0)})
        raise


def _publish(table: str, checkpoints: bool, backoff: Backoff | None, paths: list[str], start: Any) -> dict[str, Any]:
    from airflow_provider_onelake.commit.publish import Committer, Status
    from airflow_provider_onelake.log.checkpoints import checkpointer
    from airflow_provider_onelake.log.cross_check import deltalake_cross_check
    from airflow_provider_onelake.staging.buffers import read_buffer
    from tests.support.tables import local_log

    log = local_log(Path(table))
    committer = Committer(
        log, cross_check=deltalake_cross_check(table), after_commit=checkpointer(table) if checkpoints else None
    )
    if backoff is not None:
        committer.backoff = backoff
    buffers = [read_buffer(log.store, path) for path in paths]
    answer: Counter[str] = Counter()
    failed: list[str] = []
    latencies = []
    start()
    used = time.process_time()
    begin = last = time.monotonic()
    for buffer in buffers:
        try:
            publication = committer.publish([buffer])
        except Exception as error:  # every failure is counted and told
            failed.append(repr(error))
            continue
        now = time.monotonic()
        latencies.append(now - last)
        last = now
        answer.update(attempts=publication.tally.attempts, lost_races=publication.tally.lost_races)
        if publication.status is not Status.PUBLISHED:
            failed.append(publication.status.value)
    end = time.monotonic()
    counts = {**answer, "cpu": time.process_time() - used}
    return {"begin": begin, "end": end, "failed": failed, "latencies": latencies, **counts}


def _put(directory: str, each: int, start: Any) -> dict[str, Any]:
    import obstore
    from obstore.exceptions import AlreadyExistsError
    from obstore.store import LocalStore

    store = LocalStore(prefix=directory)
    entry = b"x" * 1000
    version = attempts = 0
    start()
    used = time.process_time()
    begin = time.monotonic()
    for _ in range(each):
        while True:
            attempts += 1
            try:
                obstore.put(store, f"{version:020d}.json", entry, mode="create", use_multipart=False)
                break
            except AlreadyExistsError:
                version += 1
        version += 1
    return {"begin": begin, "end": time.monotonic(), "attempts": attempts, "cpu": time.process_time() - used}
