"""What is put to a local disk survives a power cut: contents and names are synced, in the order that readers need."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from airflow_provider_onelake.commit.definition import create_table
from airflow_provider_onelake.log.actions import LOG_DIRECTORY, version_path
from airflow_provider_onelake.log.checkpoints import checkpointer
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.storage.addresses import TableAddress
from airflow_provider_onelake.storage.stores import Store, open_store
from tests.support.commits import committer
from tests.support.tables import SCHEMA, ids, local_log, make_table, newest, stage, writer_spec


class Disk:
    """What of a directory is on the disk itself: the contents of files and the names in directories that were synced.

    :ivar calls: the calls that put something there, in order, as (call, name relative to the root).
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.root = root
        self.calls: list[tuple[str, str]] = []
        self._contents: set[int] = set()
        self._names: dict[Path, set[str]] = {}
        fsync, link, replace = os.fsync, os.link, os.replace

        def synced(descriptor: int) -> None:
            fsync(descriptor)
            path = Path(f"/proc/self/fd/{descriptor}").readlink()
            self._note("fsync", path)
            self._contents.add(path.stat().st_ino)
            if path.is_dir():
                self._names[path] = {entry.name for entry in path.iterdir()}

        def linked(source: Path, target: Path) -> None:
            link(source, target)
            self._note("link", target)

        def replaced(source: Path, target: Path) -> None:
            replace(source, target)
            self._note("replace", target)

        monkeypatch.setattr(os, "fsync", synced)
        monkeypatch.setattr(os, "link", linked)
        monkeypatch.setattr(os, "replace", replaced)

    def _note(self, call: str, path: Path) -> None:
        name = str(path.relative_to(self.root)) if path.is_relative_to(self.root) else ".."
        self.calls.append((call, name.partition("#")[0]))

    def cut_the_power(self) -> None:
        """Leave what a power cut may leave: files that were not synced are empty or, if their name was not, gone."""
        for path in sorted(self.root.rglob("*"), reverse=True):
            if path.is_file() and path.name not in self._names.get(path.parent, set()):
                path.unlink()
            elif path.is_file() and path.stat().st_ino not in self._contents:
                path.write_bytes(b"")


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
    log = make_table(path)
    committer(log).publish([stage(log, writer_spec(), {"2019-01": [1]})])
    disk = Disk(path, monkeypatch)
    checkpointer(str(path), interval=1)(newest(log), 1)
    disk.cut_the_power()
    assert (path / LOG_DIRECTORY / "_last_checkpoint").read_bytes()
    assert (path / LOG_DIRECTORY / f"{1:020d}.checkpoint.parquet").read_bytes()
