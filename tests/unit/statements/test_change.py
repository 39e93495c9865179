"""DELETE and UPDATE of rows: whoever commits meanwhile and wherever it dies, version N + 1 is the statement on version N."""

from __future__ import annotations

import itertools
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.choices import OnStatementRerun
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.in_flight import writers_in_flight
from airflow_provider_onelake.statements.delete import delete
from airflow_provider_onelake.statements.engine import Changed
from tests.support import tables
from tests.support.changes import ChangeByHand, asker, change_of, mapped, three_files
from tests.support.restores import restored_by_time, take_back
from tests.support.row_tracking import backfill_row_ids, begin_row_tracking
from tests.support.shadows import compact, planned
from tests.support.stores import AnswerLost, KilledError, LoserHeld, through
from tests.support.vectors import delete_rows, hide_more, ids_without_deleted

UPDATE: dict[str, Any] = {"operation": "UPDATE", "assignments": {"id": "id + 1000"}}
BOTH = pytest.mark.parametrize("vectors", [False, True], ids=["rewriting", "vectors"])


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    return three_files(tmp_path / "a lake" / "t")


def rows(log: DeltaLog, version: int | None = None) -> list[int]:
    if version is None or version == tables.newest(log).version:
        return ids_without_deleted(Path(log.table))
    import pyarrow as pa
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(log.table, version=version)).execute("SELECT id FROM t")
    return sorted(pa.table(found.read_all()).column("id").to_pylist())


def run(log: DeltaLog, engine: ChangeByHand | None = None, **terms: Any) -> Changed:
    return change_of(log, engine or ChangeByHand(), **terms).carry_out()


def vectors_at_root(log: DeltaLog) -> list[str]:
    return [path.name for path in Path(log.table).glob("deletion_vector_*.bin")]


def in_turn(*others: Callable[[], object]) -> Callable[[object], object]:
    """Let others in, each after one round."""
    left = list(others)
    return lambda job: left.pop(0)() if left else None


def ids_in(log: DeltaLog, add: Any) -> list[int]:
    path = Path(log.table, unquote(add["path"]))
    return pq.ParquetFile(path).read().column("id").to_pylist()  # type: ignore[no-any-return]


@BOTH
def test_rows_are_deleted_and_updated_in_one_commit(log: DeltaLog, vectors: bool) -> None:
    engine = ChangeByHand(vectors)
    done = run(log, engine)
    assert (done.status, done.version, done.rows, done.rounds) == ("done", 3, 3, 1)
    assert rows(log) == [1, 2, 4, 5, 7, 8]
    tables.foreign_append(log, {"2019-01": [12, 13]})
    done = run(log, engine, task="update", **UPDATE)
    assert (done.version, done.rows, done.files_added) == (5, 1, 1)
    assert rows(log) == [1, 2, 4, 5, 7, 8, 13, 1012]
    info = tables.last(log).info
    assert (info["operation"], info["isBlindAppend"], info["readVersion"]) == ("UPDATE", False, 4)
    assert info["operationMetrics"]["numUpdatedRows"] == "1"
    assert info["operationParameters"] == {"predicate": '["id % 3 = 0"]'}
    # One file of vectors, for all files of the table, under a name that every reader takes.
    assert len(vectors_at_root(log)) == 2 * vectors
    named = {add["deletionVector"]["pathOrInlineDv"] for add in tables.live(log) if add.get("deletionVector")}
    assert {len(text) for text in named} == ({20} if vectors else set())


def test_nothing_is_put_where_no_row_matches_and_spark_is_not_asked_where_there_is_no_file(log: DeltaLog) -> None:
    run(log)
    engine = ChangeByHand()
    assert run(log, engine, task="again").status == "nothing_to_do"
    assert run(log, engine, task="again", covers="month = 'x'").rounds == 0
    assert len(engine.jobs) == 1
    assert tables.newest(log).version == 3


