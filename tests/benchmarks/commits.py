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
from pathlib import Path
from typing import Any

from airflow_provider_onelake.storage.local import LocalDisk
from tests.benchmarks.samples import OURS, Sample
from tests.benchmarks.together import Processes, begin_together
from tests.support.object_stores import BUCKET, Lake, s3_credentials
from tests.support.store_servers import S3Server

DELTALAKE, BARE = "deltalake", "bare put loop"
LOCAL, UNSYNCED, S3 = "local disk", "local disk, fsync=false", "S3"
_EACH = {LOCAL: {1: 200, 4: 60, 16: 20}, S3: {1: 40, 4: 15, 16: 5}}
"""Commits of one process, by the number of processes."""


def measure(state: Path, tools: Path) -> Iterator[Sample]:
    """Commit to tables on local disk, with and without fsync, and on a local S3 server."""
    shutil.rmtree(state, ignore_errors=True)
    with S3Server(state / "s3", install_into=tools) as server, Processes(_EACH[LOCAL]) as processes:
        server.make_bucket(BUCKET)
        lakes = {
            LOCAL: Lake("local", str(state / "local")),
            UNSYNCED: Lake("local", str(state / "unsynced"), LocalDisk(fsync=False)),
            S3: Lake("s3", f"s3://{BUCKET}", s3_credentials(server)),
        }
        for store, lake in lakes.items():
            for number, each in _EACH[S3 if store == S3 else LOCAL].items():
                for way in (BARE, OURS, DELTALAKE):
                    yield _one(processes, store, lake, way, number, each)
    shutil.rmtree(state, ignore_errors=True)


def _one(processes: Processes, store: str, lake: Lake, way: str, number: int, each: int) -> Sample:
    table = f"Tables/{uuid.uuid4()}"
    prepare, commit = _WAYS[way]
    work = prepare(lake, table, number * each)
    # All of one process are one piece of its work, and each commit is of another file.
    answers = processes.together(commit, [[lake, table, number, work[place::number]] for place in range(number)])
    seconds = max(answer["end"] for answer in answers) - min(answer["begin"] for answer in answers)
    latencies = sorted(seconds for answer in answers for seconds in answer["latencies"])
    faults = [fault for answer in answers for fault in answer["faults"]]
    return {
        "store": store,
        "way": way,
        "processes": number,
        "commits": number * each,
        "seconds": seconds,
        "per_second": number * each / seconds,
        "cpu": sum(answer["cpu"] for answer in answers),
        "puts": sum(answer["puts"] for answer in answers),
        "median": latencies[len(latencies) // 2],
        "most": latencies[int(0.99 * len(latencies))],
        "faults": [*faults, *_judge(lake, table, way, number * each)],
    }


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
    return {f"2019-{number % 12 + 1:02d}": [2 * number, 2 * number + 1]}


def _buffers(lake: Lake, table: str, commits: int) -> list[str]:
    from tests.support.tables import stage, writer_spec

    log = lake.make_table(table)
    return [stage(log, writer_spec(f"writer-{number}"), _rows(number)).path for number in range(commits)]


def _publish(lake: Lake, table: str, processes: int, paths: Sequence[str]) -> Sample:
    from airflow_provider_onelake.buffers.buffer import read_buffer
    from airflow_provider_onelake.storage.stores import PATIENCE
    from airflow_provider_onelake.table import Table
    from airflow_provider_onelake.writes.publish import PublishStatus

    opened = Table(lake.address(table), lake.credentials, PATIENCE)
    committer = opened.committer()

    def publish(buffer: Any) -> int:
        publication = committer.publish([buffer])
        if publication.status not in (PublishStatus.PUBLISHED, PublishStatus.ALREADY):
            raise RuntimeError(publication.status.value)
        return publication.tally.attempts

    return _timed(processes, publish, [read_buffer(opened.log.store, path) for path in paths])


def _files(lake: Lake, table: str, commits: int) -> list[dict[str, Any]]:
    from tests.support.tables import append_files

    log = lake.make_table(table)
    actions = [action for number in range(commits) for action in append_files(log.store, "", _rows(number))]
    return [action["add"] for action in actions if "add" in action]


def _commit_by_deltalake(lake: Lake, table: str, processes: int, adds: Sequence[Mapping[str, Any]]) -> Sample:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, CommitProperties

    from airflow_provider_onelake.storage.stores import deltalake_options

    address = lake.address(table)
    opened = DeltaTable(address.deltalake_uri, storage_options=deltalake_options(address, lake.credentials))
    schema = opened.schema()
    # Its default of 15 tries is not enough for so many processes.
    tries = CommitProperties(max_commit_retries=1000)

    def commit(add: Mapping[str, Any]) -> int:
        values, modified = add["partitionValues"], add["modificationTime"]
        action = AddAction(add["path"], add["size"], values, modified, data_change=True, stats=add["stats"])
        opened.create_write_transaction([action], "append", schema, ["month"], commit_properties=tries)
        # Or every commit would begin at the version that was opened, and read all later ones again.
        opened.update_incremental()
        return 0

    return _timed(processes, commit, adds)


def _entries(lake: Lake, table: str, commits: int) -> list[bytes]:
    if lake.kind == "local":
        Path(lake.root, table).mkdir(parents=True)
    return [json.dumps({"add": {"path": "x" * 900}}).encode()] * commits


def _put(lake: Lake, table: str, processes: int, entries: Sequence[bytes]) -> Sample:
    from airflow_provider_onelake.exceptions import ObjectExistsError
    from airflow_provider_onelake.log.actions import version_path

    store, version = lake.log(table).store, 0

    def put(entry: bytes) -> int:
        nonlocal version
        for puts in range(1, 10**6):
            version += 1
            try:
                store.create(version_path(version - 1), entry)
            except ObjectExistsError:
                continue
            return puts
        raise AssertionError("no version is free")

    return _timed(processes, put, entries)


def _timed(processes: int, commit: Callable[[Any], int], work: Sequence[Any]) -> Sample:
    """Commit one after the other, by a function that returns how many puts it took, if it knows."""
    faults, latencies, puts = [], [], 0
    begin_together(processes)
    used, begin = time.process_time(), time.monotonic()
    last = begin
    for one in work:
        try:
            puts += commit(one)
        except Exception as error:  # every failure is counted and told
            faults.append(repr(error))
        now = time.monotonic()
        latencies.append(now - last)
        last = now
    cpu = time.process_time() - used
    return {"begin": begin, "end": last, "cpu": cpu, "puts": puts, "latencies": latencies, "faults": faults}


_WAYS: dict[str, tuple[Callable[..., Sequence[Any]], Callable[..., Sample]]] = {
    BARE: (_entries, _put),
    OURS: (_buffers, _publish),
    DELTALAKE: (_files, _commit_by_deltalake),
}
