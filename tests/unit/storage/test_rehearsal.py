"""A rehearsal reads as the store would after the changes, and the store stays as it is."""

from __future__ import annotations

from pathlib import Path

import pytest
from obstore.store import LocalStore

from airflow_provider_onelake.exceptions import ObjectExistsError
from airflow_provider_onelake.storage.rehearsal import Rehearsal
from airflow_provider_onelake.storage.stores import ObjectStore, Store


@pytest.fixture
def real(tmp_path: Path) -> ObjectStore:
    store = ObjectStore(LocalStore(prefix=tmp_path), "the table")
    for name in ("log/1", "log/2", "log/3", "other/1"):
        store.put(name, name.encode())
    return store


def change(store: Store) -> None:
    store.create("log/4", b"0123456789")
    store.put("log/2", b"new")
    store.delete("log/1")
    store.create("new/below/1", b"")


def seen(store: Store) -> dict[str, bytes]:
    return {info.path: store.get(info.path) for info in store.list("")}


def test_what_is_changed_is_read_here_and_is_as_it_would_be_in_a_store(real: ObjectStore, tmp_path: Path) -> None:
    rehearsal, before = Rehearsal(real), seen(real)
    change(rehearsal)
    rehearsed, ranges = seen(rehearsal), rehearsal.get_range("log/4", 2, 5)
    listed = [[info.path for info in rehearsal.list("log", after)] for after in (None, "log/2", "log/3")]
    directories = [rehearsal.directories(path) for path in ("", "new", "log", "nowhere")]
    assert seen(real) == before
    change(real)
    assert seen(real) == rehearsed
    assert real.get_range("log/4", 2, 5).data == ranges.data == b"234"
    assert [[info.path for info in real.list("log", after)] for after in (None, "log/2", "log/3")] == listed
    assert [real.directories(path) for path in ("", "new", "log", "nowhere")] == directories
    assert directories == [["log", "new", "other"], ["below"], [], []]


def test_an_object_is_created_once_whether_it_was_there_before_or_not(real: ObjectStore) -> None:
    rehearsal = Rehearsal(real)
    rehearsal.create("log/4", b"")
    for path in ("log/1", "log/4"):
        with pytest.raises(ObjectExistsError, match=path):
            rehearsal.create(path, b"")


def test_what_others_put_meanwhile_is_seen_and_not_created_again(real: ObjectStore) -> None:
    rehearsal = Rehearsal(real)
    real.create("log/4", b"others")
    assert rehearsal.get("log/4") == b"others"
    with pytest.raises(ObjectExistsError):
        rehearsal.create("log/4", b"")
