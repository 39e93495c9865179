"""Compaction by Spark's own OPTIMIZE in a shadow: whatever the table has, only its files change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from airflow_provider_onelake.exceptions import SparkJobError, SparkQueryError
from airflow_provider_onelake.log.actions import deletion_vector_id, of_kind
from airflow_provider_onelake.log.checkpoints import checkpointer
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.compact import CompactionResult, CompactionStatus
from airflow_provider_onelake.maintenance.compaction import ZORDER_TAG
from airflow_provider_onelake.maintenance.shadow import read_rewrite
from airflow_provider_onelake.spark.base import OptimizeJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.shadows import compact_with, planned, publish, shadow_of
from tests.support.spark import Server
from tests.support.spark_homes import GENERATED, needs_delta
from tests.support.tables import commit_of, local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@attrs.frozen
class Table:
    """A table that Spark made and filled with a few small files."""

    path: Path
    spark: Any
    month: str = "concat('2019 ', id % 2)"

    @property
    def sql(self) -> str:
        return f"delta.`{self.path}`"

    def append(self, start: int, end: int) -> None:
        self.run(
            f"INSERT INTO {self.sql} (id, month, v) SELECT id, {self.month}, sha(string(id)) "
            f"FROM range({start}, {end}, 1, 1)"
        )

    def run(self, query: str) -> list[Any]:
        return self.spark.sql(query).collect()  # type: ignore[no-any-return]

    def rows(self, columns: str = "id, month, v") -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.run(f"SELECT {columns} FROM {self.sql}")))

    def by_deltalake(self, version: int | None = None) -> list[int]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(str(self.path), version=version)).execute("SELECT id FROM t")
        return sorted(pa.table(found.read_all()).column("id").to_pylist())

    def files(self) -> dict[Path, bytes]:
        """All that versions consist of: entries, data files and vectors."""
        kinds = {".json", ".parquet", ".bin"}
        found = (path for path in self.path.rglob("[!._]*") if path.suffix in kinds and path.is_file())
        return {path: path.read_bytes() for path in found}

    def log(self) -> DeltaLog:
        return local_log(self.path)

    def live(self) -> list[dict[str, Any]]:
        log = self.log()
        snapshot = log.snapshot()
        return list(log.live_files(lambda add: True, snapshot.version))


@pytest.fixture
def new_table(spark: SparkSession, tmp_path: Path) -> Callable[..., Table]:
    def make(
        properties: str = "",
        layout: str = "PARTITIONED BY (month)",
        appends: int = 3,
        columns: str = "id BIGINT, month STRING, v STRING",
        **fields: str,
    ) -> Table:
        table = Table(tmp_path / "a lake" / "trips", spark, **fields)
        with_properties = f"TBLPROPERTIES ({properties})" if properties else ""
        table.run(f"CREATE TABLE {table.sql} ({columns}) USING delta {layout} {with_properties}")
        for start in range(0, 10 * appends, 10):
            table.append(start, start + 10)
        return table

    return make


def compacted(engine: ConnectEngine, table: Table, **terms: Any) -> CompactionResult:
    """Compact, and check what is so for every table: the same rows, fewer files, a readable history.

    Earlier versions stay as they were, because no file of theirs changes.
    """
    log = table.log()
    snapshot = log.snapshot()
    before = table.rows("*")
    files, earlier = table.live(), table.files()
    publication = compact_with(engine, log, **terms)
    assert publication is not None
    assert (publication.status, publication.version) == (CompactionStatus.PUBLISHED, snapshot.version + 1)
    assert earlier.items() <= table.files().items()
    assert table.rows("*") == before
    assert table.by_deltalake() == table.by_deltalake(snapshot.version) == [row[0] for row in before]
    assert len(table.live()) < len(files)
    history = table.run(f"DESCRIBE HISTORY {table.sql} LIMIT 1")[0]
    assert (history["version"], history["operation"]) == (publication.version, "OPTIMIZE")
    assert history["operationMetrics"]["numRemovedFiles"] == str(
        sum(len(group.removed) for group in publication.groups)
    )
    # And Spark goes on from there.
    table.append(1000, 1002)
    assert len(table.rows()) == len(before) + 2
    return publication


IN_COMMIT = needs_delta(3, 3, "in-commit timestamps by that name")
BY_MONTH, NIGHTLY = "PARTITIONED BY (month)", pytest.mark.nightly
MAPPED = "'delta.columnMapping.mode'='name'"
AUTO = "'delta.autoOptimize.autoCompact'='true','delta.autoOptimize.optimizeWrite'='true'"


@pytest.mark.parametrize(
    ("properties", "layout"),
    [
        pytest.param("", "", id="plain", marks=NIGHTLY),
        pytest.param("", BY_MONTH, id="partitions with spaces"),
        pytest.param(MAPPED, BY_MONTH, id="column mapping by name", marks=NIGHTLY),
        pytest.param("'delta.columnMapping.mode'='id'", BY_MONTH, id="column mapping by id", marks=NIGHTLY),
        pytest.param("'delta.enableInCommitTimestamps'='true'", BY_MONTH, id="in-commit timestamps", marks=IN_COMMIT),
        pytest.param(f"{MAPPED},'delta.enableIcebergCompatV2'='true'", BY_MONTH, id="IcebergCompatV2"),
        pytest.param("'delta.checkpointPolicy'='v2'", BY_MONTH, id="v2 checkpoints", marks=NIGHTLY),
        pytest.param("'delta.appendOnly'='true'", BY_MONTH, id="append-only", marks=NIGHTLY),
        pytest.param(AUTO, "", id="auto compaction"),
    ],
)
def test_only_files_change(
    new_table: Callable[..., Table], engine: ConnectEngine, properties: str, layout: str
) -> None:
    compacted(engine, new_table(properties, layout))


@GENERATED
@pytest.mark.parametrize(
    ("fields", "feature"),
    [
        pytest.param(
            {
                "columns": "id BIGINT NOT NULL, month STRING, v STRING, twice BIGINT GENERATED ALWAYS AS (id * 2), "
                "state STRING DEFAULT 'new'",
                "properties": "'delta.feature.allowColumnDefaults'='supported','delta.constraints.small'='id < 2000'",
            },
            {"generatedColumns", "invariants", "checkConstraints", "allowColumnDefaults"},
            id="generated, NOT NULL, CHECK, default",
        ),
        pytest.param(
            {
                "columns": "id BIGINT, month TIMESTAMP_NTZ, v STRING, at TIMESTAMP_NTZ GENERATED ALWAYS AS (month)",
                "month": "IF(id % 2 = 0, TIMESTAMP_NTZ'2019-03-10 02:30:00', TIMESTAMP_NTZ'2019-01-01 00:00:00.5')",
            },
            {"timestampNtz"},
            id="timestampNtz",
        ),
    ],
)
def test_rows_are_the_same_after_a_checkpoint_too(
    new_table: Callable[..., Table], engine: ConnectEngine, fields: dict[str, str], feature: set[str]
) -> None:
    table = new_table(**fields)
    compacted(engine, table)
    rows = table.rows("*")
    assert len(rows) == 32
    cleaned = without_earlier_log(table)
    snapshot = cleaned.log().snapshot()
    assert feature <= snapshot.writer_features
    assert cleaned.rows("*") == rows
    assert cleaned.by_deltalake() == [row[0] for row in rows]


def without_earlier_log(table: Table) -> Table:
    """A copy of the table, new to Spark, whose log begins with a checkpoint of the newest version."""
    snapshot = table.log().snapshot()
    checkpointer(str(table.path), interval=1, log=table.log())(snapshot, snapshot.version)
    copy = attrs.evolve(table, path=table.path.with_name("cleaned"))
    shutil.copytree(table.path, copy.path)
    for file in (copy.path / "_delta_log").iterdir():
        number = file.name.lstrip(".").partition(".")[0]
        if number.isdecimal() and (int(number) < snapshot.version or file.name.endswith(".crc")):
            file.unlink()
    assert any(file.name.endswith(".checkpoint.parquet") for file in (copy.path / "_delta_log").iterdir())
    return copy


@pytest.mark.costs("Spark hides rows and rewrites their files")
@pytest.mark.promise
def test_rows_that_a_vector_hides_stay_hidden(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table("'delta.enableDeletionVectors'='true'")
    table.run(f"DELETE FROM {table.sql} WHERE id % 5 = 0")
    vectors = {deletion_vector_id(file) for file in table.live()} - {None}
    publication = compacted(engine, table)
    assert {deletion_vector_id(file) for group in publication.groups for file in group.removed} >= vectors
    assert not any(file.get("deletionVector") for file in table.live())
    assert len(table.rows()) == 26


def test_row_ids_are_kept(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table("'delta.enableRowTracking'='true'")
    table.run(f"UPDATE {table.sql} SET v = 'x' WHERE id = 3")
    ids = "id, _metadata.row_id, _metadata.row_commit_version"
    before = table.rows(ids)
    publication = compacted(engine, table)
    rows = table.rows(ids)
    assert [row for row in rows if row[0] < 1000] == before
    assert len({row[1] for row in rows}) == 32
    assert publication.version is not None
    commit = commit_of(table.log(), publication.version)
    assert commit.info["tags"] == {"delta.rowTracking.preserved": "true"}
    assert of_kind(commit.actions, "domainMetadata")
    # Once more, over files whose ids Spark has materialised.
    table.append(2000, 2004)
    before = table.rows(ids)
    compacted(engine, table)
    assert [row for row in table.rows(ids) if row in before] == before


def test_the_change_feed_shows_no_change(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table("'delta.enableChangeDataFeed'='true'")
    publication = compacted(engine, table)
    found = table.run(
        f"SELECT * FROM table_changes_by_path('{table.path}', {publication.version}, {publication.version})"
    )
    assert found == []


def test_a_clustered_table_clusters_itself(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table(layout="CLUSTER BY (id)")
    compacted(engine, table)
    clustered = [file for file in table.live() if file.get("clusteringProvider") == "liquid"]
    assert len(clustered) == 1


def test_a_z_order_narrows_what_files_hold(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table(layout="", appends=0)
    table.run(
        f"INSERT INTO {table.sql} SELECT /*+ REPARTITION(8) */ id, sha(string(id)), sha(string(-id)) "
        "FROM range(0, 8000, 1, 1)"
    )
    terms = {"zorder_by": ("id", "v"), "target_file_size": 150_000}
    wide = [width(file) for file in table.live()]
    compacted(engine, table, **terms)
    ordered = [file for file in table.live() if ZORDER_TAG in (file.get("tags") or {})]
    assert len(ordered) > 2
    assert min(map(width, ordered)) < 0.8 * min(wide)
    # In order now, but for the two rows that came after.
    assert not planned(table.log(), **terms).groups


def width(file: dict[str, Any]) -> int:
    """How far apart the ids in a file are."""
    stats = json.loads(file["stats"])
    return int(stats["maxValues"]["id"] - stats["minValues"]["id"])


@needs_delta(3, 3, "timestamps of partitions with their zone")
def test_a_timestamp_partition_stays_the_same_instant(
    spark: SparkSession, tmp_path: Path, engine: ConnectEngine
) -> None:
    table = Table(tmp_path / "t", spark)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.databricks.delta.write.utcTimestampPartitionValues", "true")
    table.run(f"CREATE TABLE {table.sql} (id BIGINT, at TIMESTAMP) USING delta PARTITIONED BY (at)")
    for at in range(4):
        table.run(f"INSERT INTO {table.sql} VALUES ({at}, TIMESTAMP '2019-01-01 05:00:00Z')")
    before = table.rows("id, at")
    publication = compact_with(engine, table.log())
    assert publication is not None
    assert table.rows("id, at") == before
    assert len(table.live()) == 1


@needs_delta(4, 0, "ALTER COLUMN TYPE")
def test_widened_columns_are_rewritten_as_they_are_now(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table("'delta.enableTypeWidening'='true'", appends=0)
    table.run(f"ALTER TABLE {table.sql} ADD COLUMN (n INT)")
    table.run(f"INSERT INTO {table.sql} VALUES (1, 'a', 'x', 1), (2, 'a', 'y', 2)")
    table.run(f"ALTER TABLE {table.sql} ALTER COLUMN n TYPE BIGINT")
    table.run(f"INSERT INTO {table.sql} VALUES (3, 'a', 'z', 5000000000)")
    compact_with(engine, table.log())
    assert len(table.live()) == 1
    assert table.rows("id, n") == [(1, 1), (2, 2), (3, 5_000_000_000)]


@pytest.mark.promise
def test_two_runs_of_one_shadow_rewrite_once(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table()
    log = table.log()
    shadow = shadow_of(log, zorder_by=("v",))
    job = job_for(table, shadow.path, zorder_by=("v",))
    engine.optimize(job)
    first = (table.path / shadow.path / "_delta_log").glob("*.json")
    names = sorted(path.name for path in first)
    engine.optimize(job)
    assert sorted(path.name for path in (table.path / shadow.path / "_delta_log").glob("*.json")) == names
    assert publish(log, shadow).status is CompactionStatus.PUBLISHED


def test_a_session_that_would_commit_piece_by_piece_commits_once(
    new_table: Callable[..., Table], engine: ConnectEngine, connect_server: Server
) -> None:
    settings = {"spark.databricks.delta.optimize.batchSize": "1b"}
    table = new_table()
    log = table.log()
    shadow = shadow_of(log)
    ConnectEngine(connect_server.remote, settings=settings).optimize(job_for(table, shadow.path))
    rewrite = read_rewrite(log.store, shadow)
    assert rewrite is not None
    assert len(rewrite.groups) == 2


def test_what_spark_refuses_is_for_people(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table()
    shadow = shadow_of(table.log())
    with pytest.raises(SparkQueryError, match="nowhere"):
        engine.optimize(job_for(table, shadow.path, zorder_by=("nowhere",)))
    assert len(table.rows()) == 30


def test_a_stopped_engine_compacts_nothing(new_table: Callable[..., Table], engine: ConnectEngine) -> None:
    table = new_table(appends=2)
    shadow = shadow_of(table.log())
    engine.stop()
    with pytest.raises(SparkJobError, match="Stopped"):
        engine.optimize(job_for(table, shadow.path))
    assert read_rewrite(table.log().store, shadow) is None


def job_for(table: Table, path: str, **fields: Any) -> OptimizeJob:
    return OptimizeJob(
        table_uri=f"file://{table.path}",
        attempt="a",
        shadow_uri=f"file://{table.path}/{path}",
        target_file_size=1 << 20,
        **fields,
    )
