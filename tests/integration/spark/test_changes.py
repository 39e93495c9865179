"""DELETE and UPDATE of rows, by Spark in shadows, while others write; test_statement_matrix.py has each by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider_onelake.exceptions import ConstraintViolatedError, SparkQueryError
from airflow_provider_onelake.spark.base import ChangeJob
from airflow_provider_onelake.spark.connect import ConnectEngine
from tests.support.changes import change_of
from tests.support.copies import Copies
from tests.support.properties import FEED, IDS, VECTORS
from tests.support.spark import Server
from tests.support.tables import local_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


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
    # A second round reads the file that both had read as the other has left it.
    assert (done.status, done.rows, done.rounds) == ("done", 1, 2)
    expected = [(row, "six" if row == 6 else v) for row, v in before if row != 9]
    assert both.rows(both.ours, "id, v") == expected


def test_two_statements_that_hide_two_rows_of_one_file_are_both_done(
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
    deleted = change_of(log, spark_deletes, where="id IN (18, 21)", task="third").carry_out()
    both.run("DELETE FROM {t} WHERE id IN (12, 18)", both.theirs)
    both.run("DELETE FROM {t} WHERE id IN (18, 21)", both.theirs)

    for done in (updated, deleted):
        assert (done.status, done.rows, done.rounds) == ("done", 1, 2)
        assert done.version is not None
        for version in (done.version - 1, done.version):
            assert both.changes(both.ours, version) == both.changes(both.theirs, version)
    ids = "*, _metadata.row_id, _metadata.row_commit_version"
    assert both.rows(both.ours, ids) == both.rows(both.theirs, ids)
    assert both.by_deltalake() == [row[0] for row in both.rows(both.theirs)]
    # Spark goes on from these vectors.
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
