"""A frame shows one version until it is reframed, and fetches a column of a file once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.exceptions import InvalidReadError, ReadRefusedError, TableNotFoundError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.leases import Lease
from airflow_provider_onelake.maintenance.pinned_versions import pinned_versions
from airflow_provider_onelake.rows.frame import MEMORY, Frame
from airflow_provider_onelake.table import this_process
from tests.support.clocks import HeldClock
from tests.support.data_files import opened, put_file, rows_of, schema_of
from tests.support.stores import PassingOn
from tests.support.tables import change_metadata, foreign_append, foreign_commit, local_log, make_table
from tests.support.vectors import delete_rows

LEASE = timedelta(minutes=10)


class Watching(PassingOn):
    """Remembers which files are read."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.read: list[str] = []

    def get_range(self, path: str, start: int, end: int) -> Any:
        self.read.append(path)
        return super().get_range(path, start, end)

    def taken(self) -> set[str]:
        found = set(self.read)
        self.read.clear()
        return found


def framed(log: DeltaLog, *, memory: int = MEMORY, clock: Any = None) -> tuple[Frame, Watching]:
    store = Watching(log.store)
    seen = DeltaLog(store, log.table, clock)
    return Frame(seen, lambda version: Lease.take(seen, version, "a test", LEASE), memory=memory), store


def remove(log: DeltaLog, path: str) -> int:
    return foreign_commit(log, [{"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}])


def ids(frame: Frame, where: str | None = None) -> list[int]:
    return sorted(frame.read(["id"], where).read_all().column("id").to_pylist())


def test_all_reads_see_one_version_until_it_is_reframed(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})
    with opened(log).frame() as frame:
        foreign_append(log, {"a": [2]})
        assert (frame.version, ids(frame)) == (1, [1])
        assert frame.column("month").to_pylist() == ["a"]
        done = frame.reframe()
        assert (done.before, done.version, frame.version, ids(frame)) == (1, 2, 2, [1, 2])
        assert done.to_json()["files_new"] == 1


def test_our_vacuum_keeps_its_version_while_it_is_open(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})
    with opened(log).frame(version=0) as frame:
        assert [(kept.version, kept.by) for kept in pinned_versions(log)] == [(0, this_process())]
        frame.reframe()
        assert [kept.version for kept in pinned_versions(log)] == [1]
    assert pinned_versions(log) == []
    frame.close()
    with pytest.raises(ReadRefusedError, match="is closed"):
        frame.read()
    with pytest.raises(ReadRefusedError, match="is closed"):
        frame.reframe()


def test_a_column_of_a_file_is_fetched_once(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1, 2], "b": [3]})
    frame, store = framed(log)
    assert store.taken() == set()
    assert ids(frame, "month = 'a'") == [1, 2]
    assert len(store.taken()) == frame.columns_paged_in == frame.columns_in_memory == 1
    assert ids(frame) == [1, 2, 3]
    assert len(store.taken()) == 1
    again = frame.read(["id"], "id > 1")
    assert sorted(again.read_all().column("id").to_pylist()) == [2, 3]
    assert (store.taken(), again.report.bytes_fetched, again.report.rows) == (set(), 0, 2)
    assert 24 <= frame.bytes_in_memory < 40
    frame.close()
    assert (frame.bytes_in_memory, frame.columns_in_memory) == (0, 0)


def test_columns_of_files_that_stayed_are_not_fetched_again(log: DeltaLog) -> None:
    first = put_file(log, pa.table({"id": [1]}), {"month": "a"})
    put_file(log, pa.table({"id": [2]}), {"month": "a"})
    frame, store = framed(log)
    assert ids(frame) == [1, 2]
    store.taken()
    remove(log, first["path"])
    third = put_file(log, pa.table({"id": [3]}), {"month": "a"})
    done = frame.reframe()
    assert (done.files_stayed, done.files_gone, done.files_new) == (1, 1, 1)
    assert (done.columns_kept, done.columns_dropped) == (1, 1)
    assert done.bytes_kept == done.bytes_dropped == frame.bytes_in_memory > 0
    assert ids(frame) == [2, 3]
    assert store.taken() == {third["path"]}


def test_nothing_changes_where_no_commit_came(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})
    frame, store = framed(log)
    ids(frame)
    done = frame.reframe()
    assert (done.before, done.version, done.files_stayed, done.columns_kept, done.columns_dropped) == (1, 1, 1, 1, 0)
    store.taken()
    assert (ids(frame), store.taken()) == ([1], set())


