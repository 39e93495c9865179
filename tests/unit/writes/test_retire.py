"""Retiring writers: of the writer's commit and the one that retires it, only the first stands (protocol: retired)."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider_onelake.buffers.identity import RETIRED
from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.exceptions import CommitContentionError, ZombieWriterError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.writes.publish import Committer
from airflow_provider_onelake.writes.retire import retire
from tests.support.stores import AnswerLost, LoserHeld, through
from tests.support.tables import LOAD, commit_of, foreign_append, ids, local_log, newest, stage, writer_spec

A, B = (LOAD.writer(key).app_id for key in "ab")


def test_a_retired_writer_publishes_nothing_and_its_rows_are_not_touched(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("a"), {"2019-01": [1]})
    foreign_append(log, {"2019-01": [9]})
    assert retire(Transactions(log), {A: None}, "a plan") == {A}
    with pytest.raises(ZombieWriterError):
        Committer(log).publish([buffer])
    commit = commit_of(log, newest(log).version)
    assert (commit.txns, commit.data_change, commit.user_metadata) == (
        {A: RETIRED},
        False,
        "a plan: took over the files of writers that have not published",
    )
    assert ids(Path(log.table)) == [9]


def test_a_writer_that_has_published_meanwhile_is_left_as_it_is(log: DeltaLog) -> None:
    buffer = stage(log, writer_spec("a"), {"2019-01": [1]})
    held = LoserHeld(log.store, lambda: Committer(local_log(Path(log.table))).publish([buffer]))
    assert retire(Transactions(through(held, log)), {A: None, B: None}, "a plan") == {B}
    txns = newest(log).txns
    assert (txns[A], txns[B]) == (1, RETIRED)


@pytest.mark.parametrize("effect", [True, False])
def test_a_lost_answer_makes_no_second_commit(log: DeltaLog, effect: bool) -> None:
    lost = AnswerLost(log.store, effect=effect)
    assert retire(Transactions(through(lost, log)), {A: None}, "a plan") == {A}
    assert newest(log).version == 1
    # Those who are retired already need no commit.
    assert retire(Transactions(log), {A: None}, "a plan") == {A}
    assert newest(log).version == 1


def test_where_others_are_always_faster_nothing_is_changed(log: DeltaLog) -> None:
    class Lost(LoserHeld):
        def create(self, path: str, data: bytes) -> None:
            self.winners.append(lambda: foreign_append(local_log(Path(log.table)), {"2019-01": [1]}))
            super().create(path, data)

    with pytest.raises(CommitContentionError, match="of the retirement of 1 writers met another's commit"):
        retire(Transactions(through(Lost(log.store), log), backoff=Backoff(budget=0.0)), {A: None}, "a plan")
    assert A not in newest(log).txns
