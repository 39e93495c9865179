"""Checkpoints keep a table fast that only we commit to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.log.actions import version_path
from airflow_provider_onelake.log.checkpoints import checkpointer
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.pinned_versions import oldest_pinned, pin_version
from tests.support.stores import through
from tests.support.tables import foreign_append, ids, make_table, stage, writer_spec


def checkpoints(path: Path) -> list[int]:
    return sorted(int(file.name[:20]) for file in (path / "_delta_log").glob("*.checkpoint.parquet"))


def test_a_checkpoint_is_written_at_every_interval_and_not_at_version_0(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    write = checkpointer(str(tmp_path), interval=3)
    snapshot = log.snapshot()
    write(snapshot, 0)
    for _ in range(7):
        write(snapshot, foreign_append(log, {"2019-01": [1]}))
    assert checkpoints(tmp_path) == [3, 6]


def test_the_tables_own_interval_goes_before_ours(tmp_path: Path) -> None:
    log = make_table(tmp_path, **{"delta.checkpointInterval": "2"})
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=1))
    for number in range(3):
        committer.publish([stage(log, writer_spec(f"w{number}"), {"2019-01": [number]})])
    assert checkpoints(tmp_path) == [2]


def test_what_was_published_is_recognised_and_read_behind_a_checkpoint_without_the_earlier_log(tmp_path: Path) -> None:
    log = make_table(tmp_path)
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=2))
    first = stage(log, writer_spec("a"), {"2019-01": [1]})
    committer.publish([first])
    committer.publish([stage(log, writer_spec("b"), {"2019-01": [2], None: [3]})])
    assert checkpoints(tmp_path) == [2]
    for version in range(3):
        (tmp_path / version_path(version)).unlink()
    log = through(log.store, log)
    (tmp_path / first.path / "_closed.json").unlink()
    assert Committer(log).publish([first]).status is Status.ALREADY
    committer = Committer(log)
    assert committer.publish([stage(log, writer_spec("c"), {"2019-02": [4]})]).version == 3
    assert ids(tmp_path) == [1, 2, 3, 4]


def test_a_checkpoint_that_fails_does_not_undo_the_commit_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_table(tmp_path)
    committer = Committer(log, after_commit=checkpointer(str(tmp_path / "elsewhere"), interval=1))
    assert committer.publish([stage(log, writer_spec(), {"2019-01": [1]})]).status is Status.PUBLISHED
    assert ids(tmp_path) == [1]
    assert "version 1 is committed; what follows a commit failed" in caplog.text


@pytest.mark.parametrize("text", ["soon", "0", "-1"])
def test_an_interval_that_is_none_is_said_and_ours_is_used(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    log = make_table(tmp_path, **{"delta.checkpointInterval": text})
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=1))
    committer.publish([stage(log, writer_spec(), {"2019-01": [1]})])
    assert checkpoints(tmp_path) == [1]
    assert "which is no number of versions" in caplog.text


def entries(path: Path) -> list[int]:
    return sorted(int(file.name[:20]) for file in (path / "_delta_log").glob("*[0-9].json"))


def old_log(path: Path, days: int, **properties: str) -> DeltaLog:
    log = make_table(path, **properties)
    for version in (1, 2):
        foreign_append(log, {"2019-01": [version]})
    DeltaTable(str(path)).create_checkpoint()
    for file in (path / "_delta_log").iterdir():
        os.utime(file, times=(file.stat().st_mtime - days * 86_400,) * 2)
    return log


@pytest.mark.parametrize(
    ("days", "kept", "left"), [(29, None, [0, 1, 2, 3]), (31, None, [2, 3]), (31, 1, [0, 1, 2, 3])]
)
def test_after_a_checkpoint_the_log_is_cleaned_up_as_far_as_it_is_old(
    tmp_path: Path, days: int, kept: int | None, left: list[int]
) -> None:
    log = old_log(tmp_path, days)
    if kept is not None:
        pin_version(log, kept, "a test")
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=3, log=log, keep_from=oldest_pinned))
    assert committer.publish([stage(log, writer_spec(), {"2019-01": [3]})]).version == 3
    assert checkpoints(tmp_path) == [2, 3]
    assert entries(tmp_path) == left
    assert ids(tmp_path) == [1, 2, 3]


def test_no_clean_up_without_a_checkpoint(tmp_path: Path) -> None:
    log = old_log(tmp_path, 31)
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=4, log=log))
    committer.publish([stage(log, writer_spec(), {"2019-01": [3]})])
    assert entries(tmp_path) == [0, 1, 2, 3]


def test_a_clean_up_that_fails_does_not_undo_the_commit_nor_the_checkpoint_and_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = old_log(tmp_path, 31, **{"delta.logRetentionDuration": "interval 1 month"})
    committer = Committer(log, after_commit=checkpointer(str(tmp_path), interval=3, log=log))
    assert committer.publish([stage(log, writer_spec(), {"2019-01": [3]})]).status is Status.PUBLISHED
    assert (checkpoints(tmp_path), entries(tmp_path)) == ([2, 3], [0, 1, 2, 3])
    assert "the log was not cleaned up: 'interval 1 month' is no interval" in caplog.text