def test_a_delete_that_only_marks_rows_evicts_nothing(tmp_path: Path) -> None:
    log = make_table(
        tmp_path / "t", schema_of(("id", "long"), ("n", "long")), (), **{"delta.enableDeletionVectors": "true"}
    )
    add = put_file(log, pa.table({"id": [1, 2, 3], "n": [7, 8, 9]}))
    frame, _ = framed(log)
    assert ids(frame) == [1, 2, 3]
    delete_rows(log, add, [1])
    assert frame.reframe().columns_kept == 1
    paged_in = frame.columns_paged_in
    assert ids(frame) == [1, 3]
    assert frame.columns_paged_in == paged_in
    assert rows_of(opened(log), ["id"], version=1) == [1, 2, 3]


def test_a_renamed_column_stays_and_a_widened_one_is_read_anew(tmp_path: Path) -> None:
    def column(name: str, kind: str) -> dict[str, Any]:
        told = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
        return {"name": name, "type": kind, "nullable": True, "metadata": told}

    log = make_table(tmp_path / "t", schema_of(("id", "integer")), (), **{"delta.columnMapping.mode": "name"})
    change_metadata(log, schemaString=schema_of(column("id", "integer")))
    put_file(log, pa.table({"col-1": pa.array([1], pa.int32())}))
    frame, _ = framed(log)
    assert frame.column("id").to_pylist() == [1]
    change_metadata(log, schemaString=schema_of(column("renamed", "integer")))
    assert frame.column("id").to_pylist() == [1]
    assert frame.reframe().columns_kept == 1
    assert frame.column("renamed").to_pylist() == [1]
    assert frame.columns_paged_in == 1
    change_metadata(log, schemaString=schema_of(column("renamed", "long")))
    assert frame.reframe().columns_dropped == 1
    assert frame.column("renamed").type == pa.int64()
    assert frame.columns_paged_in == 2


def test_what_was_not_asked_for_the_longest_goes_when_memory_is_full(tmp_path: Path) -> None:
    log = make_table(tmp_path / "t", schema_of(("a", "long"), ("b", "long"), ("c", "long")), ())
    put_file(log, pa.table({"a": range(100), "b": range(100), "c": range(100)}))
    frame, _ = framed(log, memory=1700)
    for name in ("a", "b", "a", "c"):
        assert frame.column(name).to_pylist() == list(range(100))
    assert (frame.columns_in_memory, frame.columns_paged_in) == (2, 3)
    assert 1600 <= frame.bytes_in_memory <= 1700
    frame.column("a")
    assert frame.columns_paged_in == 3
    frame.column("b")
    assert frame.columns_paged_in == 4


def test_rows_that_are_taken_after_it_moved_on_are_refused(log: DeltaLog) -> None:
    foreign_append(log, {"a": [1]})
    frame, _ = framed(log)
    late = frame.read()
    foreign_append(log, {"a": [2]})
    frame.reframe()
    with pytest.raises(ReadRefusedError, match="was closed or reframed while its rows were taken"):
        late.read_all()


def test_a_frame_that_lost_its_version_says_so_and_goes_on_with_the_newest(log: DeltaLog) -> None:
    add = put_file(log, pa.table({"id": [1]}), {"month": "a"})
    clock = HeldClock()
    frame, _ = framed(log, clock=clock)
    remove(log, add["path"])
    clock.forward(minutes=20)
    Path(log.table, add["path"]).unlink()
    with pytest.raises(ReadRefusedError, match=r"version 1 of .* is lost.*reframe\(\)"):
        frame.read()
    assert frame.reframe().version == 2
    assert ids(frame) == []


def test_a_table_that_was_made_again_keeps_nothing(tmp_path: Path) -> None:
    import shutil

    log = make_table(tmp_path / "t")
    foreign_append(log, {"a": [1]})
    frame, _ = framed(log)
    assert ids(frame) == [1]
    shutil.rmtree(tmp_path / "t")
    again = make_table(tmp_path / "t")
    foreign_append(again, {"a": [5]})
    done = frame.reframe()
    assert (done.columns_kept, done.columns_dropped, ids(frame)) == (0, 1, [5])


