"""Large checkpoints: only what is asked for is fetched and decoded, and what comes out is what reading all gives."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import Mock

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from obstore.store import MemoryStore

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import CorruptLogError, StoreUnavailableError
from airflow_provider_onelake.log import parquet_checkpoints, replay
from airflow_provider_onelake.log.actions import Action, of_kind, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.directories import Below
from airflow_provider_onelake.log.partitions import InPartitions
from airflow_provider_onelake.log.replay import Checkpoint, read_checkpoint
from airflow_provider_onelake.storage.stores import ObjectStore, Part
from tests.simulation.checkpoint import checkpoint
from tests.support.stores import Counted, PassingOn, through
from tests.support.tables import SCHEMA, local_log

PATH = f"_delta_log/{1:020d}.checkpoint.parquet"
TEXTS = pa.map_(pa.string(), pa.string())
VECTOR = pa.struct({"storageType": pa.string(), "pathOrInlineDv": pa.string(), "offset": pa.int32()})
ADD = pa.struct(
    {"path": pa.string(), "partitionValues": TEXTS, "size": pa.int64()}
    | {"stats": pa.string(), "tags": TEXTS, "deletionVector": VECTOR}
)
TXN = pa.struct({"appId": pa.string(), "version": pa.int64()})


def written(adds: list[dict[str, Any] | None], kind: pa.DataType = ADD, **options: Any) -> bytes:
    out = io.BytesIO()
    txns = pa.array([{"appId": "a", "version": row} if add is None else None for row, add in enumerate(adds)], TXN)
    pq.write_table(pa.table({"txn": txns, "add": pa.array(adds, kind)}), out, **options)
    return out.getvalue()


def stored(data: bytes) -> Counted:
    store = ObjectStore(MemoryStore(), "trips")
    store.put(PATH, data)
    return Counted(store)


def read(store: Any, size: int, wanted: InPartitions | Below | None = None) -> list[Action]:
    return list(read_checkpoint(store, Checkpoint(1, (PATH,), {PATH: size}), ["add", "txn"], wanted))


def outcome(function: Callable[[], list[Any]]) -> list[Any] | str:
    try:
        return function()
    except CorruptLogError as error:
        return str(error)


# -- the same results ------------------------------------------------------------------------------------------------

VALUES = st.sampled_from([None, "", "a", "b", "ü", "2019-01"])
COLUMNS = st.lists(st.sampled_from("pqr"), max_size=3, unique=True)
VECTORS = st.none() | st.fixed_dictionaries({"storageType": st.just("u"), "pathOrInlineDv": st.just("x")})


@st.composite
def adds(draw: st.DrawFn) -> list[dict[str, Any] | None]:
    """Adds as an engine writes them; now and then one that is not as the format has it."""
    columns, odd = draw(COLUMNS), draw(st.booleans()) and draw(st.booleans())

    def add(number: int) -> dict[str, Any]:
        names = draw(COLUMNS) if odd else columns
        body: dict[str, Any] = {
            "path": f"{number}.parquet",
            "partitionValues": [(name, draw(VALUES)) for name in names],
            "size": number,
            "stats": draw(st.none() | st.just('{"numRecords": 1}')),
            "tags": draw(st.none() | st.just([("t", None)])),
            "deletionVector": draw(VECTORS),
        }
        if odd and draw(st.booleans()):
            name = draw(st.sampled_from(sorted(body)))
            twice = [("p", "a"), ("p", "a")]
            body[name] = draw(st.sampled_from([None, twice] if name == "partitionValues" else [None]))
        if odd and draw(st.booleans()) and body["deletionVector"]:
            body["deletionVector"] = {"storageType": None, "pathOrInlineDv": "x"}
        if odd and draw(st.integers(0, 5)) == 0:
            body["path"] = ""
        return body

    return [add(number) if draw(st.integers(0, 9)) else None for number in range(draw(st.integers(0, 30)))]


@settings(deadline=None)
@given(adds(), st.sets(VALUES), st.sampled_from("pqr"), st.sampled_from([1, 3, 8, 100]), st.booleans())
def test_files_of_some_partitions_are_the_same_as_by_looking_at_every_file(
    adds: list[dict[str, Any] | None], chosen: set[str | None], column: str, rows: int, ranged: bool
) -> None:
    def test(values: Any) -> bool:
        return values.get(column) in chosen and len(values) != 1

    same_as_all(adds, InPartitions(test), lambda add: test(add["partitionValues"]), rows, ranged)


@settings(deadline=None)
@given(adds(), st.sets(st.sampled_from(["1", "11", "2", "29.", "x"])), st.sampled_from([1, 3, 8, 100]), st.booleans())
def test_files_below_some_directories_are_the_same_as_by_looking_at_every_file(
    adds: list[dict[str, Any] | None], directories: set[str], rows: int, ranged: bool
) -> None:
    below = tuple(sorted(directories))
    same_as_all(adds, Below(below), lambda add: add["path"].startswith(below), rows, ranged)


def same_as_all(
    adds: list[dict[str, Any] | None],
    wanted: InPartitions | Below,
    test: Callable[[Any], bool],
    rows: int,
    ranged: bool,
) -> None:
    data = written(adds, row_group_size=max(1, rows // 2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parquet_checkpoints, "_ROWS_AT_ONCE", rows)
        patch.setattr(parquet_checkpoints, "SMALL", 0 if ranged else len(data) + 1)
        every = outcome(lambda: read(stored(data), len(data)))
        some = outcome(lambda: read(stored(data), len(data), wanted))
        if isinstance(every, str) or isinstance(some, str):
            # What is wrong with a file counts wherever the file is.
            assert every == some
            return
        kept = [action for action in some if "add" not in action or wanted(action["add"])]
        assert kept == [action for action in every if "add" not in action or test(action["add"])]


@pytest.mark.parametrize("ranged", [False, True])
def test_the_test_is_asked_once_for_each_spelling_and_only_files_that_meet_it_are_decoded(
    monkeypatch: pytest.MonkeyPatch, ranged: bool
) -> None:
    decoded: list[Any] = []
    monkeypatch.setattr(replay, "check_body", lambda kind, body, where: decoded.append(body))
    months = [f"2019-{number % 12:02d}" for number in range(3_000)]
    data = written(
        [{"path": f"{number}", "partitionValues": [("m", month)], "size": 1} for number, month in enumerate(months)]
    )
    monkeypatch.setattr(parquet_checkpoints, "SMALL", 0 if ranged else len(data) + 1)
    asked: list[Any] = []

    def test(values: Any) -> bool:
        asked.append(values["m"])
        return bool(values["m"] == "2019-03")

    found = read(stored(data), len(data), InPartitions(test))
    assert [add["path"] for add in of_kind(found, "add")] == [str(number) for number in range(3, 3_000, 12)]
    assert len(decoded) == len(found) == 250
    assert sorted(asked) == sorted(set(months))


@pytest.mark.parametrize("ranged", [False, True])
def test_of_the_files_only_those_below_the_directories_are_decoded(
    monkeypatch: pytest.MonkeyPatch, ranged: bool
) -> None:
    decoded: list[Any] = []
    monkeypatch.setattr(replay, "check_body", lambda kind, body, where: decoded.append(body))
    data = written([{"path": f"w{number % 12}/{number}", "partitionValues": [], "size": 1} for number in range(3_000)])
    monkeypatch.setattr(parquet_checkpoints, "SMALL", 0 if ranged else len(data) + 1)
    found = read(stored(data), len(data), Below(("w3/",)))
    assert [add["path"] for add in of_kind(found, "add")] == [f"w3/{number}" for number in range(3, 3_000, 12)]
    assert len(decoded) == len(found) == 250


@pytest.mark.parametrize(("files", "times"), [(100, 0), (20_000, 1)])
def test_what_arrow_holds_is_given_back_after_a_large_checkpoint(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, files: int, times: int
) -> None:
    log, _ = large_table(tmp_path, files)
    pool = Mock(wraps=pa.default_memory_pool())
    monkeypatch.setattr(pa, "default_memory_pool", lambda: pool)
    log.live_files(InPartitions(lambda values: values["month"] == "7"), 1)
    assert pool.release_unused.call_count == times


# -- what is fetched ---------------------------------------------------------------------------------------------------


def large_table(path: Path, files: int = 20_000) -> tuple[DeltaLog, int]:
    """A table whose checkpoint has files with statistics that compress badly; and the checkpoint's size."""
    log = local_log(path)
    first, data = large_checkpoint(files)
    log.store.create(version_path(0), first)
    log.store.put(PATH, data)
    log.store.create(version_path(1), b'{"commitInfo":{"timestamp":1,"operation":"WRITE"}}\n')
    log.store.put("_delta_log/_last_checkpoint", b'{"version":1,"size":1}')
    return log, len(data)


