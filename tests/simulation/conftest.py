"""Options of the simulation."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--schedules", type=int, default=1000, help="how many schedules to simulate")
    parser.addoption("--first-seed", type=int, default=0, help="seed of the first schedule")
    parser.addoption("--statements", type=int, default=200, help="how many schedules of statements to simulate")
