from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import skips

HOOKS = Path(__file__).parents[2] / "support" / "skips.py"
TESTS = """
import pytest
def test_passes(): pass
@pytest.mark.skip(reason="no Chromium")
def test_marked(): pass
def test_inside(): pytest.skip("no Go")
@pytest.mark.xfail(reason="known")
def test_expected_to_fail(): assert False
"""
MODULE = "import pytest; pytest.skip('no Node', allow_module_level=True)"


def run_pytest(folder: Path, ci: str | None) -> dict[str, int]:
    shutil.copy(HOOKS, folder / "conftest.py")
    (folder / "test_some.py").write_text(TESTS)
    (folder / "test_module.py").write_text(MODULE)
    env = {key: value for key, value in os.environ.items() if key != "CI" and not key.startswith("PYTEST")}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--continue-on-collection-errors", "."],
        cwd=folder,
        env=env | ({"CI": ci} if ci is not None else {}),
        capture_output=True,
        text=True,
        check=False,
    )
    counts = re.findall(r"(\d+) (passed|failed|skipped|xfailed|error)", done.stdout.splitlines()[-1])
    return {what: int(number) for number, what in counts} | {"status": done.returncode}


def test_the_hooks_are_those_of_this_suite(request):
    assert request.config.pluginmanager.is_registered(skips)


def test_in_ci_every_skip_fails(tmp_path):
    assert run_pytest(tmp_path, "true") == {"passed": 1, "failed": 1, "error": 2, "xfailed": 1, "status": 1}


@pytest.mark.parametrize("ci", [None, "false"])
def test_elsewhere_a_skip_is_a_skip(tmp_path, ci):
    assert run_pytest(tmp_path, ci) == {"passed": 1, "skipped": 3, "xfailed": 1, "status": 0}
