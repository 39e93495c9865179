"""mode="merge" by Spark, beside Delta's own MERGE on a copy: rows, row ids, change feed; and while others write."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_provider_onelake.engines.base import ChangeJob
from airflow_provider_onelake.engines.connect import ConnectEngine
from airflow_provider_onelake.hooks.onelake import OneLakeHook
from airflow_provider_onelake.operators.write import OneLakeWriteOperator
from airflow_provider_onelake.sources import SqlSource
from tests.support.contexts import connect, context_of
from tests.support.copies import Copies
from tests.support.engines import use_engine
from tests.support.properties import FEED, IDS, MAPPED, VECTORS
from tests.support.spark import Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

ROWS = "SELECT id, concat('new ', id) AS v, concat('2019 ', id % 2) AS month FROM range(4, 40, 5)"
OPS = f"SELECT *, if(id % 2 = 0, 'd', 'u') AS op FROM ({ROWS})"
WHEN = [
    "MATCHED AND source.op = 'd' THEN DELETE -- a comment",
    "MATCHED THEN UPDATE SET target.v = source.v",
    "NOT MATCHED AND source.op <> 'd' THEN INSERT (id, v, month) VALUES (source.id, source.v, source.month)",
    "NOT MATCHED BY SOURCE AND target.id = 6 THEN DELETE",
]


@pytest.fixture
def lakehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    connect(monkeypatch, OneLakeHook, lakehouse=str(tmp_path / "a lake"), namespace="test")
    return tmp_path / "a lake"


def merge(query: str, task_id: str = "merge", **terms: Any) -> dict[str, Any]:
    task = OneLakeWriteOperator(
        task_id=task_id, table="Tables/ours", source=SqlSource(query), mode="merge", preflight=False, **terms
    )
    return task.execute(context_of(task))


@pytest.mark.parametrize("properties", [pytest.param("", id="plain"), pytest.param(VECTORS, id="deletion vectors")])
def test_spark_writes_a_row_anew_that_an_upsert_replaces_by_an_equal_one(
    spark: SparkSession, engine: ConnectEngine, lakehouse: Path, monkeypatch: pytest.MonkeyPatch, properties: str
) -> None:
    """A file that is left alone held no match: a MERGE that inserts relies on it when others remove such a file."""
    use_engine(monkeypatch, engine)
    Copies(spark, lakehouse / "Tables", properties)
    merge(ROWS, "first", keys=["id"])
    again = merge(ROWS, "again", keys=["id"])
    assert (again["rows_updated"], again["rows_inserted"]) == (8, 0)
    assert again["files_added"] > 0


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param("", id="plain", marks=pytest.mark.long),
        pytest.param(f"{VECTORS},{FEED},{IDS}", id="deletion vectors, change feed, row ids"),
        pytest.param(f"{MAPPED},{FEED}", id="column mapping, change feed", marks=pytest.mark.long),
    ],
)
def test_both_are_what_spark_would_have_done(
    spark: SparkSession, engine: ConnectEngine, lakehouse: Path, monkeypatch: pytest.MonkeyPatch, properties: str
) -> None:
    use_engine(monkeypatch, engine)
    both = Copies(spark, lakehouse / "Tables", properties)
    upsert = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    by_clauses = "\n".join(f"WHEN {clause}\n" for clause in WHEN)
    for number, (query, clauses, terms) in enumerate(((ROWS, upsert, {}), (OPS, by_clauses, {"when": WHEN}))):
        done = merge(query, f"merge{number}", keys=["id"], **terms)
        both.run(f"MERGE INTO {{t}} target USING ({query}) source ON target.id = source.id {clauses}", both.theirs)
        assert (done["status"], done["rounds"]) == ("published", 1)
        assert both.rows(both.ours) == both.rows(both.theirs)
        ours, theirs = (
            json.loads(json.dumps(both.run("DESCRIBE HISTORY {t} LIMIT 1", path)[0]["operationMetrics"]))
            for path in (both.ours, both.theirs)
        )
        for name in ("Inserted", "Updated", "Deleted"):
            assert ours[f"numTargetRows{name}"] == theirs[f"numTargetRows{name}"] == str(done[f"rows_{name.lower()}"])
        if FEED in properties:
            assert both.changes(both.ours, done["version"]) == both.changes(both.theirs, done["version"])
        if IDS in properties:
            # Spark may hand out the ids of inserted rows, such as 29, in another order.
            ids = [row_id for (row_id,) in both.rows(both.ours, "_metadata.row_id")]
            assert len({*ids}) == len(ids)
            old = "id, _metadata.row_id"
            kept = {row for row in both.rows(both.ours, old) if row[0] < 29}
            assert kept == {row for row in both.rows(both.theirs, old) if row[0] < 29}
    for path in (both.ours, both.theirs):
        both.run("DELETE FROM {t} WHERE id % 5 = 4", path)
        both.run("OPTIMIZE {t}", path)
    assert both.rows(both.ours) == both.rows(both.theirs)


def test_a_merge_takes_eight_spark_jobs_more_than_deltas_own(
    spark: SparkSession,
    engine: ConnectEngine,
    lakehouse: Path,
    monkeypatch: pytest.MonkeyPatch,
    connect_server: Server,
) -> None:
    """Four are of Delta, to read the log of the staged source, two list its files again, and two look at the keys.

    The append that stages the source stands in place of the job in which Delta's own MERGE keeps its source.
    """
    use_engine(monkeypatch, engine)
    both = Copies(spark, lakehouse / "Tables", "")
    upsert = "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    begun = len(connect_server.jobs())
    both.run(f"MERGE INTO {{t}} target USING ({ROWS}) source ON target.id = source.id {upsert}", both.theirs)
    between = len(connect_server.jobs())
    merge(ROWS, keys=["id"])
    ours, theirs = len(connect_server.jobs()) - between, between - begun
    assert ours - theirs <= 8, f"{ours} jobs, and Delta's own MERGE took {theirs}"
    assert both.rows(both.ours) == both.rows(both.theirs)


def test_a_key_that_others_bring_while_it_runs_is_not_there_twice(
    spark: SparkSession, connect_server: Server, lakehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = Copies(spark, lakehouse / "Tables", "")
    winners: list[Callable[[], Any]] = [
        lambda: both.run("INSERT INTO {t} VALUES (39, 'theirs', '2019 0')", both.ours),
        lambda: merge("SELECT 100L AS id, 'b' AS v, '2019 1' AS month", "other", keys=["id"]),
    ]
    staged: list[str] = []

    class Overtaken(ConnectEngine):
        """Lets others in when a round has ended and is not published yet."""

        def stage(self, job: Any) -> Any:
            staged.append(job.label)
            return super().stage(job)

        def change(self, job: ChangeJob) -> Any:
            result = super().change(job)
            if winners:
                winners.pop(0)()
            return result

    use_engine(monkeypatch, Overtaken(connect_server.remote))
    done = merge(ROWS, keys=["id"])
    # The other MERGE is of a key outside of the range, so it costs no round.
    assert (done["rounds"], [label.split()[0] for label in staged].count("merge")) == (2, 1)
    assert (
        both.rows(both.ours, "count(*), count(DISTINCT id)")[0][0] == both.rows(both.ours, "count(DISTINCT id)")[0][0]
    )
    assert [v for row, v, _ in both.rows(both.ours) if row in (39, 100)] == ["new 39", "b"]


def test_a_source_with_a_key_twice_is_refused_and_names_it(
    spark: SparkSession, engine: ConnectEngine, lakehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_engine(monkeypatch, engine)
    both = Copies(spark, lakehouse / "Tables", "")
    before = both.rows(both.ours)
    twice = f"{ROWS} UNION ALL SELECT 39L, 'again', 'x' UNION ALL SELECT NULL, 'nobody', 'x'"
    with pytest.raises(AirflowFailException, match=r"ConstraintViolatedError.*\(NULL\).*The table is unchanged"):
        merge(twice, keys=["id"])
    assert both.rows(both.ours) == before
