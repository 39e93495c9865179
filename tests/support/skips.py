"""In CI (environment variable CI) a skipped test fails: what was not run was not shown.

Only in a cell of the matrix may a test be skipped, where it needs what an older version lacks.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

CELL = "TESTS_CELL"
"""The environment variable that names the cell of the matrix in which tests are run."""

_ANOTHER_VERSION = re.compile(
    r"(Skipped: )?(Airflow|apache-airflow-providers-apache-spark|openlineage-python|Delta Lake|Spark) \d[\d.]* \w+"
)

IN_CI = os.environ.get("CI", "").lower() not in ("", "0", "false")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    # An expected failure is reported as skipped too; that one was run.
    if IN_CI and report.skipped and not hasattr(report, "wasxfail") and not is_of_another_version(_reason(report)):
        _fail(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if IN_CI and report.skipped and not is_of_another_version(_reason(report)):
        _fail(report)
    return report


def is_of_another_version(reason: str) -> bool:
    """Say whether a test is skipped in a cell because its version is older than what the test is about."""
    return CELL in os.environ and _ANOTHER_VERSION.match(reason) is not None


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    return str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)


def _fail(report: pytest.TestReport | pytest.CollectReport) -> None:
    report.outcome, reason = "failed", _reason(report)
    report.longrepr = f"{reason}\nA skipped test fails in CI: install there what it needs."
