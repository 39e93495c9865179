"""What Spark writes into a log and into its checkpoints, replayed by us and read by deltalake."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from airflow_provider_onelake.log.actions import LOG_DIRECTORY, version_path
from airflow_provider_onelake.log.compatibility import incompatibilities
from airflow_provider_onelake.log.cross_check import told_apart_by_deltalake
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.replay import LiveFiles
from tests.support.stores import through
from tests.support.tables import foreign_commit, local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVERYTHING = {
    "delta.columnMapping.mode": "name",
    "delta.enableRowTracking": "true",
    "delta.enableInCommitTimestamps": "true",
    "delta.enableDeletionVectors": "true",
    "delta.enableTypeWidening": "true",
}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "trips"


def properties(values: dict[str, str]) -> str:
    return ", ".join(f"'{key}' = '{value}'" for key, value in values.items())


def from_entries(log: DeltaLog, until: int) -> dict[str, Any]:
    """Live files by the log's entries alone, whatever checkpoints say."""
    files = LiveFiles(lambda _: True)
    for commit in log.commits_between(-1, until):
        files.apply(commit)
    return {add["path"]: {**add, "dataChange": False} for add in files}


def without_entries(table: Path, before: int) -> None:
    for version in range(before):
        (table / version_path(version)).unlink()


@pytest.mark.parametrize(
    ("policy", "part_size"),
    [
        pytest.param("classic", "1000", id="one file", marks=pytest.mark.nightly),
        pytest.param("classic", "2", id="parts"),
        pytest.param("v2", "2", id="sidecars"),
    ],
)
def test_the_files_of_sparks_checkpoints_are_the_adds_of_its_entries_verbatim(
    spark: SparkSession, table: Path, policy: str, part_size: str
) -> None:
    spark.conf.set("spark.databricks.delta.checkpoint.partSize", part_size)
    wanted = {**EVERYTHING, "delta.checkpointPolicy": policy, "delta.checkpointInterval": "6"}
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id BIGINT, fare DECIMAL(9,2), `the month` STRING) USING delta "
        f"PARTITIONED BY (`the month`) TBLPROPERTIES ({properties(wanted)})"
    )
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, 1.5, 'x y/ü:%' FROM range(10)")
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, 2.5, NULL FROM range(10, 20)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id IN (3, 13)")
    spark.sql(f"ALTER TABLE delta.`{table}` RENAME COLUMN `the month` TO month")
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, 3.5, '2019-02' FROM range(20, 30)")
    spark.sql(f"DELETE FROM delta.`{table}` WHERE id = 21")
    spark.sql(f"INSERT INTO delta.`{table}` SELECT id, 4.5, '2019-02' FROM range(30, 40)")
    log = local_log(table)
    expected, before = from_entries(log, 7), log.snapshot()
    assert before is not None
    written = [path.relative_to(table / LOG_DIRECTORY) for path in (table / LOG_DIRECTORY).rglob("*.parquet")]
    assert any(path.parts[0] == "_sidecars" for path in written) == (policy == "v2")
    assert (len(written) > 1) == (part_size == "2")
    without_entries(table, 6)
    log = through(log.store, log)
    snapshot = log.snapshot()
    found = {add["path"]: add for add in log.live_files(lambda _: True, 7)}
    # The newest entry is no checkpoint's: it says that it changed data.
    assert {path: {**add, "dataChange": False} for path, add in found.items()} == expected
    assert sum("deletionVector" in add for add in found.values()) == 3
    assert all("baseRowId" in add for add in found.values())
    assert (snapshot.domains, snapshot.protocol) == (before.domains, before.protocol)
    assert (snapshot.in_commit_timestamp, snapshot.row_id_high_water_mark) == (before.in_commit_timestamp, 39)
    # Files know the partition column by its physical name; people by the one that it has now.
    physical = {name for add in found.values() for name in add["partitionValues"]}
    assert physical != {"month"}
    assert {snapshot.partitioning.partition(add["partitionValues"]) for add in found.values()} == {
        ("x y/ü:%",),
        (None,),
        ("2019-02",),
    }
    assert told_apart_by_deltalake(log, 7, str(table), {}) is None


SPELLINGS = {
    "TIMESTAMP": ["TIMESTAMP '2019-01-01 12:00:00Z'", "TIMESTAMP '2019-01-01 12:00:00.5Z'"],
    "TIMESTAMP_NTZ": ["TIMESTAMP_NTZ '2019-01-01 12:00:00'", "TIMESTAMP_NTZ '2019-01-01 12:00:00.25'"],
    "DATE": ["DATE '2019-01-31'", "DATE '0099-12-31'"],
    "BOOLEAN": ["true", "false"],
    "DECIMAL(10,2)": ["CAST(1 AS DECIMAL(10,2))", "CAST(0.5 AS DECIMAL(10,2))"],
    "DOUBLE": ["1D", "0.1D", "CAST('NaN' AS DOUBLE)", "CAST('Infinity' AS DOUBLE)"],
    "FLOAT": ["1F", "0.1F"],
    "BIGINT": ["7L", "-7L"],
    "STRING": ["'007'", "''"],
    "BINARY": ["X'0102'", "X'FF'"],
}


