"""What the tests of all commands share."""

from __future__ import annotations

import pytest

from airflow_provider_onelake.cli import output


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """No cell is folded."""
    monkeypatch.setattr(output.console, "width", 250)
