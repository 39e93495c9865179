"""A DELETE and a TRUNCATE of ours beside Spark's own DELETE on a copy: the same rows, row ids and change feed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_onelake.commit.delete import delete
from airflow_provider_onelake.commit.transaction import Transactions
from tests.support.changes import asker
from tests.support.properties import FEED, IDS, MAPPED, STAMPS, VECTORS
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SOME = "month >= '2019 1' AND month <> '2019 2'"


@pytest.mark.costs("Spark does it as well, and every version is compared")
@pytest.mark.parametrize(
    ("properties", "where"),
    [
        pytest.param(f"{VECTORS},{FEED}", SOME, id="deletion vectors, change feed", marks=pytest.mark.nightly),
        pytest.param(
            f"{VECTORS},{FEED},{IDS},{STAMPS}",
            SOME,
            id="vectors, row ids, in-commit timestamps",
            marks=pytest.mark.promise,
        ),
        pytest.param(f"{MAPPED},{FEED}", SOME, id="column mapping", marks=pytest.mark.nightly),
        pytest.param(f"{VECTORS},{FEED},{IDS},{STAMPS}", None, id="all: vectors, row ids, in-commit timestamps"),
        pytest.param(f"{MAPPED},{FEED}", None, id="all: column mapping", marks=pytest.mark.nightly),
    ],
)
def test_it_is_what_spark_would_have_done(
    spark: SparkSession, tmp_path: Path, properties: str, where: str | None
) -> None:
    ours, theirs = tmp_path / "a lake" / "ours", tmp_path / "a lake" / "theirs"

    def run(query: str, path: Path) -> list[Any]:
        return spark.sql(query.replace("{t}", f"delta.`{path}`")).collect()

    def rows(path: Path, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(map(tuple, run(f"SELECT {columns} FROM {{t}}", path)))

    def changes(path: Path, version: int) -> list[tuple[Any, ...]]:
        feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
        return sorted(map(tuple, feed.load(str(path)).select("id", "month", "_change_type").collect()))

    run(
        f"CREATE TABLE {{t}} (id BIGINT, month STRING) USING delta PARTITIONED BY (month) TBLPROPERTIES ({properties})",
        ours,
    )
    run("INSERT INTO {t} SELECT id, concat('2019 ', id % 4) FROM range(0, 40, 1, 2)", ours)
    run("DELETE FROM {t} WHERE id % 5 = 1", ours)
    shutil.copytree(ours, theirs)
    log = local_log(ours)
    before = len(rows(ours))

    transactions = Transactions(log)
    done = delete(transactions, where, asker("onelake-delete/test"))
    run(f"DELETE FROM {{t}} WHERE {where or 'true'}", theirs)

    assert rows(ours) == rows(theirs)
    assert done.version is not None
    assert done.rows_deleted == before - len(rows(theirs)) > 0
    assert changes(ours, done.version) == changes(theirs, done.version)
    (history,) = run("DESCRIBE HISTORY {t} LIMIT 1", ours)
    (expected,) = run("DESCRIBE HISTORY {t} LIMIT 1", theirs)
    assert history["operation"] == ("DELETE" if where else "TRUNCATE")
    for metric in ("numRemovedFiles", "numDeletedRows"):
        if metric in expected["operationMetrics"]:
            assert history["operationMetrics"][metric] == expected["operationMetrics"][metric]
    for path in (ours, theirs):
        run("INSERT INTO {t} VALUES (100, '2019 1')", path)
    assert rows(ours) == rows(theirs)
    if IDS in properties:
        assert rows(ours, "id, _metadata.row_id") == rows(theirs, "id, _metadata.row_id")
