"""Writers on a real Spark whose table grows, or is what they read: whole DAGs, read back by Spark's rival deltalake."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk import DAG, chain
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_provider_onelake.modes import Overwrite
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import NewTable
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.task_groups.write import OneLakeWriteTaskGroup
from tests.support.airflow_dags import FEBRUARY, JANUARY, load_dag, run_dag, states, xcom
from tests.support.spark import Server

pytestmark = pytest.mark.usefixtures("spark_connection")

DAGS = Path(__file__).parents[2] / "dags"
GREEN = {"success"}


@pytest.fixture
def spark(connect_server: Server) -> Iterator[Any]:
    from pyspark.sql.connect.session import SparkSession

    session = SparkSession(connection=connect_server.remote)
    yield session
    session.stop()


@pytest.fixture
def table(lakehouse: Path) -> Path:
    return lakehouse / "Tables" / "t"


def load(queries: dict[str, str], *, in_order: bool = False, **group: Any) -> DAG:
    """Writers of one table, each with its query; in any order, unless one is asked for."""
    with (
        DAG("spark", schedule=None, start_date=JANUARY) as dag,
        OneLakeWriteTaskGroup(group_id="load", table="Tables/t", **group),
    ):
        tasks = [OneLakeWriteOperator(task_id=w, writer=w, source=SqlSource(query)) for w, query in queries.items()]
        if in_order:
            chain(*tasks)
    return dag


def rows(table: Path, columns: str = "*") -> list[tuple[Any, ...]]:
    found = QueryBuilder().register("t", DeltaTable(str(table))).execute(f"SELECT {columns} FROM t ORDER BY id")
    return [tuple(row.values()) for row in pa.table(found.read_all()).to_pylist()]


def operations(table: Path) -> list[str]:
    return [commit["operation"] for commit in reversed(DeltaTable(str(table)).history())]


def schema(table: Path) -> list[dict[str, Any]]:
    lines = [line for file in sorted((table / "_delta_log").glob("*.json")) for line in file.read_text().splitlines()]
    newest = [json.loads(line)["metaData"] for line in lines if line.startswith('{"metaData"')][-1]
    fields: list[dict[str, Any]] = json.loads(newest["schemaString"])["fields"]
    return fields


# -- columns that come with rows ---------------------------------------------------------------------------------------

OLD = "SELECT id, 'a' AS p FROM range(2)"
NEW = "SELECT id + 10 AS id, 'a' AS p, concat('n', id) AS note, named_struct('x', id) AS s FROM range(2)"
OTHER = "SELECT id + 20 AS id, 'b' AS p, 'N' AS NOTE, DATE '2019-01-01' AS day FROM range(2)"


@pytest.mark.parametrize("properties", [{}, {"delta.columnMapping.mode": "name"}], ids=["plain", "mapped"])
def test_writers_of_different_shapes_work_side_by_side(table: Path, properties: dict[str, str]) -> None:
    group = {"partition_by": ["p"], "new_table": NewTable(properties=properties), "schema_evolution": "add_columns"}
    run = run_dag(load({"old": OLD, "new": NEW, "other": OTHER}, **group), logical_date=JANUARY)
    assert set(states(run).values()) == GREEN
    run = run_dag(load({"old": OLD.replace("id,", "id + 5 AS id,")}, **group), logical_date=FEBRUARY)
    assert set(states(run).values()) == GREEN

    # Spelled as by whoever came first.
    assert sorted(field["name"].lower() for field in schema(table)) == ["day", "id", "note", "p", "s"]
    assert all(field["nullable"] for field in schema(table))
    physical = [field["metadata"].get("delta.columnMapping.physicalName") for field in schema(table)]
    assert len(set(physical)) == (5 if properties else 1)
    names = [field["name"].lower() for field in schema(table)]
    found = [dict(zip(names, row, strict=True)) for row in rows(table)]
    assert [(r["id"], r["p"], r["note"], r["s"] and r["s"]["x"], r["day"] and str(r["day"])) for r in found] == [
        (0, "a", None, None, None),
        (1, "a", None, None, None),
        (5, "a", None, None, None),
        (6, "a", None, None, None),
        (10, "a", "n0", 0, None),
        (11, "a", "n1", 1, None),
        (20, "b", "N", None, "2019-01-01"),
        (21, "b", "N", None, "2019-01-01"),
    ]


@pytest.mark.parametrize("properties", [{}, {"delta.columnMapping.mode": "name"}], ids=["plain", "mapped"])
def test_what_was_staged_in_the_old_shape_is_published_in_the_new_one(
    table: Path, properties: dict[str, str], spark: Any
) -> None:
    group = {"new_table": NewTable(properties=properties), "schema_evolution": "add_columns", "publish": "together"}
    run = run_dag(load({"old": OLD, "new": NEW}, in_order=True, **group), logical_date=JANUARY)
    assert set(states(run).values()) == GREEN
    assert operations(table) == ["WRITE"]
    assert [row[:1] for row in rows(table, "id")] == [(0,), (1,), (10,), (11,)]
    read = spark.read.format("delta").load(str(table)).orderBy("id").select("id", "note", "s.x").collect()
    assert [tuple(row) for row in read] == [(0, None, None), (1, None, None), (10, "n0", 0), (11, "n1", 1)]
    # Spark's own history reads our commit, and Spark goes on from it.
    spark.sql(f"ALTER TABLE delta.`{table}` ADD COLUMNS (later INT)")
    spark.sql(f"INSERT INTO delta.`{table}` (id, p, note, later) VALUES (30, 'c', 'x', 7)")
    newest = spark.sql(f"DESCRIBE HISTORY delta.`{table}`").collect()
    assert [row["operation"] for row in newest if row["operation"] == "ADD COLUMNS"] == ["ADD COLUMNS"]
    assert rows(table, "id, note, later")[-1] == (30, "x", 7)


def entries(table: Path) -> list[str]:
    """The operation of every version."""
    files = sorted((table / "_delta_log").glob("*.json"))
    return [json.loads(file.read_text().splitlines()[0])["commitInfo"]["operation"] for file in files]


# -- rows computed from the table itself -------------------------------------------------------------------------------

NEXT = "SELECT n + coalesce((SELECT max(id) FROM delta.`{}`), 0) AS id FROM VALUES (1L), (2L) AS v(n)"


@pytest.fixture
def rival(monkeypatch: pytest.MonkeyPatch, table: Path) -> list[int]:
    """Ids that another engine appends, one each time when Spark has just staged."""
    left: list[int] = []
    stage = ConnectEngine.stage

    def staged_meanwhile(self: ConnectEngine, job: Any) -> Any:
        result = stage(self, job)
        if left:
            write_deltalake(str(table), pa.table({"id": pa.array([left.pop(0)], pa.int64())}), mode="append")
        return result

    monkeypatch.setattr(ConnectEngine, "stage", staged_meanwhile)
    return left


def test_a_table_can_be_made_by_a_job_that_reads_it(table: Path, capfd: pytest.CaptureFixture[str]) -> None:
    job = {"w": NEXT.format(table)}
    assert states(run_dag(load(job), logical_date=JANUARY))["load.w"] == "failed"
    assert "A job that reads the table that it writes needs `schema`" in capfd.readouterr().out
    assert not (table / "_delta_log").exists()

    group = {
        "new_table": NewTable(schema="id BIGINT NOT NULL COMMENT 'of the row', month STRING"),
        "partition_by": ["month"],
    }
    job = {"w": f"SELECT id, CAST(NULL AS STRING) AS month FROM ({NEXT.format(table)})"}
    for date in (JANUARY, FEBRUARY):
        run = run_dag(load(job, **group), logical_date=date)
        assert set(states(run).values()) == GREEN
    assert [row[0] for row in rows(table, "id")] == [1, 2, 3, 4]
    assert [(field["name"], field["nullable"], field["metadata"]) for field in schema(table)] == [
        ("id", False, {"comment": "of the row"}),
        ("month", True, {}),
    ]
    assert xcom(run, "load.w")["reruns"] == 0


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_another_commit_meanwhile_makes_spark_run_again(
    table: Path, rival: list[int], mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    run_dag(load({"w": NEXT.format(table)}, new_table=NewTable(schema="id BIGINT")), logical_date=JANUARY)
    rival.append(100)
    run = run_dag(load({"w": NEXT.format(table)}, mode=mode), logical_date=FEBRUARY)
    assert set(states(run).values()) == GREEN
    done = xcom(run, "load.w")
    assert (done["status"], done["reruns"], done["read_version"]) == ("published", 1, 2)
    # Without the rerun, ids 3 and 4 would be there: computed from what no longer was.
    assert [row[0] for row in rows(table)] == ([1, 2, 100, 101, 102] if mode == "append" else [101, 102])
    assert "staged anew on the newest version (rerun 1 of at most 3)" in caplog.text


# -- the whole table ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [[], ["p"]], ids=["not partitioned", "partitioned"])
def test_the_whole_table_is_overwritten(table: Path, by: list[str]) -> None:
    run_dag(load({"a": OLD, "b": OTHER.replace(", 'N' AS NOTE, DATE '2019-01-01' AS day", "")}, partition_by=by))
    assert len(rows(table)) == 4
    run = run_dag(load({"w": "SELECT 7L AS id, 'c' AS p"}, mode="overwrite"), logical_date=FEBRUARY)
    assert set(states(run).values()) == GREEN
    assert rows(table, "id, p") == [(7, "c")]
    nothing = {"w": "SELECT 7L AS id, 'c' AS p WHERE false"}
    run_dag(load(nothing, mode="overwrite"), logical_date=FEBRUARY.add(days=1))
    assert rows(table, "id, p") == [(7, "c")]
    run_dag(load(nothing, mode=Overwrite(allow_empty=True)), logical_date=FEBRUARY.add(days=2))
    assert rows(table, "id, p") == []


def test_an_error_of_sparks_stands_in_the_log_once(
    table: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    run_dag(load({"w": "SELECT id FROM nowhere"}), logical_date=JANUARY)
    said = capfd.readouterr()
    # Other tests of this process may have left handlers, which write a record to the output once more.
    assert caplog.text.count("The table or view `nowhere` cannot be found") == 1
    assert "org.apache.spark" not in said.out + said.err


# -- a table that is altered -------------------------------------------------------------------------------------------


def test_the_example_changes_a_table(lakehouse: Path, spark: Any) -> None:
    trips = lakehouse / "Tables" / "trips"
    columns = "id INT, month STRING, passengers INT, legacy_code STRING"
    spark.sql(f"CREATE TABLE delta.`{trips}` ({columns}) USING delta PARTITIONED BY (month)")
    spark.sql(f"INSERT INTO delta.`{trips}` VALUES (1, '2019-01', 2, 'x'), (2, '2019-01', 0, 'y')")
    run = run_dag(load_dag(DAGS / "change_trips.py", "change_trips"))
    assert states(run) == {"columns": "success", "rules": "success"}
    done = xcom(run, "columns")
    assert (done["status"], done["version"], done["rounds"]) == ("done", 2, 1)
    assert {"columnMapping", "typeWidening"} <= set(done["features"])
    fields = {field["name"]: field["type"] for field in schema(trips)}
    assert fields == {"id": "integer", "pickup_month": "string", "passengers": "long"}
    assert entries(trips)[-2:] == ["ALTER TABLE", "ADD CONSTRAINT"]
    assert sorted(map(tuple, spark.read.format("delta").load(str(trips)).collect())) == [
        (1, "2019-01", 2),
        (2, "2019-01", 0),
    ]