def test_covers_names_the_partitions_that_are_looked_at(log: DeltaLog) -> None:
    engine = ChangeByHand()
    engine.after = lambda job: tables.foreign_append(log, {"2019-01": [33]})
    done = run(log, engine, covers="month = '2019 02'")
    assert (done.rounds, engine.files, rows(log)) == (1, [1], [1, 2, 3, 4, 5, 6, 7, 8, 33])
    with pytest.raises(errors.InvalidWriteError, match="no partition column"):
        run(log, task="another", covers="id = 3")


def test_spark_is_not_asked_where_statistics_say_that_no_row_matches(log: DeltaLog) -> None:
    engine = ChangeByHand(hits=lambda row: row == 8)
    assert run(log, engine, where="id > 9").status == "nothing_to_do"
    assert run(log, engine, where="id = 8 AND month <> '2019 02'", task="other").rounds == 0
    # Of three files it is shown the one that may have such a row; the others are never in the shadow.
    done = run(log, engine, where="id = 8", task="another")
    assert (done.status, done.rounds, engine.files, rows(log)) == ("done", 1, [1], [1, 2, 3, 4, 5, 6, 7, 9])


@BOTH
def test_what_others_add_or_change_meanwhile_is_read_in_a_round_of_its_own(log: DeltaLog, vectors: bool) -> None:
    engine = ChangeByHand(
        vectors,
        after=in_turn(
            lambda: tables.foreign_append(log, {"2019-01": [30, 31]}), lambda: run(log, task="other", **UPDATE)
        ),
    )
    done = run(log, engine)
    # The second winner took all rows that matched, so nothing is left to delete.
    assert (done.status, done.rounds) == ("nothing_to_do", 3)
    assert engine.files[:2] == [3, 1]
    assert rows(log) == [1, 2, 4, 5, 7, 8, 31, 1003, 1006, 1009, 1030]


@BOTH
@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_what_others_add_and_cannot_match_needs_no_round(log: DeltaLog, vectors: bool, operation: str) -> None:
    terms = {**UPDATE, "operation": operation} if operation == "UPDATE" else {}
    engine = ChangeByHand(vectors, hits=lambda row: row <= 6 and row % 3 == 0)

    def others() -> None:
        tables.foreign_append(log, {"2019-01": [30, 31], "2019 02": [33]})
        run(log, ChangeByHand(not vectors, hits=lambda row: row == 8), task="other", where="id = 8", **UPDATE)

    engine.after = in_turn(others)
    done = run(log, engine, where="id <= 6 AND month = '2019-01'", **terms)
    assert (done.status, done.rounds, done.rows, engine.files) == ("done", 1, 2, [2])
    found = [1, 2, 4, 5, 7, 9, 30, 31, 33, 1008]
    assert rows(log) == sorted(found + ([1003, 1006] if operation == "UPDATE" else []))


def test_what_others_add_without_statistics_or_with_a_row_that_may_match_is_read(log: DeltaLog) -> None:
    def nameless(stats: str | None) -> None:
        info, file = tables.append_files(log.store, "", {"2019-01": [3, 60]})
        file["add"] = (
            {**file["add"], "stats": stats} if stats else {k: v for k, v in file["add"].items() if k != "stats"}
        )
        tables.foreign_commit(log, [info, file])

    winners = [lambda: nameless(None), lambda: nameless('{"numRecords": 2}'), lambda: nameless("no JSON")]
    winners += [lambda: tables.foreign_append(log, {"x": [3, 61]}), lambda: tables.foreign_append(log, {"x": [61]})]
    engine = ChangeByHand(after=lambda job: winners.pop(0)() if winners else None, hits=lambda row: row == 3)
    done = run(log, engine, where="id <= 3", max_rounds=9)
    assert (done.rounds, engine.files) == (5, [1, 1, 1, 1, 1])
    assert rows(log) == [1, 2, 4, 5, 6, 7, 8, 9, 60, 60, 60, 61, 61]