@cache
def large_checkpoint(files: int) -> tuple[bytes, bytes]:
    """The first entry of the table, and its checkpoint."""
    log = DeltaLog(ObjectStore(MemoryStore(), "m"), "m")
    create_table(log, SCHEMA, ("month",), {})
    first = log.store.get(version_path(0))
    random = Random(1)
    actions: list[Any] = [json.loads(line) for line in first.splitlines()]
    actions = [action for action in actions if "commitInfo" not in action]
    actions.append({"txn": {"appId": "a", "version": 1, "lastUpdated": 1}})
    for number in range(files):
        add = {
            "path": f"month={number % 120}/{number}.parquet",
            "partitionValues": {"month": str(number % 120)},
            "size": 1,
            "modificationTime": 1,
            "dataChange": False,
            "stats": json.dumps({"numRecords": 1, "tags": random.randbytes(100).hex()}),
        }
        actions.append({"add": add})
    whole = pq.read_table(io.BytesIO(checkpoint(actions)))
    out = io.BytesIO()
    pq.write_table(whole, out, row_group_size=8000)
    return first, out.getvalue()


def test_opening_a_table_reads_kilobytes_of_a_large_checkpoint(tmp_path: Path) -> None:
    log, size = large_table(tmp_path)
    store = Counted(log.store)
    snapshot = through(store, log).snapshot()
    assert (snapshot.version, snapshot.txns, snapshot.partitioning.types) == (1, {"a": 1}, {"month": "string"})
    assert size > 4_000_000
    assert store.bytes_read < 100_000
    # The end, and what lies between the files of the three row groups.
    assert store.calls["get_range"] <= 4


