"""ALTER TABLE: whoever commits meanwhile, version N + 1 is the ALTER on version N, and is done once."""

from __future__ import annotations

import json
import shutil
import uuid
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.commit.alter import Altered
from airflow_provider_onelake.commit.alteration import Alteration
from airflow_provider_onelake.commit.publish import Committer
from airflow_provider_onelake.commit.transaction import Backoff, Transactions
from airflow_provider_onelake.exceptions import (
    BufferDoesNotFitError,
    ConflictError,
    ConstraintViolatedError,
    StatementRefusedError,
    UnsupportedFeatureError,
    ZombieWriterError,
)
from airflow_provider_onelake.hooks.task_run import TaskRun
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.staging.modes import ReplaceWhere
from airflow_provider_onelake.work.alter import TableChange
from airflow_provider_onelake.work.spark import SparkWork
from tests.support.changes import TableOf, start_of
from tests.support.checks import ChecksByHand
from tests.support.restores import take_back
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    foreign_append,
    foreign_commit,
    ids,
    last,
    live,
    local_log,
    make_table,
    newest,
    stage,
    writer_spec,
)
from tests.support.vectors import delete_rows, ids_without_deleted

CHECK: dict[str, Any] = {"add_checks": {"Low": "id < 100"}}
COMMENT: dict[str, Any] = {"table_comment": "trips"}


def low(row: int) -> bool:
    return row < 100


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    """Versions 1 and 2 append three files."""
    log = make_table(tmp_path / "a lake" / "t")
    foreign_append(log, {"2019-01": [1, 2, 3]})
    foreign_append(log, {"2019-01": [4, 5], "2019 02": [7]})
    return log


class _NoWaits(TableOf):
    def committer(self) -> Transactions:
        return Transactions(self.log, backoff=Backoff(first=0.0, longest=0.0, budget=0.0))


def run(
    log: DeltaLog,
    engine: ChecksByHand | None = None,
    *,
    deed: str = "first",
    task: str = "alter",
    max_rounds: int = 5,
    table: type[TableOf] = TableOf,
    **asked: Any,
) -> Altered:
    """One try of a task's ALTER."""
    by_hand = engine or ChecksByHand(low)
    return TableChange(
        table=table(log),  # type: ignore[arg-type]
        spark=SparkWork(lambda: by_hand),
        asked=Alteration(**(asked or COMMENT)),
        max_rounds=max_rounds,
        run=TaskRun("dag", task, "run", "run", str(uuid.uuid4()), task, -1, start_of(task, deed).first_try),
        deed=start_of(task, deed),
        namespace="test",
    ).carry_out()


def properties(log: DeltaLog) -> dict[str, str]:
    return dict(newest(log).configuration)


# -- the commit --------------------------------------------------------------------------------------------------------


def test_all_of_it_is_one_commit_without_spark(log: DeltaLog) -> None:
    engine = ChecksByHand()
    done = run(
        log,
        engine,
        set_properties={"delta.columnMapping.mode": "name", "mine": "1"},
        rename_columns={"month": "period"},
        column_comments={"id": "a number"},
    )
    assert (done.status, done.version, done.features, engine.jobs) == ("done", 3, ("columnMapping",), [])
    snapshot = newest(log)
    assert list(snapshot.partitioning.types) == ["period"]
    assert snapshot.protocol["minReaderVersion"] == 2
    commit = last(log)
    assert [kind for action in commit.actions for kind in action] == [
        "commitInfo",
        "txn",
        "txn",
        "protocol",
        "metaData",
    ]
    assert (commit.info["operation"], commit.info["isBlindAppend"], commit.data_change) == ("ALTER TABLE", True, False)
    assert "column month is called period" in commit.info["userMetadata"]
    assert json.loads(commit.info["operationParameters"]["changes"]) == list(done.changes or ())
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 7]


# -- CHECK -------------------------------------------------------------------------------------------------------------


def test_a_check_is_added_once_all_rows_were_looked_at(log: DeltaLog) -> None:
    engine = ChecksByHand(low)
    done = run(log, engine, **CHECK)
    assert (done.version, done.rounds, engine.files) == (3, 1, [3])
    assert properties(log) == {"delta.constraints.low": "id < 100"}
    assert last(log).info["operation"] == "ADD CONSTRAINT"
    # The constraint itself does not stand in the shadow, in which rows that violate it are to be read.
    assert engine.definitions[0]["configuration"] == {}
    (directory,) = Path(log.table).glob("staged/change-*/*")
    assert (directory / "_closed.json").exists()