@BOTH
@pytest.mark.parametrize(("theirs", "rounds"), [(12, 2), (13, 1)])
def test_each_put_that_met_another_commit_counts(log: DeltaLog, vectors: bool, theirs: int, rounds: int) -> None:
    held = LoserHeld(log.store, lambda: tables.foreign_append(log, {"2019-01": [theirs]}))
    done = run(through(held, log), ChangeByHand(vectors), where="id IN (3, 6, 9, 12)")
    assert (done.rounds, done.lost_races, held.refused) == (rounds, 1, 1)


@BOTH
def test_a_piece_is_dropped_alone(log: DeltaLog, vectors: bool) -> None:
    engine = ChangeByHand(vectors)

    def another_rewrites_a_file() -> None:
        run(log, ChangeByHand(hits=lambda row: row == 7), task="other", covers="month = '2019 02'")

    engine.after = in_turn(another_rewrites_a_file)
    done = run(log, engine)
    assert (done.status, done.rounds, done.rows, engine.files) == ("done", 2, 3, [3, 1])
    assert rows(log) == [1, 2, 4, 5, 8]
    # The copy of the first round's vectors is still named by January's files, that of the second by the other month's.
    assert len(vectors_at_root(log)) == 2 * vectors


def test_a_piece_of_two_files_is_dropped_if_one_of_them_is_rewritten(log: DeltaLog) -> None:
    engine = ChangeByHand()
    winners = [lambda: run(log, ChangeByHand(hits=lambda row: row == 4), task="other")]
    engine.after = lambda job: winners.pop()() if winners else None
    done = run(log, engine)
    # Both of January's files had become one. The one that is as it was is read again beside the one that is new.
    assert (done.status, done.rounds, engine.files) == ("done", 2, [3, 2])
    assert rows(log) == [1, 2, 5, 7, 8]


def test_a_copy_of_vectors_that_no_commit_names_is_deleted(log: DeltaLog) -> None:
    engine = ChangeByHand(vectors=True)
    held = through(LoserHeld(log.store, lambda: delete(Transactions(log), None, asker("x"))), log)
    assert run(held, engine).status == "nothing_to_do"
    assert vectors_at_root(log) == []


def test_it_gives_up_after_as_many_rounds_as_are_allowed_and_says_what_to_do(log: DeltaLog) -> None:
    numbers = itertools.count(100)
    engine = ChangeByHand(after=lambda job: tables.foreign_append(log, {"2019-01": [3 * next(numbers)]}))
    with pytest.raises(errors.ConflictError, match=r"3 times.*Nothing was changed.*covers.*max_rounds"):
        run(log, engine, max_rounds=3)
    assert engine.files == [3, 1, 1]
    assert tables.last(log).operation == "WRITE"


def test_a_compaction_of_ours_leaves_alone_what_a_statement_reads(log: DeltaLog) -> None:
    left: list[Any] = []
    engine = ChangeByHand(after=lambda job: left.extend(planned(log).left_out))
    done = run(log, engine)
    assert {one.reason for one in left} == {"a statement in flight reads it"}
    assert done.rounds == 1
    assert not writers_in_flight(log, tables.newest(log)).changing
    tables.foreign_append(log, {"2019-01": [10]})
    assert [len(group.inputs) for group in planned(log).groups] == [2]


def test_a_dead_statement_protects_nothing_for_ever(log: DeltaLog) -> None:
    found: list[Any] = []
    engine = ChangeByHand(
        after=lambda job: found.append(writers_in_flight(log, tables.newest(log), timedelta(0)).changing)
    )
    run(log, engine)
    assert found == [frozenset()]


