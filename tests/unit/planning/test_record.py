"""The plan of a run: written once, reused, and never changed for a writer that is in it (protocol: plan once)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from obstore.store import LocalStore, MemoryStore

from airflow_provider_onelake.exceptions import ObjectExistsError, PlanError, StoreUnavailableError
from airflow_provider_onelake.planning.record import DIRECTORY, Division, Plan
from airflow_provider_onelake.planning.record import make_plan as make_plan_of
from airflow_provider_onelake.storage.stores import ObjectStore, Store

NAMES = st.sampled_from([f"2019-{month:02d}" for month in range(1, 13)])
SIZES = st.dictionaries(NAMES, st.integers(0, 100))


FILES = Division("month", paths=("/in",))


def make_plan(store: Store, name: str, sizes: dict[str, int], **limits: Any) -> Plan:
    """A plan of files by month."""
    return make_plan_of(store, name, sizes, limits.pop("division", FILES), **limits)


@pytest.fixture
def store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(LocalStore(prefix=tmp_path), "the table")


def writers(plan_sizes: dict[str, int], store: Store, name: str = "run", **limits: Any) -> dict[str, str]:
    """The writer of each partition."""
    plan = make_plan(store, name, plan_sizes, **limits)
    return {partition: share.writer for share in plan.shares for partition in share.partitions}


@given(seen=st.lists(SIZES, max_size=5), count=st.none() | st.integers(1, 4))
def test_a_partition_never_changes_its_writer_whatever_comes_and_goes(
    seen: list[dict[str, int]], count: int | None
) -> None:
    store = ObjectStore(MemoryStore(), "memory")
    limits: dict[str, Any] = {} if count is None else {"writers": count}
    known: dict[str, str] = {}
    for sizes in seen:
        found = writers(sizes, store, **limits)
        assert found.items() >= known.items()
        assert set(found) == set(known) | set(sizes)
        known = found


def test_a_rerun_has_the_same_writers_though_sizes_and_limits_changed(store: Store) -> None:
    first = make_plan(store, "run", {"a": 1, "b": 2, "c": 3}, writers=2)
    again = make_plan(store, "run", {"a": 9, "b": 2, "c": 1}, writers=3)
    assert (first.new, again.new) == (2, 0)
    assert again.shares == first.shares
    assert len(list(store.list(DIRECTORY))) == 1


def test_partitions_that_come_later_get_writers_of_their_own(store: Store) -> None:
    first = writers({"a": 1, "b": 2}, store, writers=1)
    later = writers({"a": 1, "b": 2, "c": 3}, store, writers=1)
    assert later == {**first, "c": "c"}
    assert [info.path.rpartition("/")[2] for info in store.list(DIRECTORY)] == ["00000.json", "00001.json"]


def test_each_run_has_its_own_plan(store: Store) -> None:
    assert writers({"a": 1, "b": 2}, store, "one", writers=1) != writers({"a": 1, "b": 2}, store, "two", writers=2)


def test_a_writer_that_grew_above_the_limit_is_refused(store: Store) -> None:
    make_plan(store, "run", {"a": 5, "b": 5}, max_bytes=10)
    with pytest.raises(PlanError, match=r"Writer a\+1-\w+ was planned for a, b, now 11 bytes.*raise max_bytes"):
        make_plan(store, "run", {"a": 5, "b": 6, "c": 1}, max_bytes=10)
    assert len(list(store.list(DIRECTORY))) == 1
    assert len(make_plan(store, "run", {"a": 5, "b": 6, "c": 1}, max_bytes=11).shares) == 2


@pytest.mark.parametrize(
    "division",
    [
        pytest.param(Division(None, paths=("/in",)), id="by"),
        pytest.param(Division("month", paths=("/moved",)), id="path"),
        pytest.param(Division("month", paths=("/in", "/more", "/other")), id="a-path-comes-and-one-goes"),
        pytest.param(Division(column="month"), id="values-for-files"),
    ],
)
def test_a_source_that_is_divided_otherwise_within_a_run_is_refused(store: Store, division: Division) -> None:
    before = Division("month", paths=("/in", "/second"))
    make_plan(store, "run", {"a": 5}, division=before)
    with pytest.raises(PlanError, match=r"made with by='month' and the paths /in, /second, and.*set it back and clear"):
        make_plan(store, "run", {"x": 5}, division=division)
    assert len(list(store.list(DIRECTORY))) == 1
    assert make_plan(store, "another run", {"x": 5}, division=division).new == 1


def test_a_path_may_be_added_or_left_out(store: Store) -> None:
    first = writers({"a": 1}, store)
    more = Division("month", paths=("/in", "/more"))
    assert writers({"a": 1, "b": 1}, store, division=more).items() > first.items()
    assert len(writers({"a": 1}, store)) == 2


@pytest.mark.parametrize("content", [b"", b'{"format": 2', b"[]", b"{}", b'{"format": 2, "writers": []}', b"\xff"])
def test_a_damaged_plan_is_refused_by_name(store: Store, content: bytes) -> None:
    plan = make_plan(store, "run", {"2019-01": 1})
    store.put(f"{plan.path}/00000.json", content)
    with pytest.raises(PlanError, match="of the table, which says who writes what in this run, is damaged"):
        make_plan(store, "run", {"2019-01": 1, "2019-02": 1})


def test_a_plan_of_a_later_format_is_refused(store: Store) -> None:
    make_plan(store, "run", {"a": 5})
    (info,) = store.list(DIRECTORY)
    store.put(info.path, json.dumps({**json.loads(store.get(info.path)), "format": 3}).encode())
    with pytest.raises(PlanError, match="of the format 3, made by another version"):
        make_plan(store, "run", {"a": 5})


class Raced(ObjectStore):
    """A store in which somebody else plans just before this try puts its plan."""

    def __init__(self, store: LocalStore, *, lost: bool) -> None:
        super().__init__(store, "raced")
        self.lost = lost

    def create(self, path: str, data: bytes) -> None:
        if path.endswith("00000.json"):
            if self.lost:
                # The put took effect, its answer was lost, and the client asked again.
                super().create(path, data)
            else:
                division = {"by": "month", "column": None, "paths": ["/in"]}
                entry = {"format": 2, "plan": "run", "division": division, "writers": {"theirs": ["a"]}}
                super().create(path, json.dumps(entry).encode())
            raise ObjectExistsError("there already")
        super().create(path, data)


@pytest.mark.parametrize(("lost", "found"), [(False, {"a": "theirs", "b": "b"}), (True, {"a": "a", "b": "b"})])
def test_the_plan_that_was_there_first_counts(tmp_path: Path, lost: bool, found: dict[str, str]) -> None:
    assert writers({"a": 1, "b": 2}, Raced(LocalStore(prefix=tmp_path), lost=lost)) == found


def test_without_an_answer_nothing_is_planned(tmp_path: Path) -> None:
    class Silent(ObjectStore):
        def create(self, path: str, data: bytes) -> None:
            raise StoreUnavailableError("no answer")

    with pytest.raises(StoreUnavailableError):
        make_plan(Silent(LocalStore(prefix=tmp_path), "silent"), "run", {"a": 1})
