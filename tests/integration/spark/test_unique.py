"""Keys that must be unique, by a real Spark: what counts as equal, and what another engine commits meanwhile.

Protocol: unique keys.
"""

from __future__ import annotations

import json
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.checks import unique
from airflow_provider_onelake.engines.base import AuditJob
from airflow_provider_onelake.engines.connect import ConnectEngine
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from tests.support.contexts import JANUARY, connect, context_of
from tests.support.engines import overtake, use_engine
from tests.support.schemas import field

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RUNS = count()
KINDS = {
    "plain": "",
    "deletion vectors": "TBLPROPERTIES (delta.enableDeletionVectors = true)",
    "column mapping": "TBLPROPERTIES (delta.columnMapping.mode = 'name', delta.enableDeletionVectors = true)",
}


@pytest.fixture
def lakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: ConnectEngine) -> Path:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path / "a lake"), namespace="test")
    use_engine(monkeypatch, engine)
    return tmp_path / "a lake"


def table_of(spark: SparkSession, lakehouse: Path, properties: str = "") -> str:
    """Ids 0 to 9 in two parts, of which a DELETE took 4 and 9; returns its name in SQL."""
    table = f"delta.`{lakehouse}/Tables/trips`"
    spark.sql(f"CREATE TABLE {table} (`the-id` BIGINT, part STRING) USING delta PARTITIONED BY (part) {properties}")
    spark.sql(f"INSERT INTO {table} SELECT id, IF(id < 5, 'a b', 'c') FROM range(0, 10, 1, 1)")
    spark.sql(f"DELETE FROM {table} WHERE `the-id` IN (4, 9)")
    return table


def write(writer: str, rows: str, *key: str, **terms: Any) -> dict[str, Any]:
    task = OneLakeWriteOperator(
        task_id=writer,
        table="Tables/trips",
        source=SqlSource(f"SELECT * FROM VALUES {rows} AS t(`the-id`, part)"),
        checks={"each id once": unique(*(key or ("The-ID",)))},
        preflight=False,
        **terms,
    )
    # Each is of a run of its own, as in one run another name of a writer could be a new name of the same.
    number = next(_RUNS)
    return task.execute(context_of(task, JANUARY + timedelta(days=number), run_id=f"manual__{number}"))


def ids(spark: SparkSession, table: str) -> list[int | None]:
    found = [row[0] for row in spark.sql(f"SELECT `the-id` FROM {table}").collect()]
    return sorted(found, key=lambda row: (row is None, row))


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=() if kind == "column mapping" else pytest.mark.nightly) for kind in KINDS]
)
def test_rows_that_are_deleted_have_no_key_and_neither_has_null(
    spark: SparkSession, lakehouse: Path, kind: str
) -> None:
    table = table_of(spark, lakehouse, KINDS[kind])
    assert write("new", "(4L, 'c'), (NULL, 'c'), (NULL, 'c'), (20L, 'a b')")["status"] == "published"
    said = "5 rows have a key that another row has as well: 2 share it with another row of the writer and 3 share it"
    with pytest.raises(AirflowFailException, match=said):
        write("again", "(20L, 'c'), (21L, 'c'), (21L, 'c'), (4L, 'c'), (9L, 'c'), (3L, 'c')")
    assert write("elsewhere", "(20L, 'c'), (9L, 'a b')", "part", "the-id")["status"] == "published"
    assert ids(spark, table) == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 20, 20, None, None]


def test_what_spark_commits_after_the_comparison_is_compared_too(
    spark: SparkSession, lakehouse: Path, engine: ConnectEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loser has compared its keys, and is held until an UPDATE has brought one, and until a writer has."""
    table = table_of(spark, lakehouse)
    overtake(monkeypatch, engine, "audit", lambda: spark.sql(f"UPDATE {table} SET `the-id` = 30 WHERE `the-id` = 0"))
    with pytest.raises(AirflowFailException, match=r"1 shares it with a row of the table, in 1 file of version 3"):
        write("loser", "(30L, 'c')")
    overtake(monkeypatch, engine, "audit", lambda: write("winner", "(40L, 'a b'), (42L, 'a b')"))
    with pytest.raises(AirflowFailException, match=r"1 shares it .* in 1 file of version 4 that came after version 3"):
        write("second-loser", "(40L, 'c')")
    overtake(monkeypatch, engine, "audit", lambda: write("another-winner", "(41L, 'a b')"))
    done = write("lucky", "(39L, 'c'), (43L, 'c')")
    assert (done["status"], done["checks"][0]["compared"]) == ("published", 5)
    assert ids(spark, table) == [1, 2, 3, 5, 6, 7, 8, 30, 39, 40, 41, 42, 43]


def test_values_are_equal_as_spark_compares_them(spark: SparkSession, engine: ConnectEngine, tmp_path: Path) -> None:
    """NaN equals itself, and so do 0.0 and -0.0; texts are compared by their bytes."""
    columns = "d DOUBLE, s STRING, n DECIMAL(5, 2), t TIMESTAMP, b BINARY"
    mine, beside = str(tmp_path / "mine"), str(tmp_path / "beside")
    for path, rows in (
        (mine, "(double('NaN'), 'a', 1.50, TIMESTAMP '2020-01-01', X'00'), (0.0D, 'A', 2.00, NULL, X'0000')"),
        (beside, "(double('NaN'), 'á', 1.50, TIMESTAMP '2020-01-01', X'00'), (-0.0D, 'a ', 2.10, NULL, X'0001')"),
    ):
        spark.sql(f"CREATE TABLE delta.`{path}` ({columns}) USING delta")
        spark.sql(f"INSERT INTO delta.`{path}` VALUES {rows}")
    # What stays beside is named by version 0 of a table of its own.
    spark.sql(f"CREATE TABLE delta.`{beside}-0` SHALLOW CLONE delta.`{beside}`")
    job = AuditJob(
        table_uri=beside,
        buffer_uri=mine,
        metadata={"schemaString": json.dumps({"type": "struct", "fields": [field("d", "double")]})},
        checks={},
        unique={name: (name,) for name in "dsntb"},
        beside_uri=f"{beside}-0",
        attempt="of-values",
    )
    found = engine.audit(job).keys
    assert {name: count["beside"] for name, count in found.items()} == {"d": 2, "s": 0, "n": 1, "t": 1, "b": 1}
