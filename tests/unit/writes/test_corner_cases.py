"""What is easily got wrong by a word: several buffers at once, a log that was cleaned up, versions that are equal."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.buffers.markers import set_aside
from airflow_provider_onelake.choices import OnRerun, Policy
from airflow_provider_onelake.exceptions import ConflictError, RerunRefusedError
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.snapshot import Snapshot
from airflow_provider_onelake.writes.publish import Committer, PublishStatus
from tests.support import tables
from tests.support.tables import Stage, complete, prepare


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = tables.make_table(tmp_path / "t")
    tables.foreign_append(log, {"2019-01": [1]})
    return log


def test_what_an_older_try_published_while_columns_were_added_is_not_the_retrys(log: DeltaLog) -> None:
    """Spark looks at the columns of the rows first, so the retry is formed on a version that has the older try's rows."""

    def evolve(_: Snapshot) -> Snapshot:
        wrong = tables.stage(log, tables.writer_spec(fingerprint="wrong"), {"2019-01": [10]})
        assert Committer(tables.local_log(Path(log.table))).publish([wrong]).status is PublishStatus.PUBLISHED
        return log.snapshot()

    spec = tables.writer_spec(fingerprint="corrected")
    task = prepare(log, spec, evolve)
    assert isinstance(task, Stage)
    actions = tables.append_files(log.store, task.path, {"2019-01": [20]}, **tables.of_attempt(spec.attempt))
    log.store.create(f"{task.path}/{version_path(1)}", dump_actions(actions))
    with pytest.raises(RerunRefusedError, match=r"\(generation 1, version 2\), from another source, code or mode"):
        Committer(log).publish([complete(log, task.path)])
    assert tables.ids(Path(log.table)) == [1, 10]


@pytest.mark.parametrize("aside", [0, 1, 2])
def test_whichever_of_several_buffers_was_set_aside_is_not_published_with_the_others(log: DeltaLog, aside: int) -> None:
    buffers = [
        tables.stage(log, tables.writer_spec(key), {"2019-01": [row]}) for key, row in (("a", 10), ("b", 11), ("c", 12))
    ]
    set_aside(log.store, buffers[aside].path, "a person does not want it")
    assert Committer(log).publish(buffers).status is PublishStatus.PUBLISHED
    assert tables.ids(Path(log.table)) == sorted({1, 10, 11, 12} - {10 + aside})


def test_a_buffer_set_aside_leaves_one_that_is_published_published(log: DeltaLog) -> None:
    unwanted, there = (
        tables.stage(log, tables.writer_spec(key), {"2019-01": [row]}) for key, row in (("a", 10), ("b", 11))
    )
    version = Committer(log).publish([there]).version
    set_aside(log.store, unwanted.path, "a person does not want it")
    ended = Committer(tables.local_log(Path(log.table))).publish([unwanted, there])
    assert (ended.status, ended.version) == (PublishStatus.ALREADY, version)


@pytest.mark.parametrize("policy", Policy)
def test_rows_computed_from_a_table_whose_log_since_is_gone_are_refused(log: DeltaLog, policy: Policy) -> None:
    buffer = tables.stage_reading(log)
    for row in (2, 3):
        tables.foreign_append(log, {"2019-01": [row]})
    with pytest.raises(ConflictError, match="log since then was cleaned up, so nobody knows whether what they read"):
        Committer(tables.cleaned_up(log)).publish([buffer], policy)


def test_what_came_with_the_version_that_a_writer_read_does_not_disturb_it(log: DeltaLog) -> None:
    first = tables.stage(log, tables.writer_spec("a"), {"2019-02": [2]})
    read = tables.foreign_append(log, {"2019-01": [3]})
    second = tables.stage_reading(log, "b")
    assert (first.read_version, second.read_version) == (read - 1, read)
    assert Committer(log).publish([first, second]).status is PublishStatus.PUBLISHED


def test_an_append_that_takes_its_earlier_rows_back_is_not_called_blind(log: DeltaLog) -> None:
    Committer(log).publish([tables.stage(log, tables.writer_spec(), {"2019-01": [2]})])
    again = tables.stage(log, tables.writer_spec(generation=2, on_rerun=OnRerun.REPLACE), {"2019-01": [3]})
    version = Committer(log).publish([again]).version
    assert version is not None
    commit = log.commit(version)
    assert commit is not None
    assert (len(commit.removes), commit.info["isBlindAppend"]) == (1, False)
