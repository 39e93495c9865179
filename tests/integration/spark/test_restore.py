"""A restore of ours beside Spark's own RESTORE on a copy: the same rows, definition, row ids and change feed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.transaction import Transactions
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.maintenance.restore import Restored, restore
from tests.support.changes import asker
from tests.support.properties import FEED, IDS, VECTORS
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Properties whose values name the commit or the physical column that a feature began with, and ids that are drawn.
_DRAWN = ("delta.inCommitTimestampEnablement", "delta.rowTracking.materialized")


@attrs.frozen
class Table:
    """A table that Spark made."""

    path: Path
    spark: Any

    @property
    def sql(self) -> str:
        return f"delta.`{self.path}`"

    @property
    def log(self) -> DeltaLog:
        return local_log(self.path)

    def run(self, query: str) -> list[Any]:
        return self.spark.sql(query.replace("{t}", self.sql)).collect()  # type: ignore[no-any-return]

    def rows(self, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.run(f"SELECT {columns} FROM {{t}}")))

    def by_deltalake(self) -> list[int]:
        import pyarrow as pa
        from deltalake import DeltaTable, QueryBuilder

        found = QueryBuilder().register("t", DeltaTable(str(self.path))).execute("SELECT id FROM t")
        return sorted(pa.table(found.read_all()).column("id").to_pylist())

    def definition(self) -> dict[str, Any]:
        snapshot = self.log.snapshot()
        properties = {k: v for k, v in snapshot.configuration.items() if not k.startswith(_DRAWN)}
        clustering = snapshot.domains.get("delta.clustering", {}).get("configuration", "{}")
        return {
            "schema": json.loads(snapshot.metadata["schemaString"]),
            "properties": properties,
            "clustering": json.loads(clustering).get("clusteringColumns"),
            "mark": snapshot.row_id_high_water_mark,
            "features": snapshot.writer_features,
        }

    def changes(self, version: int) -> list[tuple[Any, ...]]:
        feed = self.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        return sorted(map(tuple, feed.load(str(self.path)).select("id", "v", "_change_type").collect()))


@pytest.fixture
def new_table(spark: SparkSession, tmp_path: Path) -> Callable[..., Table]:
    def make(properties: str = "", layout: str = "PARTITIONED BY (month)") -> Table:
        table = Table(tmp_path / "a lake" / "trips", spark)
        with_properties = f"TBLPROPERTIES ({properties})" if properties else ""
        table.run(f"CREATE TABLE {{t}} (id BIGINT, month STRING, v STRING) USING delta {layout} {with_properties}")
        for start in (0, 10, 20):
            table.run(
                f"INSERT INTO {{t}} SELECT id, concat('2019 ', id % 2), sha(string(id)) "
                f"FROM range({start}, {start + 10}, 1, 1)"
            )
        return table

    return make


def take_back(table: Table, version: int) -> Restored:
    transactions = Transactions(table.log)
    return restore(
        transactions,
        version,
        transactions.log.snapshot(),
        asker("onelake-restore/test"),
        on_newer_commit=OnNewerCommit.FAIL,
    )


DML = (
    "DELETE FROM {t} WHERE id % 3 = 0",
    "UPDATE {t} SET v = 'changed' WHERE id % 5 = 1",
    "INSERT INTO {t} VALUES (100, '2020 1', 'new')",
)
ALTER = (
    "ALTER TABLE {t} ADD COLUMN more INT",
    "INSERT INTO {t} VALUES (100, '2020 1', 'new', 7)",
    "ALTER TABLE {t} SET TBLPROPERTIES ('delta.logRetentionDuration'='interval 60 days')",
)


@pytest.mark.parametrize(
    ("properties", "layout", "since"),
    [
        pytest.param("", "PARTITIONED BY (month)", DML, id="rewritten files, partitions with spaces"),
        pytest.param(VECTORS, "", DML, id="deletion vectors", marks=pytest.mark.nightly),
        pytest.param(
            f"{VECTORS},{FEED}",
            "PARTITIONED BY (month)",
            DML,
            id="deletion vectors, change feed",
            marks=pytest.mark.nightly,
        ),
        pytest.param(f"{VECTORS},{IDS}", "", DML, id="deletion vectors, row ids"),
        pytest.param(
            IDS,
            "PARTITIONED BY (month)",
            (*DML, "OPTIMIZE {t}"),
            id="row ids, compacted since",
            marks=pytest.mark.nightly,
        ),
        pytest.param(
            "", "PARTITIONED BY (month)", ALTER, id="a new column and a new property", marks=pytest.mark.nightly
        ),
        pytest.param(
            "'delta.columnMapping.mode'='name'",
            "",
            ("ALTER TABLE {t} RENAME COLUMN v TO w", "ALTER TABLE {t} DROP COLUMN w", DML[0]),
            id="columns renamed and dropped since",
        ),
        pytest.param(
            "'delta.enableInCommitTimestamps'='true'", "", DML, id="in-commit timestamps", marks=pytest.mark.nightly
        ),
        pytest.param(
            "",
            "CLUSTER BY (id)",
            (*DML, "ALTER TABLE {t} CLUSTER BY (v)"),
            id="clustered otherwise since",
            marks=pytest.mark.nightly,
        ),
        pytest.param("", "", ("OPTIMIZE {t}",), id="compacted since", marks=pytest.mark.nightly),
    ],
)
def test_it_is_what_spark_would_have_done(
    new_table: Callable[..., Table], properties: str, layout: str, since: tuple[str, ...]
) -> None:
    ours = new_table(properties, layout)
    version = ours.log.snapshot().version
    rows = ours.rows()
    for statement in since:
        ours.run(statement)
    theirs = attrs.evolve(ours, path=ours.path.with_name("copy"))
    shutil.copytree(ours.path, theirs.path)

    done = take_back(ours, version)
    theirs.run(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}")

    assert ours.rows() == theirs.rows() == rows
    assert ours.by_deltalake() == [row[0] for row in rows]
    assert ours.definition() == theirs.definition()
    (history,) = ours.run("DESCRIBE HISTORY {t} LIMIT 1")
    (expected,) = theirs.run("DESCRIBE HISTORY {t} LIMIT 1")
    assert (history["version"], history["operation"]) == (done.version, "RESTORE")
    assert history["operationMetrics"] == expected["operationMetrics"]
    assert history["operationParameters"]["version"] == expected["operationParameters"]["version"]
    if IDS in properties:
        ids = "_metadata.row_id, _metadata.row_commit_version, id"
        assert ours.rows(ids) == theirs.rows(ids)
    if FEED in properties:
        assert done.version is not None
        assert ours.changes(done.version) == theirs.changes(done.version)
    # Spark goes on from there, and no row id comes twice.
    ours.run("INSERT INTO {t} (id, month, v) VALUES (200, '2021 1', 'later')")
    assert len(ours.rows()) == len(rows) + 1
    if IDS in properties:
        given = [row[0] for row in ours.rows("_metadata.row_id")]
        assert len(set(given)) == len(given)
