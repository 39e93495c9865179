"""Two statements on rows of one file: by deletion vectors both are done, and Spark runs once for each."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.exceptions import StoreUnavailableError
from airflow_provider_onelake.log.actions import file_key, row_count
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.vectors import vector_home
from airflow_provider_onelake.maintenance.restore import restore
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.statements.engine import Changed
from tests.support.changes import ChangeByHand, asker, change_of, mapped
from tests.support.merges import MergeByHand, merged, source_of
from tests.support.stores import LoserHeld, PassingOn, through
from tests.support.tables import commit_of, foreign_append, foreign_commit, last, live, make_table, newest
from tests.support.vectors import delete_rows, hide_more, ids_without_deleted, positions

UPDATE: dict[str, Any] = {"operation": "UPDATE", "assignments": {"id": "id + 1000"}}
IDS = {"baseRowId": 70, "defaultRowCommitVersion": 1}


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return one_file(tmp_path / "a lake" / "t")


def one_file(path: Path) -> DeltaLog:
    """A table of one file, whose rows have ids, at positions from 0: 1 to 6."""
    log = make_table(path)
    foreign_append(log, {"2019 01": [1, 2, 3, 4, 5, 6]})
    return log


def old(log: DeltaLog) -> dict[str, Any]:
    """The file of :func:`one_file` as it is now."""
    (file,) = (file for file in live(log) if json.loads(file["stats"])["numRecords"] == 6)
    return file


def rows(log: DeltaLog) -> list[int]:
    return ids_without_deleted(Path(log.table))


def only(*ids: int) -> Callable[[int], bool]:
    return lambda row: row in ids


def hiding(*ids: int, **terms: Any) -> ChangeByHand:
    """An engine that hits these ids, and gives out deletion vectors."""
    return ChangeByHand(vectors=True, hits=only(*ids), **terms)


def beside(*winners: Callable[[], object]) -> Callable[[object], object]:
    """Lets the winners commit one after the other, each when a round has ended that is not published yet."""
    left = list(winners)
    return lambda job: left.pop(0)() if left else None


def run(log: DeltaLog, engine: ChangeByHand, **terms: Any) -> Changed:
    return change_of(log, engine, **terms).carry_out()


def hidden(log: DeltaLog, file: dict[str, Any]) -> set[int]:
    return positions(file["deletionVector"], log.table)


def at_root(log: DeltaLog) -> set[str]:
    return {path.name for path in Path(log.table).glob("deletion_vector_*.bin")}


def ever_named(log: DeltaLog) -> set[str]:
    """The files of vectors that some version names."""
    adds = [add for commit in log.commits_since(-1) for add in commit.adds if add.get("deletionVector")]
    return {home for add in adds if (home := vector_home(add["deletionVector"])) is not None}


@pytest.mark.parametrize("terms", [{}, UPDATE], ids=["DELETE", "UPDATE"])
def test_a_row_that_another_hides_beside_ours_costs_no_round(log: DeltaLog, terms: dict[str, Any]) -> None:
    # As row tracking numbers rows; a file keeps that, and its name as the log spells it.
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "x"}}, {"add": {**old(log), **IDS}}])
    engine = hiding(2, after=beside(lambda: delete_rows(log, old(log), [4])))
    before = old(log)
    done = run(log, engine, **terms)
    assert (done.status, done.rows, done.rounds, done.files_united) == ("done", 1, 1, 1)
    assert (done.files_removed, done.files_added) == (0, 1 if terms else 0)
    assert rows(log) == mapped([1, 2, 3, 4, 6], terms.get("operation", "DELETE"), only(2))
    theirs = commit_of(log, newest(log).version - 1)
    (remove,), file = last(log).removes, old(log)
    # It replaces what the winner left, not what Spark had read.
    assert file_key(remove) == file_key(theirs.adds[0])
    assert (file["path"], {name: file[name] for name in IDS}) == (before["path"], IDS)
    assert hidden(log, file) == {1, 4}
    assert (row_count(file), json.loads(file["stats"])["tightBounds"]) == (4, False)  # type: ignore[arg-type]
    # A name that Trino takes, and no other copy beside it.
    assert len(file["deletionVector"]["pathOrInlineDv"]) == 20
    assert at_root(log) == ever_named(log)
    assert last(log).info["staged"]["change"]["filesUnited"] == 1
    # A retry finds it.
    assert run(log, engine, **terms).files_united == 1


def test_a_row_that_both_delete_is_counted_once(log: DeltaLog) -> None:
    delete_rows(log, old(log), [0])
    done = run(log, hiding(2, 5, after=beside(lambda: hide_more(log, old(log), 4))))
    assert (done.rows, done.rounds, rows(log)) == (1, 1, [3, 4, 6])
    assert last(log).info["operationMetrics"]["numDeletedRows"] == "1"
    done = run(log, hiding(3, after=beside(lambda: hide_more(log, old(log), 2))), task="other")
    assert (done.status, done.version) == ("nothing_to_do", None)
    assert (rows(log), at_root(log)) == ([4, 6], ever_named(log))


def test_a_row_that_another_deletes_is_not_updated(log: DeltaLog) -> None:
    engine = hiding(2, 5, after=beside(lambda: delete_rows(log, old(log), [4])))
    done = run(log, engine, **UPDATE)
    assert (done.rounds, done.files_united, engine.files) == (2, 0, [1, 1])
    assert rows(log) == [1, 3, 4, 6, 1002]


def test_a_row_that_another_updates_is_read_in_its_new_file(log: DeltaLog) -> None:
    # The other statement makes 1002 of 2, which ours is to delete.
    winner = beside(lambda: run(log, hiding(2, 6), task="other", **UPDATE))
    engine = ChangeByHand(vectors=True, after=winner)
    done = run(log, engine)
    assert (done.rows, done.rounds, done.files_united, engine.files) == (2, 2, 1, [1, 1])
    assert rows(log) == [1, 4, 5, 1006]


def test_a_file_without_rows_is_removed_as_delta_does(log: DeltaLog) -> None:
    winner = beside(lambda: delete_rows(log, old(log), [3, 4, 5]))
    done = run(log, hiding(1, 2, 3, after=winner))
    assert (done.rows, done.rounds, done.files_removed, rows(log)) == (3, 1, 1, [])
    assert (live(log), last(log).adds, at_root(log)) == ([], [], set())


def test_rows_that_another_hides_in_a_file_that_we_take_whole_are_gone_already(log: DeltaLog) -> None:
    winner = beside(lambda: delete_rows(log, old(log), [3]))
    done = run(log, ChangeByHand(vectors=True, hits=lambda row: True, after=winner))
    assert (done.rows, done.rounds, done.files_removed, live(log)) == (5, 1, 1, [])
    (remove,) = last(log).removes
    assert remove["deletionVector"]["cardinality"] == 1


def test_an_update_of_a_file_as_a_whole_is_done_again(log: DeltaLog) -> None:
    winner = beside(lambda: delete_rows(log, old(log), [3]))
    done = run(log, ChangeByHand(vectors=True, hits=lambda row: row < 1000, after=winner), **UPDATE)
    assert (done.rounds, rows(log)) == (2, [1001, 1002, 1003, 1005, 1006])


def test_a_row_that_a_restore_shows_again_is_read(log: DeltaLog) -> None:
    whole = newest(log).version
    delete_rows(log, old(log), [2])

    def take_back() -> None:
        restore(Transactions(log), whole + 1, newest(log), asker("r"), on_newer_commit=OnNewerCommit.FAIL)

    delete_rows(log, old(log), [2, 0])
    done = run(log, hiding(1, 3, 5, after=beside(take_back)))
    assert (done.rounds, done.files_united, rows(log)) == (2, 0, [2, 4, 6])


def test_what_was_united_is_read_again_where_a_restore_takes_it_back(log: DeltaLog) -> None:
    read = newest(log).version

    def take_back() -> None:
        restore(Transactions(log), read, newest(log), asker("r"), on_newer_commit=OnNewerCommit.UNDO)

    held = LoserHeld(log.store, lambda: delete_rows(log, old(log), [4]), take_back)
    done = run(through(held, log), hiding(2))
    assert (done.rounds, rows(log)) == (2, [1, 3, 4, 5, 6])


def test_each_lost_race_adds_what_the_winner_hid(log: DeltaLog) -> None:
    held = LoserHeld(log.store, *(lambda at=at: hide_more(log, old(log), at) for at in (0, 3, 5)))
    done = run(through(held, log), hiding(2), **UPDATE)
    assert (done.rounds, done.lost_races, done.files_united, rows(log)) == (1, 3, 1, [3, 5, 1002])
    # The vectors of the puts that were lost are deleted.
    assert at_root(log) == ever_named(log)
    assert len(at_root(log)) == 1


def test_a_union_that_is_overtaken_before_it_was_put_is_deleted(log: DeltaLog) -> None:
    def hides_and_appends() -> None:
        delete_rows(log, old(log), [3])
        foreign_append(log, {"2019 01": [7]})

    engine = hiding(2, after=beside(hides_and_appends, lambda: hide_more(log, old(log), 4)))
    done = run(log, engine)
    assert (done.rounds, done.files_united, rows(log)) == (2, 1, [1, 3, 6, 7])
    assert at_root(log) == ever_named(log)


def test_a_file_that_was_only_looked_at_is_not_read_again(log: DeltaLog) -> None:
    foreign_append(log, {"2019 01": [7, 8]})
    delete_rows(log, old(log), [5])
    engine = hiding(7, after=beside(lambda: hide_more(log, old(log), 0)))
    done = run(log, engine)
    assert (done.rounds, done.files_united, rows(log)) == (1, 0, [2, 3, 4, 5, 8])
    assert hidden(log, old(log)) == {0, 5}


def test_vectors_that_are_damaged_or_gone_are_left_to_spark(log: DeltaLog) -> None:
    def damaged() -> None:
        run(log, hiding(5), task="other")
        for name in at_root(log):
            Path(log.table, name).write_bytes(b"")

    engine = hiding(2, after=beside(damaged))
    # Spark would fail on it, too, and say why.
    with pytest.raises(IndexError):
        run(log, engine)
    assert engine.files == [1, 1]


def test_row_ids_that_changed_meanwhile_are_left_to_spark(log: DeltaLog) -> None:
    def another_numbers_rows() -> None:
        delete_rows(log, {**old(log), **IDS}, [4])

    assert run(log, hiding(2, after=beside(another_numbers_rows))).rounds == 2
    assert {name: old(log)[name] for name in IDS} == IDS


class _NoAnswer(PassingOn):
    """Does not answer the first put of a file of vectors at the table's root."""

    def __init__(self, log: DeltaLog) -> None:
        super().__init__(log.store)
        self.refused: list[str] = []

    def create(self, path: str, data: bytes) -> None:
        if path.startswith("deletion_vector_") and not self.refused:
            self.refused.append(path)
            raise StoreUnavailableError(f"no answer for {path}")
        super().create(path, data)


