"""Rows computed from the table itself are published only while the table is what they were computed from.

Protocol: reads its target.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.choices import Policy, PublishMode
from airflow_provider_onelake.commit.publish import Committer, Status
from airflow_provider_onelake.commit.reconcile import reconcile
from airflow_provider_onelake.exceptions import ConflictError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.buffers import Buffer
from airflow_provider_onelake.staging.modes import Append, Mode, Overwrite, OverwritePartitions
from airflow_provider_onelake.staging.prepare import complete, prepare
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    LOAD,
    begun,
    foreign_append,
    foreign_commit,
    ids,
    make_table,
    stage,
    stage_reading,
    writer_spec,
)

MODES = pytest.mark.parametrize("mode", [Append(), Overwrite(), OverwritePartitions()], ids=lambda mode: mode.name)


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = make_table(tmp_path / "t")
    foreign_append(log, {"2019-01": [1]})
    return log


def elsewhere(log: DeltaLog) -> None:
    foreign_append(through(log.store, log), {"2019-09": [9]})


def compaction(log: DeltaLog) -> None:
    foreign_commit(through(log.store, log), [{"commitInfo": {"operation": "OPTIMIZE"}}])


@MODES
def test_undisturbed_it_is_published_and_never_called_blind(log: DeltaLog, mode: Mode) -> None:
    buffer = stage_reading(log, mode=mode)
    assert buffer.reads_target
    assert Committer(log).publish([buffer]).status is Status.PUBLISHED
    assert not log.commits_since(1)[0].blind_append


@MODES
@pytest.mark.parametrize("policy", list(Policy))
def test_a_change_anywhere_is_left_to_the_writer_and_settled_by_no_policy(
    log: DeltaLog, mode: Mode, policy: Policy
) -> None:
    buffer = stage_reading(log, mode=mode)
    held = LoserHeld(log.store, lambda: elsewhere(log))
    left = Committer(through(held, log)).publish([buffer])
    assert (left.status, held.refused) == (Status.CONFLICTED, 1)
    assert "version 2 (WRITE) changed rows after the table was read at version 1" in left.conflicts[0]
    with pytest.raises(ConflictError, match=r"computed their rows from .* itself, and version 2"):
        Committer(log).publish([buffer], policy)
    assert ids(Path(log.table)) == [1, 9]


@MODES
def test_what_changes_no_rows_is_no_conflict(log: DeltaLog, mode: Mode) -> None:
    buffer = stage_reading(log, mode=mode)
    held = LoserHeld(log.store, lambda: compaction(log))
    assert Committer(through(held, log)).publish([buffer]).status is Status.PUBLISHED
    assert held.refused == 1


def test_an_older_generation_of_the_same_writer_counts_too(log: DeltaLog) -> None:
    first = stage(log, writer_spec(mode=Overwrite()), {"2019-01": [5]})
    again = stage_reading(log, mode=Overwrite(), generation=2)
    Committer(log).publish([first])
    assert Committer(log).publish([again]).status is Status.CONFLICTED


def test_reconcile_refuses_it_and_says_what_to_do(log: DeltaLog) -> None:
    stage_reading(log)
    elsewhere(log)
    report = reconcile(Committer(log), LOAD, ["w"])
    assert [outcome.status for outcome in report.outcomes] == ["refused"]
    with pytest.raises(ConflictError, match="clear the writers to compute them from the newest version"):
        report.raise_for_failures()


def test_colleagues_of_one_commit_do_not_disturb_each_other(log: DeltaLog) -> None:
    stage_reading(log, "a")
    stage(log, writer_spec("b"), {"2019-02": [20]})
    report = reconcile(Committer(log), LOAD, ["a", "b"], publish=PublishMode.TOGETHER)
    assert [outcome.status for outcome in report.outcomes] == ["published", "published"]


def test_a_retry_does_not_reuse_a_buffer_that_is_out_of_date(log: DeltaLog) -> None:
    terms = {"fingerprint": "f"}
    buffer = stage_reading(log, **terms)
    assert isinstance(prepare(log, writer_spec(attempt="second", **terms)), Buffer)
    elsewhere(log)
    task = begun(log, writer_spec(attempt="third", **terms))
    assert task.path != buffer.path


def test_an_empty_buffer_remembers_it_as_well(log: DeltaLog) -> None:
    task = begun(log, writer_spec())
    assert complete(log, task.path, reads_target=True).reads_target


# -- what has read the table counts after what it has seen -------------------------------------------------------------


def publish_reader(log: DeltaLog) -> None:
    fresh = through(log.store, log)
    reader = stage_reading(fresh, "reader", "2019-09", fingerprint="r")
    assert Committer(fresh).publish([reader]).status is Status.PUBLISHED


def append(log: DeltaLog) -> None:
    foreign_append(through(log.store, log), {"2019-01": [2]})


def test_a_write_does_not_count_before_a_reader_that_has_not_seen_it(log: DeltaLog) -> None:
    late = stage(log, writer_spec(mode=OverwritePartitions()), {"2019-01": [5]})
    append(log)
    publish_reader(log)
    with pytest.raises(ConflictError, match=r"version 3 \(reader\), which came after that, computed its rows from"):
        Committer(log).publish([late], Policy.LAST_WRITER_WINS)
    assert ids(Path(log.table)) == [1, 2, 10]
