"""A run of the bench leaves the docs alone, unless it is asked for the page: then README tells the same race."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks.commits import LOCAL, UNSYNCED
from tests.benchmarks.results import (
    DELTA,
    DELTA_MERGE,
    OURS,
    SUBMITS,
    Commits,
    Load,
    Machine,
    Merging,
    Opening,
    Publishing,
    Race,
    Result,
    Task,
)
from tests.benchmarks.tpch import SHARED


def sample(kind: Any, /, **said: Any) -> Any:
    return kind(**{**dict.fromkeys((field.name for field in attrs.fields(kind)), 1), "faults": [], **said})


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    result = Result(
        machine=attrs.evolve(Machine(**dict.fromkeys((each.name for each in attrs.fields(Machine)), 1)), versions={}),
        rounds=1,
        warm_ups=1,
        races=[sample(Race, way=way, seconds=4321.0) for way in (SUBMITS, OURS)],
        loads=[sample(Load, way=way, source=SHARED) for way in (DELTA, OURS)],
        commits=[sample(Commits, way=OURS, store=store, latencies=[0.1]) for store in (LOCAL, UNSYNCED)],
        openings=[sample(Opening, **{name: [0.1] for name in ("opens", "pokes", "listings", "deltalake")})],
        publishings=[sample(Publishing, mode="append")],
        tasks=[sample(Task, kind="empty")],
        merges=[sample(Merging, way=DELTA_MERGE, keys="beside each other")],
    )
    file = tmp_path / "kept.json"
    file.write_text(json.dumps(result.to_json()))
    return file


@pytest.mark.parametrize("asked", [[], ["--page"]], ids=["a run", "PAGE=1"])
def test_the_docs_are_written_only_when_the_page_is_asked_for_and_the_readme_with_it(
    tmp_path: Path, kept: Path, monkeypatch: pytest.MonkeyPatch, asked: list[str]
) -> None:
    docs, readme = tmp_path / "docs", tmp_path / "README.md"
    docs.mkdir()
    before = Path(shutil.copy(bench.DOCS / "performance.md", docs)).read_text()
    shutil.copy(bench.README, readme)
    for name, value in (("DOCS", docs), ("README", readme), ("RESULTS", tmp_path / "results")):
        monkeypatch.setattr(bench, name, value)
    assert bench.main(["--report", str(kept), *asked]) == 0
    row = f"| {SUBMITS} | 4321 | 1 | 1 of 2 |"
    written, other = (docs, tmp_path / "results") if asked else (tmp_path / "results", docs)
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
    assert asked or (other / "performance.md").read_text() == before
    assert (row in readme.read_text()) == bool(asked)
    old, new = (page.read_text().splitlines() for page in (bench.ROOT / "README.md", readme))
    assert len(new) == len(old)
    assert sum(mine != its for mine, its in zip(old, new, strict=True)) == (2 if asked else 0)
