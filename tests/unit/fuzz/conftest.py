"""How long to damage files."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--cases", type=int, help="how many damaged files to try, of each form of checkpoint")
    parser.addoption("--first-case", type=int, help="number of the first one")
