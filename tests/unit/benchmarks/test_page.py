"""A run of the bench leaves the docs alone, unless it is asked for the page: then README tells the same race."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.commits import LOCAL, UNSYNCED
from tests.benchmarks.samples import DELTA, DELTA_MERGE, OURS, SUBMITS
from tests.benchmarks.tpch import SHARED


def sample(**said: Any) -> Any:
    """One that says a 1 of everything else."""
    return defaultdict(lambda: 1, {"faults": [], **said})


RESULT = {
    "conditions": dict.fromkeys(("when", "machine", "versions", "other work"), "so"),
    "races": [sample(way=way, seconds=4321.0) for way in (SUBMITS, OURS)],
    "loads": [sample(way=way, source=SHARED) for way in (DELTA, OURS)],
    "commits": [sample(way=OURS, store=store) for store in (LOCAL, UNSYNCED)],
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
    assert all(f"| {store} | 1 | **{OURS}** |" in told for store in (LOCAL, UNSYNCED))
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
