"""A retry of a DELETE, UPDATE or MERGE takes over the rounds that Spark has ended for a try that died, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.layout import CHANGES
from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import RerunRefusedError, SparkJobError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from tests.support.changes import ChangeByHand, as_if_killed, asker, change_of, three_files
from tests.support.merges import MergeByHand, merged, source_of
from tests.support.stores import Killed, KilledError, through
from tests.support.tables import foreign_append, newest
from tests.support.vectors import ids_without_deleted

UPDATE: dict[str, Any] = {"operation": "UPDATE", "assignments": {"id": "id + 1000"}}
BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])
UPDATED = [1, 2, 4, 5, 7, 8, 1003, 1006, 1009]


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_files(tmp_path / "a lake" / "t")


def rows(log: DeltaLog) -> list[int]:
    return ids_without_deleted(Path(log.table))


def die(job: object) -> None:
    raise KilledError


def dies(log: DeltaLog, engine: ChangeByHand, **terms: Any) -> None:
    """A try whose process is killed when Spark has ended a round."""
    engine.after = die
    with pytest.raises(KilledError):
        change_of(log, engine, **terms).carry_out()
    as_if_killed(log)


def markers(log: DeltaLog) -> int:
    return len(list(Path(log.table).glob(f"{CHANGES}*/*/_closed.json")))


@BOTH
def test_killed_at_each_step_it_is_done_once(tmp_path: Path, vectors: bool) -> None:
    for number in range(100):
        step, effect = number // 2, bool(number % 2)
        log = three_files(tmp_path / str(number))
        try:
            change_of(through(Killed(log.store, step, effect=effect), log), ChangeByHand(vectors), **UPDATE).carry_out()
        except KilledError:
            assert change_of(log, ChangeByHand(vectors), **UPDATE).carry_out().rounds == 1
            assert rows(log) == UPDATED
            assert newest(log).version == 3
            continue
        break
    assert step > 3
    assert markers(log) == 1


def test_what_another_try_has_published_and_a_restore_has_taken_back_is_not_published_again(log: DeltaLog) -> None:
    """Two tries of one start live: the second one publishes the first one's round, which then wakes up."""

    def overtaken(job: object) -> None:
        engine.after = lambda job: None
        assert change_of(log, ChangeByHand(), **UPDATE).carry_out().rounds == 1
        restore(Transactions(log), 2, newest(log), asker("r"), on_newer_commit=OnNewerCommit.FAIL)

    engine = ChangeByHand()
    engine.after = overtaken
    with pytest.raises(RerunRefusedError, match="in version 3, and was taken back by a RESTORE"):
        change_of(log, engine, **UPDATE).carry_out()
    assert (newest(log).version, rows(log)) == (4, list(range(1, 10)))
    # A clear begins anew, with new files.
    done = change_of(log, engine, task_start="second", **UPDATE).carry_out()
    assert (done.version, rows(log)) == (5, UPDATED)
    first, again = ({add["path"] for add in commit.adds} for commit in map(log.commit, (3, 5)) if commit)
    assert first.isdisjoint(again)


@pytest.mark.parametrize("error", [SparkJobError("a lost executor"), KilledError()], ids=["may pass", "killed"])
def test_a_retry_runs_spark_anew_and_leaves_no_private_table_open(log: DeltaLog, error: BaseException) -> None:
    engine = ChangeByHand()

    def fails(job: object) -> None:
        if len(engine.jobs) == 2:
            raise error
        foreign_append(log, {"x": [30, 31]})

    engine.after = fails
    with pytest.raises(type(error)):
        change_of(log, engine, **UPDATE).carry_out()
    as_if_killed(log)
    engine.after = lambda job: None
    done = change_of(log, engine, **UPDATE).carry_out()
    assert (done.rounds, engine.files, rows(log)) == (1, [3, 1, 4], sorted([*UPDATED, 31, 1030]))
    assert markers(log) == 3


def test_a_merge_whose_process_died_merges_its_staged_rows_once(log: DeltaLog) -> None:
    source = source_of(log, {"2019-01": [3, 40], "2019 02": [5]})
    with pytest.raises(KilledError):
        merged(log, MergeByHand(after=die), source)
    as_if_killed(log)
    foreign_append(log, {"x": [1000]})
    done = merged(log, MergeByHand(), source)
    assert (done.rounds, done.rows_inserted) == (1, 1)
    assert rows(log) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 1000]
