"""The matrix of versions: CI knows its cells, what they run exists, and they need no skip without a reason."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.matrix import __main__ as matrix
from tests.matrix.cells import CELLS, Cell
from tests.support import skips

ROOT = Path(__file__).parents[2]


def test_ci_runs_each_cell_by_the_commits_hash() -> None:
    found = re.search(r"^cells=\((.*)\)$", (ROOT / ".ci" / "run").read_text(), re.MULTILINE)
    assert found
    assert found[1].split() == [cell.name for cell in CELLS]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_what_a_cell_runs_and_its_versions_are_there(cell: Cell) -> None:
    assert not [path for path in cell.tests if not (ROOT / path.partition("::")[0]).exists()]
    assert [cell.lock, cell.python, cell.spark].count(None) == 2
    if cell.lock is not None:
        assert all(re.fullmatch(r"\S+==\S+( ; .*)?", line) for line in cell.lock.read_text().splitlines())


@pytest.mark.parametrize(
    ("cell", "reason", "is_fine"),
    [
        ("airflow-3.2", "Skipped: Airflow 3.3 has retry policies", True),
        ("airflow-3.2", "Skipped: no Java here", False),
        (None, "Skipped: Airflow 3.3 has retry policies", False),
    ],
)
def test_only_an_older_version_of_a_cell_excuses_a_skipped_test(
    monkeypatch: pytest.MonkeyPatch, cell: str | None, reason: str, is_fine: bool
) -> None:
    monkeypatch.delenv(skips.CELL, raising=False)
    if cell is not None:
        monkeypatch.setenv(skips.CELL, cell)
    assert skips.is_of_another_version(reason) is is_fine


def test_a_cell_says_why_tests_were_skipped_and_then_its_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def tests(*_: object, **__: object) -> SimpleNamespace:
        cases = "<testcase/>" * 1253 + '<testcase><skipped message="Airflow 3.3 has watermarks"/></testcase>' * 2
        (tmp_path / "python-3.13.xml").write_text(f"<testsuite>{cases}</testsuite>")
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(matrix, "environment", lambda *_: Path(sys.executable))
    monkeypatch.setattr(matrix.subprocess, "run", tests)
    passed, row = matrix.run(CELLS[-1], tmp_path)
    assert passed
    assert capsys.readouterr().out == "2 skipped: Airflow 3.3 has watermarks\n"
    assert re.fullmatch(r"\| `python-3.13` \| 1,253 \| 2 \| 0 \| \d{4}-\d\d-\d\d \|", row)
