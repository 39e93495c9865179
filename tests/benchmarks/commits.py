"""Commits of several processes to one table: ours, deltalake's, and create-only puts without any decision.

Every committer has its Parquet files beforehand, so that only commits are measured. Ours are complete buffers, which
the provider publishes with checkpoints.
"""

from __future__ import annotations

import json
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs

from airflow_provider_onelake.storage.local import LocalDisk
from tests.benchmarks.results import OURS, Commits
from tests.benchmarks.together import Processes, begin_together
from tests.support.object_stores import BUCKET, Lake, s3_credentials
from tests.support.store_servers import S3Server

DELTALAKE = "deltalake"
BARE = "bare put loop"
LOCAL, UNSYNCED, S3 = "local disk", "local disk, fsync=false", "S3"
_TRIES = 1000
_MONTHS = 12


@attrs.frozen
class Plan:
    """How much is committed.

    :param local: commits of one process on local disk, by the number of processes.
    """

    local: Mapping[int, int]
    s3: Mapping[int, int]


@attrs.define
class _Answer:
    """What one process did."""

    begin: float = 0.0
    end: float = 0.0
    cpu: float = 0.0
    attempts: int | None = None
    latencies: list[float] = attrs.field(factory=list)
    faults: list[str] = attrs.field(factory=list)


def measure(plan: Plan, state: Path, tools: Path, say: Callable[[str], None]) -> list[Commits]:
    """Commit to tables on local disk, with and without fsync, and on a local S3 server."""
    found = []
    with _lakes(state, tools) as lakes, Processes({*plan.local, *plan.s3}) as processes:
        for store, lake in lakes.items():
            for number, each in (plan.s3 if store == S3 else plan.local).items():
                for way in (BARE, OURS, DELTALAKE):
                    seen = _one(processes, store, lake, way, number, each)
                    say(_line(seen))
                    found.append(seen)
    return found


@contextmanager
def _lakes(state: Path, tools: Path) -> Iterator[dict[str, Lake]]:
    shutil.rmtree(state, ignore_errors=True)
    with S3Server(state / "s3", install_into=tools) as server:
        server.make_bucket(BUCKET)
        yield {
            LOCAL: Lake("local", str(state / "local")),
            UNSYNCED: Lake("local", str(state / "unsynced"), LocalDisk(fsync=False)),
            S3: Lake("s3", f"s3://{BUCKET}", s3_credentials(server)),
        }
    shutil.rmtree(state, ignore_errors=True)


def _one(processes: Processes, store: str, lake: Lake, way: str, number: int, each: int) -> Commits:
    table = f"Tables/{uuid.uuid4()}"
    prepare, commit = _WAYS[way]
    work = [[lake, table, number, prepared] for prepared in prepare(lake, table, number, each)]
    answers = processes.together(commit, work)
    attempts = [answer.attempts for answer in answers]
    return Commits(
        store=store,
        way=way,
        processes=number,
        commits=number * each,
        seconds=max(answer.end for answer in answers) - min(answer.begin for answer in answers),
        cpu=sum(answer.cpu for answer in answers),
        attempts=None if None in attempts else sum(count for count in attempts if count is not None),
        latencies=sorted(seconds for answer in answers for seconds in answer.latencies),
        faults=[
            *(fault for answer in answers for fault in answer.faults),
            *_judge(lake, table, way, number * each),
        ],
    )


def _judge(lake: Lake, table: str, way: str, commits: int) -> list[str]:
    """Look for every row, once, and for every commit."""
    if way == BARE:
        landed = sum(1 for _ in lake.log(table).store.list("_delta_log/"))
        return [] if landed == commits else [f"{landed} of {commits} entries landed"]
    rows, version = lake.ids(table), lake.log(table).snapshot().version
    wrong = [] if rows == list(range(2 * commits)) else [f"{len(rows)} rows, {len(set(rows))} of them different"]
    # How many versions they take is the committer's business: it may publish several writers in one.
    return wrong if version <= commits else [*wrong, f"{version} versions for {commits} commits"]


def _rows(number: int) -> dict[str | None, list[int]]:
    """Two rows of one month, which no other commit has."""
    return {f"2019-{number % _MONTHS + 1:02d}": [2 * number, 2 * number + 1]}


def _buffers(lake: Lake, table: str, processes: int, each: int) -> list[list[str]]:
    from tests.support.tables import stage, writer_spec

    log = lake.make_table(table)
    paths = [stage(log, writer_spec(f"writer-{number}"), _rows(number)).path for number in range(processes * each)]
    return [paths[number::processes] for number in range(processes)]


