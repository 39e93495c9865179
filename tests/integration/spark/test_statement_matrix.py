"""Every kind of statement on every kind of table, beside Spark's own statement on a copy: rows, row ids, change feed.

The rows are read by Spark and by deltalake. The statements run before and after a checkpoint whose earlier log is gone.
What people read of a statement in Spark's history is what Spark says of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest

from airflow_provider_onelake.commit.loop import Transactions
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.modes import Merge
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.options import Tuning
from airflow_provider_onelake.sources import SqlSource
from airflow_provider_onelake.spark.connect import ConnectEngine
from airflow_provider_onelake.statements.delete import delete
from tests.support.changes import asker, change_of
from tests.support.contexts import connect, context_of
from tests.support.copies import Copies, TwoTables
from tests.support.engines import use_engine
from tests.support.properties import FEED, IDS, MAPPED, STAMPS, VECTORS
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WIDENING = "'delta.enableTypeWidening'='true'"
SOURCE = "SELECT id, concat('new ', id) AS v, concat('2019 ', id % 3) AS month, 7 AS n FROM range({0}, {1}, 5)"


@attrs.frozen
class Kind:
    """A kind of table.

    :param month: the type of the column ``month``, and what generates it.
    """

    properties: str = ""
    layout: str = "PARTITIONED BY (month)"
    month: str = "STRING"
    after: Sequence[str] = ()

    def made(self, spark: SparkSession, directory: Path) -> Both:
        """Make the table and its copy."""
        properties = f"TBLPROPERTIES ({self.properties})" if self.properties else ""
        return Both(
            spark,
            directory,
            f"CREATE TABLE {{t}} (id BIGINT, v STRING, month {self.month}, n INT) USING delta {self.layout} {properties}",
            "INSERT INTO {t} (id, v, month, n) SELECT id, 'v', concat('2019 ', id % 3), 1 FROM range(0, 60, 1, 2)",
            *self.after,
            "DELETE FROM {t} WHERE id % 7 = 1",
        )


class Both(TwoTables):
    """A table and its copy."""

    rows = Copies.rows
    changes = Copies.changes
    by_deltalake = Copies.by_deltalake


KINDS = {
    "plain": Kind(),
    "without partitions, deletion vectors": Kind(VECTORS, layout=""),
    "deletion vectors, change feed, row ids": Kind(f"{VECTORS},{FEED},{IDS}"),
    "change feed, rewriting": Kind(FEED),
    "row ids, rewriting": Kind(IDS),
    "column mapping, deletion vectors, change feed": Kind(f"{MAPPED},{VECTORS},{FEED}"),
    "generated partitions, a CHECK, in-commit timestamps": Kind(
        f"{STAMPS},{FEED}",
        month="STRING GENERATED ALWAYS AS (concat('2019 ', CAST(id % 3 AS STRING)))",
        after=("ALTER TABLE {t} ADD CONSTRAINT positive CHECK (id >= 0)",),
    ),
    "widened": Kind(
        f"{WIDENING},{VECTORS}",
        after=("ALTER TABLE {t} ALTER COLUMN n TYPE BIGINT", "INSERT INTO {t} VALUES (61, 'w', '2019 1', 5000000000)"),
    ),
    "clustered, deletion vectors, change feed": Kind(f"{VECTORS},{FEED}", layout="CLUSTER BY (id)"),
}
IN_CI = ("deletion vectors, change feed, row ids", "generated partitions, a CHECK, in-commit timestamps")
CLAUSES = [
    "MATCHED AND source.id % 2 = 0 THEN DELETE -- a comment",
    "MATCHED THEN UPDATE SET target.v = source.v, target.n = source.n",
    "NOT MATCHED THEN INSERT (id, v, n) VALUES (source.id, source.v, source.n)",
    "NOT MATCHED BY SOURCE AND target.id = 30 THEN DELETE",
]
UPSERT = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"


@attrs.frozen
class Matrix:
    """The statements on one kind of table."""

    kind: Kind
    both: Both
    engine: ConnectEngine

    def drop(self, where: str | None) -> None:
        """Delete whole partitions, or all rows, without Spark."""
        before = len(self.both.rows(self.both.ours))
        done = delete(
            Transactions(local_log(self.both.ours)), where, asker(f"onelake-delete/{'some' if where else 'all'}")
        )
        assert done.rows_deleted is not None
        query, operation = f"DELETE FROM {{t}} WHERE {where or 'true'}", "DELETE" if where else "TRUNCATE"
        self._compare(query, done.version, operation, {}, ("numRemovedFiles", "numDeletedRows"))
        assert done.rows_deleted == before - len(self.both.rows(self.both.theirs)) > 0

    def delete(self, where: str, **terms: Any) -> None:
        self._change("DELETE", where, f"DELETE FROM {{t}} WHERE {where}", **terms)

    def update(self, where: str, **sets: str) -> None:
        said = ", ".join(f"{name} = {sql}" for name, sql in sets.items())
        commented = {name: f"{sql} -- a comment" for name, sql in sets.items()}
        self._change("UPDATE", where, f"UPDATE {{t}} SET {said} WHERE {where}", assignments=commented)

    def merge(self, number: int, source: str, clauses: Sequence[str] = ()) -> None:
        terms = {"when": list(clauses)} if clauses else {}
        task = OneLakeWriteOperator(
            task_id=f"merge{number}",
            table="Tables/ours",
            source=SqlSource(source),
            mode=Merge(keys=["id"]),
            tuning=Tuning(preflight=False),
            **terms,
        )
        done = task.execute(context_of(task))
        assert (done["status"], done["rounds"]) == ("published", 1)
        by_clauses = "\n".join(f"WHEN {clause}\n" for clause in clauses) or UPSERT
        query = f"MERGE INTO {{t}} target USING ({source}) source ON target.id = source.id {by_clauses}"
        counts = {f"numTargetRows{name}": done[f"rows_{name.lower()}"] for name in ("Inserted", "Updated", "Deleted")}
        self._compare(query, done["version"], "MERGE", counts, tuple(counts))

    def _change(self, operation: str, where: str, query: str, **terms: Any) -> None:
        where = f"{where} -- a comment"
        done = change_of(local_log(self.both.ours), self.engine, operation, where, task=query, **terms).carry_out()
        assert (done.status, done.rounds) == ("done", 1)
        counted = "numDeletedRows" if operation == "DELETE" else "numUpdatedRows"
        self._compare(query, done.version, operation, {counted: done.rows})

    def _compare(
        self, query: str, version: int | None, operation: str, counts: Mapping[str, int], same: Sequence[str] = ()
    ) -> None:
        """Do the statement to the copy by Spark, and compare.

        :param same: metrics that Spark's statement has too, as far as it tells them.
        """
        both = self.both
        both.run(query, both.theirs)
        assert version is not None
        history, theirs = (both.run("DESCRIBE HISTORY {t} LIMIT 1", path)[0] for path in (both.ours, both.theirs))
        assert (history["version"], history["operation"]) == (version, operation)
        metrics, expected = history["operationMetrics"], theirs["operationMetrics"]
        assert {name: metrics[name] for name in counts} == {name: str(count) for name, count in counts.items()}, query
        shown = [name for name in same if name in expected]
        assert {name: metrics[name] for name in shown} == {name: expected[name] for name in shown}, query
        has_ids = IDS in self.kind.properties
        columns = "*, _metadata.row_id, _metadata.row_commit_version" if has_ids else "*"
        ours, theirs = both.rows(both.ours, columns), both.rows(both.theirs, columns)
        if has_ids:
            ids = [row_id for *_, row_id, _ in ours]
            assert len({*ids}) == len(ids)
            ours, theirs = ([without_new_ids(row) for row in rows] for rows in (ours, theirs))
        assert ours == theirs, query
        # deltalake 1.6 refuses to query a table with type widening.
        if WIDENING not in self.kind.properties:
            assert both.by_deltalake() == [row[0] for row in ours]
        if FEED in self.kind.properties:
            assert both.changes(both.ours, version) == both.changes(both.theirs, version), query


def without_new_ids(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A row with its id and the version of its last change, for one of the first rows, else without.

    Spark may hand out the ids of rows that a MERGE inserts in another order. The first rows have those below 60.
    """
    *values, row_id, version = row
    return (*values, row_id, version) if row_id < 60 else tuple(values)


