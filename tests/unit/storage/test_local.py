"""What is put to a local disk survives a power cut: contents and names are synced, in the order that readers need."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from airflow_provider_onelake.definition.create import create_table
from airflow_provider_onelake.exceptions import AddressError, ObjectExistsError, StoreRefusedError, UnsafeStoreError
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, version_path
from airflow_provider_onelake.log.checkpoints import checkpointer
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.local import LocalDisk
from airflow_provider_onelake.storage.preflight import problems_of
from airflow_provider_onelake.storage.stores import Store, Syncing, open_store
from airflow_provider_onelake.writes.publish import Committer
from tests.support.commits import committer
from tests.support.power import Disk
from tests.support.tables import SCHEMA, ids, local_log, make_table, newest, stage, writer_spec


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(TableAddress.parse(str(tmp_path)))


@pytest.mark.parametrize(("put", "call"), [("create", "link"), ("put", "replace")])
def test_an_object_gets_its_name_once_its_content_is_on_the_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, put: str, call: str
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    getattr(store, put)("a/b", b"x")
    assert disk.calls == [("fsync", "a/b"), (call, "a/b"), ("fsync", "a"), ("fsync", "."), ("fsync", "..")]
    getattr(store, put)("a/c", b"x")
    assert disk.calls[5:] == [("fsync", "a/c"), (call, "a/c"), ("fsync", "a")]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b", "c"]


def test_without_fsync_nothing_is_synced_and_a_put_is_as_create_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, monkeypatch)
    store = open_store(TableAddress.parse(str(tmp_path)), LocalDisk(fsync=False))
    store.create("a/b", b"x")
    store.put("a/c", b"y")
    # obstore puts them.
    assert not isinstance(store, Syncing)
    assert disk.calls == []
    with pytest.raises(ObjectExistsError):
        store.create("a/b", b"z")
    assert [(tmp_path / "a" / name).read_bytes() for name in ("b", "c")] == [b"x", b"y"]
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["b", "c"]


def test_a_published_load_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process wrote the files, such as Spark, which syncs nothing."""
    path = tmp_path / "t"
    disk = Disk(path, monkeypatch)
    log = DeltaLog(open_store(TableAddress.parse(str(path))), str(path))
    create_table(log, SCHEMA, ("month",), {})
    buffer = stage(local_log(path), writer_spec(), {"2019-01": [1], "2019-02": [2]})
    assert committer(log).publish([buffer]).version == 1
    before = disk.calls[: disk.calls.index(("link", version_path(1)))]
    assert {("fsync", file["path"]) for file in log.live_files(lambda _: True, 1)} <= set(before)
    disk.cut_the_power()
    assert ids(path) == [1, 2]


def test_a_checkpoint_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t"
    disk = Disk(path, monkeypatch)
    make_table(path)
    log = DeltaLog(open_store(TableAddress.parse(str(path))), str(path))
    committer(log).publish([stage(log, writer_spec(), {"2019-01": [1]})])
    checkpointer(str(path), interval=1, log=log)(newest(log), 1)
    disk.cut_the_power()
    assert (path / LOG_DIRECTORY / "_last_checkpoint").read_bytes()
    assert (path / LOG_DIRECTORY / f"{1:020d}.checkpoint.parquet").read_bytes()


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP, errno.ENOSYS])
def test_a_mount_without_hard_links_is_refused_by_the_preflight(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refused)
    (problem,) = problems_of(store, "s/x", "it")
    assert isinstance(problem.error, UnsafeStoreError)
    assert "There are no hard links on the mount of " in problem.text
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize(
    "lay",
    [
        pytest.param(lambda path: path.symlink_to("nowhere"), id="dangling link"),
        pytest.param(Path.mkdir, id="directory"),
    ],
)
def test_what_lies_where_the_next_version_is_to_be_is_named_at_once(
    tmp_path: Path, lay: Callable[[Path], None]
) -> None:
    path = tmp_path / "t"
    buffer = stage(make_table(path), writer_spec(), {"2019-01": [1]})
    lay(path / version_path(1))
    log = DeltaLog(open_store(TableAddress.parse(str(path))), str(path))
    with pytest.raises(StoreRefusedError, match=f"There is no file at .*{1:020d}.json in {path}"):
        Committer(log).publish([buffer])


def test_a_link_to_a_file_is_an_object(store: Store, tmp_path: Path) -> None:
    store.put("a", b"x")
    (tmp_path / "b").symlink_to("a")
    assert store.get("b") == b"x"
    with pytest.raises(ObjectExistsError):
        store.create("b", b"y")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        pytest.param(b"new\nline", "a/new line", id="newline"),
        pytest.param(b"tab\tx", "a/tab x", id="tab"),
        pytest.param(b"\xff", "a/%FF", id="no UTF-8"),
    ],
)
def test_a_name_that_no_listing_can_show_is_named_with_the_way_out(
    store: Store, tmp_path: Path, name: bytes, said: str
) -> None:
    (tmp_path / "a").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "a") + b"/" + name)).touch()
    for listing in (lambda: list(store.list("")), lambda: store.directories("a")):
        with pytest.raises(StoreRefusedError) as caught:
            listing()
        assert said in str(caught.value)
        assert "Rename or delete it" in str(caught.value)


def test_a_loop_of_links_is_named_with_the_way_out(store: Store, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(StoreRefusedError, match=r"Rename or delete it.*/loop: Too many levels"):
        list(store.list(""))


@pytest.mark.parametrize("path", ["a\0b", "a/../b", "a//b", "n" * 300, "file/x"])
@pytest.mark.parametrize("name", ["get", "head", "create", "put", "list"])
def test_what_can_be_no_name_is_refused_for_good(store: Store, path: str, name: str) -> None:
    store.put("file", b"")
    with pytest.raises(StoreRefusedError):
        list(getattr(store, name)(path, *([b"x"] if name in ("create", "put") else [])))


@pytest.mark.parametrize("name", ["_delta_log", "staged"])
def test_a_log_or_staged_work_that_is_a_link_is_refused(tmp_path: Path, name: str) -> None:
    """What is written there would go elsewhere, such as into another lakehouse."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / name).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(AddressError, match=f"There is a symbolic link at .*/t/{name}"):
        open_store(TableAddress.parse(str(tmp_path / "t")))