@BOTH
@pytest.mark.parametrize("effect", [True, False])
def test_a_lost_answer_changes_rows_once(log: DeltaLog, effect: bool, vectors: bool) -> None:
    engine = ChangeByHand(vectors)
    done = run(through(AnswerLost(log.store, 1, effect=effect), log), engine, **UPDATE)
    assert (done.status, done.version) == ("done", 3)
    assert run(log, engine, **UPDATE) == Changed(
        status="already_done", version=3, rows=3, files_removed=done.files_removed, files_added=2, rounds=1
    )
    assert (rows(log), len(engine.jobs)) == ([1, 2, 4, 5, 7, 8, 1003, 1006, 1009], 1)


def test_a_file_that_gets_row_ids_while_spark_is_at_work_keeps_them(log: DeltaLog) -> None:
    begin_row_tracking(log)
    backfills = [lambda: backfill_row_ids(log)]
    done = run(log, ChangeByHand(vectors=True, after=lambda _: backfills.pop()() if backfills else None))
    assert (done.version, done.rounds, rows(log)) == (5, 2, [1, 2, 4, 5, 7, 8])
    assert sorted(file["baseRowId"] for file in tables.live(log)) == [0, 3, 6]


BOTH_RESTORES = pytest.mark.parametrize("taken_back", [take_back, restored_by_time], ids=["version", "time"])


@BOTH_RESTORES
def test_a_retry_after_a_restore_is_refused_unless_what_it_did_is_there(
    log: DeltaLog, taken_back: Callable[..., None]
) -> None:
    run(log, **UPDATE)
    taken_back(log, 2)
    compact(log)
    with pytest.raises(errors.RerunRefusedError, match="in version 3, and was taken back"):
        run(log, **UPDATE)
    assert run(log, task_start="second", **UPDATE).status == "done"
    assert rows(log) == [1, 2, 4, 5, 7, 8, 1003, 1006, 1009]
    # A RESTORE to a version that has it does not undo it, nor does a vector that another gives to one of its files.
    done = tables.newest(log).version
    delete_rows(log, tables.live(log)[0], [0])
    taken_back(log, done, "another")
    assert run(log, task_start="second", **UPDATE).status == "already_done"
    taken_back(log, 2, "third")
    taken_back(log, done, "fourth")
    assert run(log, task_start="second", **UPDATE).status == "already_done"
    # Nor does one that leaves its rows as they are.
    tables.foreign_append(log, {"x": [30]})
    taken_back(log, done, "fifth")
    assert run(log, task_start="second", **UPDATE).status == "already_done"


@BOTH_RESTORES
def test_an_update_that_a_restore_brings_back_is_not_done_twice(log: DeltaLog, taken_back: Callable[..., None]) -> None:
    skip: dict[str, Any] = {**UPDATE, "on_rerun": OnStatementRerun.SKIP}
    first = run(log, **skip).version
    assert first is not None
    taken_back(log, 2)
    assert run(log, task_start="second", **skip).status == "done"
    # To a version that has what the first start did, and not what the second one did.
    taken_back(log, first, "another")
    assert rows(log) == [1, 2, 4, 5, 7, 8, 1003, 1006, 1009]
    with pytest.raises(errors.RerunRefusedError, match="was taken back"):
        run(log, task_start="second", **skip)
    with pytest.raises(errors.RerunRefusedError, match="changed rows that it may concern"):
        run(log, task_start="third", **skip)


def test_a_clear_does_it_again_or_skips_it_or_is_refused(log: DeltaLog) -> None:
    skip: dict[str, Any] = {**UPDATE, "on_rerun": OnStatementRerun.SKIP}
    run(log, covers="month = '2019-01'", **skip)
    compact(log)
    tables.foreign_append(log, {"x": [30]})
    cleared = run(log, task_start="second", covers="month = '2019-01'", **skip)
    assert (cleared.status, cleared.version) == ("already_done", 3)
    # The rows that it updated may have been loaded again: to skip would leave them as they were.
    tables.foreign_append(log, {"2019-01": [33]})
    with pytest.raises(errors.RerunRefusedError, match=r"version 5 .*on_rerun='again'"):
        run(log, task_start="third", covers="month = '2019-01'", **skip)
    done = run(log, task_start="third", covers="month = '2019-01'", **{**skip, "on_rerun": OnStatementRerun.AGAIN})
    assert (done.status, done.rows) == ("done", 1)
    assert rows(log) == [1, 2, 4, 5, 7, 8, 9, 30, 1003, 1006, 1033]