def test_a_union_that_could_not_be_written_is_not_named(log: DeltaLog) -> None:
    store = _NoAnswer(log)
    done = run(through(store, log), hiding(2, after=beside(lambda: delete_rows(log, old(log), [4]))))
    assert (done.rounds, len(store.refused), rows(log)) == (1, 1, [1, 3, 4, 6])
    assert at_root(log) == ever_named(log)


@pytest.mark.parametrize(
    ("mode", "rounds", "expected"),
    [
        pytest.param({"keys": "id"}, 1, [1, 2, 3, 4, 6, 10], id="upsert"),
        pytest.param({"keys": "id", "when": "MATCHED THEN DELETE"}, 1, [1, 3, 4, 6], id="no insert"),
        pytest.param({"keys": "id", "when": "NOT MATCHED THEN INSERT *"}, 2, [1, 2, 3, 4, 6, 10], id="only inserts"),
    ],
)
def test_a_merge_keeps_its_round(log: DeltaLog, mode: dict[str, Any], rounds: int, expected: list[int]) -> None:
    engine = MergeByHand(vectors=True, after=beside(lambda: delete_rows(log, old(log), [4])))
    done = merged(log, engine, source_of(log, {"x": [2, 10]}, mode=Merge(**mode)))
    assert (done.rounds, rows(log)) == (rounds, expected)
    assert done.files_united == (rounds == 1)


