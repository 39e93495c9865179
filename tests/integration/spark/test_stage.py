"""Staging into a twin of the table with a real Spark: what is written, and what is refused before anything is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.exceptions import (
    ConstraintViolatedError,
    OneLakeError,
    SchemaMismatchError,
    SparkQueryError,
)
from airflow_provider_onelake.sources import FunctionSource
from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.schemas import field
from tests.support.shadows import write_checksum
from tests.support.spark import Server, Target, generated, make_job, open_buffer, sql_job
from tests.support.spark_homes import needs_delta, needs_spark
from tests.support.tables import local_log

MakeTarget = Callable[..., Target]

# What Delta's own checksum also has: counts of deleted rows and of sizes, which Delta can do without.
NOT_NEEDED = {
    "histogramOpt",
    "fileSizeHistogram",
    "numDeletedRecordsOpt",
    "numDeletionVectorsOpt",
    "deletedRecordCountsHistogramOpt",
}
ANSI = needs_spark(4, 0, "ANSI mode by default")
JANUARY = "yellow_tripdata_2019-01.json.gz"
STEPS = {
    "dated": "SELECT *, to_timestamp(pickup_datetime / 1000) AS date_col FROM ny_taxi",
    "versioned": (
        "SELECT vendor_id, pickup_datetime, date_col, "
        "CAST(date_format(date_col, 'yyyyMMddHHmm') AS BIGINT) AS version, 'ny' AS ts_ny_taxi FROM dated"
    ),
}
TRIPS = [
    field("vendor_id", "long"),
    field("pickup_datetime", "long"),
    field("date_col", "timestamp"),
    field("version", "long"),
    field("ts_ny_taxi", "string"),
    generated("month", "string", "date_format(date_col, 'yyyy-MM')"),
]


def trips(taxi: Path, file: str = JANUARY, **options: str) -> dict[str, Any]:
    return {"kind": "files", "path": [str(taxi / file)], "format": "json", "options": options, "view": "ny_taxi"}


@pytest.mark.promise
def test_json_is_filtered_and_goes_through_the_steps_into_generated_partitions(
    engine: ConnectEngine, new_target: MakeTarget, taxi: Path, spark: Any
) -> None:
    target = new_target(TRIPS, ["month"])
    job = make_job(target, trips(taxi), where="vendor_id = 1", steps=STEPS)

    result = engine.stage(job)

    assert target.versions == [0, 1]
    assert target.rows == 3754
    assert {add["partitionValues"]["month"] for add in target.actions("add")} == {"2019-01"}
    assert all(add["dataChange"] and "deletionVector" not in add for add in target.actions("add"))
    (info,) = target.actions("commitInfo")
    assert json.loads(info["userMetadata"]) == {"onelake": {"attempt": job.attempt, "reads_target": False}}
    assert not target.actions("txn")
    assert not target.actions("metaData")
    assert not target.actions("protocol")
    row = target.data(spark)[0]
    assert row["version"] == int(row["date_col"].strftime("%Y%m%d%H%M"))
    assert (result.engine, result.reads_target) == ("connect", False)
    assert result.session_id
    assert result.application_id


def test_a_stray_trip_keeps_its_own_month_in_utc(engine: ConnectEngine, new_target: MakeTarget, taxi: Path) -> None:
    target = new_target(TRIPS, ["month"])
    engine.stage(make_job(target, trips(taxi, "yellow_tripdata_2019-03.json.gz"), where="vendor_id = 2", steps=STEPS))
    months = {add["partitionValues"]["month"]: json.loads(add["stats"])["numRecords"] for add in target.actions("add")}
    assert set(months) == {"2019-03", "2019-04"}
    assert months["2019-04"] == 1


def test_without_steps_the_filtered_source_is_written(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long")])
    engine.stage(sql_job(target, "SELECT id FROM range(10)", where="id >= 4 OR id = 1"))
    assert target.rows == 7


def test_the_filter_is_pushed_down_into_parquet(
    engine: ConnectEngine, new_target: MakeTarget, connect_server: Server, spark: Any, tmp_path: Path
) -> None:
    source = tmp_path / "trips.parquet"
    spark.sql("SELECT id, id % 3 AS pushed_vendor FROM range(100)").write.parquet(str(source))
    target = new_target([field("id", "long")])
    job = make_job(
        target,
        {"kind": "files", "path": [str(source)], "format": "parquet", "view": "trips"},
        where="pushed_vendor = 1",
        steps={"renamed": "SELECT id FROM trips"},
    )
    engine.stage(job)
    assert target.rows == 33
    assert any(
        "PushedFilters: [IsNotNull(pushed_vendor), EqualTo(pushed_vendor,1)]" in p for p in connect_server.plans()
    )


@needs_delta(3, 3, "timestamps of partitions with their zone")
def test_a_timestamp_partition_is_spelled_in_utc(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long"), field("at", "timestamp")], ["at"])
    engine.stage(sql_job(target, "SELECT 1L AS id, TIMESTAMP '2019-01-01 03:00:00 America/New_York' AS at"))
    assert [add["partitionValues"]["at"] for add in target.actions("add")] == ["2019-01-01T08:00:00.000000Z"]


@pytest.mark.parametrize("where", ["id > 99", "false"])
def test_no_rows_leave_it_to_the_writer_to_seal(engine: ConnectEngine, new_target: MakeTarget, where: str) -> None:
    """Delta makes no version without an action (protocol: sealed when empty)."""
    target = new_target([field("id", "long")])
    engine.stage(sql_job(target, "SELECT id FROM range(10)", where=where))
    assert target.versions == [0]


@needs_delta(3, 3, "checksums of versions")
def test_a_writer_takes_one_spark_job(
    engine: ConnectEngine, new_target: MakeTarget, connect_server: Server, tmp_path: Path
) -> None:
    """Delta's own jobs, for the snapshot before the append and after it, are spared by the checksum of version 0."""
    target = new_target([field("id", "long"), field("part", "string")], ["part"])
    write_checksum(local_log(target.path).store, str(target.buffer.relative_to(target.path)))
    job = sql_job(target, "SELECT id, CAST(id % 3 AS STRING) AS part FROM range(10)")
    engine.stage(job)
    assert target.rows == 10
    assert len(connect_server.jobs(tag=f"onelake attempt {job.attempt}")) == 1


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {"delta.enableDeletionVectors": "true", "delta.enableRowTracking": "true"},
        {"delta.enableInCommitTimestamps": "true"},
        {"delta.columnMapping.mode": "name", "delta.checkpointPolicy": "v2", "delta.appendOnly": "true"},
    ],
    ids=["plain", "vectors and row ids", "in-commit timestamps", "mapped"],
)
@pytest.mark.parametrize("files", [False, True], ids=["a buffer's", "a shadow's"])
@needs_delta(3, 3, "checksums of versions")
def test_a_checksum_of_ours_says_what_delta_would(
    spark: Any, tmp_path: Path, properties: dict[str, str], files: bool
) -> None:
    """Delta believes it, so it must not differ in anything that Delta reads from there."""
    table = tmp_path / "t"
    said = ", ".join(f"'{name}' = '{value}'" for name, value in properties.items())
    spark.sql(
        f"CREATE TABLE delta.`{table}` {'' if files else '(id BIGINT NOT NULL, part STRING)'} USING delta "
        "PARTITIONED BY (part)"
        + (f" TBLPROPERTIES ({said})" if said else "")
        + (" AS SELECT id, CAST(id % 3 AS STRING) AS part FROM range(10)" if files else "")
    )
    checksum = table / "_delta_log" / f"{0:020d}.crc"
    theirs = json.loads(checksum.read_text())
    assert (theirs["numFiles"] > 0) == files
    private = tmp_path / "lake" / "staged"
    shutil.copytree(table, private, ignore=shutil.ignore_patterns("*.crc", ".*"))
    write_checksum(local_log(tmp_path / "lake").store, "staged")
    ours = json.loads((private / "_delta_log" / checksum.name).read_text())
    assert ours == {key: value for key, value in theirs.items() if key in ours}
    assert theirs.keys() - ours.keys() <= {"txnId", *NOT_NEEDED, *(["allFiles"] if files else [])}


