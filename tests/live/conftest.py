"""The live stack of the session, see ``harness.LiveStack``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from include.local.settings import REPOSITORY
from tests.live.harness import LiveStack, make_settings, start, stop

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def live_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveStack]:
    """A live stack with the DAGs of ``dags/`` and ``tests/live/dags/``, for the whole session."""
    settings = make_settings(tmp_path_factory.mktemp("live"), REPOSITORY / "dags", Path(__file__).parent / "dags")
    try:
        running = start(settings)
        yield running
        running.api.close()
    finally:
        stop(settings)
