"""The table by which a writer reads a part of its own table: which files it names, of which version."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest

from airflow_provider_onelake.buffers import read_shadow
from airflow_provider_onelake.buffers.read_shadow import open_read_shadow
from airflow_provider_onelake.buffers.reads import Reads
from airflow_provider_onelake.exceptions import InvalidWriteError, UnsupportedFeatureError
from airflow_provider_onelake.log.actions import of_kind, parse_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from tests.support.stores import through
from tests.support.tables import Stage, foreign_append, foreign_commit, make_table, prepare, writer_spec

JANUARY = Reads("month = '2019-01'")


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "a lake" / "t")
    foreign_append(log, {"2019-01": [1, 2], "2019-02": [3], None: [4]})
    return log


def begun(log: DeltaLog, reads: Reads = JANUARY) -> Stage:
    task = prepare(log, writer_spec(reads=reads))
    assert isinstance(task, Stage)
    return task


def read(log: DeltaLog, task: Stage) -> list[int]:
    path = open_read_shadow(log, task, str(log.table))
    entry = f"{path}/{version_path(0)}"
    assert [info.path for info in log.store.list(path)] == [entry.replace(".json", ".crc"), entry]
    adds = of_kind(parse_actions(log.store.get(f"{path}/{version_path(0)}"), "what is read"), "add")
    files = [unquote(add["path"].removeprefix("file:")) for add in adds]
    return sorted(row for file in files for row in pq.ParquetFile(file).read().column("id").to_pylist())


@pytest.mark.parametrize(
    ("where", "rows"),
    [
        ("month = '2019-01'", [1, 2]),
        ("month <> '2019-01'", [3]),
        ("month IS NULL", [4]),
        ("true", [1, 2, 3, 4]),
        ("month = '2020-01'", []),
    ],
)
def test_it_has_the_rows_for_which_the_predicate_is_true(log: DeltaLog, where: str, rows: list[int]) -> None:
    assert read(log, begun(log, Reads(where))) == rows


def test_it_is_of_the_version_that_the_buffer_was_opened_on(log: DeltaLog) -> None:
    task = begun(log)
    foreign_append(log, {"2019-01": [5]})
    newer = through(log.store, log)
    assert newer.snapshot().version > task.read_version
    assert read(newer, task) == [1, 2]


def test_a_task_that_is_back_finds_it_as_it_was(log: DeltaLog) -> None:
    task = begun(log)
    assert read(log, task) == [1, 2]
    entry = Path(log.table, task.path, "_reads", version_path(0))
    before = entry.read_bytes()
    foreign_append(log, {"2019-01": [5]})
    assert read(through(log.store, log), task) == [1, 2]
    assert entry.read_bytes() == before


def test_files_by_absolute_paths_are_refused(log: DeltaLog) -> None:
    (file,) = log.live_files(lambda add: add["partitionValues"]["month"] == "2019-02", log.snapshot().version)
    absolute = {"add": {**file, "path": "file:/elsewhere/part.parquet"}}
    foreign_commit(log, [{"commitInfo": {"operation": "CLONE"}}, absolute])
    assert read(log, begun(log)) == [1, 2]
    with pytest.raises(UnsupportedFeatureError, match=r"absolute path.*leave `reads` out"):
        read(log, begun(log, Reads("true")))


def test_too_many_files_are_refused(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_shadow, "MOST_FILES", 2)
    assert read(log, begun(log)) == [1, 2]
    with pytest.raises(InvalidWriteError, match=r"names 3 files .* at most 2 .*fewer partitions"):
        read(log, begun(log, Reads("true")))