def test_files_of_a_partition_cost_few_requests_and_no_byte_twice(tmp_path: Path) -> None:
    log, size = large_table(tmp_path)
    threads: set[int] = set()
    store = Counted(Failing(log.store, lambda: threads.add(threading.get_ident())))
    wanted = InPartitions(lambda values: values["month"] == "7")
    files = through(store, log).live_files(wanted, 1)
    assert {add["path"] for add in files} == {f"month=7/{number}.parquet" for number in range(7, 20_000, 120)}
    assert store.bytes_read < size + 100_000
    assert store.calls["get_range"] <= 5
    # A file has one position, so two threads would read each other's bytes.
    assert threads == {threading.get_ident()}


def test_a_small_checkpoint_is_one_request(tmp_path: Path) -> None:
    log, size = large_table(tmp_path, 100)
    store = Counted(log.store)
    through(store, log).snapshot()
    assert size < 1 << 20
    assert (store.calls["get_range"], store.calls["head"]) == (0, 0)


def test_pandas_is_not_imported_to_find_files(tmp_path: Path) -> None:
    large_table(tmp_path, 100)
    code = (
        "import sys; from pathlib import Path; from tests.support.tables import local_log;"
        "from airflow_provider_onelake.log.partitions import InPartitions;"
        "log = local_log(Path(sys.argv[1]));"
        "files = log.live_files(InPartitions(lambda values: values['month'] == '7'), 1);"
        "assert len(files) == 1; assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


# -- what goes wrong ---------------------------------------------------------------------------------------------------


class Failing(PassingOn):
    """Does something before each range after the first."""

    def __init__(self, inner: Any, before: Callable[[], object]) -> None:
        super().__init__(inner)
        self.before = before
        self.asked = 0

    def get_range(self, path: str, start: int, end: int) -> Part:
        self.asked += 1
        if self.asked > 1:
            self.before()
        return super().get_range(path, start, end)


def test_a_store_that_does_not_answer_is_not_a_damaged_checkpoint(tmp_path: Path) -> None:
    def silent() -> None:
        raise StoreUnavailableError("no answer")

    log, _ = large_table(tmp_path)
    with pytest.raises(StoreUnavailableError, match="no answer"):
        through(Failing(log.store, silent), log).snapshot()


def test_a_checkpoint_that_goes_or_is_replaced_while_it_is_read_cannot_be_read(tmp_path: Path) -> None:
    log, size = large_table(tmp_path)
    whole = log.store.get(PATH)
    for change, said in (
        (lambda: log.store.delete(PATH), "is gone"),
        (lambda: log.store.put(PATH, whole), "was replaced"),
        (lambda: log.store.put(PATH, b"short"), "was replaced"),
    ):
        log.store.put(PATH, whole)
        with pytest.raises(CorruptLogError, match=said):
            read(Failing(log.store, change), size)


def test_a_map_that_has_a_key_twice_is_damage() -> None:
    data = written([{"path": "a", "partitionValues": [("p", "1"), ("p", "2")], "size": 1}])
    with pytest.raises(CorruptLogError, match="duplicate"):
        read(stored(data), len(data))


@pytest.mark.parametrize("wanted", [InPartitions(lambda _: False), None], ids=["elsewhere", "wanted"])
def test_a_damaged_text_is_damage_wherever_the_file_is(wanted: InPartitions | None) -> None:
    data = written([{"path": "damaged-here", "partitionValues": [("p", "1")], "size": 1}], compression="none")
    data = data.replace(b"damaged-here", b"damaged\xff\xff\xff\xff\xff")
    with pytest.raises(CorruptLogError, match=r"checkpoint\.parquet"):
        read(stored(data), len(data), wanted)
