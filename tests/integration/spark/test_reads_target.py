"""A job that reads the table it writes to is found out (protocol, rule 19)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider_onelake.engines.base import StageJob
from airflow_provider_onelake.engines.connect import ConnectEngine
from tests.support.spark import Server

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, connect_server: Server) -> Iterator[Path]:
    """A table, one whose name begins alike, one of the same name elsewhere, and an empty one."""
    from pyspark.sql.connect.session import SparkSession

    spark: Any = SparkSession(connection=connect_server.remote)
    lake = tmp_path_factory.mktemp("reads") / "lake"
    for path in (lake / "trips", lake / "trips_2", lake / "old" / "lake" / "trips"):
        spark.range(5).write.format("delta").save(str(path))
    spark.range(0).write.format("delta").save(str(lake / "empty"))
    spark.sql(f"CREATE TABLE known USING delta LOCATION '{lake / 'trips'}'")
    spark.sql(f"CREATE TABLE unrelated USING delta LOCATION '{lake / 'trips_2'}'")
    yield lake
    spark.sql("DROP TABLE known")
    spark.sql("DROP TABLE unrelated")
    spark.stop()


def reads(engine: ConnectEngine, lake: Path, source: dict[str, Any], table: str = "trips", **fields: Any) -> bool:
    return engine.analyze(StageJob(source=source, table_uri=str(lake / table), attempt="a", **fields)).reads_target


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT * FROM delta.`{lake}/trips`", id="by path"),
        pytest.param("SELECT * FROM delta.`file:{lake}/trips/`", id="by address"),
        pytest.param("SELECT * FROM delta.`file://{lake}//trips`", id="by another spelling"),
        pytest.param("SELECT * FROM delta.`{lake}/trips` VERSION AS OF 0", id="an earlier version"),
        pytest.param("SELECT count(*) AS n FROM delta.`{lake}/trips`", id="answered from statistics"),
        pytest.param("SELECT * FROM parquet.`{lake}/trips/*.parquet`", id="its files"),
        pytest.param("SELECT * FROM known", id="a table of the catalog"),
        pytest.param("SELECT count(*) AS n FROM known", id="of the catalog, from statistics"),
        pytest.param("WITH k AS (SELECT * FROM known) SELECT k.id FROM k JOIN unrelated u ON k.id = u.id", id="joined"),
        pytest.param("SELECT id FROM range(9) WHERE id > (SELECT max(id) FROM known)", id="in a subquery"),
        pytest.param(
            "SELECT id FROM range(9) r WHERE NOT EXISTS (SELECT 1 FROM known k WHERE k.id = r.id)", id="exists"
        ),
    ],
)
def test_a_query_that_reads_the_target(engine: ConnectEngine, lake: Path, query: str) -> None:
    assert reads(engine, lake, {"kind": "sql", "query": query.format(lake=lake)})


@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT * FROM delta.`{lake}/trips_2`", id="a name that begins alike"),
        pytest.param("SELECT * FROM delta.`{lake}/old/lake/trips`", id="the same name elsewhere"),
        pytest.param("SELECT * FROM unrelated", id="another table of the catalog"),
        pytest.param("SELECT 'trips' AS word", id="its name as a word"),
    ],
)
def test_a_query_that_does_not(engine: ConnectEngine, lake: Path, query: str) -> None:
    assert not reads(engine, lake, {"kind": "sql", "query": query.format(lake=lake)})


def test_a_step_that_reads_the_target(engine: ConnectEngine, lake: Path) -> None:
    steps = {"own": "SELECT max(id) AS id FROM known", "last": "SELECT s.id FROM source s JOIN own o ON s.id > o.id"}
    assert reads(engine, lake, {"kind": "sql", "query": "SELECT id FROM range(9)"}, steps=steps)


def test_files_of_the_target(engine: ConnectEngine, lake: Path) -> None:
    def files(form: str, path: str) -> dict[str, Any]:
        return {"kind": "files", "path": [str(lake / path)], "format": form}

    assert reads(engine, lake, files("delta", "trips"))
    assert reads(engine, lake, files("parquet", "trips"))
    assert reads(engine, lake, files("delta", "empty"), table="empty")
    assert not reads(engine, lake, files("delta", "trips_2"))


def test_a_filter_that_reads_the_target(engine: ConnectEngine, lake: Path) -> None:
    where = "id NOT IN (SELECT id FROM known)"
    assert reads(engine, lake, {"kind": "sql", "query": "SELECT id FROM range(9)"}, where=where)