def test_what_cannot_be_framed_is_refused(log: DeltaLog, tmp_path: Path) -> None:
    with pytest.raises(InvalidReadError, match="memory=-1"):
        opened(log).frame(memory=-1)
    with pytest.raises(InvalidReadError, match="a minute or more"):
        opened(log).frame(lease=timedelta(seconds=1))
    with pytest.raises(ReadRefusedError, match="has no version 7"):
        opened(log).frame(version=7)
    with pytest.raises(TableNotFoundError):
        opened(local_log(tmp_path / "none")).frame()
    assert pinned_versions(log) == []


def test_an_old_version_whose_files_are_gone_is_refused(log: DeltaLog) -> None:
    add = put_file(log, pa.table({"id": [1]}), {"month": "a"})
    remove(log, add["path"])
    Path(log.table, add["path"]).unlink()
    with pytest.raises(ReadRefusedError, match=r"No frame of version 1 of .* 1 of its files are gone"):
        opened(log).frame(version=1)


def test_the_example_of_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    extra = {"lakehouse": str(tmp_path)}
    monkeypatch.setenv("AIRFLOW_CONN_ONELAKE_DEFAULT", json.dumps({"conn_type": "onelake", "extra": extra}))
    log = make_table(tmp_path / "Tables" / "trips", schema_of(("id", "long"), ("fare", "double")), ())
    put_file(log, pa.table({"id": [1, 2], "fare": [4.5, 9.0]}))

    def another_task_commits() -> None:
        put_file(local_log(Path(log.table)), pa.table({"id": [3], "fare": [7.0]}))

    # [START howto_frame]
    from airflow_provider_onelake.hooks.onelake import OneLakeHook

    with OneLakeHook().table("Tables/trips").frame() as frame:
        fares = frame.column("fare")  # a pyarrow.ChunkedArray of all rows
        cheap = frame.read(["id"], "fare < 5").read_all()  # the column fare is not fetched again
        another_task_commits()
        done = frame.reframe()  # on to the newest version
        new_fares = frame.column("fare")  # only that of the new file is fetched
    # [END howto_frame]

    assert (fares.to_pylist(), cheap.to_pydict()) == ([4.5, 9.0], {"id": [1]})
    assert (done.files_new, done.columns_kept, new_fares.to_pylist()) == (1, 2, [4.5, 9.0, 7.0])
    assert frame.columns_paged_in == 3


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.lists(st.integers(0, 9), min_size=1, max_size=4)),
        st.tuples(st.just("remove"), st.integers(0, 9)),
        st.tuples(st.just("mark"), st.integers(0, 9)),
        st.tuples(st.just("reframe"), st.none()),
        st.tuples(st.just("read"), st.sampled_from([None, "id > 4", "n IS NULL", "n = 3 OR id < 2"])),
    ),
    max_size=12,
)


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    base = tmp_path_factory.mktemp("frames")
    return (base / str(number) for number in range(1 << 30))


@settings(deadline=None, max_examples=40)
@given(steps=STEPS, memory=st.sampled_from([0, 40, MEMORY]))
def test_a_frame_shows_what_a_read_of_its_version_shows(
    places: Iterator[Path], steps: list[tuple[str, Any]], memory: int
) -> None:
    properties = {"delta.enableDeletionVectors": "true"}
    log = make_table(next(places), schema_of(("id", "long"), ("n", "long")), (), **properties)
    frame, _ = framed(log, memory=memory)
    for step, what in [*steps, ("reframe", None), ("read", None)]:
        newest = local_log(Path(log.table))
        live = list(newest.live_files(lambda _: True, newest.snapshot().version))
        if step == "append":
            rows = pa.table({"id": pa.array(what, pa.int64()), "n": [None if one > 6 else one for one in what]})
            put_file(newest, rows.cast(pa.schema([("id", pa.int64()), ("n", pa.int64())])))
        elif step == "remove" and live:
            foreign_commit(newest, [{"remove": {**live[what % len(live)], "dataChange": True}}])
        elif step == "mark" and live and "deletionVector" not in live[what % len(live)]:
            delete_rows(newest, dict(live[what % len(live)]), [0])
        elif step == "reframe":
            assert frame.reframe().version == newest.snapshot().version
        elif step == "read":
            seen = frame.read(where=what).read_all().to_pylist()
            assert seen == opened(log).read(where=what, version=frame.version).read_all().to_pylist()
            assert frame.bytes_in_memory <= memory
    frame.close()
    assert pinned_versions(log) == []
