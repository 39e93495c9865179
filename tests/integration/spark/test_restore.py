"""A restore of ours beside Spark's own RESTORE on a copy: the same rows, definition, row ids and change feed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_onelake.choices import OnNewerCommit
from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.maintenance.restore import restore
from tests.support.changes import asker
from tests.support.copies import Copies, TwoTables
from tests.support.properties import FEED, IDS, MAPPED, STAMPS, VECTORS
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Properties whose values name the commit or the physical column that a feature began with, and ids that are drawn.
_DRAWN = ("delta.inCommitTimestampEnablement", "delta.rowTracking.materialized")


class Restoring(TwoTables):
    """A table of Spark's and, once both have the same history, its copy."""

    changes = Copies.changes
    by_deltalake = Copies.by_deltalake

    def __init__(self, spark: SparkSession, directory: Path, properties: str, layout: str) -> None:
        with_properties = f"TBLPROPERTIES ({properties})" if properties else ""
        of_ten = "SELECT id, concat('2019 ', id % 2), sha(string(id)) FROM range({0}, {0} + 10, 1, 1)"
        super().__init__(
            spark,
            directory,
            f"CREATE TABLE {{t}} (id BIGINT, month STRING, v STRING) USING delta {layout} {with_properties}",
            *(f"INSERT INTO {{t}} {of_ten.format(start)}" for start in (0, 10, 20)),
        )

    def rows(self, path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(map(tuple, self.run(f"SELECT {columns} FROM {{t}}", path)))

    def definition(self, path: Path) -> dict[str, Any]:
        snapshot = local_log(path).snapshot()
        properties = {k: v for k, v in snapshot.configuration.items() if not k.startswith(_DRAWN)}
        clustering = snapshot.domains.get("delta.clustering", {}).get("configuration", "{}")
        return {
            "schema": json.loads(snapshot.metadata["schemaString"]),
            "properties": properties,
            "clustering": json.loads(clustering).get("clusteringColumns"),
            "mark": snapshot.row_id_high_water_mark,
            "features": snapshot.writer_features,
        }


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


BY_MONTH, NIGHTLY = "PARTITIONED BY (month)", pytest.mark.nightly
RENAMED = ("ALTER TABLE {t} RENAME COLUMN v TO w", "ALTER TABLE {t} DROP COLUMN w", DML[0])
OTHERWISE = (*DML, "ALTER TABLE {t} CLUSTER BY (v)")


@pytest.mark.parametrize(
    ("properties", "layout", "since"),
    [
        pytest.param("", BY_MONTH, DML, id="rewritten files, partitions with spaces"),
        pytest.param(VECTORS, "", DML, id="deletion vectors", marks=NIGHTLY),
        pytest.param(f"{VECTORS},{FEED}", BY_MONTH, DML, id="deletion vectors, change feed", marks=NIGHTLY),
        pytest.param(f"{VECTORS},{IDS}", "", DML, id="deletion vectors, row ids"),
        pytest.param(IDS, BY_MONTH, (*DML, "OPTIMIZE {t}"), id="row ids, compacted since", marks=NIGHTLY),
        pytest.param("", BY_MONTH, ALTER, id="a new column and a new property", marks=NIGHTLY),
        pytest.param(MAPPED, "", RENAMED, id="columns renamed and dropped since"),
        pytest.param(STAMPS, "", DML, id="in-commit timestamps", marks=NIGHTLY),
        pytest.param("", "CLUSTER BY (id)", OTHERWISE, id="clustered otherwise since", marks=NIGHTLY),
        pytest.param("", "", ("OPTIMIZE {t}",), id="compacted since", marks=NIGHTLY),
    ],
)
def test_it_is_what_spark_would_have_done(
    spark: SparkSession, tmp_path: Path, properties: str, layout: str, since: tuple[str, ...]
) -> None:
    both = Restoring(spark, tmp_path / "a lake", properties, layout)
    ours, theirs = both.ours, both.theirs
    version, rows = local_log(ours).snapshot().version, both.rows(ours)
    for statement in since:
        both.run(statement, ours)
    both.copy()

    transactions = Transactions(local_log(ours))
    before, me = transactions.log.snapshot(), asker("onelake-restore/test")
    done = restore(transactions, version, before, me, on_newer_commit=OnNewerCommit.FAIL)
    both.run(f"RESTORE TABLE {{t}} TO VERSION AS OF {version}", theirs)

    assert both.rows(ours) == both.rows(theirs) == rows
    assert both.by_deltalake() == [row[0] for row in rows]
    assert both.definition(ours) == both.definition(theirs)
    history, expected = (both.run("DESCRIBE HISTORY {t} LIMIT 1", path)[0] for path in (ours, theirs))
    assert (history["version"], history["operation"]) == (done.version, "RESTORE")
    assert history["operationMetrics"] == expected["operationMetrics"]
    assert history["operationParameters"]["version"] == expected["operationParameters"]["version"]
    if IDS in properties:
        ids = "_metadata.row_id, _metadata.row_commit_version, id"
        assert both.rows(ours, ids) == both.rows(theirs, ids)
    if FEED in properties:
        assert done.version is not None
        assert both.changes(ours, done.version) == both.changes(theirs, done.version)
    # Spark goes on from there, and no row id comes twice.
    both.run("INSERT INTO {t} (id, month, v) VALUES (200, '2021 1', 'later')", ours)
    assert len(both.rows(ours)) == len(rows) + 1
    if IDS in properties:
        given = [row[0] for row in both.rows(ours, "_metadata.row_id")]
        assert len(set(given)) == len(given)