def test_a_zombie_does_nothing_after_a_newer_start_has_done_it(log: DeltaLog) -> None:
    engine = ChangeByHand(after=in_turn(lambda: run(log, task_start="second", **UPDATE)))
    with pytest.raises(errors.ZombieWriterError, match=r"newer start of|has been rerun since"):
        run(log, engine, task_start="first", **UPDATE)
    assert rows(log) == [1, 2, 4, 5, 7, 8, 1003, 1006, 1009]


@pytest.mark.parametrize("on_rerun", list(OnStatementRerun))
def test_a_zombie_that_looks_after_a_newer_start_does_nothing(log: DeltaLog, on_rerun: OnStatementRerun) -> None:
    terms: dict[str, Any] = {**UPDATE, "on_rerun": on_rerun}
    run(log, task_start="second", **terms)
    tables.foreign_append(log, {"2019-01": [12]})
    engine = ChangeByHand()
    with pytest.raises(errors.ZombieWriterError, match=r"newer start of|has been rerun since"):
        run(log, engine, task_start="first", **terms)
    # Nor where a RESTORE has taken back what the newer start did: to do it again is for the newest start.
    take_back(log, 2)
    with pytest.raises(errors.ZombieWriterError, match=r"newer start of|has been rerun since"):
        run(log, engine, task_start="first", **terms)
    assert (rows(log), engine.jobs) == (list(range(1, 10)), [])


@pytest.mark.parametrize("operation", ["DELETE", "UPDATE"])
def test_a_zombie_does_nothing_after_a_corrected_start_had_nothing_to_do(log: DeltaLog, operation: str) -> None:
    terms: dict[str, Any] = UPDATE if operation == "UPDATE" else {}
    told: list[Any] = []

    def corrected() -> None:
        told.append(
            run(log, ChangeByHand(hits=lambda row: False), task_start="second", **{**terms, "where": "id = 99"})
        )

    engine = ChangeByHand(after=lambda job: corrected())
    with pytest.raises(errors.ZombieWriterError, match="newer start of"):
        run(log, engine, task_start="first", **terms)
    assert (rows(log), told[0].status, told[0].version) == (list(range(1, 10)), "nothing_to_do", None)
    commit = tables.commit_of(log, 3)
    assert (commit.operation, commit.adds, commit.removes, commit.data_change) == (operation, [], [], False)
    assert "Nothing to do" in str(commit.user_metadata)


def test_a_start_that_had_nothing_to_do_has_nothing_to_do_in_its_retry_and_the_next_start_has(log: DeltaLog) -> None:
    terms: dict[str, Any] = {**UPDATE, "on_rerun": OnStatementRerun.SKIP}
    nothing = ChangeByHand(hits=lambda row: False)
    change_of(log, nothing, task_start="first", **terms).begin()
    assert run(log, nothing, task_start="second", **terms).status == "nothing_to_do"
    tables.foreign_append(log, {"2019-01": [12]})
    again = run(log, task_start="second", **terms)
    assert (again.status, again.version, again.rows, tables.newest(log).version) == ("nothing_to_do", None, 0, 4)
    # It has updated no row, so the next start has nothing to skip.
    assert run(log, task_start="third", **terms).rows == 4


def test_the_first_start_with_nothing_to_do_commits_nothing(log: DeltaLog) -> None:
    assert run(log, ChangeByHand(hits=lambda row: False)).status == "nothing_to_do"
    assert tables.newest(log).version == 2


