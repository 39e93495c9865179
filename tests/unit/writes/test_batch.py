"""What one commit publishes, and what it replaces."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import attrs
import pytest

from airflow_provider_onelake.buffers.buffer import Buffer
from airflow_provider_onelake.choices import OnUnexpectedRows
from airflow_provider_onelake.exceptions import InvalidWriteError, UnexpectedRowsError
from airflow_provider_onelake.log.delta_log import DeltaLog
from airflow_provider_onelake.log.partitions import Partitioning
from airflow_provider_onelake.log.values import typed_value
from airflow_provider_onelake.modes import Overwrite, ReplaceWhere
from airflow_provider_onelake.writes.batch import Batch, place
from tests.support.tables import OVERWRITE, finished_at, foreign_append, make_table, stage, writer_spec

WHERE = {"mode": ReplaceWhere("month >= '2019-01' AND month < '2019-03'")}


def placed(log: DeltaLog, *buffers: Buffer) -> Batch:
    snapshot = log.snapshot()
    return place(buffers, snapshot)


def replaced(batch: Batch, *months: str | None) -> list[str | None]:
    return [month for month in months if batch.replaces((month,))]


def at(log: DeltaLog, column: str, *spellings: str | None, **terms: Any) -> Buffer:
    """A buffer with files whose partition values are spelled as given."""
    buffer = stage(log, writer_spec(**terms), {"2019-01": [1]})
    adds = tuple({**buffer.adds[0], "path": f"{n}", "partitionValues": {column: s}} for n, s in enumerate(spellings))
    return attrs.evolve(buffer, adds=adds)


def partitioned_by(path: Path, kind: str) -> DeltaLog:
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("id", "long"), ("p", kind))]
    return make_table(path, json.dumps({"type": "struct", "fields": fields}), ["p"])


EMPTIES = {"mode": attrs.evolve(WHERE["mode"], allow_empty=True)}
COVERS = {**OVERWRITE, "expected_partitions": "month = '2019-01'"}


@pytest.mark.parametrize(
    ("terms", "rows", "months"),
    [
        pytest.param({}, {"2019-01": [1]}, [], id="an append"),
        pytest.param(OVERWRITE, {"2019-01": [1], None: [2]}, ["2019-01", None], id="partitions that got rows"),
        pytest.param(OVERWRITE, {}, [], id="none got rows"),
        pytest.param(COVERS, {"2019-01": [1], "2019-04": [2]}, ["2019-01"], id="a stray of an overwrite"),
        pytest.param(WHERE, {"2019-01": [1]}, ["2019-01", "2019-02"], id="a whole range"),
        pytest.param(WHERE, {}, [], id="a range without rows"),
        pytest.param(EMPTIES, {}, ["2019-01", "2019-02"], id="a range that may be emptied"),
        pytest.param(WHERE, {"2019-05": [9]}, [], id="a range with strays only"),
    ],
)
def test_what_a_batch_replaces(log: DeltaLog, terms: Any, rows: Any, months: list[str | None]) -> None:
    batch = placed(log, stage(log, writer_spec(**terms), rows))
    assert replaced(batch, "2018-12", "2019-01", "2019-02", "2019-03", "2019-04", None) == months
    assert batch.replaces_anything is bool(months)


def test_every_add_of_a_replace_where_lies_inside_its_predicate(log: DeltaLog) -> None:
    batch = placed(log, stage(log, writer_spec(**WHERE), {"2019-01": [1], "2019-05": [2, 3], None: [4]}))
    (one,) = batch.placed
    assert list(one.inside) == [("2019-01",)]
    assert set(one.outside) == {("2019-05",), (None,)}
    assert one.rows_unexpected == 3


def test_an_append_keeps_its_strays_where_nothing_is_promised(log: DeltaLog) -> None:
    (one,) = placed(log, stage(log, writer_spec(), {"2019-01": [1], "2019-04": [2]})).placed
    assert len(one.inside) == 2
    assert one.rows_unexpected == 0


@pytest.mark.parametrize(
    "terms",
    [{"expected_partitions": "month = '2019-01'"}, {"expected_partitions": "month = '2019-01'", **OVERWRITE}, WHERE],
)
def test_rows_outside_are_refused_where_asked_for_with_count_and_place(log: DeltaLog, terms: Any) -> None:
    spec = writer_spec(on_unexpected_rows=OnUnexpectedRows.REFUSE, **terms)
    buffer = stage(log, spec, {"2019-01": [1], "2019-05": [2, 3], None: [4]})
    with pytest.raises(UnexpectedRowsError, match=r"3 rows outside .*: in month=2019-05, month=NULL"):
        placed(log, buffer)


def test_colleagues_replace_together_what_any_of_them_replaces(log: DeltaLog) -> None:
    buffers = [stage(log, writer_spec(w, **OVERWRITE), {m: [1]}) for w, m in (("a", "2019-01"), ("b", "2019-02"))]
    assert replaced(placed(log, *buffers), "2019-01", "2019-02", "2019-03") == ["2019-01", "2019-02"]


def test_writers_of_different_modes_are_not_published_together(log: DeltaLog) -> None:
    buffers = [stage(log, writer_spec("a"), {"2019-01": [1]}), stage(log, writer_spec("b", **OVERWRITE), {})]
    with pytest.raises(InvalidWriteError, match="one mode, and these have append, overwrite_partitions"):
        placed(log, *buffers)


def test_a_batch_was_formed_on_the_oldest_version_and_finished_with_its_last_writer(log: DeltaLog) -> None:
    instant = datetime.now(UTC)
    first = finished_at(log, stage(log, writer_spec("a"), {}), instant)
    foreign_append(log, {"2019-01": [1]})
    second = finished_at(log, stage(log, writer_spec("b"), {}), instant - timedelta(hours=1))
    batch = placed(log, first, second)
    assert batch.read_version == 0
    assert batch.finished == (first.finished, first.spec.identity.app_id)


def test_a_tie_is_settled_the_same_way_for_everybody(log: DeltaLog) -> None:
    instant = datetime.now(UTC)
    buffers = [finished_at(log, stage(log, writer_spec(w), {}), instant) for w in ("b", "a")]
    for order in (buffers, buffers[::-1]):
        assert placed(log, *order).finished[1].endswith("/b")


def test_files_are_sorted_by_typed_value(tmp_path: Path) -> None:
    log = partitioned_by(tmp_path / "p", "timestamp")
    buffer = at(log, "p", "2019-01-01T12:00:00Z", "2019-01-01 14:00:00+02:00", "", None, **OVERWRITE)
    (one,) = placed(log, buffer).placed
    assert [len(adds) for adds in one.inside.values()] == [2, 2]


@pytest.mark.parametrize(
    "terms",
    [
        pytest.param(OVERWRITE, id="overwrite_partitions"),
        pytest.param({"mode": ReplaceWhere("p >= '2019-01-01'")}, id="replace_where"),
        pytest.param({"expected_partitions": "p >= '2019-01-01'"}, id="append that promises where"),
    ],
)
def test_an_instant_without_a_zone_is_refused_where_its_partition_matters(tmp_path: Path, terms: Any) -> None:
    log = partitioned_by(tmp_path / "p", "timestamp")
    with pytest.raises(InvalidWriteError, match=r"p=2019-01-01 12:00:00 is spelled without a time zone"):
        placed(log, at(log, "p", "2019-01-01 12:00:00", **terms))


def test_an_append_that_promises_nothing_may_spell_as_it_likes(tmp_path: Path) -> None:
    log = partitioned_by(tmp_path / "p", "timestamp")
    assert len(placed(log, at(log, "p", "2019-01-01 12:00:00")).placed[0].inside) == 1


def test_a_number_is_not_compared_with_a_string_column_before_anything_is_staged(log: DeltaLog) -> None:
    foreign_append(log, {"2": [2], "9": [9], "10": [10], "23": [23]})
    with pytest.raises(InvalidWriteError, match=r"month is STRING and 10 is a number, .* write '10'"):
        stage(log, writer_spec(mode=ReplaceWhere("month >= 10")), {"23": [123]})
    as_text = stage(log, writer_spec(mode=ReplaceWhere("month >= '10'")), {"23": [123]})
    assert replaced(placed(log, as_text), "2", "9", "10", "23") == ["2", "9", "10", "23"]


@pytest.mark.parametrize("spelling", ["+10000-01-01", "-0044-03-15"])
def test_a_date_of_a_strange_year_stands_in_no_overwrites_way(tmp_path: Path, spelling: str) -> None:
    log = partitioned_by(tmp_path, "date")
    strange, plain, other = ((typed_value(each, "date"),) for each in (spelling, "2019-01-01", "2019-01-02"))
    batch = placed(log, at(log, "p", "2019-01-01", **OVERWRITE))
    assert [batch.replaces(partition) for partition in (strange, plain, other)] == [False, True, False]
    batch = placed(log, at(log, "p", spelling, writer="strange", **OVERWRITE))
    assert [batch.replaces(partition) for partition in (strange, plain, other)] == [True, False, False]


def test_what_is_no_value_of_its_type_is_refused_only_where_an_overwrite_touches_it(tmp_path: Path) -> None:
    log = partitioned_by(tmp_path, "date")
    strange = Partitioning({"p": "date"}).partition({"p": "20190101"})
    assert not placed(log, at(log, "p", "2019-01-01", **OVERWRITE)).replaces(strange)
    nulls = placed(log, at(log, "p", None, writer="nulls", **OVERWRITE))
    assert nulls.replaces((None,))
    with pytest.raises(InvalidWriteError, match=r"'20190101', which Spark reads as NULL too\. Nothing was published"):
        nulls.replaces(strange)
    where = {"mode": ReplaceWhere("p >= '2019-01-01'")}
    with pytest.raises(InvalidWriteError, match="nobody knows"):
        placed(log, at(log, "p", "2019-01-01", writer="where", **where)).replaces(strange)
    assert placed(log, at(log, "p", "2019-01-01", writer="all", mode=Overwrite())).replaces(strange)