def _publish(lake: Lake, table: str, processes: int, paths: Sequence[str]) -> _Answer:
    from airflow_provider_onelake.commit.publish import Status
    from airflow_provider_onelake.staging.buffers import read_buffer
    from airflow_provider_onelake.storage.stores import PATIENCE
    from airflow_provider_onelake.table import Table

    opened = Table(lake.address(table), lake.credentials, PATIENCE)
    committer = opened.committer()
    buffers = [read_buffer(opened.log.store, path) for path in paths]
    answer = _Answer(attempts=0)

    def publish(buffer: Any) -> None:
        publication = committer.publish([buffer])
        answer.attempts = (answer.attempts or 0) + publication.tally.attempts
        if publication.status not in (Status.PUBLISHED, Status.ALREADY):
            answer.faults.append(publication.status.value)

    return _timed(answer, processes, publish, buffers)


def _files(lake: Lake, table: str, processes: int, each: int) -> list[list[dict[str, Any]]]:
    from tests.support.tables import append_files

    log = lake.make_table(table)
    adds = []
    for number in range(processes * each):
        actions = append_files(log.store, "", _rows(number))
        adds += [action["add"] for action in actions if "add" in action]
    return [adds[number::processes] for number in range(processes)]


def _commit_by_deltalake(lake: Lake, table: str, processes: int, adds: Sequence[Mapping[str, Any]]) -> _Answer:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties

    from airflow_provider_onelake.storage.stores import deltalake_options

    address = lake.address(table)
    opened = DeltaTable(address.deltalake_uri, storage_options=deltalake_options(address, lake.credentials))
    schema = opened.schema()
    # Its default of 15 tries is not enough for so many processes.
    tries = CommitProperties(max_commit_retries=_TRIES)

    def commit(add: Mapping[str, Any]) -> None:
        action = AddAction(
            path=add["path"],
            size=add["size"],
            partition_values=add["partitionValues"],
            modification_time=add["modificationTime"],
            data_change=True,
            stats=add["stats"],
        )
        opened.create_write_transaction([action], "append", schema, ["month"], commit_properties=tries)
        # Or every commit would begin at the version that was opened, and read all later ones again.
        opened.update_incremental()

    return _timed(_Answer(), processes, commit, adds)


def _entries(lake: Lake, table: str, processes: int, each: int) -> list[list[bytes]]:
    if lake.kind == "local":
        Path(lake.root, table).mkdir(parents=True)
    entry = json.dumps({"add": {"path": "x" * 900}}).encode()
    return [[entry] * each for _ in range(processes)]


def _put(lake: Lake, table: str, processes: int, entries: Sequence[bytes]) -> _Answer:
    from airflow_provider_onelake.exceptions import ObjectExistsError
    from airflow_provider_onelake.log.actions import version_path

    store = lake.log(table).store
    answer = _Answer(attempts=0)
    version = 0

    def put(entry: bytes) -> None:
        nonlocal version
        while True:
            answer.attempts = (answer.attempts or 0) + 1
            try:
                store.create(version_path(version), entry)
                break
            except ObjectExistsError:
                version += 1
        version += 1

    return _timed(answer, processes, put, entries)


def _timed(answer: _Answer, processes: int, commit: Callable[[Any], None], work: Sequence[Any]) -> _Answer:
    begin_together(processes)
    used, answer.begin = time.process_time(), time.monotonic()
    last = answer.begin
    for one in work:
        try:
            commit(one)
        except Exception as error:  # every failure is counted and told
            answer.faults.append(repr(error))
        now = time.monotonic()
        answer.latencies.append(now - last)
        last = now
    answer.end, answer.cpu = last, time.process_time() - used
    return answer


_WAYS: dict[str, tuple[Callable[..., Sequence[Any]], Callable[..., _Answer]]] = {
    BARE: (_entries, _put),
    OURS: (_buffers, _publish),
    DELTALAKE: (_files, _commit_by_deltalake),
}


def _line(seen: Commits) -> str:
    wrong = f" WRONG: {seen.faults[:3]}" if seen.faults else ""
    return (
        f"{seen.processes} processes on {seen.store}, {seen.way}: {seen.per_second:.0f} commits/s, "
        f"99 % within {1000 * seen.latency(0.99):.0f} ms{wrong}"
    )