def test_a_merge_is_done_again_where_the_hidden_row_may_be_a_match_that_it_left_alone(log: DeltaLog) -> None:
    when = ["MATCHED AND target.id < 5 THEN UPDATE SET *", "NOT MATCHED THEN INSERT *"]
    engine = MergeByHand(vectors=True, after=beside(lambda: delete_rows(log, old(log), [4])))
    done = merged(log, engine, source_of(log, {"x": [2, 5]}, mode=Merge(keys="id", when=when)))  # type: ignore[arg-type]
    # The row 5 was there and left alone. It is gone now, so it is inserted.
    assert (done.rounds, done.rows_inserted, rows(log)) == (2, 1, [1, 2, 3, 4, 5, 6])


@pytest.mark.parametrize("when", ["MATCHED THEN UPDATE SET *", "MATCHED THEN DELETE"])
def test_a_merge_is_done_again_where_the_hidden_row_matched(log: DeltaLog, when: str) -> None:
    engine = MergeByHand(vectors=True, after=beside(lambda: delete_rows(log, old(log), [1])))
    source = source_of(log, {"x": [2, 3]}, mode=Merge(keys="id", when=when))  # type: ignore[arg-type]
    done = merged(log, engine, source)
    left = [1, 4, 5, 6] if "DELETE" in when else [1, 3, 4, 5, 6]
    assert (done.rounds, done.files_united, rows(log)) == (2, 0, left)
    assert (done.rows_updated, done.rows_deleted) == ((0, 1) if "DELETE" in when else (1, 0))


