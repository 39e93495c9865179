"""``python -m tests.matrix [CELL]``: the tests that a cell names pass with its versions, or this fails.

A cell that needs an environment of its own has it below ``.local/matrix``. A test that needs what an older version lacks
is skipped there, with a reason that names the version and the feature. A cell ends with how many tests each reason has
skipped, and with its row in docs/project/contributing.md.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

from include.local import jars
from include.local.settings import REPOSITORY, from_environment
from tests.matrix.cells import Cell, cells_named
from tests.support import skips, spark_homes


def main() -> int:
    try:
        cells = cells_named(sys.argv[1] if len(sys.argv) > 1 else "")
    except LookupError as error:
        print(error)
        return 2
    rows = []
    for cell in cells:
        print(f"{cell.name}: {' '.join(cell.tests)}", flush=True)
        passed, row = run(cell, from_environment().state.absolute() / "matrix")
        rows.append((passed, row))
        print(row, flush=True)
    if len(rows) > 1:
        print("\n".join(row for _, row in rows))
    return 0 if all(passed for passed, _ in rows) else 1


def run(cell: Cell, home: Path) -> tuple[bool, str]:
    """Run a cell's tests.

    :param home: directory that keeps environments, Sparks and reports.
    :returns: whether all pass, and the cell's row of the table in docs/project/contributing.md.
    """
    home.mkdir(parents=True, exist_ok=True)
    python, report = environment(cell, home), home / f"{cell.name}.xml"
    report.unlink(missing_ok=True)
    env = {**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}", skips.CELL: cell.name}
    if cell.spark is not None:
        env[jars.OTHER_SPARK] = str(spark_homes.home(cell.spark))
    began = time.monotonic()
    command = [
        str(python),
        "-m",
        "pytest",
        "-q",
        f"--numprocesses={cell.processes}",
        "-m",
        "not nightly",
        f"--junitxml={report}",
    ]
    done = subprocess.run([*command, *cell.tests], env=env, cwd=REPOSITORY, check=False)
    minutes = (time.monotonic() - began) / 60
    passed, skipped = _counts(report)
    for reason, count in sorted(skipped.items()):
        print(f"{count} skipped: {reason}", flush=True)
    row = f"| `{cell.name}` | {passed:,} | {skipped.total()} | {minutes:.0f} | {datetime.now(UTC):%Y-%m-%d} |"
    return done.returncode == 0, row


def environment(cell: Cell, home: Path) -> Path:
    """Return the interpreter of a cell's environment, which is made on the first call only.

    :raises RuntimeError: this machine has no Python of the cell's version.
    """
    if cell.lock is None and cell.python is None:
        return Path(sys.executable)
    venv = home / cell.name
    lock = cell.lock or REPOSITORY / "requirements.lock"
    env = {**os.environ, "LOCK": str(lock), "PYTHON": interpreter(cell.python or "3.11"), "UV_LINK_MODE": "hardlink"}
    env.pop("VIRTUAL_ENV", None)
    made, asked = venv / "made-from.txt", lock.read_text() + (REPOSITORY / "pyproject.toml").read_text()
    if not made.exists() or made.read_text() != asked:
        shutil.rmtree(venv, ignore_errors=True)
        subprocess.run([REPOSITORY / ".ci" / "setup", str(venv)], env=env, check=True, cwd=REPOSITORY)
        made.write_text(asked)
    return venv / "bin" / "python"


def interpreter(version: str) -> str:
    """Return a Python of a version: from ``PATH``, or one that pyenv has installed.

    :raises RuntimeError: there is none.
    """
    name = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    places = [Path(place) / name for place in os.get_exec_path()] + sorted(
        pyenv.glob(f"versions/{version}.*/bin/{name}")
    )
    for place in places:
        # A version manager's shim may exist and still not run.
        if place.exists() and not subprocess.run([place, "-c", ""], capture_output=True, check=False).returncode:
            return str(place)
    raise RuntimeError(f"There is no Python {version} on this machine: install {name}.")


def _counts(report: Path) -> tuple[int, Counter[str]]:
    """Return how many tests passed, and how many were skipped for each reason."""
    passed, skipped = 0, Counter[str]()
    if report.exists():
        for case in ElementTree.parse(report).iter("testcase"):
            reason = case.find("skipped")
            if reason is not None:
                skipped[str(reason.get("message"))] += 1
            elif case.find("failure") is None and case.find("error") is None:
                passed += 1
    return passed, skipped


if __name__ == "__main__":
    sys.exit(main())