def test_two_tries_at_once_are_one_update(log: DeltaLog) -> None:
    engine = ChangeByHand(after=in_turn(lambda: run(log, **UPDATE)))
    done = run(log, engine, **UPDATE)
    assert (done.status, done.version) == ("already_done", 3)
    assert rows(log) == [1, 2, 4, 5, 7, 8, 1003, 1006, 1009]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schemaString": '{"type":"struct","fields":[{"name":"month","type":"string","nullable":true,"metadata":{}}]}'}, "column id is gone"),
        ({"id": "another"}, "made again"),
        ({"configuration": {"delta.appendOnly": "true"}}, "append-only"),
    ],
    ids=["column dropped", "replaced", "append-only"],
)  # fmt: skip
def test_a_table_that_changes_its_definition_is_left_alone(log: DeltaLog, change: dict[str, Any], why: str) -> None:
    engine = ChangeByHand(after=lambda job: tables.change_metadata(log, **change))
    with pytest.raises(errors.StatementRefusedError, match=why):
        run(log, engine)
    assert tables.newest(log).version == 3


def test_a_change_feed_that_is_switched_meanwhile(tmp_path: Path) -> None:
    log = tables.make_table(tmp_path / "t", **{"delta.enableChangeDataFeed": "true"})
    tables.foreign_append(log, {"x": [3]})
    engine = ChangeByHand(after=lambda job: tables.change_metadata(log, configuration={}))
    with pytest.raises(errors.StatementRefusedError, match="change data feed was switched"):
        run(log, engine)


@pytest.mark.parametrize("first", [True, False], ids=["switched off", "switched on"])
def test_vectors_that_are_switched_meanwhile_on_a_table_with_a_change_feed(tmp_path: Path, first: bool) -> None:
    log = tables.make_table(tmp_path / "t", **{"delta.enableChangeDataFeed": "true"})
    tables.foreign_append(log, {"2019-01": [1, 2, 3], "x": [6, 7]})
    engine = ChangeByHand(vectors=first, feed=True)

    def switched(job: object) -> None:
        if len(engine.jobs) == 1:
            tables.foreign_append(log, {"2019-01": [9, 10]})
            engine.vectors = not first

    engine.after = switched
    assert run(log, engine).rounds == 3
    assert rows(log) == [1, 2, 7, 10]
    # Readers of the feed who find rows for it in a commit look at nothing else there.
    told = [row for action in tables.last(log).actions if "cdc" in action for row in ids_in(log, action["cdc"])]
    assert sorted(told) == ([3, 6, 9] if first else [])


def test_a_column_that_is_widened_meanwhile(tmp_path: Path) -> None:
    narrow = tables.SCHEMA.replace('"long"', '"integer"')
    log = tables.make_table(tmp_path / "t", narrow, **{"delta.enableTypeWidening": "true"})
    tables.foreign_append(log, {"x": [3]})

    def widen(_: object) -> None:
        schema = json.loads(narrow)
        step = {"fromType": "integer", "toType": "long"}
        schema["fields"][0] |= {"type": "long", "metadata": {"delta.typeChanges": [step]}}
        tables.change_metadata(log, schemaString=json.dumps(schema))

    with pytest.raises(errors.StatementRefusedError, match="column id is long now, not integer"):
        run(log, ChangeByHand(after=widen))


def test_a_comment_on_the_table_does_not_matter(log: DeltaLog) -> None:
    engine = ChangeByHand(after=lambda job: tables.change_metadata(log, description="trips"))
    assert run(log, engine).version == 4


def test_a_table_that_is_made_again_is_left_alone(log: DeltaLog) -> None:
    def made_again(_: object) -> None:
        shutil.rmtree(log.table)
        again = tables.make_table(Path(log.table))
        for number in range(4):
            tables.foreign_append(again, {"2019-01": [3 * number]})

    with pytest.raises((errors.StatementRefusedError, errors.BufferLostError)):
        run(through(LoserHeld(log.store, lambda: made_again(None)), log))
    assert tables.ids(Path(log.table)) == [0, 3, 6, 9]


