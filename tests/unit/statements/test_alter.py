"""ALTER TABLE: whoever commits meanwhile, version N + 1 is the ALTER on version N, and is done once."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake import exceptions as errors
from airflow_provider_onelake.commit.loop import Backoff, Transactions
from airflow_provider_onelake.log.actions import dump_actions, version_path
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.modes import ReplaceWhere
from airflow_provider_onelake.statements.alter import Altered
from airflow_provider_onelake.statements.alteration import Alteration
from airflow_provider_onelake.steps.alter import alter_table
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.task_run import TaskRun
from airflow_provider_onelake.writes.publish import Committer
from tests.support.alters import AlterByHand
from tests.support.changes import TableOf, start_of
from tests.support.restores import take_back
from tests.support.stores import LoserHeld, through
from tests.support.tables import (
    change_metadata,
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
from tests.support.vectors import delete_rows

CHECK: dict[str, Any] = {"add_checks": {"Low": "id<100"}}
COMMENT: dict[str, Any] = {"table_comment": "trips"}
MANIFESTS = "delta.compatibility.symlinkFormatManifest.enabled"


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
    engine: AlterByHand | None = None,
    *,
    task_start: str = "first",
    task: str = "alter",
    max_rounds: int = 5,
    table: type[TableOf] = TableOf,
    **asked: Any,
) -> Altered:
    by_hand, start = engine or AlterByHand(low), start_of(task, task_start)
    return alter_table(
        table(log),  # type: ignore[arg-type]
        SparkWork(lambda: by_hand),
        Alteration(**(asked or COMMENT)),
        max_rounds,
        run=TaskRun("dag", task, "run", "run", str(uuid.uuid4()), task, -1, start.first_try),
        task_start=start,
        namespace="test",
    )


def properties(log: DeltaLog) -> dict[str, str]:
    return dict(newest(log).configuration)


def test_what_spark_makes_of_a_shadow_without_files_is_one_commit(log: DeltaLog) -> None:
    table_id, engine = newest(log).table_id, AlterByHand()
    done = run(log, engine, set_properties={"mine": "1"}, column_comments={"id": "x"}, table_comment="t")
    assert (done.status, done.version, done.rounds, engine.files) == ("done", 3, 1, [0])
    assert done.changes == (
        "SET TBLPROPERTIES ('mine' = '1', 'comment' = 't')",
        "ALTER COLUMN `id` COMMENT 'x'",
    )
    assert (newest(log).metadata["description"], newest(log).table_id) == ("t", table_id)
    (field, *_) = json.loads(newest(log).metadata["schemaString"])["fields"]
    assert field["metadata"] == {"comment": "x"}
    commit = last(log)
    assert [kind for action in commit.actions for kind in action] == ["commitInfo", "txn", "metaData"]
    assert (commit.info["operation"], commit.info["isBlindAppend"], commit.data_change) == ("ALTER TABLE", True, False)
    assert "ALTER COLUMN `id` COMMENT 'x'" in commit.info["userMetadata"]
    assert json.loads(commit.info["operationParameters"]["changes"]) == list(done.changes or ())
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 7]
    (directory,) = Path(log.table).glob("staged/change-*/*/")
    assert (directory / "_closed.json").exists()


def test_a_single_statement_is_called_as_spark_calls_it(log: DeltaLog) -> None:
    run(log, set_properties={"mine": "1"})
    info = last(log).info
    assert (info["operation"], info["operationParameters"]) == ("SET TBLPROPERTIES", {"of": "[1]"})


def test_properties_that_would_start_work_in_a_shadow_are_set_and_unset_without_spark(log: DeltaLog) -> None:
    engine = AlterByHand()
    done = run(log, engine, set_properties={MANIFESTS: "true", "delta.autoOptimize.autoCompact": "true"})
    assert (engine.jobs, done.rounds) == ([], 0)
    assert done.changes == ("delta.autoOptimize.autoCompact is true", f"{MANIFESTS} is true")
    # Spark does not see them, and they stay.
    run(log, engine, task="other", set_properties={"mine": "1"})
    assert properties(log) == {MANIFESTS: "true", "delta.autoOptimize.autoCompact": "true", "mine": "1"}
    with pytest.raises(errors.StatementRefusedError, match=r"symlink manifests .* know neither"):
        run(log, engine, task="map", set_properties={"delta.enableDeletionVectors": "true"})
    run(log, engine, task="none", unset_properties=(MANIFESTS, "delta.autoOptimize.autoCompact"))
    assert properties(log) == {"mine": "1"}


def test_more_than_a_definition_is_not_taken_from_a_shadow(log: DeltaLog) -> None:
    class Wild(AlterByHand):
        def alter(self, job: Any) -> Any:
            shadow = Path(job.shadow_uri.removeprefix("file://"))
            add = {**live(log)[0], "dataChange": True}
            (shadow / version_path(1)).write_bytes(dump_actions([{"add": add}]))

    with pytest.raises(errors.BufferInvalidError, match="an ALTER of its definition has a add action"):
        run(log, Wild())
    assert newest(log).version == 2


def test_a_feature_that_the_package_does_not_know_is_not_given_to_the_table(log: DeltaLog) -> None:
    class Raising(AlterByHand):
        def alter(self, job: Any) -> Any:
            shadow = Path(job.shadow_uri.removeprefix("file://"))
            protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inventedTomorrow"]}
            (shadow / version_path(1)).write_bytes(dump_actions([{"protocol": protocol}]))

    with pytest.raises(errors.UnsupportedFeatureError, match="as it would be uses inventedTomorrow"):
        run(log, Raising())


def test_a_check_is_added_once_all_rows_were_looked_at(log: DeltaLog) -> None:
    engine = AlterByHand(low)
    done = run(log, engine, **CHECK)
    assert (done.version, done.rounds, engine.files) == (3, 1, [3])
    # In the author's words, so that another start finds that it is there.
    assert properties(log) == {"delta.constraints.low": "id<100"}
    assert not last(log).info["isBlindAppend"]
    assert run(log, engine, task="other", **CHECK).status == "nothing_to_do"


def test_rows_that_violate_it_are_counted_and_nothing_is_changed(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 101]})
    with pytest.raises(errors.ConstraintViolatedError, match=r"2 rows violate .*id<100"):
        run(log, **CHECK)
    assert newest(log).version == 3


def test_what_is_appended_meanwhile_is_looked_at_and_nothing_twice(log: DeltaLog) -> None:
    store = LoserHeld(log.store, lambda: foreign_append(log, {"x": [9]}), lambda: foreign_append(log, {"y": [10]}))
    engine = AlterByHand(low)
    done = run(through(store, log), engine, **CHECK)
    assert (done.version, done.rounds, engine.files) == (5, 3, [3, 1, 1])


@pytest.mark.parametrize("when", ["spark is at work", "the put is under way"])
def test_a_row_that_violates_it_and_comes_meanwhile_is_found(log: DeltaLog, when: str) -> None:
    def append() -> int:
        return foreign_append(log, {"x": [100]})

    engine, through_ = AlterByHand(low), log
    if when == "spark is at work":
        engine.after = lambda job: append() if len(engine.jobs) == 1 else None
    else:
        through_ = through(LoserHeld(log.store, append), log)
    with pytest.raises(errors.ConstraintViolatedError):
        run(through_, engine, **CHECK)
    assert properties(log) == {}


def test_a_deletion_vector_that_is_taken_back_meanwhile_shows_rows_again(log: DeltaLog) -> None:
    foreign_append(log, {"x": [100, 8]})
    delete_rows(log, live(log)[-1], [0])
    engine = AlterByHand(low, after=lambda job: take_back(log, 3) if len(engine.jobs) == 1 else None)
    with pytest.raises(errors.ConstraintViolatedError):
        run(log, engine, **CHECK)


def cluster(log: DeltaLog) -> None:
    body = {"domain": "delta.clustering", "configuration": '{"clusteringColumns":[["id"]]}', "removed": False}
    foreign_commit(local_log(Path(log.table)), [{"domainMetadata": body}])


@pytest.mark.parametrize("other", [lambda log: change_metadata(log, description="other"), cluster])
def test_under_another_definition_all_rows_are_read_again(log: DeltaLog, other: Callable[[DeltaLog], None]) -> None:
    engine = AlterByHand(low, after=lambda job: other(log) if len(engine.jobs) == 1 else None)
    done = run(log, engine, **CHECK)
    assert (engine.files, done.rounds, done.version) == ([3, 3], 2, 4)


@pytest.mark.parametrize("asked", [CHECK, COMMENT])
def test_it_gives_up_where_others_come_first_all_the_time(log: DeltaLog, asked: dict[str, Any]) -> None:
    def others(_: Any) -> None:
        foreign_append(log, {"x": [9]})
        change_metadata(log, configuration={"n": str(len(engine.jobs))})

    engine = AlterByHand(low, after=others)
    with pytest.raises(errors.ConflictError, match=r"Spark ran ALTER TABLE .* 2 times"):
        run(log, engine, max_rounds=2, **asked)
    assert properties(log) == {"n": "2"}


def test_a_file_outside_of_the_table_is_refused(log: DeltaLog) -> None:
    add = {**live(log)[0], "path": "file:/elsewhere/part-0.parquet", "dataChange": True}
    foreign_commit(log, [{"commitInfo": {"timestamp": 1, "operation": "CLONE"}}, {"add": add}])
    assert run(log, table=_NoWaits).status == "done"
    with pytest.raises(errors.UnsupportedFeatureError, match="absolute path"):
        run(log, task="check", table=_NoWaits, **CHECK)


def test_what_others_change_meanwhile_stays(log: DeltaLog) -> None:
    winners = (lambda: run(log, set_properties={"theirs": "1"}, task="other"), lambda: foreign_append(log, {"x": [9]}))
    done = run(through(LoserHeld(log.store, *winners), log), set_properties={"mine": "1"})
    assert (done.version, done.lost_races, done.rounds) == (5, 2, 2)
    assert properties(log) == {"theirs": "1", "mine": "1"}
    assert ids(Path(log.table)) == [1, 2, 3, 4, 5, 7, 9]


def test_a_buffer_in_flight_meets_the_new_definition(log: DeltaLog) -> None:
    first, second = (stage(log, writer_spec(name), {"x": [200]}) for name in ("a", "b"))
    run(log)
    Committer(local_log(Path(log.table))).publish([first])
    run(log, AlterByHand(), task="check", **CHECK)
    with pytest.raises(errors.BufferDoesNotFitError, match=r"CHECK low .id<100. was added"):
        Committer(local_log(Path(log.table))).publish([second])


@pytest.mark.parametrize(
    "terms", [{"mode": ReplaceWhere("month = 'x'", allow_empty=True)}, {"expected_partitions": "month = 'x'"}]
)
def test_a_predicate_in_flight_does_not_meet_partitions_that_got_its_names(tmp_path: Path, terms: Any) -> None:
    def schema(*names: str) -> str:
        fields = [
            {
                "name": name,
                "type": "string",
                "nullable": True,
                "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": f"c{number}"},
            }
            for number, name in enumerate(names)
        ]
        return json.dumps({"type": "struct", "fields": fields})

    mapped = {"delta.columnMapping.mode": "name"}
    log = make_table(tmp_path / "t", schema("id", "month", "region"), ("month", "region"), **mapped)
    staged = stage(log, writer_spec(**terms), {})
    change_metadata(log, schemaString=schema("id", "region", "month"), partitionColumns=["region", "month"])
    with pytest.raises(errors.BufferDoesNotFitError, match="partition column month is called region now"):
        Committer(local_log(Path(log.table))).publish([staged])


def test_a_retry_does_nothing_more_and_a_clear_only_what_is_missing(log: DeltaLog) -> None:
    engine = AlterByHand()
    first = run(log, engine, set_properties={"mine": "1"})
    retried = run(log, engine, set_properties={"mine": "1"})
    assert (retried.status, retried.version, retried.changes) == ("already_done", 3, first.changes)
    run(log, set_properties={"mine": "2"}, task="other")
    # A retry does not undo what somebody has changed since; a clear does.
    assert run(log, engine, set_properties={"mine": "1"}).status == "already_done"
    assert len(engine.jobs) == 1
    assert run(log, engine, set_properties={"mine": "1"}, task_start="second").version == 5
    cleared = run(log, engine, set_properties={"mine": "1"}, task_start="third")
    # The start before it is in the table, so none can come any more.
    assert (cleared.status, cleared.version, newest(log).version, len(engine.jobs)) == ("nothing_to_do", None, 5, 2)


def test_a_try_that_died_before_its_commit_is_done_anew_and_its_shadow_is_marked(log: DeltaLog) -> None:
    def dies(_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(log, AlterByHand(after=dies))
    for marker in Path(log.table).glob("staged/change-*/*/_closed.json"):
        marker.unlink()
    assert (run(log).status, newest(log).version, newest(log).metadata["description"]) == ("done", 3, "trips")
    assert len(list(Path(log.table).glob("staged/change-*/*/_closed.json"))) == 2


def test_an_old_process_alters_nothing_after_a_newer_start_found_the_table_as_it_was_asked_for(log: DeltaLog) -> None:
    run(log, set_properties={"mine": "2"}, task="other")
    told: list[Altered] = []

    def newer() -> None:
        told.append(run(through(log.store, log), set_properties={"mine": "2"}, task_start="second"))

    with pytest.raises(errors.ZombieWriterError, match="A newer start"):
        run(through(LoserHeld(log.store, newer), log), set_properties={"mine": "1"})
    assert (told, properties(log)) == ([Altered(status="nothing_to_do")], {"mine": "2"})
    again = run(through(log.store, log), set_properties={"mine": "2"}, task_start="second")
    assert (again.status, again.changes) == ("nothing_to_do", ())


def test_a_table_that_is_made_again_meanwhile_is_left_alone(log: DeltaLog) -> None:
    def made_again() -> None:
        shutil.rmtree(log.table)
        again = make_table(Path(log.table))
        for number in range(3):
            foreign_append(again, {"x": [number]})

    with pytest.raises(errors.StatementRefusedError, match="made again"):
        run(through(LoserHeld(log.store, made_again), log))
    assert "description" not in newest(local_log(Path(log.table))).metadata
