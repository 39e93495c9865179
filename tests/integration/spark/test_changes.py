"""DELETE and UPDATE of rows, by Spark in shadows, beside Spark's own statement on a copy: rows, row ids, change feed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_onelake.engines.base import ChangeJob
from airflow_provider_onelake.engines.connect import ConnectEngine
from airflow_provider_onelake.exceptions import ConstraintViolatedError, SparkQueryError
from tests.support.changes import change_of
from tests.support.copies import Copies
from tests.support.properties import FEED, IDS, MAPPED, STAMPS, VECTORS
from tests.support.spark import Server
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


WHERE = "id % 5 = 2 -- a comment"


@pytest.mark.parametrize(
    "properties",
    [
        pytest.param("", id="plain", marks=pytest.mark.nightly),
        pytest.param(f"{VECTORS},{FEED},{STAMPS}", id="deletion vectors, change feed, in-commit timestamps"),
        pytest.param(
            f"{IDS},{FEED},{MAPPED}", id="row ids, change feed, column mapping, rewriting", marks=pytest.mark.nightly
        ),
    ],
)
def test_both_are_what_spark_would_have_done(
    spark: SparkSession, engine: ConnectEngine, tmp_path: Path, properties: str
) -> None:
    both = Copies(spark, tmp_path / "a lake", properties)
    log = local_log(both.ours)
    sets = {"v": "concat(v, '!') -- a comment", "`id`": "id + 100"}
    before = len(both.by_deltalake())

    for operation, query, terms in (
        ("DELETE", "DELETE FROM {t} WHERE id % 5 = 2", {}),
        ("UPDATE", "UPDATE {t} SET v = concat(v, '!'), id = id + 100 WHERE id % 5 = 2", {"assignments": sets}),
    ):
        where = WHERE if operation == "DELETE" else "id % 5 = 3"
        query = query.replace("id % 5 = 2", where.removesuffix(" -- a comment"))
        done = change_of(log, engine, operation, where, **terms).carry_out()
        both.run(query, both.theirs)
        assert (done.status, done.rounds) == ("done", 1)
        columns = "*, _metadata.row_id, _metadata.row_commit_version" if IDS in properties else "*"
        rows = both.rows(both.ours, columns)
        assert rows == both.rows(both.theirs, columns)
        assert both.by_deltalake() == [row[0] for row in rows]
        assert done.version is not None
        assert done.rows == (before - len(rows) or 5)
        before = len(rows)
        if FEED in properties:
            assert both.changes(both.ours, done.version) == both.changes(both.theirs, done.version)
        (history,) = both.run("DESCRIBE HISTORY {t} LIMIT 1", both.ours)
        assert (
            history["operation"],
            history["operationMetrics"]["numDeletedRows" if operation == "DELETE" else "numUpdatedRows"],
        ) == (operation, str(done.rows))
    # Spark goes on from there, and finds the vectors at the table's root, as Trino does.
    for path in (both.ours, both.theirs):
        both.run("DELETE FROM {t} WHERE id % 5 = 4", path)
        both.run("OPTIMIZE {t}", path)
    assert both.rows(both.ours) == both.rows(both.theirs)
    named = [
        add["deletionVector"]["pathOrInlineDv"]
        for commit in log.commits_since(-1)
        for add in commit.adds
        if add.get("deletionVector")
    ]
    assert {len(text) for text in named} <= {20}
    assert bool(named) == (VECTORS in properties)


class _Overtaken(ConnectEngine):
    """Lets another begin and end while the first round has ended and is not published."""

    def __init__(self, server: Server, winner: Callable[[], object]) -> None:
        super().__init__(server.remote)
        self._winners = [winner]

    def change(self, job: ChangeJob) -> Any:
        result = super().change(job)
        if self._winners:
            self._winners.pop()()
        return result


@pytest.mark.costs("Two statements of Spark overtake each other")
@pytest.mark.parametrize(
    "properties", [pytest.param("", marks=pytest.mark.nightly), pytest.param(VECTORS, marks=pytest.mark.promise)]
)
def test_two_statements_on_two_rows_of_one_file_at_once_both_succeed(
    spark: SparkSession, connect_server: Server, tmp_path: Path, properties: str
) -> None:
    both = Copies(spark, tmp_path / "a lake", properties)
    log = local_log(both.ours)

    def another() -> None:
        other = ConnectEngine(connect_server.remote)
        won = change_of(log, other, "UPDATE", "id = 6", task="other", assignments={"v": "'six'"}).carry_out()
        assert won.rounds == 1

    before = both.rows(both.ours, "id, v")
    done = change_of(log, _Overtaken(connect_server, another), where="id = 9").carry_out()
    # With vectors, the other's new file has one row, of which its statistics say that it is not 9. Without them, it has
    # all rows of the file that both had read, so a second round reads it.
    assert (done.status, done.rows, done.rounds, done.files_united) == ("done", 1, *((1, 1) if properties else (2, 0)))
    expected = [(row, "six" if row == 6 else v) for row, v in before if row != 9]
    assert both.rows(both.ours, "id, v") == expected


def test_two_statements_that_hide_two_rows_of_one_file_run_spark_once_each(
    spark: SparkSession, engine: ConnectEngine, connect_server: Server, tmp_path: Path
) -> None:
    both = Copies(spark, tmp_path / "a lake", f"{VECTORS},{FEED},{IDS}")
    log = local_log(both.ours)
    sets = {"v": "'nine'"}

    def ours_deletes() -> None:
        assert change_of(log, engine, where="id = 6", task="other").carry_out().rounds == 1

    # On the copy they are done one after the other, as the log has them.
    updated = change_of(log, _Overtaken(connect_server, ours_deletes), "UPDATE", "id = 9", assignments=sets).carry_out()
    both.run("DELETE FROM {t} WHERE id = 6", both.theirs)
    both.run("UPDATE {t} SET v = 'nine' WHERE id = 9", both.theirs)
    spark_deletes = _Overtaken(connect_server, lambda: both.run("DELETE FROM {t} WHERE id IN (12, 18)", both.ours))
    deleted = change_of(log, spark_deletes, where="id IN (18, 21)").carry_out()
    both.run("DELETE FROM {t} WHERE id IN (12, 18)", both.theirs)
    both.run("DELETE FROM {t} WHERE id IN (18, 21)", both.theirs)

    for done in (updated, deleted):
        assert (done.status, done.rows, done.rounds, done.files_united) == ("done", 1, 1, 1)
        assert done.version is not None
        for version in (done.version - 1, done.version):
            assert both.changes(both.ours, version) == both.changes(both.theirs, version)
    ids = "*, _metadata.row_id, _metadata.row_commit_version"
    assert both.rows(both.ours, ids) == both.rows(both.theirs, ids)
    assert both.by_deltalake() == [row[0] for row in both.rows(both.theirs)]
    # Spark goes on from the united vectors.
    for path in (both.ours, both.theirs):
        both.run("DELETE FROM {t} WHERE id = 24", path)
        both.run("OPTIMIZE {t}", path)
    assert both.rows(both.ours) == both.rows(both.theirs)


def test_what_spark_refuses_changes_nothing(spark: SparkSession, engine: ConnectEngine, tmp_path: Path) -> None:
    both = Copies(spark, tmp_path / "a lake", "")
    both.run("ALTER TABLE {t} ADD CONSTRAINT small CHECK (id < 1000)", both.ours)
    log = local_log(both.ours)
    version = log.snapshot().version
    refused: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: change_of(log, engine, where="no_column = 1").carry_out(), SparkQueryError),
        (
            lambda: change_of(log, engine, "UPDATE", "id = 3", assignments={"id": "id + 1000"}).carry_out(),
            ConstraintViolatedError,
        ),
    ]
    for run, error in refused:
        with pytest.raises(error, match="The table is unchanged"):
            run()
    assert change_of(log, engine, where="id = -1").carry_out().status == "nothing_to_do"
    assert log.snapshot().version == version
