"""The bench fails for wrong rows and for nothing else, and leaves the docs alone unless it is asked for the page."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks import commits, growth, logs
from tests.benchmarks.commits import BARE, DELTALAKE, LOCAL, UNSYNCED
from tests.benchmarks.samples import DELTA, DELTA_MERGE, OURS, SUBMITS
from tests.benchmarks.tpch import SHARED, totals
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


def sample(**said: Any) -> Any:
    """One that says a 1 of everything else."""
    return defaultdict(lambda: 1, {"faults": [], **said})


RESULT = {
    "conditions": dict.fromkeys(("when", "machine", "versions", "other work"), "so"),
    "races": [sample(way=way, seconds=4321.0) for way in (SUBMITS, OURS)],
    "loads": [sample(way=way, source=SHARED) for way in (DELTA, OURS)],
    "commits": [
        sample(way=way, store=store, per_second=speed)
        for store in (LOCAL, UNSYNCED)
        for way, speed in ((BARE, 9000.0), (OURS, 300.0), (DELTALAKE, 90.0))
    ],
    "openings": [sample(**{name: [0.1] for name in ("opens", "pokes", "listings", "deltalake")})],
    "publishings": [sample(mode="append")],
    "tasks": [sample(kind="empty")],
    "merges": [sample(way=DELTA_MERGE, keys="beside each other")],
}


@pytest.mark.parametrize("page", [False, True], ids=["a run", "PAGE=1"])
def test_the_docs_are_written_only_when_the_page_is_asked_for_and_the_readme_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, page: bool
) -> None:
    docs, readme = tmp_path / "docs", tmp_path / "README.md"
    docs.mkdir()
    before = Path(shutil.copy(bench.DOCS / "performance.md", docs)).read_text()
    shutil.copy(bench.README, readme)
    for name, value in (("DOCS", docs), ("README", readme), ("RESULTS", tmp_path / "results")):
        monkeypatch.setattr(bench, name, value)
    assert bench.tell(RESULT, page=page) == 0
    row = f"| {SUBMITS} | 4321 | 1 | 1 of 1 |"
    written, other = (docs, tmp_path / "results") if page else (tmp_path / "results", docs)
    told = (written / "performance.md").read_text()
    assert row in told
    assert all(f"| {store} | 1 | 300 | 90 | 9,000 |" in told for store in (LOCAL, UNSYNCED))
    # Every table was found by its head, and all words stay.
    heads = [line for line in before.splitlines() if line.startswith("| --- |")]
    assert len(heads) == 8
    assert [line for line in told.splitlines() if line.startswith("| --- |")] == heads
    assert [line for line in told.splitlines() if line[:1] != "|"] == [
        line for line in before.splitlines() if line[:1] != "|"
    ]
    assert page or (other / "performance.md").read_text() == before
    assert (row in readme.read_text()) == page
    old, new = (page.read_text().splitlines() for page in (bench.ROOT / "README.md", readme))
    assert len(new) == len(old)
    assert sum(mine != its for mine, its in zip(old, new, strict=True)) == (2 if page else 0)