@pytest.mark.promise
def test_one_attempt_staged_twice_leaves_one_copy(engine: ConnectEngine, new_target: MakeTarget, spark: Any) -> None:
    target = new_target([field("id", "long")])
    job = sql_job(target, "SELECT id FROM range(10)")
    engine.stage(job)
    engine.stage(job)
    assert target.versions == [0, 1]
    assert len(target.data(spark)) == 10


def test_a_target_file_size_merges_what_many_tasks_write(engine: ConnectEngine, tmp_path: Path) -> None:
    query = "SELECT id, sha2(CAST(id AS STRING), 512) AS text FROM range(0, 200000, 1, 16)"
    fields = [field("id", "long"), field("text", "string")]
    files = {}
    for size in (None, 8 << 20, 1 << 30):
        target = open_buffer(tmp_path / f"t{size}", fields)
        engine.stage(sql_job(target, query, target_file_size=size))
        assert target.rows == 200_000
        files[size] = len(target.actions("add"))
    assert files[1 << 30] == 1
    assert 1 < files[8 << 20] < files[None] == 16


@pytest.mark.promise
def test_two_writers_with_the_same_view_names_do_not_meet(connect_server: Server, taxi: Path, tmp_path: Path) -> None:
    targets = {vendor: open_buffer(tmp_path / f"vendor{vendor}", TRIPS, ["month"]) for vendor in (1, 2)}

    def write(vendor: int) -> None:
        job = make_job(targets[vendor], trips(taxi), where=f"vendor_id = {vendor}", steps=STEPS)
        ConnectEngine(connect_server.remote).stage(job)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(write, targets))
    assert {vendor: target.rows for vendor, target in targets.items()} == {1: 3754, 2: 6150}


