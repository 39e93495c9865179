"""ALTER TABLE of ours beside Spark's own statements on a copy: the same definition, protocol and rows."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_onelake.exceptions import ConstraintViolatedError, SparkQueryError, TerminalError
from airflow_provider_onelake.spark.base import AlterJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.statements.alter import Altered
from airflow_provider_onelake.statements.alteration import Alteration
from airflow_provider_onelake.steps.alter import alter_table
from airflow_provider_onelake.steps.spark import SparkWork
from airflow_provider_onelake.task_run import TaskRun
from tests.support.changes import TableOf, start_of
from tests.support.copies import TwoTables
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Altering(TwoTables):
    """Two tables: ours, and the one that Spark alters."""

    def __init__(self, spark: SparkSession, engine: ConnectEngine, directory: Path, create: str) -> None:
        self.engine = engine
        super().__init__(spark, directory / "a lake", f"CREATE TABLE {{t}} {create}")

    def both(self, query: str) -> None:
        for path in (self.ours, self.theirs):
            self.run(query, path)

    def alter(self, **asked: Any) -> Altered:
        """Alter our table, in a run of its own."""
        run = str(uuid.uuid4())
        return alter_table(
            TableOf(local_log(self.ours)),  # type: ignore[arg-type]
            SparkWork(lambda: self.engine),
            Alteration(**asked),
            5,
            run=TaskRun("dag", "alter", run, run, str(uuid.uuid4()), "alter", -1),
            task_start=start_of("alter", "first"),
            namespace="test",
        )

    def same(self, *statements: str, **asked: Any) -> Altered:
        """Alter one table, let Spark alter the other, and compare them."""
        done = self.alter(**asked)
        for statement in statements:
            self.run(f"ALTER TABLE {{t}} {statement}", self.theirs)
        assert definition(self.ours) == definition(self.theirs), statements
        return done

    def rows(self) -> list[str]:
        """The rows of both, which are the same."""
        ours, theirs = (sorted(map(str, self.run("SELECT * FROM {t}", path))) for path in (self.ours, self.theirs))
        assert ours == theirs
        return ours


def definition(path: Path) -> Any:
    snapshot = local_log(path).snapshot()
    protocol = {key: sorted(value) if isinstance(value, list) else value for key, value in snapshot.protocol.items()}
    schema = json.loads(snapshot.metadata["schemaString"])
    said = snapshot.metadata.get("description") or None
    return schema, snapshot.metadata.get("partitionColumns"), snapshot.configuration, said, protocol


CREATE = """(id INT, n SMALLINT, f FLOAT, d DECIMAL(10,2), v STRING, s STRUCT<a: INT, b: ARRAY<STRUCT<c: INT>>>,
    m MAP<STRING, STRUCT<k: INT>>, month STRING) USING delta PARTITIONED BY (month)
    TBLPROPERTIES ('delta.minReaderVersion'='1', 'delta.minWriterVersion'='2')"""
INSERT = """INSERT INTO {t} SELECT id, id, id, id, concat('v', id), named_struct('a', id, 'b', array(named_struct('c', id))),
    map('x', named_struct('k', id)), concat('2019 ', id % 2) FROM range(6)"""


@pytest.mark.costs("Spark alters a table twice as often as we")
def test_it_is_what_spark_would_have_made(spark: SparkSession, engine: ConnectEngine, tmp_path: Path) -> None:
    copies = Altering(spark, engine, tmp_path, CREATE)
    with pytest.raises(SparkQueryError, match="nope"):
        copies.alter(add_checks={"wrong": "nope > 0"})
    copies.run(INSERT, copies.ours)
    copies.copy()
    same = copies.same

    # A legacy protocol is raised to the next one, and only then to one that names its features.
    done = same("ADD CONSTRAINT Positive CHECK (id >= 0 AND n < 100)", add_checks={"Positive": "id >= 0 AND n < 100"})
    assert (done.rounds, done.features) == (1, ("checkConstraints",))
    for query, why in {"id": "boolean", "sum(id) > 0": "aggregate"}.items():
        with pytest.raises(SparkQueryError, match=f"(?i){why}"):
            copies.alter(add_checks={"wrong": query})
    for query, rows in {"id > 3": 4, "nullif(id, 3) >= 0 -- NULL is not true": 1}.items():
        with pytest.raises(ConstraintViolatedError, match=f"{rows} rows .* violate the new CHECK constraint"):
            copies.alter(add_checks={"broken": query})
    same("DROP CONSTRAINT positive", drop_checks=("POSITIVE",))
    same(
        "SET TBLPROPERTIES ('Delta.EnableChangeDataFeed'='true', 'mine'='1', "
        "'delta.logRetentionDuration'='interval 60 days')",
        set_properties={
            "Delta.EnableChangeDataFeed": "true",
            "mine": "1",
            "delta.logRetentionDuration": "interval 60 days",
        },
    )
    same(
        "UNSET TBLPROPERTIES ('delta.enableChangeDataFeed', 'nope')",
        unset_properties=("delta.enablechangedatafeed", "nope"),
    )
    same(
        "ALTER COLUMN s.b.element.c COMMENT 'inner'",
        "ALTER COLUMN month COMMENT 'when'",
        "SET TBLPROPERTIES ('comment'='trips')",
        column_comments={"s.b.element.c": "inner", "month": "when"},
        table_comment="trips",
    )
    same("UNSET TBLPROPERTIES ('comment')", table_comment="")
    mapped = {"delta.columnMapping.mode": "name"}
    same(
        "SET TBLPROPERTIES ('delta.columnMapping.mode'='name')",
        "RENAME COLUMN month TO `a month`",
        "RENAME COLUMN s.b.element.c TO k",
        "RENAME COLUMN s TO t",
        "DROP COLUMNS (m, t.a)",
        set_properties=mapped,
        rename_columns={"month": "a month", "s.b.element.c": "k", "s": "t"},
        drop_columns=("m", "s.a"),
    )
    # Two engines go on from there.
    assert len(copies.rows()) == 6
    copies.both("INSERT INTO {t} VALUES (7, 7, 7, 7, 'v7', named_struct('b', NULL), '2020')")
    from deltalake import DeltaTable

    assert sorted(DeltaTable(str(copies.ours)).to_pyarrow_table()["id"].to_pylist()) == [0, 1, 2, 3, 4, 5, 7]
    same(
        "SET TBLPROPERTIES ('delta.enableTypeWidening'='true')",
        "ALTER COLUMN n TYPE INT, f TYPE DOUBLE, d TYPE DECIMAL(12,3)",
        "ALTER COLUMN t.b.element.k TYPE BIGINT",
        set_properties={"delta.enableTypeWidening": "true"},
        column_types={"n": "INT", "f": "DOUBLE", "d": "DECIMAL(12,3)", "t.b.element.k": "BIGINT"},
    )
    copies.both("INSERT INTO {t} VALUES (8, 70000, 8, 8, 'v8', named_struct('b', NULL), '2020')")
    same("ALTER COLUMN n TYPE BIGINT", column_types={"n": "BIGINT"})
    same(
        "SET TBLPROPERTIES ('delta.enableDeletionVectors'='true', 'delta.feature.timestampNtz'='supported')",
        set_properties={"delta.enableDeletionVectors": "true", "delta.feature.timestampNtz": "supported"},
    )
    copies.both("DELETE FROM {t} WHERE id = 7")
    assert len(copies.rows()) == 7
    # Rows that a deletion vector hides are not looked at.
    done = same("ADD CONSTRAINT no_seven CHECK (id <> 7)", add_checks={"no_seven": "id <> 7"})
    with pytest.raises(Exception, match="no_seven"):
        copies.run("INSERT INTO {t} VALUES (7, 7, 7, 7, 'v7', NULL, '2020')", copies.ours)
    (history,) = copies.run("DESCRIBE HISTORY {t} LIMIT 1", copies.ours)
    assert (history["version"], history["operation"]) == (done.version, "ADD CONSTRAINT")


@pytest.mark.nightly
def test_a_clustered_table_with_row_ids(spark: SparkSession, engine: ConnectEngine, tmp_path: Path) -> None:
    create = """(id INT, v STRING, w INT) USING delta CLUSTER BY (id) TBLPROPERTIES (
        'delta.enableRowTracking'='true', 'delta.enableInCommitTimestamps'='true', 'delta.enableTypeWidening'='true')"""
    copies = Altering(spark, engine, tmp_path, create)
    copies.run("INSERT INTO {t} VALUES (1, 'a', 1), (2, 'b', 2)", copies.ours)
    copies.copy()
    ids = "_metadata.row_id, _metadata.row_commit_version"
    before = copies.run(f"SELECT {ids} FROM {{t}} ORDER BY ALL", copies.ours)
    copies.same(
        "SET TBLPROPERTIES ('delta.columnMapping.mode'='name')",
        "ALTER COLUMN id TYPE BIGINT",
        "RENAME COLUMN id TO k",
        "DROP COLUMN w",
        set_properties={"delta.columnMapping.mode": "name"},
        column_types={"id": "BIGINT"},
        rename_columns={"id": "k"},
        drop_columns=("w",),
    )
    copies.run("OPTIMIZE {t} FULL", copies.ours)
    assert copies.run(f"SELECT {ids} FROM {{t}} ORDER BY ALL", copies.ours) == before


MAPPED = {"delta.columnMapping.mode": "name"}
WIDENING = {"delta.enableTypeWidening": "true"}
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("DELTA_UNSUPPORTED_RENAME_COLUMN", {"rename_columns": {"id": "k"}}),
    ("DELTA_UNSUPPORTED_DROP_COLUMN", {"drop_columns": ("id",)}),
    ("DELTA_UNSUPPORTED_ALTER_TABLE_CHANGE_COL_OP", {"column_types": {"n": "BIGINT"}}),
    ("FIELD_ALREADY_EXISTS", {"set_properties": MAPPED, "rename_columns": {"id": "N"}}),
    ("DELTA_UNSUPPORTED_DROP_PARTITION_COLUMN", {"set_properties": MAPPED, "drop_columns": ("month",)}),
    ("DELTA_DROP_COLUMN_ON_SINGLE_FIELD_SCHEMA", {"set_properties": MAPPED, "drop_columns": ("s.a", "s.b")}),
    (".", {"set_properties": MAPPED, "drop_columns": ("c",)}),
    (".", {"set_properties": MAPPED, "rename_columns": {"g": "x"}}),
    (".", {"set_properties": WIDENING, "column_types": {"c": "BIGINT"}}),
    (".", {"set_properties": WIDENING, "column_types": {"id": "SMALLINT"}}),
    (".", {"set_properties": {"delta.enableChangeDataFeed": "true"}}),
    (".", {"add_checks": {"c": "c > 1"}}),
]


def test_what_spark_refuses_fails_the_task_for_good(spark: SparkSession, engine: ConnectEngine, tmp_path: Path) -> None:
    create = """(id INT, n INT, c INT, g INT, h INT GENERATED ALWAYS AS (g + 1), s STRUCT<a: INT, b: INT>, month STRING,
        _change_type INT) USING delta PARTITIONED BY (month)"""
    copies = Altering(spark, engine, tmp_path, create)
    copies.run("ALTER TABLE {t} ADD CONSTRAINT c CHECK (c > 0)", copies.ours)
    before = definition(copies.ours)
    for condition, asked in REFUSED:
        with pytest.raises(TerminalError, match=condition):
            copies.alter(**asked)
        assert definition(copies.ours) == before, asked


def test_properties_of_fabric_are_set_by_a_spark_that_does_not_know_them(
    spark: SparkSession, engine: ConnectEngine, tmp_path: Path
) -> None:
    copies = Altering(spark, engine, tmp_path, "(id INT) USING delta")
    comment = "it's `a` \\ \n ${env:HOME} text"
    done = copies.alter(
        set_properties={"delta.parquet.vorder.enabled": "true", "my 'own' \\": comment},
        column_comments={"id": comment},
        add_checks={"a b": "id>0 -- a comment"},
    )
    schema, _, configuration, *_ = definition(copies.ours)
    assert schema["fields"][0]["metadata"] == {"comment": comment}
    assert configuration["delta.parquet.vorder.enabled"] == "true"
    assert configuration["my 'own' \\"] == comment
    assert configuration["delta.constraints.a b"] == "id>0 -- a comment"
    assert done.features == ("checkConstraints",)
    with pytest.raises(Exception, match=r"(?i)a b"):
        copies.run("INSERT INTO {t} VALUES (0)", copies.ours)
    copies.run("INSERT INTO {t} VALUES (1)", copies.ours)
    again = copies.alter(column_comments={"id": comment}, add_checks={"a b": "id>0 -- a comment"})
    assert again.status == "nothing_to_do"


def test_a_round_that_is_run_again_goes_on_where_it_was(
    spark: SparkSession, engine: ConnectEngine, tmp_path: Path
) -> None:
    copies = Altering(spark, engine, tmp_path, "(id INT, at TIMESTAMP) USING delta")
    statements = (
        "SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        "RENAME COLUMN id TO k",
        "ADD CONSTRAINT c CHECK (k > 0)",
    )

    def job(*done: str) -> AlterJob:
        path = str(copies.ours)
        return AlterJob(table_uri=path, attempt=str(uuid.uuid4()), shadow_uri=path, statements=done)

    for number in (2, 3, 3):
        engine.alter(job(*statements[:number]))
        assert local_log(copies.ours).snapshot().version == number
