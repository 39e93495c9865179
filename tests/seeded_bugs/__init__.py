"""Bugs put into production code on purpose, and the tests that must notice each: ``python -m tests.seeded_bugs``."""

# Airflow reads its configuration at import, and every module of the catalogue imports some of the package.
from tests import conftest as conftest
