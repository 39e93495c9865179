"""A retry of a DELETE, UPDATE or MERGE takes over the rounds that Spark has ended for a try that died, and no others."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.layout import CHANGES
from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import ConflictError, RerunRefusedError, SparkJobError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.modes import Merge
from tests.support.changes import ChangeByHand, as_if_killed, asker, change_of, three_files
from tests.support.merges import MergeByHand, merged, source_of
from tests.support.stores import Killed, KilledError, through
from tests.support.tables import change_metadata, foreign_append, live, make_table, newest
from tests.support.vectors import delete_rows, ids_without_deleted

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
def test_killed_at_each_step_it_is_done_once_and_spark_runs_once_if_it_had_ended(tmp_path: Path, vectors: bool) -> None:
    taken_over = []
    for number in range(100):
        step, effect = number // 2, bool(number % 2)
        log = three_files(tmp_path / str(number))
        engine, again = ChangeByHand(vectors), ChangeByHand(vectors)
        try:
            change_of(through(Killed(log.store, step, effect=effect), log), engine, **UPDATE).carry_out()
        except KilledError:
            done = change_of(log, again, **UPDATE).carry_out()
            assert rows(log) == UPDATED
            assert newest(log).version == 3
            # The puts of its claim, of version 0 of its round, and of the checksum of it are before Spark.
            assert len(again.jobs) == (step < 3)
            assert done.rounds == 1
            taken_over.append(done.status == "done" and not again.jobs)
            continue
        break
    assert sum(taken_over) == 1 + 2 * vectors  # around each put that lies between Spark and the commit
    assert markers(log) == 1


@BOTH
def test_only_what_others_have_changed_or_added_since_is_read_again(log: DeltaLog, vectors: bool) -> None:
    dies(log, ChangeByHand(vectors), **UPDATE)
    hit = ChangeByHand(vectors, hits=lambda row: row == 7)
    change_of(log, hit, task="other", **UPDATE).carry_out()
    foreign_append(log, {"x": [30, 31]})
    engine = ChangeByHand(vectors)
    done = change_of(log, engine, **UPDATE).carry_out()
    # January is as the first try left it.
    assert (done.rounds, rows(log)) == (2, [1, 2, 4, 5, 8, 31, 1003, 1006, 1007, 1009, 1030])
    assert engine.files in ([2], [3])


def test_a_vector_that_others_gave_a_file_since_is_united_with_that_of_the_try_that_died(log: DeltaLog) -> None:
    dies(log, ChangeByHand(vectors=True))
    (file,) = (file for file in live(log) if file["partitionValues"]["month"] == "2019 02")
    delete_rows(log, file, [0])
    engine = ChangeByHand(vectors=True)
    done = change_of(log, engine).carry_out()
    assert (done.rounds, done.files_united, engine.jobs, rows(log)) == (1, 1, [], [1, 2, 4, 5, 8])


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param({**UPDATE, "task_start": "second"}, id="another start"),
        pytest.param({**UPDATE, "where": "id % 3 = 0 AND true"}, id="another predicate"),
        pytest.param({**UPDATE, "assignments": {"id": "id + 1000 + 0"}}, id="another value"),
        pytest.param({**UPDATE, "covers": "month <> 'x'"}, id="other partitions"),
        pytest.param({"operation": "DELETE"}, id="another statement"),
    ],
)
def test_what_is_not_the_same_is_not_taken_over(log: DeltaLog, terms: dict[str, Any]) -> None:
    dies(log, ChangeByHand(), **UPDATE)
    engine = ChangeByHand()
    assert change_of(log, engine, **terms).carry_out().rounds == len(engine.jobs) == 1
    assert rows(log) == ([1, 2, 4, 5, 7, 8] if terms["operation"] == "DELETE" else UPDATED)


@pytest.mark.parametrize("change", [{"configuration": {"delta.appendOnly": "false"}}, {"description": "new"}])
def test_nothing_is_taken_over_on_a_table_that_is_defined_anew(log: DeltaLog, change: dict[str, Any]) -> None:
    dies(log, ChangeByHand(), **UPDATE)
    change_metadata(log, **change)
    engine = ChangeByHand()
    assert change_of(log, engine, **UPDATE).carry_out().rounds == len(engine.jobs) == 1
    assert rows(log) == UPDATED


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


def test_two_tries_that_have_read_the_same_files_count_once(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    dies(log, ChangeByHand(), **UPDATE)
    with monkeypatch.context() as patched:
        patched.setattr("airflow_provider_onelake.steps.change.StatementRounds.take_over", lambda *_: [])
        dies(log, ChangeByHand(), **UPDATE)
    engine = ChangeByHand()
    assert change_of(log, engine, **UPDATE).carry_out().rounds == 1
    assert (engine.jobs, rows(log)) == ([], UPDATED)


def test_a_try_that_is_given_up_and_lives_deletes_no_vector_that_the_retry_has_published(log: DeltaLog) -> None:
    retry = ChangeByHand(vectors=True)

    def given_up(job: object) -> None:
        assert change_of(log, retry).carry_out().status == "done"
        assert retry.jobs == []

    first = ChangeByHand(vectors=True, after=given_up)
    assert change_of(log, first).carry_out().status == "already_done"
    assert rows(log) == [1, 2, 4, 5, 7, 8]
    # It would bring its vectors home under these names, and delete them there.
    own = {path.name for path in Path(log.table).glob(f"{CHANGES}*/*/ab/deletion_vector_*.bin")}
    home = {path.name for path in Path(log.table).glob("deletion_vector_*.bin")}
    assert len(own) == len(home) == 1
    assert not own & home


def test_after_an_error_that_may_pass_the_rounds_that_have_ended_stay_for_the_retry(log: DeltaLog) -> None:
    engine = ChangeByHand()

    def fails(job: object) -> None:
        if len(engine.jobs) == 2:
            raise SparkJobError("a lost executor")
        foreign_append(log, {"x": [30, 31]})

    engine.after = fails
    with pytest.raises(SparkJobError):
        change_of(log, engine, **UPDATE).carry_out()
    assert markers(log) == 1  # of the round that failed
    engine.after = lambda job: None
    done = change_of(log, engine, **UPDATE).carry_out()
    assert (done.rounds, engine.files, rows(log)) == (2, [3, 1, 1], sorted([*UPDATED, 31, 1030]))


def test_after_an_error_that_a_person_has_to_settle_nothing_stays(log: DeltaLog) -> None:
    numbers = itertools.count(30, 3)
    engine = ChangeByHand(after=lambda job: foreign_append(log, {"x": [next(numbers)]}))
    with pytest.raises(ConflictError, match="2 times"):
        change_of(log, engine, max_rounds=2, **UPDATE).carry_out()
    engine.after = lambda job: None
    assert change_of(log, engine, max_rounds=1, **UPDATE).carry_out().rounds == 1


def test_rounds_that_were_taken_over_are_not_among_those_that_are_allowed(log: DeltaLog) -> None:
    dies(log, ChangeByHand(), **UPDATE)
    foreign_append(log, {"x": [30, 31]})
    assert change_of(log, ChangeByHand(), max_rounds=1, **UPDATE).carry_out().rounds == 2


UPSERT = {"2019-01": [3, 40], "2019 02": [5]}


@BOTH
def test_a_merge_goes_on_with_its_round(log: DeltaLog, vectors: bool) -> None:
    source = source_of(log, UPSERT)
    with pytest.raises(KilledError):
        merged(log, MergeByHand(vectors, after=die), source)
    as_if_killed(log)
    foreign_append(log, {"x": [1000]})
    engine = MergeByHand(vectors)
    done = merged(log, engine, source)
    assert (done.rounds, engine.jobs, done.rows_inserted) == (1, [], 1)
    assert rows(log) == [1, 2, 3, 4, 5, 6, 7, 8, 9, 40, 1000]


def test_a_merge_that_inserts_runs_again_if_a_key_came_since(log: DeltaLog) -> None:
    source = source_of(log, UPSERT)
    with pytest.raises(KilledError):
        merged(log, MergeByHand(after=die), source)
    as_if_killed(log)
    foreign_append(log, {"x": [40]})
    engine = MergeByHand()
    merged(log, engine, source)
    assert (len(engine.jobs), rows(log)) == (1, [1, 2, 3, 4, 5, 6, 7, 8, 9, 40])


def test_a_merge_into_an_empty_table_inserts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = make_table(tmp_path / "t")
    source = source_of(log, UPSERT)
    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr("airflow_provider_onelake.steps.change.StatementRounds.take_over", lambda *_: [])
            with pytest.raises(KilledError):
                merged(log, MergeByHand(after=die), source)
        as_if_killed(log)
    engine = MergeByHand()
    merged(log, engine, source)
    assert (engine.jobs, rows(log)) == ([], [3, 5, 40])


def test_a_merge_of_another_source_takes_nothing_over(log: DeltaLog) -> None:
    deletes = Merge(keys="id", when="MATCHED THEN DELETE")  # type: ignore[arg-type]
    with pytest.raises(KilledError):
        merged(log, MergeByHand(after=die), source_of(log, {"2019-01": [3]}, mode=deletes))
    as_if_killed(log)
    engine = MergeByHand()
    merged(log, engine, source_of(log, {"2019-01": [4]}, mode=deletes, fingerprint="another"))
    assert (len(engine.jobs), rows(log)) == (1, [1, 2, 3, 5, 6, 7, 8, 9])
