"""Bytes are flipped, cut off and taken out of every kind of file: only errors with a name, and never a wrong answer.

What a flipped byte inside a JSON text says instead, nobody can know. So an answer is compared with the undamaged one
where something shows the damage: a file that is no JSON any more, a page of Parquet that has a checksum, a hint.
More cases: ``pytest tests/unit/fuzz --cases 5000 --first-case 100000``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import attrs
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from obstore.store import MemoryStore

from airflow_provider_onelake.buffers.buffer import read_buffer
from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.exceptions import OneLakeError
from airflow_provider_onelake.following.filters import CommitFilter
from airflow_provider_onelake.following.watch import Awaited, LogWatch, watch_for
from airflow_provider_onelake.log import parquet_checkpoints, replay
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, file_key, of_kind, row_count
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.replay import LAST_CHECKPOINT
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.modes import OverwritePartitions
from airflow_provider_onelake.storage.stores import ObjectStore
from airflow_provider_onelake.triggers.feed import LogFeed
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.reconcile import reconcile
from tests.support.clocks import HeldClock
from tests.support.tables import LOAD, foreign_append, foreign_commit, make_table, prepare, stage, writer_spec
from tests.support.v2_checkpoints import write_v2_checkpoint

FORMS = ("classic", "parts", "json with sidecars", "parquet with sidecars")
CASES = 40
CHECKPOINT, NEWEST = 4, 6
ATTEMPT = "a-c"
JANUARY = CommitFilter(partition="month = '2019-01'")


@attrs.frozen
class World:
    """A table with buffers, as bytes; and what is to be read from it."""

    files: dict[str, bytes] = attrs.field(repr=False)
    snapshot: Snapshot
    live: dict[Any, Any]
    buffer: str
    """The one that waits to be published."""

    def store(self, path: str, damaged: bytes) -> ObjectStore:
        """The table, one of its files damaged."""
        store = ObjectStore(MemoryStore(), "trips")
        for name, data in {**self.files, path: damaged}.items():
            store.put(name, data)
        return store

    @property
    def targets(self) -> list[str]:
        """Files that are worth damaging."""
        return sorted(path for path in self.files if "part-" not in path)


def live_in(log: DeltaLog, version: int, wanted: Callable[[Any], bool] = lambda _: True) -> dict[Any, Any]:
    return {file_key(add): (row_count(add), add["partitionValues"]) for add in log.live_files(wanted, version)}


def in_january(values: Mapping[str, str | None]) -> bool:
    return values["month"] == "2019-01"


def build(path: Path, form: str) -> World:
    """A table with every kind of file: seven versions, a checkpoint, writers published, waiting and set aside."""
    log = make_table(path)
    foreign_append(log, {"2019-01": [1], None: [2]})
    foreign_append(log, {"2019-02": [3], "x y/ü:%": [4]})
    Committer(log).publish([stage(log, writer_spec("a"), {"2019-01": [5]})])
    gone = next(iter(log.live_files(lambda add: add["partitionValues"]["month"] is None, 3)))
    foreign_commit(log, [{"commitInfo": {"operation": "DELETE"}}, {"remove": {**gone, "deletionTimestamp": 1}}])
    checkpoint(path, form)
    Committer(log).publish([stage(log, writer_spec("b", mode=OverwritePartitions()), {"2019-02": [6]})])
    foreign_append(log, {"2019-03": [7]})
    waiting = stage(log, writer_spec("c", attempt=ATTEMPT), {"2019-01": [8], "2019-04": [9]})
    set_aside(log.store, stage(log, writer_spec("d"), {"2019-01": [10]}).path, "a person does not want it")
    snapshot = log.snapshot()
    assert snapshot.version == NEWEST
    files = {str(file.relative_to(path)): file.read_bytes() for file in path.rglob("*") if file.is_file()}
    return World(files, snapshot, live_in(log, NEWEST), waiting.path)


def checkpoint(path: Path, form: str) -> None:
    if form in ("classic", "parts"):
        DeltaTable(str(path)).create_checkpoint()
    else:
        write_v2_checkpoint(path, form.split()[0])
    log = path / LOG_DIRECTORY
    if form == "parts":
        whole = log / f"{CHECKPOINT:020d}.checkpoint.parquet"
        table = pq.read_table(whole)
        whole.unlink()
        for part in (1, 2):
            half = table.slice((part - 1) * table.num_rows // 2, table.num_rows // 2 + part)
            pq.write_table(half, log / f"{CHECKPOINT:020d}.checkpoint.{part:010d}.{2:010d}.parquet")
    for file in log.rglob("*.parquet"):
        # With checksums, as Spark writes them: without, a flipped byte may read as another value.
        pq.write_table(pq.read_table(file), file, write_page_checksum=True)
    (path / LAST_CHECKPOINT).write_text(json.dumps({"version": CHECKPOINT, "size": 9}))


@pytest.fixture(scope="module", params=FORMS)
def world(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> World:
    return build(tmp_path_factory.mktemp("table"), request.param)


def damage(data: bytes, random: Random) -> tuple[bytes, int | None]:
    """Damage a file; returns it, and the place of a flipped byte."""
    place = random.randrange(len(data))
    kind = random.choice(("flip", "flip", "flip", "cut", "take out", "zeros", "empty"))
    span = random.choice((1, 1, 2, 7, 100, 1000))
    if kind == "flip":
        return data[:place] + bytes([data[place] ^ (1 << random.randrange(8))]) + data[place + 1 :], place
    if kind == "cut":
        return data[:place], None
    if kind == "take out":
        return data[:place] + data[place + span :], None
    if kind == "zeros":
        return data[:place] + bytes(len(data[place : place + span])) + data[place + span :], None
    return b"", None


def shows(path: str, whole: bytes, damaged: bytes, flipped: int | None) -> bool:
    """Say whether something shows that a file is damaged."""
    if path.endswith(".parquet"):
        # The footer of a Parquet file has no checksum.
        footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
        return flipped is None or flipped < footer
    if path == LAST_CHECKPOINT:
        return True
    try:
        lines = [json.loads(line) for line in damaged.splitlines() if line.strip()]
    except ValueError:
        return True
    return not lines


def attempt(function: Callable[[], Any]) -> Any:
    """The answer, or an error with a name; any other error fails the test."""
    try:
        return function()
    except OneLakeError as error:
        return error


def follow(log: DeltaLog) -> None:
    """What the watchers of a table do."""
    watch = LogWatch(log, Awaited(operation="NEVER"), after=-1)
    attempt(watch.poll)
    attempt(watch_for(log, Awaited(rows_at_least=1000)).poll)
    attempt(LogWatch(log, Awaited(partition="month = '2019-09'"), after=-1).poll)

    async def read() -> None:
        feed = LogFeed("trips", "onelake_default", 5)
        feed._log = log
        head = await feed._locked(feed._look)
        for version in range(head + 1):
            with suppress(OneLakeError):
                found = await feed.read(version)
                assert found is not None
                for wanted in (CommitFilter(), JANUARY):
                    json.dumps(await feed.describe(found, wanted))

    attempt(lambda: asyncio.run(read()))


def cases(request: pytest.FixtureRequest) -> Iterator[int]:
    first = request.config.getoption("first_case", None) or 0
    yield from range(first, first + (request.config.getoption("cases", None) or CASES))


def test_whatever_is_damaged_only_errors_with_a_name_come_out_and_no_wrong_answer(
    world: World, request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.CRITICAL)
    for number in cases(request):
        random = Random(number)
        for module in (parquet_checkpoints, replay):
            # Half of the cases read checkpoints by ranges, as if they were large.
            monkeypatch.setattr(module, "SMALL", 0 if number % 2 else 1 << 20)
        path = random.choice(world.targets)
        whole = world.files[path]
        damaged, flipped = damage(whole, random)
        if damaged == whole:
            continue
        try:
            judge(world, path, damaged, judged=shows(path, whole, damaged, flipped))
        except Exception as error:
            raise AssertionError(f"case {number}: {path}, {len(whole)} bytes, damaged to {damaged[:3000]!r}") from error


def judge(world: World, path: str, damaged: bytes, *, judged: bool) -> None:
    def log() -> DeltaLog:
        return DeltaLog(store, "trips", HeldClock())

    store = world.store(path, damaged)
    reads(world, log, path, judged=judged)
    attempt(lambda: read_buffer(store, world.buffer))
    follow(log())
    before_spark = log()
    for spec in (writer_spec("new"), writer_spec("c"), writer_spec("c", attempt=ATTEMPT), writer_spec("a")):
        attempt(lambda spec=spec: prepare(before_spark, spec))

    store = world.store(path, damaged)
    buffer = attempt(lambda: read_buffer(store, world.buffer))
    if not isinstance(buffer, OneLakeError):
        attempt(lambda: Committer(log()).publish([buffer]))
        check_table(world, log, path, judged=judged)

    store = world.store(path, damaged)
    attempt(lambda: reconcile(Committer(log()), LOAD, ["a", "b", "c", "d"]))
    check_table(world, log, path, judged=judged)


def reads(world: World, log: Callable[[], DeltaLog], path: str, *, judged: bool) -> None:
    snapshot = attempt(lambda: log().snapshot())
    live = attempt(lambda: live_in(log(), NEWEST))
    january = attempt(lambda: live_in(log(), NEWEST, InPartitions(in_january)))
    commits = attempt(lambda: log().commits_since(-1))
    if not judged:
        return
    entry = path.startswith(f"{LOG_DIRECTORY}/") and path.endswith(".json") and "checkpoint" not in path
    # A checkpoint, a hint and what is staged can be done without.
    if not entry:
        assert not isinstance(snapshot, OneLakeError), snapshot
        assert not isinstance(live, OneLakeError), live
        assert len(commits) == NEWEST + 1
    if not isinstance(snapshot, OneLakeError):
        assert (snapshot.version, snapshot.txns) == (NEWEST, world.snapshot.txns)
        assert (snapshot.table_id, snapshot.partitioning) == (world.snapshot.table_id, world.snapshot.partitioning)
    if not isinstance(live, OneLakeError):
        assert live == world.live
        assert january == {key: said for key, said in world.live.items() if in_january(said[1])}
    if entry:
        assert isinstance(commits, OneLakeError), "a damaged entry was taken for a whole one"


def check_table(world: World, log: Callable[[], DeltaLog], path: str, *, judged: bool) -> None:
    """Whatever was published: what was there still is, and of the waiting buffer all or nothing."""
    if not judged:
        return
    snapshot = attempt(lambda: log().snapshot())
    if isinstance(snapshot, OneLakeError):
        return
    live = attempt(lambda: live_in(log(), snapshot.version))
    if isinstance(live, OneLakeError):
        return
    added = {key: value for key, value in live.items() if key not in world.live}
    assert {key: live.get(key) for key in world.live} == world.live
    assert len(added) in (0, 2), added
    commits = attempt(lambda: log().commits_since(NEWEST))
    assert isinstance(commits, OneLakeError) or sum(len(of_kind(c.actions, "add")) for c in commits) == len(added)


def test_without_damage_everything_is_read_and_published(world: World) -> None:
    judge(world, LAST_CHECKPOINT, world.files[LAST_CHECKPOINT], judged=True)
    store = world.store(LAST_CHECKPOINT, b"{}")
    log = DeltaLog(store, "trips", HeldClock())
    reconcile(Committer(log), LOAD, ["a", "b", "c"]).raise_for_failures()
    assert len(live_in(log, NEWEST + 1)) == len(world.live) + 2
