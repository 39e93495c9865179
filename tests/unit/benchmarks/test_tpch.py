"""The writers of the bench divide the rows: each row is in one share, whatever the source."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from tests.benchmarks.tpch import OWN, SHARED, Totals, source


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    days = [date(1992, 1, 1) + timedelta(days=13 * n % 2557) for n in range(500)]
    rows = pa.table(
        {
            "l_shipdate": pa.array(days, pa.date32()),
            "l_comment": pa.array(["text"] * 500, pa.string_view()),
            "l_extendedprice": pa.array([Decimal(n) for n in range(500)], pa.decimal128(15, 2)),
        }
    )
    file = tmp_path / "scale-1" / "lineitem.parquet"
    file.parent.mkdir()
    pq.write_table(rows, file)
    return tmp_path


@pytest.mark.parametrize("writers", [2, 7, 28])
def test_files_of_their_own_have_every_row_once(directory: Path, writers: int) -> None:
    found = source(directory, 1, OWN, writers)
    assert len(found.shares) == len({share.writer for share in found.shares}) == writers
    assert [share.path for share in found.shares] == found.paths
    assert Totals.of(ds.dataset(found.paths)) == found.totals == Totals(500, "124750.00")


@pytest.mark.parametrize("writers", [2, 7, 28])
def test_filters_on_a_shared_file_take_every_row_once(directory: Path, writers: int) -> None:
    found = source(directory, 1, SHARED, writers)
    ranges = sorted(str(share.where).replace("l_shipdate ", "") for share in found.shares)
    bounds = [[date.fromisoformat(day) for day in text.split("'")[1::2]] for text in ranges]
    assert [len(found.paths), len(ranges)] == [1, writers]
    assert (bounds[0][0], bounds[-1][1]) == (date(1992, 1, 1), date(1999, 1, 1))
    assert [end for _, end in bounds[:-1]] == [begin for begin, _ in bounds[1:]]


def test_a_row_that_is_there_twice_does_not_stand_in_for_one_that_is_missing(directory: Path) -> None:
    rows = pq.read_table(directory / "scale-1" / "lineitem.parquet")
    wrong = pa.concat_tables([rows.slice(1), rows.slice(7, 1)])
    assert Totals.of(ds.dataset(wrong)) != Totals.of(ds.dataset(rows))
