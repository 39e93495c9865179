"""Where the tests' time goes: each run of pytest is a part, and ``python -m tests.support.durations`` tells of all parts.

``TESTS_PART=name`` names a run. Only then its times are kept, so that a run of a few tests does not replace them.
"""

from __future__ import annotations

import json
import os
import time
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_KEPT = Path(__file__).resolve().parents[2] / ".local" / "tests" / "times"
_SLOWEST = 50
_WHY = "costs"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Take along why a slow test stays: of a worker's test only the report reaches the process that keeps the times."""
    report = yield
    if (mark := item.get_closest_marker(_WHY)) is not None and report.when == "call":
        report.user_properties.append((_WHY, mark.args[0]))
    return report


class Times:
    """A plugin of pytest that adds up what each test takes, its fixtures included."""

    def __init__(self, part: str) -> None:
        self._part = part
        self._began = time.monotonic()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._why: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add a phase of a test."""
        self._seconds[report.nodeid] += report.duration
        if why := dict(report.user_properties).get(_WHY):
            self._why[report.nodeid] = str(why)

    def pytest_sessionfinish(self) -> None:
        """Keep the times."""
        _KEPT.mkdir(parents=True, exist_ok=True)
        told = {"minutes": (time.monotonic() - self._began) / 60, "seconds": self._seconds, "why": self._why}
        (_KEPT / f"{self._part}.json").write_text(json.dumps(told))


def pytest_configure(config: pytest.Config) -> None:
    """Keep the times of a run that has a name, in the one process that hears of all tests."""
    part = os.environ.get("TESTS_PART")
    if part and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Times(part))


def main() -> None:
    """Print the minutes of each part, and the slowest tests of all."""
    parts = {path.stem: json.loads(path.read_text()) for path in sorted(_KEPT.glob("*.json"))}
    tests = []
    for part, told in parts.items():
        whole = sum(told["seconds"].values())
        print(f"{told['minutes']:6.1f} min  {part}: {len(told['seconds'])} tests")
        for test, seconds in told["seconds"].items():
            why = told["why"].get(test) or ("no reason given" if seconds > whole / 100 else "")
            tests.append((seconds, f"{seconds / whole:6.1%}", test, why))
    print(f"\nThe {_SLOWEST} slowest, their share of their part's time, and why they stay:")
    for seconds, share, test, why in sorted(tests, reverse=True)[:_SLOWEST]:
        print(f"{seconds:6.1f} s {share}  {test}{'  - ' + why if why else ''}")


if __name__ == "__main__":
    main()
