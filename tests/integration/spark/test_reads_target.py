"""A job that reads the table it writes to is found out (protocol: reads its target)."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from airflow_provider_onelake.spark.base import StageJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.spark.jobs import stage
from airflow_provider_onelake.spark.jobs.main import JOBS
from tests.support.schemas import field
from tests.support.spark import Server, Target, sql_job, stage_with
from tests.support.tables import local_log, writer_spec


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory, connect_server: Server) -> Iterator[Path]:
    """A table, one whose name begins alike, one of the same name elsewhere, and an empty one."""
    from pyspark.sql.connect.session import SparkSession

    spark: Any = SparkSession(connection=connect_server.remote)
    lake = tmp_path_factory.mktemp("reads") / "lake"
    for path in (lake / "trips", lake / "trips_2", lake / "old" / "lake" / "trips"):
        spark.range(5).write.format("delta").save(str(path))
    spark.range(0).write.format("delta").save(str(lake / "empty"))
    (lake / "a link").symlink_to(lake / "trips")
    spark.sql(f"CREATE TABLE known USING delta LOCATION '{lake / 'trips'}'")
    spark.sql(f"CREATE TABLE unrelated USING delta LOCATION '{lake / 'trips_2'}'")
    yield lake
    spark.sql("DROP TABLE known")
    spark.sql("DROP TABLE unrelated")
    spark.stop()


def reads(engine: ConnectEngine, lake: Path, source: dict[str, Any], table: str = "trips", **fields: Any) -> bool:
    """Ask as staging does, but of a query whose rows need not fit any buffer."""

    def ask(spark: Any, job: Mapping[str, Any]) -> dict[str, Any]:
        stage._configure(spark, job)
        view = stage._views(spark, job)
        plan = stage.plan_of(spark, view)
        return {"reads": stage._reads_target(spark, job, plan, list(spark.table(view).inputFiles()))}

    with mock.patch.dict(JOBS, asking=ask):
        return bool(
            engine.run("asking", StageJob(source=source, table_uri=str(lake / table), attempt="a", **fields))["reads"]
        )


@pytest.mark.promise
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("SELECT * FROM delta.`{lake}/trips`", id="by path"),
        pytest.param("SELECT * FROM delta.`file:{lake}/trips/`", id="by address"),
        pytest.param("SELECT * FROM delta.`file://{lake}//trips`", id="by another spelling"),
        pytest.param("SELECT * FROM delta.`{lake}/trips` VERSION AS OF 0", id="an earlier version"),
        pytest.param("SELECT count(*) AS n FROM delta.`{lake}/trips`", id="answered from statistics"),
        pytest.param("SELECT * FROM parquet.`{lake}/trips/*.parquet`", id="its files"),
        pytest.param("SELECT * FROM delta.`{lake}/a link`", id="by a link"),
        pytest.param("SELECT max(id) AS id FROM parquet.`{lake}/a link/*.parquet`", id="its files by a link"),
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


# -- what the buffer says of it, and which version was read ---------------------------------------------------------------


def said(target: Target) -> Any:
    if target.versions == [0]:
        return None
    (info,) = target.actions("commitInfo")
    return json.loads(info["userMetadata"])


@pytest.mark.parametrize("where", [None, "id < 0"], ids=["rows", "no rows"])
def test_the_append_itself_says_so(engine: ConnectEngine, new_target: Callable[..., Target], where: str | None) -> None:
    """What makes the buffer complete says how its rows came about: nobody can see the one without the other."""
    target = new_target([field("id", "long")])
    job = sql_job(target, f"SELECT id FROM delta.`{target.buffer}` UNION ALL SELECT 1L", where=where)
    assert engine.stage(job).reads_target
    # Without rows there is no version 1 yet: the writer makes it, and has just been told.
    assert said(target) == ({"onelake": {"attempt": job.attempt, "reads_target": True}} if where is None else None)


@pytest.mark.parametrize("where", [None, "id < 0"], ids=["rows", "no rows"])
def test_the_append_says_it_of_others_too(
    engine: ConnectEngine, new_target: Callable[..., Target], where: str | None
) -> None:
    target = new_target([field("id", "long")])
    job = sql_job(target, "SELECT id FROM range(3)", where=where)
    assert not engine.stage(job).reads_target
    assert said(target) == ({"onelake": {"attempt": job.attempt, "reads_target": False}} if where is None else None)


@pytest.mark.parametrize("by_link", [False, True], ids=["by its name", "by a link"])
@pytest.mark.parametrize("disturbed_by", ["nothing", "another session's cache", "a stale session"])
def test_what_is_read_is_never_older_than_the_buffer(
    engine: ConnectEngine, tmp_path: Path, spark: Any, disturbed_by: str, by_link: bool, connect_server: Server
) -> None:
    """The read version is what conflicts are looked for from, so an older read would be a lost update."""
    table, link = tmp_path / "my table", tmp_path / "a link"
    spark.sql("SELECT id, 1L AS n FROM range(5)").write.format("delta").save(str(table))
    link.symlink_to(table)
    name = link if by_link else table
    spark.sql(f"SELECT * FROM delta.`{name}`").collect()
    if disturbed_by == "another session's cache":
        # One server, one cache: without a word from us, every session would read these five rows from now on.
        spark.sql(f"SELECT * FROM delta.`{name}`").cache().count()
        spark.sql(f"SELECT max(id) AS id FROM delta.`{name}`").cache().count()
    elif disturbed_by == "a stale session":
        engine = ConnectEngine(connect_server.remote, settings={"spark.databricks.delta.stalenessLimit": "1h"})
    # A commit that this Spark has not seen.
    write_deltalake(
        str(table), pa.table({"id": pa.array([100], pa.int64()), "n": pa.array([1], pa.int64())}), mode="append"
    )
    query = f"SELECT max(id) AS id, (SELECT count(*) FROM delta.`{name}`) AS n FROM delta.`{name}`"
    buffer = stage_with(engine, local_log(table), writer_spec(str(uuid.uuid4())), query)
    assert (buffer.read_version, buffer.reads_target) == (1, True)
    written = spark.read.format("delta").load(str(table / buffer.path)).collect()
    assert [tuple(row) for row in written] == [(100, 6)]
    spark.catalog.clearCache()