def test_sessions_do_not_share_settings(connect_server: Server, new_target: MakeTarget, spark: Any) -> None:
    said: dict[str, str] = {}

    def rows(spark: Any) -> Any:
        said.update(spark.conf.getAll)
        return spark.range(1)

    source = FunctionSource(rows)
    job = make_job(new_target([field("id", "long")]), source.job(), rows=source.rows, v_order=True)
    ConnectEngine(connect_server.remote, settings={"spark.sql.shuffle.partitions": "7"}).stage(job)
    assert said["spark.sql.session.timeZone"] == "UTC"
    assert said["spark.sql.shuffle.partitions"] == "7"
    assert said["spark.sql.parquet.vorder.default"] == "true"
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


# -- what fits, and what does not ----------------------------------------------------------------------------------


def test_what_loses_nothing_is_cast(engine: ConnectEngine, new_target: MakeTarget, spark: Any) -> None:
    kinds = {"a": "long", "b": "double", "c": "decimal(12,2)", "d": "timestamp", "e": "string"}
    target = new_target([field(name, kind) for name, kind in kinds.items()])
    engine.stage(sql_job(target, "SELECT 1 AS A, CAST(1.5 AS FLOAT) AS b, 7 AS c, DATE '2019-01-01' AS d, NULL AS e"))
    row = target.data(spark)[0]
    assert (row["a"], row["b"], str(row["c"]), row["e"]) == (1, 1.5, "7.00", None)


@pytest.mark.promise
@pytest.mark.parametrize(
    ("query", "said"),
    [
        pytest.param("SELECT 1L AS id, 'x' AS amount", "column amount is STRING in the rows and DOUBLE", id="text"),
        pytest.param("SELECT 1L AS id, 2L AS amount", "column amount is BIGINT in the rows and DOUBLE", id="lossy"),
        pytest.param("SELECT 1L AS id", "column amount DOUBLE of the table is missing", id="missing"),
        pytest.param("SELECT 1L AS id, 1D AS amount, 1 AS more", "column more INT is not in the table", id="extra"),
    ],
)
def test_columns_that_do_not_fit_are_refused_before_a_row_is_written(
    engine: ConnectEngine, new_target: MakeTarget, query: str, said: str
) -> None:
    target = new_target([field("id", "long"), field("amount", "double")])
    with pytest.raises(SchemaMismatchError, match=said):
        engine.stage(sql_job(target, query))
    assert target.versions == [0]
    assert not list(target.buffer.glob("*.parquet"))


def test_a_missing_column_with_a_default_is_filled(engine: ConnectEngine, new_target: MakeTarget, spark: Any) -> None:
    target = new_target(
        [field("id", "long"), field("state", "string", CURRENT_DEFAULT="'new'")],
        **{"delta.feature.allowColumnDefaults": "supported"},
    )
    engine.stage(sql_job(target, "SELECT 1L AS id"))
    assert target.data(spark) == [{"id": 1, "state": "new"}]