_ROWS = st.sets(st.integers(1, 6))
_OPERATIONS = st.sampled_from(["DELETE", "UPDATE"])


@settings(max_examples=40, deadline=None)
@given(_ROWS, _ROWS, st.sets(st.integers(0, 5), max_size=3), _OPERATIONS, _OPERATIONS, st.booleans())
def test_two_statements_on_one_file_are_done_one_after_the_other(
    tmp_path_factory: pytest.TempPathFactory,
    ours: set[int],
    theirs: set[int],
    gone: set[int],
    our_operation: str,
    their_operation: str,
    catches: bool,
) -> None:
    log = one_file(tmp_path_factory.mktemp("t"))
    if gone:
        delete_rows(log, old(log), sorted(gone))
    before = rows(log)
    # Ours may also hit what theirs makes of a row.
    hit = {*ours, *(row + 1000 for row in theirs)} if catches else ours
    winner = beside(lambda: run(log, hiding(*theirs), task="other", **(UPDATE if their_operation == "UPDATE" else {})))
    engine = hiding(*hit, after=winner)
    done = run(log, engine, **(UPDATE if our_operation == "UPDATE" else {}))
    between = mapped(before, their_operation, only(*theirs))
    assert rows(log) == mapped(between, our_operation, only(*hit))
    assert done.rows == len(hit.intersection(between))
    if their_operation == "DELETE" and (our_operation == "DELETE" or not {*before} & ours & theirs):
        assert len(engine.jobs) == 1
    assert at_root(log) == ever_named(log)