@pytest.mark.costs("Every statement by us and by Spark, on every kind of table")
@pytest.mark.parametrize(
    ("name", "some"),
    [
        *(pytest.param(name, True, id=f"some: {name}", marks=pytest.mark.promise) for name in IN_CI[:1]),
        *(pytest.param(name, True, id=f"some: {name}") for name in IN_CI[1:]),
        *(pytest.param(name, False, id=name, marks=pytest.mark.nightly) for name in KINDS),
    ],
)
def test_each_statement_is_what_spark_would_have_done(
    spark: SparkSession, engine: ConnectEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, some: bool
) -> None:
    from deltalake import DeltaTable

    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path / "a lake"), namespace="test")
    use_engine(monkeypatch, engine)
    kind = KINDS[name]
    both = kind.made(spark, tmp_path / "a lake" / "Tables")
    matrix = Matrix(kind, both, engine)
    is_generated = "GENERATED" in kind.month
    matrix.update("id % 5 = 3", v="concat(v, '!')")
    matrix.merge(1, SOURCE.format(4, 80))
    if not some:
        matrix.delete("id % 5 = 2")
        matrix.delete("month = '2019 1' AND id < 20 OR v IS NULL")
        matrix.update("id BETWEEN 10 AND 14", **({"id": "id + 301"} if is_generated else {"month": "'2019 9'"}))
        matrix.merge(2, SOURCE.format(5, 90), CLAUSES)
    # Now nothing but a checkpoint knows what came before.
    DeltaTable(str(both.ours)).create_checkpoint()
    checkpoint = max((both.ours / "_delta_log").glob("*.checkpoint.parquet"))
    for entry in (both.ours / "_delta_log").glob("*.json"):
        if entry.stem < checkpoint.name[:20]:
            entry.unlink()
    matrix.delete("id > 40 AND id % 5 = 4")
    if not some:
        matrix.update("n = 7 AND id >= 30", n="n + 1", v="'after'")
        matrix.merge(3, SOURCE.format(5, 100))
    if "PARTITIONED" in kind.layout:
        matrix.drop("month >= '2019 1' AND month <> '2019 2'")
    # Spark goes on from there, and finds the vectors at the table's root, as Trino does.
    for path in (both.ours, both.theirs):
        both.run("DELETE FROM {t} WHERE id % 5 = 4", path)
        both.run("OPTIMIZE {t}", path)
    assert both.rows(both.ours) == both.rows(both.theirs)
    adds = [add for commit in local_log(both.ours).commits_since(int(checkpoint.name[:20]) - 1) for add in commit.adds]
    named = {len(add["deletionVector"]["pathOrInlineDv"]) for add in adds if add.get("deletionVector")}
    assert named == ({20} if VECTORS in kind.properties else set())
    given = both.rows(both.ours, "_metadata.row_id") if IDS in kind.properties else []
    matrix.drop(None)
    for path in (both.ours, both.theirs):
        both.run("INSERT INTO {t} (id, v, month, n) VALUES (100, 'v', '2019 1', 1)", path)
    assert both.rows(both.ours) == both.rows(both.theirs)
    # No row id comes twice.
    assert not given or both.rows(both.ours, "_metadata.row_id") > given[-1:]
