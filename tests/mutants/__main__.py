"""``python -m tests.mutants commit/transaction``: a sample of a module's mutants, and those that no test noticed.

mutmut makes the mutants and runs for each the tests that call the changed function. A survivor is no bug: either it
does what the module did, or a test is missing. The same seed takes the mutants of the same code in the same order.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from random import randrange

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = "airflow_provider_onelake"
_SETTINGS = r"""
[tool.mutmut]
source_paths = ["{package}"]
only_mutate = ["{file}"]
do_not_mutate_patterns = ['^ *logger\.']
also_copy = ["include", "dags"]
# A mutant that goes round for ever is noticed by the first test that calls it.
pytest_add_cli_args = ["-p", "no:cacheprovider", "--timeout", "60"]
pytest_add_cli_args_test_selection = {tests}
# Threads of obstore and gRPC do not survive a fork, so that the process that forks must not have run a test.
process_isolation = "forkserver"
timeout_constant = 10.0
timeout_multiplier = 3.0
track_dependencies = false
# Say which test does not pass before anything is changed.
debug = true
"""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("module", help="for instance commit/transaction")
    parser.add_argument("--minutes", type=float, default=30, help="all that it may take (default: 30)")
    parser.add_argument("--seed", type=int, default=randrange(10**6), help="of the sample (default: any)")
    parser.add_argument("--workers", type=int, default=2, help="mutants at once (default: 2)")
    parser.add_argument("--tests", nargs="+", help="that judge (default: those of its room, and those that import it)")
    asked = parser.parse_args()
    file = f"{PACKAGE}/{asked.module}.py"
    if not (ROOT / file).is_file():
        parser.error(f"There is no module {file}.")
    with tempfile.TemporaryDirectory(prefix="mutants-") as directory:
        # mutmut copies these into the directory, and changes its copy.
        scratch = Path(directory)
        for name in (PACKAGE, "tests", "include", "dags"):
            (scratch / name).symlink_to(ROOT / name)
        settings = _SETTINGS.format(package=PACKAGE, file=file, tests=asked.tests or judges(asked.module))
        (scratch / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text() + settings)
        sample = [sys.executable, str(Path(__file__).with_name("sample.py"))]
        given = [str(asked.seed), str(int(60 * asked.minutes)), str(asked.workers)]
        return subprocess.run([*sample, *given], cwd=scratch, check=False).returncode


def judges(module: str) -> list[str]:
    """Return the unit tests of a module's room, and those elsewhere that import the module."""
    room, _, name = module.rpartition("/")
    imports = re.compile(
        rf"from {PACKAGE}\.{module.replace('/', '.')} import|from {PACKAGE}\.{room} import .*\b{name}\b"
    )
    tests = ROOT / "tests" / "unit"
    own = tests / room
    others = [file for file in sorted(tests.rglob("test_*.py")) if own not in file.parents]
    found = [*([own] if own.is_dir() else []), *(file for file in others if imports.search(file.read_text()))]
    return [str(each.relative_to(ROOT)) for each in found]


if __name__ == "__main__":
    sys.exit(main())