@pytest.mark.parametrize("kind", SPELLINGS)
def test_what_spark_and_deltalake_write_for_one_partition_value_is_one_partition(
    spark: SparkSession, table: Path, kind: str
) -> None:
    import pyarrow as pa
    from deltalake import write_deltalake

    spark.conf.set("spark.databricks.delta.write.utcTimestampPartitionValues", "true")
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, p {kind}) USING delta PARTITIONED BY (p)")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES " + ", ".join(f"(1, {value})" for value in SPELLINGS[kind]))
    log = local_log(table)
    snapshot = log.snapshot()
    by_spark = {snapshot.partitioning.partition(add["partitionValues"]) for add in log.commits_since(0)[0].adds}
    assert len(by_spark) == len(SPELLINGS[kind])
    assert not any(map(snapshot.partitioning.ambiguous, by_spark))
    if kind in ("TIMESTAMP", "BINARY"):  # deltalake leaves out the zone, and writes bytes in its own way
        return
    arrow = spark.sql(f"SELECT * FROM delta.`{table}`").toArrow()
    write_deltalake(str(table), pa.table(arrow), mode="append")
    by_deltalake = [add["partitionValues"] for add in log.commits_since(1)[0].adds]
    assert {snapshot.partitioning.partition(values) for values in by_deltalake} == by_spark


@pytest.fixture
def widened(spark: SparkSession, table: Path) -> Path:
    spark.sql(
        f"CREATE TABLE delta.`{table}` (id INT, fare DECIMAL(9,2), ratio FLOAT) USING delta "
        f"TBLPROPERTIES ({properties({'delta.enableTypeWidening': 'true'})})"
    )
    return table


def test_a_file_staged_before_its_columns_were_widened_is_read_rightly(spark: SparkSession, widened: Path) -> None:
    table = widened
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 1.25, 0.5)")
    log = local_log(table)
    staged = log.snapshot()
    (add,) = log.commits_since(0)[0].adds
    for column, kind in (("id", "BIGINT"), ("fare", "DECIMAL(12,4)"), ("ratio", "DOUBLE")):
        spark.sql(f"ALTER TABLE delta.`{table}` ALTER COLUMN {column} TYPE {kind}")
    current = log.snapshot()
    assert list(incompatibilities(staged.metadata, current.metadata)) == []
    # The same file, as if it had been staged before and published now.
    remove = {k: add[k] for k in ("path", "size", "partitionValues")} | {"deletionTimestamp": 1, "dataChange": True}
    name = f"copy-{add['path']}"
    (table / name).write_bytes((table / add["path"]).read_bytes())
    lines = [{"commitInfo": {"timestamp": 1, "operation": "WRITE"}}, {"remove": remove}, {"add": {**add, "path": name}}]
    log.store.create(version_path(current.version + 1), "\n".join(map(json.dumps, lines)).encode())
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (9000000000, 12345678.1234, 0.1)")
    rows = [tuple(map(float, row)) for row in spark.sql(f"SELECT * FROM delta.`{table}` ORDER BY id").collect()]
    assert rows == [(1.0, 1.25, 0.5), (9e9, 12345678.1234, 0.1)]
    assert spark.sql(f"SELECT id FROM delta.`{table}` WHERE id = 1 AND fare < 2 AND ratio = 0.5").count() == 1


def test_a_remove_that_spells_its_path_otherwise_leaves_the_file_live_for_spark_too(
    spark: SparkSession, table: Path
) -> None:
    """What deltalake's DELETE does, as Spark leaves letters beyond ASCII as they are. See ``file_key``."""
    spark.sql(f"CREATE TABLE delta.`{table}` (id BIGINT, month STRING) USING delta PARTITIONED BY (month)")
    spark.sql(f"INSERT INTO delta.`{table}` VALUES (1, 'é')")
    (add,) = from_entries(local_log(table), 1).values()
    assert add["path"].startswith("month=é/")
    gone = {"path": quote(add["path"], safe="/="), "dataChange": True, "deletionTimestamp": 1}
    foreign_commit(local_log(table), [{"remove": gone}])
    assert [row.id for row in spark.sql(f"SELECT id FROM delta.`{table}`").collect()] == [1]
    assert len(from_entries(local_log(table), 2)) == 1