def test_rows_that_violate_it_are_counted_and_nothing_is_changed(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 101]})
    with pytest.raises(ConstraintViolatedError, match=r"at version 3 has rows .*: 2 rows violate Low .id < 100."):
        run(log, **CHECK)
    assert newest(log).version == 3


def test_rows_that_a_deletion_vector_hides_violate_nothing(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 8]})
    delete_rows(log, live(log)[-1], [0])
    assert run(log, **CHECK).status == "done"
    assert ids_without_deleted(Path(log.table)) == [1, 2, 3, 4, 5, 7, 8]


def test_a_table_without_rows_is_looked_at_too(tmp_path: Path) -> None:
    engine = ChecksByHand(low)
    assert run(make_table(tmp_path / "t"), engine, **CHECK).version == 1
    assert engine.files == [0]


def test_what_is_appended_meanwhile_is_looked_at_and_nothing_twice(log: DeltaLog) -> None:
    store = LoserHeld(log.store, lambda: foreign_append(log, {"x": [9]}), lambda: foreign_append(log, {"y": [10]}))
    engine = ChecksByHand(low)
    done = run(through(store, log), engine, **CHECK)
    assert (done.version, done.rounds, engine.files) == (5, 3, [3, 1, 1])


@pytest.mark.parametrize("when", ["spark is at work", "the put is under way"])
def test_a_row_that_violates_it_and_comes_meanwhile_is_found(log: DeltaLog, when: str) -> None:
    def append() -> int:
        return foreign_append(log, {"x": [100]})

    engine, through_ = ChecksByHand(low), log
    if when == "spark is at work":
        engine.after = lambda job: append() if len(engine.jobs) == 1 else None
    else:
        through_ = through(LoserHeld(log.store, append), log)
    with pytest.raises(ConstraintViolatedError, match="at version 3"):
        run(through_, engine, **CHECK)
    assert properties(log) == {}


def test_a_deletion_vector_that_is_taken_back_meanwhile_shows_rows_again(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 8]})
    delete_rows(log, live(log)[-1], [0])
    engine = ChecksByHand(low, after=lambda job: take_back(log, 3) if len(engine.jobs) == 1 else None)
    with pytest.raises(ConstraintViolatedError):
        run(log, engine, **CHECK)


def test_all_rows_are_looked_at_again_once_a_name_means_another_column(log: DeltaLog) -> None:
    run(log, set_properties={"delta.columnMapping.mode": "name"}, task="map")
    foreign_append(log, {"x": [8]})

    def swap() -> None:
        run(log, rename_columns={"id": "other"}, task="swap")
        run(log, rename_columns={"other": "id"}, task="back")
        run(log, column_comments={"id": "another definition"}, task="comment")

    engine = ChecksByHand(low, after=lambda job: swap() if len(engine.jobs) == 1 else None)
    done = run(log, engine, **CHECK)
    assert (engine.files, done.rounds) == ([4, 4], 2)


def test_it_gives_up_where_files_come_all_the_time(log: DeltaLog) -> None:
    engine = ChecksByHand(low, after=lambda job: foreign_append(log, {"x": [9]}))
    with pytest.raises(ConflictError, match="looked 2 times for rows that violate Low"):
        run(log, engine, max_rounds=2, **CHECK)
    assert properties(log) == {}


def test_a_file_outside_of_the_table_is_refused(log: DeltaLog) -> None:
    add = {**live(log)[0], "path": "file:/elsewhere/part-0.parquet", "dataChange": True}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, {"add": add}])
    assert run(log, table=_NoWaits).status == "done"
    with pytest.raises(UnsupportedFeatureError, match="absolute path"):
        run(log, table=_NoWaits, **CHECK)


# -- others ------------------------------------------------------------------------------------------------------------


def test_what_others_change_meanwhile_stays(log: DeltaLog) -> None:
    winners = (lambda: run(log, set_properties={"theirs": "1"}, task="other"), lambda: foreign_append(log, {"x": [9]}))
    done = run(through(LoserHeld(log.store, *winners), log), set_properties={"mine": "1"})
    assert (done.version, done.lost_races) == (5, 2)
    assert properties(log) == {"theirs": "1", "mine": "1"}
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 7, 9]