def test_an_append_only_table_and_absolute_paths_are_refused_before_spark(log: DeltaLog) -> None:
    engine = ChangeByHand()
    add = {**tables.live(log)[0], "path": "file:/elsewhere/part-0.parquet", "dataChange": True}
    tables.foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, {"add": add}])
    with pytest.raises(errors.UnsupportedFeatureError, match="absolute path"):
        run(log, engine)
    tables.change_metadata(log, configuration={"delta.appendOnly": "true"})
    with pytest.raises(errors.StatementRefusedError, match="append-only"):
        run(log, engine, covers="month = '2019 02'")
    assert engine.jobs == []


_STEPS = st.sampled_from(
    ["append", "append", "append two", "read", "delete", "vector", "compact", "back", "update", "die", "lost", "none"]
)
_HISTORIES = st.lists(st.tuples(_STEPS, st.integers(0, 2)), max_size=4)


@settings(max_examples=40, deadline=None)
@given(_HISTORIES, st.booleans(), st.sampled_from(["DELETE", "UPDATE"]))
def test_the_version_is_the_statement_on_the_version_before(
    tmp_path_factory: pytest.TempPathFactory, meanwhile: Any, vectors: bool, operation: str
) -> None:
    log = tables.make_table(tmp_path_factory.mktemp("t"))
    numbers: Iterator[int] = iter(range(3, 1000, 3))
    tables.foreign_append(log, {"m0": [1000_000, 2], "m1": [3000_003, 5]})
    tables.foreign_append(log, {"m1": [6000_006, 8], "m2": [11]})

    def step(kind: str, which: int) -> None:
        number = next(numbers) * 10
        files = sorted(tables.live(log), key=lambda file: file["path"])
        if kind in ("append", "append two"):
            new = {f"m{which}": [number, number + 1]}
            new |= {f"m{(which + 1) % 3}": [number + 3]} if kind == "append two" else {}
            tables.foreign_append(log, new)
        elif kind == "read":
            tables.foreign_append(log, {f"m{which}": [number, number + 1]}, isBlindAppend=False)
        elif kind == "delete":
            delete(Transactions(log), f"month = 'm{which}'", asker(f"step {number}"))
        elif kind == "vector" and files:
            hide_more(log, files[which % len(files)], number // 30 % 2)
        elif kind == "compact" and planned(log).groups:
            compact(log)
        elif kind == "back":
            take_back(log, max(0, tables.newest(log).version - which), f"step {number}")
        elif kind == "update":
            run(log, ChangeByHand(not vectors), task=f"step {number}", task_start=str(number), **UPDATE)
        elif kind == "die":
            raise KilledError

    steps = list(meanwhile)
    engine = ChangeByHand(vectors)

    def after(_: object) -> None:
        # Two at once, so that one may have read what the other has appended.
        for _ in range(2):
            if steps:
                step(*steps.pop(0))

    engine.after = after
    assignments = UPDATE["assignments"] if operation == "UPDATE" else {}
    for _ in range(len(meanwhile) + 1):
        held = LoserHeld(log.store, *(lambda: after(None) for _ in range(2)))
        loses = bool(steps) and steps[0][0] == "lost"
        store = AnswerLost(held, 1, effect=bool(steps[0][1])) if loses else held
        try:
            done = run(through(store, log), engine, operation=operation, assignments=assignments)
        except (KilledError, errors.StoreUnavailableError):
            continue
        break
    ours = [commit for commit in log.commits_since(-1) if "onelake-statement/test/dag/change/run" in commit.txns]
    if done.version is None:
        assert ours == []
        assert not any(row % 3 == 0 for row in rows(log))
        return
    assert done.version == ours[-1].version
    for commit in ours:
        assert rows(log, commit.version) == mapped(rows(log, commit.version - 1), operation)
