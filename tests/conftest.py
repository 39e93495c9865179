"""Before any test: Airflow gets a home of the tests' own, and in CI a skipped test fails."""

from __future__ import annotations

from tests.support.airflow_home import use_own_home
from tests.support.skips import pytest_make_collect_report, pytest_runtest_makereport
from tests.support.spark_server import connect_server

__all__ = ["connect_server", "pytest_make_collect_report", "pytest_runtest_makereport"]

# Before any test module imports Airflow, which reads its configuration, or writes one, at import.
use_own_home()