def test_a_buffer_in_flight_meets_the_new_definition(log: DeltaLog) -> None:
    first, second = (stage(log, writer_spec(name), {"x": [200]}) for name in ("a", "b"))
    run(log)
    Committer(local_log(Path(log.table))).publish([first])
    run(log, ChecksByHand(), **CHECK)
    with pytest.raises(BufferDoesNotFitError, match=r"CHECK low .id < 100. was added"):
        Committer(local_log(Path(log.table))).publish([second])


@pytest.mark.parametrize("terms", [{"mode": ReplaceWhere("month = 'x'")}, {"expected_partitions": "month = 'x'"}])
def test_a_predicate_in_flight_does_not_meet_partitions_that_got_its_names(tmp_path: Path, terms: Any) -> None:
    fields = [{"name": name, "type": "string", "nullable": True, "metadata": {}} for name in ("id", "month", "region")]
    schema = json.dumps({"type": "struct", "fields": fields})
    log = make_table(tmp_path / "t", schema, ("month", "region"))
    run(log, set_properties={"delta.columnMapping.mode": "name"}, task="map")
    names = {"month": "region", "region": "month"}
    staged = stage(log, writer_spec(allow_empty=True, **terms), {})
    run(log, rename_columns=names)
    with pytest.raises(BufferDoesNotFitError, match="partition column month is called region now"):
        Committer(local_log(Path(log.table))).publish([staged])


def test_a_retry_does_nothing_more_and_a_clear_only_what_is_missing(log: DeltaLog) -> None:
    first = run(log, set_properties={"mine": "1"})
    retried = run(log, set_properties={"mine": "1"})
    assert (retried.status, retried.version, retried.changes) == ("already_done", 3, first.changes)
    run(log, set_properties={"mine": "2"}, task="other")
    # A retry does not undo what somebody has changed since; a clear does.
    assert run(log, set_properties={"mine": "1"}).status == "already_done"
    assert run(log, set_properties={"mine": "1"}, deed="second").version == 5
    cleared = run(log, set_properties={"mine": "1"}, deed="third")
    assert (cleared.status, cleared.version, newest(log).version) == ("already_done", 5, 5)


@pytest.mark.parametrize("by", ["RESTORE", "ALTER"])
def test_a_swap_of_names_that_was_undone_is_done_again_by_a_clear(log: DeltaLog, by: str) -> None:
    """Both names are there before and after it."""

    def names() -> list[str]:
        return [field["name"] for field in json.loads(newest(log).metadata["schemaString"])["fields"]]

    run(log, set_properties={"delta.columnMapping.mode": "name"}, task="map")
    before, version = names(), newest(log).version
    swap: Any = {"rename_columns": {"id": "month", "month": "id"}}
    assert run(log, task="swap", **swap).status == "done"
    assert run(log, task="swap", deed="second", **swap).status == "already_done"
    if by == "RESTORE":
        take_back(log, version)
    else:
        run(log, task="back", **swap)
    assert names() == before
    assert run(log, task="swap", deed="third", **swap).status == "done"
    assert names() == before[::-1]


def test_an_old_process_alters_nothing_after_a_newer_start_found_the_table_as_it_was_asked_for(log: DeltaLog) -> None:
    run(log, set_properties={"mine": "2"}, task="other")
    told: list[Altered] = []

    def newer() -> None:
        told.append(run(through(log.store, log), set_properties={"mine": "2"}, deed="second"))

    with pytest.raises(ZombieWriterError, match="found nothing to do"):
        run(through(LoserHeld(log.store, newer), log), set_properties={"mine": "1"})
    assert (told, properties(log)) == ([Altered(status="nothing_to_do")], {"mine": "2"})
    again = run(through(log.store, log), set_properties={"mine": "2"}, deed="second")
    assert (again.status, again.changes) == ("already_done", ())


def test_a_table_that_is_made_again_meanwhile_is_left_alone(log: DeltaLog) -> None:
    def made_again() -> None:
        shutil.rmtree(log.table)
        again = make_table(Path(log.table))
        for number in range(3):
            foreign_append(again, {"x": [number]})

    with pytest.raises(StatementRefusedError, match="made again"):
        run(through(LoserHeld(log.store, made_again), log))
    assert "description" not in newest(local_log(Path(log.table))).metadata
