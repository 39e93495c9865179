"""The page and its plots are rendered from what a run recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import attrs
import pytest

from tests.benchmarks import __main__ as bench
from tests.benchmarks import report
from tests.benchmarks.results import OURS, SUBMITS, Result


def test_the_page_shows_ratios_beside_one_delta_job(result: Result) -> None:
    page = report.render(result)
    # Medians over two rounds: 6.5 of ours, 8.5 of one Delta job.
    rows = [line for line in page.splitlines() if line.startswith(f"| **{OURS}** | 6.5 (6.0 to 7.0) | **0.76** |")]
    assert len(rows) == 2
    assert "Spark 4.2.0, Delta Lake 4.4.0" in page


def test_the_page_shows_which_jobs_lost_the_race(result: Result) -> None:
    page = report.render(result)
    assert f"| {SUBMITS} | 120 | 200 | 6 of 13 |" in page
    assert f"| **{OURS}** | 20 | 30 | 0 of 7 |" in page


def test_the_page_shows_a_merge_beside_deltas_own(result: Result) -> None:
    rows = [line for line in report.render(result).splitlines() if f"| {OURS} | 4.0 (3.5 to 4.5) | **0.50** |" in line]
    assert len(rows) == 2


def test_a_busy_machine_is_said(result: Result) -> None:
    assert "did little else" in report.render(result)
    busy = attrs.evolve(result, machine=attrs.evolve(result.machine, others=0.6))
    assert "The machine was shared with other work" in report.render(busy)


def test_the_page_keeps_the_docs_rules(result: Result) -> None:
    page = report.render(result)
    assert [line for line in page.splitlines() if len(line) > 130 and not line.startswith("|")] == []
    tables = re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE)
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_the_page_links_to_the_plots_that_are_drawn(result: Result, tmp_path: Path) -> None:
    page = report.write(result, tmp_path).read_text()
    linked = set(re.findall(r"\]\(images/([^)]+)\)", page))
    assert linked == {file.name for file in (tmp_path / "images").iterdir()}
    for name in linked:
        assert ElementTree.parse(tmp_path / "images" / name).getroot().tag.endswith("svg")


def test_one_result_gives_the_same_plots_every_time(result: Result, tmp_path: Path) -> None:
    drawn = []
    for directory in (tmp_path / "a", tmp_path / "b"):
        report.write(result, directory)
        drawn.append({file.name: file.read_bytes() for file in (directory / "images").iterdir()})
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize(("faults", "status", "written"), [([], 0, True), (["a row is missing"], 1, False)])
def test_only_wrong_rows_make_the_bench_fail(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faults: list[str], status: int, written: bool
) -> None:
    monkeypatch.setattr(bench, "DOCS", tmp_path / "docs")
    monkeypatch.setattr(bench, "ROOT", tmp_path)
    slow = [attrs.evolve(sample, seconds=1e6, faults=faults) for sample in result.commits]
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(attrs.evolve(result, commits=slow).to_json()))
    assert bench.main(["--report", str(kept)]) == status
    assert (tmp_path / "docs" / "performance.md").exists() == written


def test_a_part_alone_writes_no_page(result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "DOCS", tmp_path / "docs")
    kept = tmp_path / "kept.json"
    kept.write_text(json.dumps(attrs.evolve(result, loads=[]).to_json()))
    assert bench.main(["--report", str(kept)]) == 0
    assert not (tmp_path / "docs").exists()
