"""The bench fails for wrong rows, and for nothing else: what counts as one is found, and told by its exit status."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks import commits, growth, logs
from tests.benchmarks.tpch import totals
from tests.support.object_stores import Lake


@pytest.mark.parametrize("part", bench.PARTS)
@pytest.mark.parametrize("faults", [[], ["a row is missing"]])
def test_only_wrong_rows_in_any_part_make_the_bench_fail_and_a_part_alone_writes_no_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str, faults: list[str]
) -> None:
    monkeypatch.setattr(bench, "DOCS", tmp_path / "docs")
    assert bench.tell({part: [{"way": "ours", "seconds": 1e6, "faults": faults}]}, page=True) == len(faults)
    assert not (tmp_path / "docs").exists()


def test_a_row_that_is_there_twice_does_not_stand_in_for_one_that_is_missing() -> None:
    rows = pa.table({"l_extendedprice": pa.array(range(500), pa.decimal128(15, 2))})
    wrong = pa.concat_tables([rows.slice(1), rows.slice(7, 1)])
    assert totals(ds.dataset(wrong)) != totals(ds.dataset(rows))


def test_rows_that_are_missing_beside_others_commits_are_a_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose_one(lake: Lake, table: str, processes: int, paths: list[str]) -> object:
        return commits._publish(lake, table, processes, paths[1:])

    monkeypatch.setattr(commits, "begin_together", lambda processes: None)
    monkeypatch.setitem(commits._WAYS, commits.OURS, (commits._buffers, lose_one))
    one_after_another: Any = SimpleNamespace(together=lambda do, work: [do(*args) for args in work])
    seen = commits._one(one_after_another, commits.LOCAL, Lake("local", str(tmp_path)), commits.OURS, 1, 3)
    assert seen["faults"] == ["4 rows, 4 of them different"]


def test_a_commit_beside_many_files_is_judged_by_what_it_replaced(tmp_path: Path) -> None:
    logs.wide_log(tmp_path / "t", 1000)
    appended = growth.publish(tmp_path / "t", 1000, "append", 0, 1001)
    assert (appended["faults"], appended["removed"]) == ([], 0)
    wrong = growth.publish(tmp_path / "t", 1000, "overwrite_partitions", 999, 1001)
    assert wrong["faults"] == ["10 files were replaced instead of 999", "992 files are live instead of 1001"]