def test_null_in_a_not_null_column(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long", nullable=False)])
    with pytest.raises(ConstraintViolatedError, match="id"):
        engine.stage(sql_job(target, "SELECT IF(id = 7, NULL, id) AS id FROM range(10)"))
    assert target.versions == [0]


@pytest.mark.promise
def test_a_violated_check(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long")], **{"delta.constraints.small": "id < 5"})
    with pytest.raises(ConstraintViolatedError, match="small"):
        engine.stage(sql_job(target, "SELECT id FROM range(10)"))
    assert target.versions == [0]


def test_a_generated_column_with_other_values(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long"), generated("twice", "long", "id * 2")])
    with pytest.raises(ConstraintViolatedError, match="twice"):
        engine.stage(sql_job(target, "SELECT id, id * 3 AS twice FROM range(10)"))
    assert target.versions == [0]


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELEC 1", id="syntax"),
        pytest.param("SELECT nope FROM range(3)", id="unknown column"),
        pytest.param("SELECT * FROM nowhere", id="unknown table"),
        pytest.param("SELECT * FROM json.`/nowhere`", id="unknown path"),
        pytest.param("SELECT CAST(CONCAT('x', id) AS BIGINT) AS id FROM range(3)", id="value", marks=ANSI),
        pytest.param("SELECT 1 DIV (id - 1) AS id FROM range(3)", id="division by zero in a task", marks=ANSI),
    ],
)
def test_what_spark_refuses_is_terminal(engine: ConnectEngine, new_target: MakeTarget, query: str) -> None:
    target = new_target([field("id", "long")])
    with pytest.raises(SparkQueryError, match="The table is unchanged"):
        engine.stage(sql_job(target, query))
    assert target.versions == [0]


def test_a_command_is_no_step(engine: ConnectEngine, new_target: MakeTarget, spark: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    spark.range(5).write.format("delta").save(str(other))
    target = new_target([field("id", "long")])
    with pytest.raises(SparkQueryError, match="DELETE"):
        engine.stage(sql_job(target, "SELECT 1L AS id", steps={"sly": f"DELETE FROM delta.`{other}`"}))
    assert spark.read.format("delta").load(str(other)).count() == 5


def test_a_malformed_record_is_no_row_of_nulls(engine: ConnectEngine, new_target: MakeTarget, tmp_path: Path) -> None:
    broken = tmp_path / "broken.json"
    broken.write_text('{"id": 1}\n{"id": \n')
    target = new_target([field("id", "long")])
    source = {"kind": "files", "path": [str(broken)], "format": "json", "schema": "id BIGINT"}
    with pytest.raises(SparkQueryError, match=r"broken\.json|MALFORMED"):
        engine.stage(make_job(target, source))
    assert target.versions == [0]
    engine.stage(make_job(target, {**source, "options": {"mode": "DROPMALFORMED"}}))
    assert target.rows == 1


def test_a_buffer_without_version_0_is_not_made_into_a_table(engine: ConnectEngine, new_target: MakeTarget) -> None:
    target = new_target([field("id", "long")])
    job = sql_job(target, "SELECT 1L AS id")
    shutil.rmtree(target.buffer)
    with pytest.raises(OneLakeError):
        engine.stage(job)
    assert not target.buffer.exists()


# -- analysis ------------------------------------------------------------------------------------------------------


def test_analysis_gives_the_schema_with_generated_columns(engine: ConnectEngine, taxi: Path) -> None:
    job = StageJob(
        source=trips(taxi),
        table_uri="/nowhere/trips",
        attempt="a",
        steps=STEPS,
        generated={"month": "date_format(date_col, 'yyyy-MM')"},
    )
    kinds = {column["name"]: column["type"] for column in json.loads(engine.analyze(job))["fields"]}
    assert kinds["vendor_id"] == "long"
    assert kinds["date_col"] == "timestamp"
    assert kinds["month"] == "string"


def test_no_table_is_made_from_a_column_without_a_type(engine: ConnectEngine) -> None:
    job = StageJob(source={"kind": "sql", "query": "SELECT 1 AS id, NULL AS x"}, table_uri="/nowhere/t", attempt="a")
    with pytest.raises(SchemaMismatchError, match="column x has no type"):
        engine.analyze(job)


def analysed(engine: ConnectEngine, query: str, **fields: Any) -> list[dict[str, Any]]:
    job = StageJob(source={"kind": "sql", "query": query}, table_uri="/nowhere/t", attempt="a", **fields)
    found: list[dict[str, Any]] = json.loads(engine.analyze(job))["fields"]
    return found


def test_columns_of_literals_may_be_null_in_a_new_table(engine: ConnectEngine) -> None:
    """That one writer's values are never NULL must not forbid NULL to all that come later."""
    found = analysed(engine, "SELECT 1L AS id, named_struct('a', 'x') AS s", generated={"twice": "2 * id"})
    assert [(one["name"], one["nullable"]) for one in found] == [("id", True), ("s", True), ("twice", True)]
    assert found[1]["type"]["fields"][0]["nullable"]


def test_given_columns_are_taken_as_they_are_and_the_source_is_not_looked_at(engine: ConnectEngine) -> None:
    found = analysed(
        engine,
        "SELECT * FROM nowhere",
        schema="id BIGINT NOT NULL COMMENT 'of it', at TIMESTAMP",
        generated={"day": "CAST(at AS DATE)"},
    )
    assert found == [
        {**field("id", "long", nullable=False), "metadata": {"comment": "of it"}},
        field("at", "timestamp"),
        field("day", "date"),
    ]


def test_given_columns_that_are_no_ddl_are_refused(engine: ConnectEngine) -> None:
    with pytest.raises(SparkQueryError):
        analysed(engine, "SELECT 1", schema="id BIGINT, and so on")


def test_where_a_table_evolves_a_missing_column_is_null(
    engine: ConnectEngine, new_target: MakeTarget, spark: Any
) -> None:
    target = new_target([field("id", "long"), field("note", "string"), generated("twice", "long", "2 * id")])
    engine.stage(sql_job(target, "SELECT id FROM range(2)", evolves=True))
    assert sorted(target.data(spark), key=str) == [{"id": i, "note": None, "twice": 2 * i} for i in range(2)]
