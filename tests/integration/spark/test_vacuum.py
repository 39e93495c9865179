"""VACUUM by an inventory with a real Spark: what goes, what stays, and who says so."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.buffers.buffer import read_buffer
from airflow_provider_onelake.exceptions import SparkJobError
from airflow_provider_onelake.log.actions import deletion_vector_id
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.clean_up import clean_up
from airflow_provider_onelake.maintenance.pinned_versions import READ_OLD, pin_version, release_version
from airflow_provider_onelake.maintenance.vacuum import VacuumOutcome, VacuumPlan, VacuumTerms, carry_out, plan
from airflow_provider_onelake.spark.base import VacuumJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.storage.stores import ObjectInfo
from tests.support.ages import files, grow_old
from tests.support.spark_homes import file_is_gone
from tests.support.tables import append_files, local_log, stage, writer_spec

NewTable = Callable[..., DeltaLog]
AT_ONCE = {"delta.deletedFileRetentionDuration": "interval 0 hours"}
FULL = VacuumTerms(allow_retention_below_seven_days=True)
LITE = VacuumTerms(lite=True, allow_retention_below_seven_days=True)


@pytest.fixture
def new_table(spark: Any, tmp_path: Path) -> NewTable:
    """Makes a table by Spark, in a directory whose name is hard to spell."""

    def make(layout: str = "PARTITIONED BY (month)", **properties: str) -> DeltaLog:
        path = tmp_path / "it's 100% a lake" / "t"
        listed = ", ".join(f"'{key}' = '{value}'" for key, value in {**AT_ONCE, **properties}.items())
        spark.sql(
            f"CREATE TABLE delta.`{path}` (id BIGINT, month STRING) USING delta {layout} TBLPROPERTIES ({listed})"
        )
        return local_log(path)

    return make


def write(spark: Any, log: DeltaLog, *rows: tuple[int, str], statement: str = "INSERT INTO") -> None:
    spark.sql(f"{statement} delta.`{log.table}` VALUES {', '.join(map(str, rows))}")


def read(spark: Any, log: DeltaLog, version: int | None = None) -> list[tuple[int, str]]:
    # Else Spark refuses versions older than the retention before it looks for their files.
    spark.conf.set(READ_OLD, "false")
    rows = spark.read.format("delta").options(**({} if version is None else {"versionAsOf": str(version)}))
    return sorted((row["id"], row["month"]) for row in rows.load(log.table).collect())


def newest(log: DeltaLog) -> int:
    snapshot = log.snapshot()
    return snapshot.version


def job(log: DeltaLog, inventory: str, **more: Any) -> VacuumJob:
    table = f"file://{log.table}"
    return VacuumJob(table_uri=table, attempt=str(uuid.uuid4()), inventory_uri=f"{table}/{inventory}", **more)


def carried_out(log: DeltaLog, engine: ConnectEngine, todo: VacuumPlan, **more: Any) -> VacuumOutcome:
    return carry_out(log, todo, str(uuid.uuid4()), lambda path: engine.vacuum(job(log, path, **more)))


def vacuum(log: DeltaLog, engine: ConnectEngine, terms: VacuumTerms = FULL) -> VacuumOutcome:
    """What the operator does."""
    todo = plan(log, terms)
    clean_up(log, todo.abandoned_after)
    outcome = carried_out(log, engine, todo)
    assert outcome.left == ()
    return outcome


MONTHS = ((1, "2019-01"), (2, "a b"), (3, "c/d"), (4, "100%"), (5, "it's"))


@pytest.mark.promise
@pytest.mark.parametrize("terms", [FULL, LITE], ids=["full", "lite"])
def test_what_was_replaced_goes_and_the_table_reads_the_same(
    spark: Any, new_table: NewTable, engine: ConnectEngine, terms: VacuumTerms
) -> None:
    log = new_table()
    write(spark, log, *MONTHS)
    old = newest(log)
    write(spark, log, *MONTHS, statement="INSERT OVERWRITE")
    replaced = {info.path for info in plan(log, terms).candidates}
    append_files(log.store, "", {"nobody's": [99]})
    before, version = read(spark, log), newest(log)
    outcome = vacuum(log, engine, terms)
    gone = {info.path for info in outcome.deleted}
    assert len(replaced) == len(MONTHS)
    assert gone - replaced == (set() if terms.lite else {p for p in gone if p.startswith("month=nobody's")})
    assert len(gone) == len(replaced) + (not terms.lite)
    assert read(spark, log) == before == sorted(MONTHS)
    # It is no version, and says nothing in the log (protocol: no Spark commit to the shared log).
    assert newest(log) == version
    with pytest.raises(Exception, match=file_is_gone()):
        read(spark, log, old)
    assert plan(log, terms).candidates == ()


def test_deletion_vectors_of_live_files_stay_and_old_ones_go(
    spark: Any, new_table: NewTable, engine: ConnectEngine
) -> None:
    log = new_table(**{"delta.enableDeletionVectors": "true"})
    spark.sql(f"INSERT INTO delta.`{log.table}` SELECT /*+ COALESCE(1) */ id, 'a b' FROM range(100)")
    for n in (10, 20):
        spark.sql(f"DELETE FROM delta.`{log.table}` WHERE id = {n}")
    live = log.live_files(lambda add: True, newest(log))
    assert [deletion_vector_id(add) is not None for add in live] == [True]
    vectors = {name for name in files(log) if "deletion_vector" in name and name.endswith(".bin")}
    assert len(vectors) == 2
    outcome = vacuum(log, engine)
    assert {info.path for info in outcome.deleted} < vectors
    assert len(outcome.deleted) == 1
    assert [row[0] for row in read(spark, log)] == [n for n in range(100) if n not in (10, 20)]


@pytest.mark.parametrize("terms", [FULL, LITE], ids=["full", "lite"])
def test_files_of_the_change_feed_go_with_the_rest(
    spark: Any, new_table: NewTable, engine: ConnectEngine, terms: VacuumTerms
) -> None:
    log = new_table(**{"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "false"})
    write(spark, log, *MONTHS, (10, "a b"))
    spark.sql(f"UPDATE delta.`{log.table}` SET id = id + 100 WHERE id = 10")
    changes = {name for name in files(log, "_change_data") if name.endswith(".parquet")}
    assert changes
    assert changes <= {info.path for info in vacuum(log, engine, terms).deleted}
    assert read(spark, log) == sorted([*MONTHS, (110, "a b")])


@pytest.mark.parametrize("mode", ["name", "id"])
def test_a_table_with_mapped_columns(spark: Any, new_table: NewTable, engine: ConnectEngine, mode: str) -> None:
    log = new_table(**{"delta.columnMapping.mode": mode, "delta.randomizeFilePrefixes": "true"})
    write(spark, log, *MONTHS)
    write(spark, log, *MONTHS, statement="INSERT OVERWRITE")
    spark.sql(f"ALTER TABLE delta.`{log.table}` RENAME COLUMN month TO monat")
    assert len(vacuum(log, engine).deleted) == len(MONTHS)
    assert spark.read.format("delta").load(log.table).count() == len(MONTHS)


def test_a_kept_version_still_reads_and_others_do_not(spark: Any, new_table: NewTable, engine: ConnectEngine) -> None:
    log = new_table(**{"delta.enableDeletionVectors": "true"})
    spark.sql(f"INSERT INTO delta.`{log.table}` SELECT /*+ COALESCE(1) */ id, 'a b' FROM range(10)")
    spark.sql(f"DELETE FROM delta.`{log.table}` WHERE id = 3")
    kept = newest(log)
    pin_version(log, kept, "test")
    write(spark, log, (1, "x"), statement="INSERT OVERWRITE")
    lost = newest(log)
    write(spark, log, (2, "y"), statement="INSERT OVERWRITE")
    for terms in (LITE, FULL):
        vacuum(log, engine, terms)
        assert [row[0] for row in read(spark, log, kept)] == [n for n in range(10) if n != 3]
        with pytest.raises(Exception, match=file_is_gone()):
            read(spark, log, lost)
    release_version(log, kept)
    vacuum(log, engine)
    with pytest.raises(Exception, match=file_is_gone()):
        read(spark, log, kept)
    assert read(spark, log) == [(2, "y")]


@pytest.mark.promise
def test_a_buffer_in_flight_survives_a_retention_of_zero_and_an_abandoned_one_goes(
    spark: Any, new_table: NewTable, engine: ConnectEngine
) -> None:
    log = new_table(**{"delta.deletedFileRetentionDuration": "interval 7 days"})
    write(spark, log, *MONTHS)
    waiting = stage(log, writer_spec("waiting"), {"a b": [1], "2019-01": [2]})
    dead = stage(log, writer_spec("dead"), {"a b": [3]})
    grow_old(log, dead.path)
    listed = ", ".join(f"'{key}' = '{value}'" for key, value in AT_ONCE.items())
    spark.sql(f"ALTER TABLE delta.`{log.table}` SET TBLPROPERTIES ({listed})").collect()
    outcome = vacuum(log, engine)
    assert {info.path for info in outcome.deleted} == {f"{dead.path}/month=a b/{Path(dead.adds[0]['path']).name}"}
    assert read_buffer(log.store, waiting.path).rows == 2
    assert {name for name in files(log, dead.path) if not name.endswith(".crc")} == set()
    assert read(spark, log) == sorted(MONTHS)


def with_candidates(todo: VacuumPlan, infos: list[ObjectInfo]) -> VacuumPlan:
    import attrs

    return attrs.evolve(todo, candidates=tuple(infos))


def test_spark_decides_again_and_leaves_what_the_table_needs(
    spark: Any, new_table: NewTable, engine: ConnectEngine
) -> None:
    """Were our own decision wrong, Spark's would still hold: it knows the newest version, and the table's property."""
    log = new_table(**{"delta.deletedFileRetentionDuration": "interval 7 days"})
    write(spark, log, *MONTHS)
    old = newest(log)
    write(spark, log, *MONTHS, statement="INSERT OVERWRITE")
    grow_old(log)
    everything = [info for info in log.store.list("") if info.path.endswith(".parquet")]
    assert len(everything) == 2 * len(MONTHS)
    outcome = carried_out(log, engine, with_candidates(plan(log), everything))
    assert outcome.deleted == ()
    assert read(spark, log, old) == read(spark, log) == sorted(MONTHS)


@pytest.mark.parametrize("log_entries", [True, False])
def test_spark_records_it_in_the_log_only_where_asked_to(
    spark: Any, new_table: NewTable, engine: ConnectEngine, log_entries: bool
) -> None:
    log = new_table()
    log.store.put("nobody's", b"x")
    version = newest(log)
    outcome = carried_out(log, engine, plan(log, FULL), log_entries=log_entries)
    assert [info.path for info in outcome.deleted] == ["nobody's"]
    since = [commit.operation for commit in log.commits_since(version)]
    assert since == (["VACUUM START", "VACUUM END"] if log_entries else [])


def test_an_engine_that_was_stopped_deletes_nothing(spark: Any, new_table: NewTable, engine: ConnectEngine) -> None:
    log = new_table()
    log.store.put("nobody's", b"x")
    engine.stop()
    with pytest.raises(SparkJobError, match="Stopped before running"):
        carried_out(log, engine, plan(log, FULL))
    assert "nobody's" in files(log)
    # The error does not tell that Spark never began, so the inventory stays until the next vacuum deletes it.
    assert files(log, "_vacuum")


def test_a_job_is_plain_json(tmp_path: Path) -> None:
    made = job(local_log(tmp_path / "t"), "_vacuum/a.parquet")
    assert VacuumJob(**json.loads(json.dumps(made.as_dict()))) == made
